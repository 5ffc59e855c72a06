//! Notifications: what the file system tells the kernel without being asked.
//!
//! The kernel may take locks for a notification that a request in progress holds; so it is sent by
//! a thread of its own from a bounded queue, and a handler may always queue one.

mod message;
mod queue;
mod retrieve;

use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bickford_abi::{self as abi, ExpireFlags, NotifyCode};
use zerocopy::IntoBytes;

pub use message::NAME_MAX;
pub use queue::{PRUNE_SINCE, QUEUE_BYTES_MAX, QUEUE_MAX};
pub(crate) use queue::{Queue, Sender, sender};
pub use retrieve::RETRIEVALS_MAX;
pub(crate) use retrieve::Retrievals;

use crate::NodeId;
use crate::ops::PollHandle;

/// Why a notification was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// The queue holds [`QUEUE_MAX`] notifications, or [`QUEUE_BYTES_MAX`] bytes of them.
    #[error(
        "{QUEUE_MAX} notifications, or {} MiB of them, wait already for the kernel to take them; send fewer, or \
         flush them now and then",
        QUEUE_BYTES_MAX >> 20
    )]
    Full,
    /// [`RETRIEVALS_MAX`] retrievals wait for data.
    #[error(
        "{RETRIEVALS_MAX} retrievals wait already for the kernel's data; begin further ones when some have come"
    )]
    Retrievals,
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
    /// The name is empty, has a slash, or is longer than [`NAME_MAX`] bytes.
    #[error("no file has a name that is empty, has a slash, or is longer than {NAME_MAX} bytes")]
    Name,
}

/// How long an answer waits for the thread that sends notifications.
const UNHELD_PATIENCE: Duration = Duration::from_millis(10);

/// Queues notifications of one session; clones share the queue.
#[derive(Clone, Debug)]
pub struct Notifier {
    queue: Arc<Queue>,
    retrievals: Arc<Retrievals>,
}

/// A notification as it goes to the kernel.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) code: NotifyCode,
    pub(crate) bytes: Vec<u8>,
    pub(crate) done: Option<Done>,
}

/// Called with the kernel's answer to one notification.
pub(crate) struct Done(pub(crate) Box<dyn FnOnce(io::Result<()>) + Send>);

impl std::fmt::Debug for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Done")
    }
}

impl Done {
    fn new(done: impl FnOnce(io::Result<()>) + Send + 'static) -> Option<Self> {
        Some(Self(Box::new(done)))
    }
}

impl Notifier {
    pub(crate) fn new(queue: Arc<Queue>, retrievals: Arc<Retrievals>) -> Self {
        Self { queue, retrievals }
    }

    fn send(&self, code: NotifyCode, bytes: Vec<u8>) -> Result<(), NotifyError> {
        self.send_then(code, bytes, None)
    }

    fn send_then(
        &self,
        code: NotifyCode,
        bytes: Vec<u8>,
        done: Option<Done>,
    ) -> Result<(), NotifyError> {
        self.queue.push([Message { code, bytes, done }])
    }

    /// Drops cached attributes of an inode, and cached data from `offset` on for `length` bytes; a
    /// negative offset keeps the data, a length of zero means to the end.
    ///
    /// # Errors
    /// When it cannot be queued.
    pub fn invalidate_inode(
        &self,
        node: NodeId,
        offset: i64,
        length: i64,
    ) -> Result<(), NotifyError> {
        let bytes = message::inode(node, offset, length);
        self.send(NotifyCode::InvalInode, bytes)
    }

    /// The same, and calls `done` with the kernel's answer when data that were not written back yet
    /// have been, too. It runs on the thread that sends notifications and must not wait for it.
    ///
    /// # Errors
    /// When it cannot be queued; `done` is then not called.
    pub fn invalidate_inode_then(
        &self,
        node: NodeId,
        offset: i64,
        length: i64,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Result<(), NotifyError> {
        let bytes = message::inode(node, offset, length);
        self.send_then(NotifyCode::InvalInode, bytes, Done::new(done))
    }

    /// Drops cached attributes of an inode before it returns. It does not queue, behind notifications
    /// that may wait for a lock of whoever waits for the request that is being answered; the kernel
    /// takes no such lock for attributes alone. So a handler may call it for an inode that its
    /// request is about, which the kernel holds meanwhile.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn forget_attributes(&self, node: NodeId) -> Result<(), NotifyError> {
        let bytes = message::inode(node, -1, 0);
        self.queue.send_now(NotifyCode::InvalInode, &bytes)
    }

