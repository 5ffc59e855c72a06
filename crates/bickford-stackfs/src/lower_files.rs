//! Descriptors of open lower files: one for all opens of an inode with the same flags.
//!
//! Nothing that goes through a handle depends on the position of the lower descriptor, so that a
//! file which is open ten thousand times, as mappings keep it, needs one descriptor. A file that
//! somebody else keeps open, and that can be opened again, needs none where they are scarce.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::descriptors::Share;
use crate::sharded::{Sharded, lock};

/// An inode and the flags that its file was opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) node: u64,
    pub(crate) flags: OFlags,
}

/// A lower file that several opens share. The kernel tells each open file once that data could not be written
/// back: those who share one are told here.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) fd: Arc<OwnedFd>,
    failures: Mutex<Failures>,
    /// A sync has.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Failures {
    count: u64,
    last: Option<Errno>,
    /// Syncs so far.
    begun: u64,
    /// Those under way, by number and open: no more than there are threads.
    under_way: Vec<(u64, usize)>,
}

impl Description {
    pub(crate) fn new(fd: Arc<OwnedFd>) -> Arc<Self> {
        Arc::new(Self {
            fd,
            failures: Mutex::default(),
            ended: Condvar::new(),
        })
    }

    /// How many failures an open that begins now is not told.
    pub(crate) fn failed(&self) -> u64 {
        lock(&self.failures).count
    }

