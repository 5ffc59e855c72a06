//! What the kernel caches of an inode, dropped because a request changed more than the kernel knows.

use std::sync::{Arc, Mutex};

use bickford::notify::NotifyError;
use bickford::ops::Answer;
use bickford::{Context, NodeId, Reply};
use rustix::io::Errno;

use crate::sharded::lock;

/// Has the kernel drop what it caches of an inode, from `offset` on ([`Notifier::invalidate_inode`]), and
/// answers then. `answer` is told whether the notification was sent.
///
/// Not where the lower directory is watched: the notifications before it may be of names, for which the
/// kernel takes the directory's lock, and whoever holds that may wait for this answer.
pub(crate) fn answer_after_invalidation<R: Answer>(
    cx: &Context<'_>,
    node: NodeId,
    offset: i64,
    reply: Reply<R>,
    answer: impl FnOnce(Result<(), NotifyError>) -> Result<R, Errno> + Send + 'static,
) {
    let place = Arc::new(Mutex::new(Some((reply, answer))));
    let later = Arc::clone(&place);
    let queued = cx
        .notifier()
        .invalidate_inode_then(node, offset, 0, move |_| {
            if let Some((reply, answer)) = take(&later) {
                reply.complete(answer(Ok(())));
            }
        });
    if queued.is_err()
        && let Some((reply, answer)) = take(&place)
    {
        reply.complete(answer(queued));
    }
}

pub(crate) fn warn_of_stale_attributes(node: NodeId, why: &str, error: NotifyError) {
    tracing::warn!(
        "StackFS: attributes of inode {:#x} stay cached though {why}: {error}",
        node.0
    );
}

/// Has the kernel forget the attributes of an inode, which have changed without its knowing, before this returns:
/// who is answered then never sees them as they were.
pub(crate) fn forget_attributes_now(cx: &Context<'_>, node: NodeId, why: &str) {
    if let Err(error) = cx.notifier().forget_attributes(node) {
        warn_of_stale_attributes(node, why, error);
    }
}

/// Has the kernel forget what it keeps of a directory's listing, before this returns.
pub(crate) fn forget_listing(cx: &Context<'_>, directory: NodeId) {
    if let Err(error) = cx.notifier().forget_listing(directory)
        && error != NotifyError::Ended
    {
        tracing::warn!(
            "StackFS: the listing of inode {:#x} stays cached though names have changed: {error}",
            directory.0
        );
    }
}

/// Has the kernel forget the attributes of an inode soon, where nobody waits for an answer.
pub(crate) fn forget_attributes(cx: &Context<'_>, node: NodeId, why: &str) {
    if let Err(error) = cx.notifier().invalidate_inode(node, -1, 0) {
        warn_of_stale_attributes(node, why, error);
    }
}

/// Whether a change of a file's contents changed attributes that the kernel believes unchanged.
pub(crate) struct Unheard(pub(crate) bool);

impl Unheard {
    /// Before the answer, so that who has that never sees them as they were.
    pub(crate) fn tell(self, cx: &Context<'_>, node: NodeId) {
        if self.0 {
            forget_attributes_now(cx, node, "set-id bits were dropped");
        }
    }
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    lock(place).take()
}
