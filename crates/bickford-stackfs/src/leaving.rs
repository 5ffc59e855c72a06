//! Handles that were closed and have locks that only their end gives up: of flock(2), and of open file
//! descriptions. Linux returns from close(2) when RELEASE is on its way, and another thread of the daemon may be done
//! with the next request before that is.

use std::sync::Arc;
use std::time::Duration;

use crate::writers::Writers;

/// How long a lock that is asked for at once waits for such a handle. One of which only a copy was closed
/// (dup(2), fork(2)) stays.
pub(crate) const LEAVING: Duration = Duration::from_millis(100);

/// Counts such handles by inode; bounded by the number of open files.
#[derive(Default)]
pub(crate) struct Leaving(Arc<Writers>);

/// One of them, until it is gone or used again.
pub(crate) struct Left {
    all: Arc<Writers>,
    node: u64,
}

impl Leaving {
    pub(crate) fn add(&self, node: u64) -> Left {
        self.0.add(node);
        let all = Arc::clone(&self.0);
        Left { all, node }
    }

    pub(crate) fn any(&self, node: u64) -> bool {
        self.0.any(node)
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.all.remove(self.node);
    }
}