    /// What `sync`, which is fsync(2) through the description, answers through an open that was told `seen` failures.
    pub(crate) fn synced(
        &self,
        seen: &AtomicU64,
        sync: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let open = std::ptr::from_ref(seen).addr();
        let own = {
            let mut failures = lock(&self.failures);
            failures.begun += 1;
            let own = failures.begun;
            failures.under_way.push((own, open));
            own
        };
        let synced = sync(&self.fd);
        let mut failures = lock(&self.failures);
        failures.under_way.retain(|&(other, _)| other != own);
        self.ended.notify_all();
        match synced {
            Err(error) => {
                failures.count += 1;
                failures.last = Some(error);
            }
            // The kernel may have told another open already what is meant for this one, too.
            Ok(()) => {
                let before = failures.begun;
                let waits = |failures: &mut Failures| {
                    let mut others = failures.under_way.iter().filter(|other| other.1 != open);
                    others.any(|&(other, _)| other <= before)
                };
                let waited = self.ended.wait_while(failures, waits);
                failures = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
        let told = seen.swap(failures.count, Ordering::AcqRel);
        match failures.last {
            Some(error) if told != failures.count => Err(error),
            _ => Ok(()),
        }
    }
}

struct Shared {
    description: Arc<Description>,
    opens: usize,
}

/// See the module.
pub(crate) struct LowerFiles {
    files: Sharded<HashMap<Key, Shared>>,
    room: Share,
}

impl LowerFiles {
    /// Takes descriptors of `room`, a quarter of it for what could do without.
    pub(crate) fn new(room: Share) -> Self {
        Self {
            files: Sharded::default(),
            room,
        }
    }

    /// Whether opens that can do without a descriptor are to do so.
    pub(crate) fn are_scarce(&self) -> bool {
        self.room.taken() >= self.room.limit() / 4 || self.room.is_scarce()
    }

    /// What to use for one more open: another open's, or else `own`. ENFILE at the limit.
    pub(crate) fn open(&self, key: Key, own: &Arc<Description>) -> Result<Arc<Description>, Errno> {
        let mut files = self.files.of(key.node);
        if let Some(shared) = files.get_mut(&key) {
            shared.opens += 1;
            return Ok(Arc::clone(&shared.description));
        }
        if !self.room.take() {
            drop(files);
            return Err(Errno::NFILE);
        }
        let shared = Shared {
            description: Arc::clone(own),
            opens: 1,
        };
        files.insert(key, shared);
        Ok(Arc::clone(own))
    }

    /// A descriptor of the inode, if one that is open for reading or writing is at hand.
    pub(crate) fn any(&self, node: u64) -> Option<Arc<OwnedFd>> {
        if self.room.taken() == 0 {
            return None;
        }
        let files = self.files.of(node);
        let mut found = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR].into_iter();
        found.find_map(|flags| Some(Arc::clone(&files.get(&Key { node, flags })?.description.fd)))
    }

    /// One open less.
    pub(crate) fn close(&self, key: Key) {
        let mut files = self.files.of(key.node);
        let Some(shared) = files.get_mut(&key) else {
            return;
        };
        shared.opens = shared.opens.saturating_sub(1);
        if shared.opens == 0 {
            let closed = files.remove(&key);
            drop(files);
            drop(closed);
            self.room.give();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    const READ: Key = Key {
        node: 1,
        flags: OFlags::RDONLY,
    };
    const WRITE: Key = Key {
        node: 1,
        flags: OFlags::RDWR,
    };

    fn file() -> Arc<Description> {
        Description::new(Arc::new(tempfile::tempfile().unwrap().into()))
    }

    #[test]
    fn each_open_is_told_a_failure_once() {
        let file = file();
        let synced = |seen: &AtomicU64, answer| file.synced(seen, |_| answer);
        let [first, second] = [(); 2].map(|()| AtomicU64::new(file.failed()));
        assert_eq!(synced(&first, Ok(())), Ok(()));
        assert_eq!(synced(&first, Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(synced(&first, Ok(())), Ok(()));
        let later = AtomicU64::new(file.failed());
        assert_eq!(synced(&second, Ok(())), Err(Errno::IO));
        assert_eq!(synced(&second, Ok(())), Ok(()));
        assert_eq!(synced(&later, Ok(())), Ok(()), "it was told before");
        assert_eq!(synced(&later, Err(Errno::NOSPC)), Err(Errno::NOSPC));
        assert_eq!(synced(&first, Ok(())), Err(Errno::NOSPC));
        assert_eq!(synced(&second, Err(Errno::IO)), Err(Errno::IO));
    }

    #[test]
    fn a_failure_is_told_to_all_who_sync_meanwhile() {
        let file = file();
        let [first, second] = [(); 2].map(|()| AtomicU64::new(file.failed()));
        let (begun, begins) = channel();
        let (ends, ended) = channel::<()>();
        std::thread::scope(|scope| {
            let (file, first) = (&file, &first);
            let failing = scope.spawn(move || {
                file.synced(first, |_| {
                    begun.send(()).unwrap();
                    ended.recv().unwrap();
                    // Told by the kernel, and not recorded yet.
                    std::thread::sleep(Duration::from_millis(50));
                    Err(Errno::IO)
                })
            });
            begins.recv().unwrap();
            let other = file.synced(&second, |_| {
                ends.send(()).unwrap();
                Ok(())
            });
            assert_eq!(
                (other, failing.join().unwrap()),
                (Err(Errno::IO), Err(Errno::IO))
            );
        });
        assert!(lock(&file.failures).under_way.is_empty());
    }

    #[test]
    fn opens_with_the_same_flags_share_a_descriptor_until_the_last_close() {
        let files = LowerFiles::new(Share::alone(2));
        let first = files.open(READ, &file()).unwrap();
        for _ in 0..1000 {
            assert!(Arc::ptr_eq(&files.open(READ, &file()).unwrap(), &first));
        }
        let write = files.open(WRITE, &file()).unwrap();
        assert!(!Arc::ptr_eq(&write, &first));
        assert!(Arc::ptr_eq(&files.any(1).unwrap(), &first.fd));
        assert!(files.any(2).is_none());
        for _ in 0..1000 {
            files.close(READ);
        }
        assert!(Arc::ptr_eq(&files.open(READ, &file()).unwrap(), &first));
        files.close(READ);
        files.close(READ);
        assert_eq!(Arc::strong_count(&first), 1, "given up");
        assert!(!Arc::ptr_eq(&files.open(READ, &file()).unwrap(), &first));
    }

    #[test]
    fn descriptors_are_bounded_and_opens_are_not() {
        let files = LowerFiles::new(Share::alone(1));
        files.open(READ, &file()).unwrap();
        assert_eq!(files.open(WRITE, &file()).unwrap_err(), Errno::NFILE);
        assert!(files.open(READ, &file()).is_ok());
        files.close(READ);
        files.close(READ);
        assert!(files.open(WRITE, &file()).is_ok());
    }

    #[test]
    fn they_are_scarce_from_a_quarter_of_the_limit_on() {
        let files = LowerFiles::new(Share::alone(8));
        files.open(READ, &file()).unwrap();
        assert!(!files.are_scarce());
        files.open(WRITE, &file()).unwrap();
        assert!(files.are_scarce());
        files.close(READ);
        assert!(!files.are_scarce());
    }
}