    /// Drops cached attributes of inodes which no request in progress holds, such as those that a LOOKUP has found. The
    /// kernel may be evicting them, waits until it has, and for that perhaps for the answer to a READ that nobody but this
    /// thread can give: so this thread leaves it to that of the queue, and waits for it no longer than a moment.
    pub(crate) fn forget_attributes_unheld(&self, nodes: &[NodeId]) {
        let messages: Vec<_> = nodes
            .iter()
            .map(|&node| Message {
                code: NotifyCode::InvalInode,
                bytes: message::inode(node, -1, 0),
                done: None,
            })
            .collect();
        if self.queue.push(messages).is_ok() {
            self.queue.flush_within(UNHELD_PATIENCE);
        }
    }

    /// Drops cached attributes of a directory and its cached listing, before it returns. It does not queue either, and
    /// the kernel takes no lock for it that outlasts a request.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn forget_listing(&self, directory: NodeId) -> Result<(), NotifyError> {
        let bytes = message::inode(directory, 0, 0);
        self.queue.send_now(NotifyCode::InvalInode, &bytes)
    }

    /// Drops a cached name.
    ///
    /// # Errors
    /// When no file has such a name, or it cannot be queued.
    pub fn invalidate_entry(&self, parent: NodeId, name: &CStr) -> Result<(), NotifyError> {
        let bytes = message::entry(parent, name, ExpireFlags::empty())?;
        self.send(NotifyCode::InvalEntry, bytes)
    }

    /// The same, and calls `done` with the kernel's answer: ENOENT where it does not know the directory
    /// or the name. It runs on the thread that sends notifications and must not wait for it.
    ///
    /// # Errors
    /// As above; `done` is then not called.
    pub fn invalidate_entry_then(
        &self,
        parent: NodeId,
        name: &CStr,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Result<(), NotifyError> {
        let bytes = message::entry(parent, name, ExpireFlags::empty())?;
        self.send_then(NotifyCode::InvalEntry, bytes, Done::new(done))
    }

    /// Lets a cached name expire: it is looked up again at its next use, but what is mounted or
    /// open below stays.
    ///
    /// # Errors
    /// When no file has such a name, or it cannot be queued.
    pub fn expire_entry(&self, parent: NodeId, name: &CStr) -> Result<(), NotifyError> {
        let bytes = message::entry(parent, name, ExpireFlags::EXPIRE_ONLY)?;
        self.send(NotifyCode::InvalEntry, bytes)
    }

    /// The same, and calls `done` with the kernel's answer as [`Notifier::invalidate_entry_then`] does.
    ///
    /// # Errors
    /// As above; `done` is then not called.
    pub fn expire_entry_then(
        &self,
        parent: NodeId,
        name: &CStr,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Result<(), NotifyError> {
        let bytes = message::entry(parent, name, ExpireFlags::EXPIRE_ONLY)?;
        self.send_then(NotifyCode::InvalEntry, bytes, Done::new(done))
    }

    /// A name was removed: drops it, and tells those who watch the directory.
    ///
    /// # Errors
    /// When no file has such a name, or it cannot be queued.
    pub fn delete(&self, parent: NodeId, child: NodeId, name: &CStr) -> Result<(), NotifyError> {
        let bytes = message::removed(parent, child, name)?;
        self.send(NotifyCode::Delete, bytes)
    }

    /// The same, and calls `done` with the kernel's answer as [`Notifier::invalidate_entry_then`] does;
    /// ENOTEMPTY where it knows names below.
    ///
    /// # Errors
    /// As above; `done` is then not called.
    pub fn delete_then(
        &self,
        parent: NodeId,
        child: NodeId,
        name: &CStr,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Result<(), NotifyError> {
        let bytes = message::removed(parent, child, name)?;
        self.send_then(NotifyCode::Delete, bytes, Done::new(done))
    }

    /// Puts data into the page cache of an inode.
    ///
    /// # Errors
    /// When it cannot be queued.
    pub fn store(&self, node: NodeId, offset: u64, data: &[u8]) -> Result<(), NotifyError> {
        let bytes = message::stored(node, offset, data);
        self.send(NotifyCode::Store, bytes)
    }

    /// The same, and calls `done` with the kernel's answer: ENOENT where it does not know the inode. It
    /// runs on the thread that sends notifications and must not wait for it.
    ///
    /// # Errors
    /// As above; `done` is then not called.
    pub fn store_then(
        &self,
        node: NodeId,
        offset: u64,
        data: &[u8],
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Result<(), NotifyError> {
        let bytes = message::stored(node, offset, data);
        self.send_then(NotifyCode::Store, bytes, Done::new(done))
    }

    /// Asks for data that the kernel has in the page cache of an inode. `receive` gets where they
    /// begin and the bytes, which may be fewer. It is dropped without being called when the kernel
    /// does not know the inode or refuses for another reason, and at the end of the session.
    ///
    /// # Errors
    /// When it cannot be queued.
    pub fn retrieve(
        &self,
        node: NodeId,
        offset: u64,
        size: u32,
        receive: impl FnOnce(u64, &[u8]) + Send + 'static,
    ) -> Result<(), NotifyError> {
        let number = self
            .retrievals
            .add(Box::new(receive))
            .ok_or(NotifyError::Retrievals)?;
        let out = abi::NotifyRetrieveOut {
            notify_unique: number,
            nodeid: node.0,
            offset,
            size,
            padding: 0,
        };
        // No data come for what the kernel refused.
        let retrievals = Arc::clone(&self.retrievals);
        let done = move |result: io::Result<()>| {
            if result.is_err() {
                retrievals.take(number);
            }
        };
        let bytes = out.as_bytes().to_vec();
        let sent = self.send_then(NotifyCode::Retrieve, bytes, Done::new(done));
        if sent.is_err() {
            self.retrievals.take(number);
        }
        sent
    }

    /// Wakes whoever polls an open file.
    ///
    /// # Errors
    /// When it cannot be queued.
    pub fn wake_poll(&self, waiter: PollHandle) -> Result<(), NotifyError> {
        let out = abi::NotifyPollWakeupOut { kh: waiter.0 };
        self.send(NotifyCode::Poll, out.as_bytes().to_vec())
    }

    /// Has the kernel send every request again that was received and not answered.
    ///
    /// # Errors
    /// When it cannot be queued.
    pub fn resend(&self) -> Result<(), NotifyError> {
        self.send(NotifyCode::Resend, Vec::new())
    }

    /// Lets every cached name of the mount expire.
    ///
    /// # Errors
    /// When it cannot be queued.
    pub fn increment_epoch(&self) -> Result<(), NotifyError> {
        self.send(NotifyCode::IncEpoch, Vec::new())
    }

    /// The same, and calls `done` with the kernel's answer. It runs on the thread that sends
    /// notifications and must not wait for it. Linux before 6.16 answers EINVAL.
    ///
    /// # Errors
    /// When it cannot be queued; `done` is then not called.
    pub fn increment_epoch_then(
        &self,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Result<(), NotifyError> {
        self.send_then(NotifyCode::IncEpoch, Vec::new(), Done::new(done))
    }

    /// Asks the kernel to forget inodes that nobody uses; many go out in several messages.
    ///
    /// # Errors
    /// When they cannot all be queued; none is then.
    pub fn prune(&self, nodes: &[NodeId]) -> Result<(), NotifyError> {
        let messages = message::prunes(nodes);
        self.queue.push(messages.collect::<Vec<_>>())
    }

    /// Waits until everything that was queued before has reached the kernel. Must not be called
    /// from a handler: the kernel may wait for that very request.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn flush(&self) -> Result<(), NotifyError> {
        self.queue.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::transport::NotifySink;

    #[test]
    fn whoever_retrieves_too_much_is_told_of_that_limit() {
        let notifier = Notifier::new(Arc::default(), Arc::default());
        let retrieve = || notifier.retrieve(NodeId(2), 0, 1, |_, _| {});
        for _ in 0..RETRIEVALS_MAX {
            retrieve().unwrap();
        }
        assert_eq!(retrieve(), Err(NotifyError::Retrievals));
    }

    /// Takes a notification when it may, as the kernel does that waits for an inode to be evicted.
    struct Stuck(Mutex<mpsc::Receiver<()>>);

    impl NotifySink for Stuck {
        fn notify(&self, _: i32, _: &[u8]) -> io::Result<()> {
            let _ = self.0.lock().unwrap().recv();
            Ok(())
        }
    }

    #[test]
    fn one_thread_sends_and_none_after_the_end() {
        let queue = Arc::<Queue>::default();
        let serve = || {
            let (_, may) = mpsc::channel();
            queue.serve(sender().unwrap(), Arc::new(Stuck(Mutex::new(may))))
        };
        let sends = serve().unwrap();
        let told = serve().unwrap_err().to_string();
        assert!(told.contains("already"), "{told}");
        queue.end();
        sends.join().unwrap();
        let told = serve().unwrap_err().to_string();
        assert!(told.contains("has ended"), "{told}");
    }

    #[test]
    fn an_answer_waits_for_a_stuck_notification_no_longer_than_a_moment() {
        let queue = Arc::<Queue>::default();
        let (go_on, may) = mpsc::channel();
        let sends = queue
            .serve(sender().unwrap(), Arc::new(Stuck(Mutex::new(may))))
            .unwrap();
        let notifier = Notifier::new(Arc::clone(&queue), Arc::default());
        let (answered, answer) = mpsc::channel();
        std::thread::spawn(move || {
            notifier.forget_attributes_unheld(&[NodeId(2), NodeId(3)]);
            answered.send(()).unwrap();
        });
        let answered = answer.recv_timeout(Duration::from_secs(60));
        drop(go_on);
        queue.end();
        sends.join().unwrap();
        answered.unwrap();
    }
}
