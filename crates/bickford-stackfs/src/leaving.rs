//! Handles that were closed and have locks that only their end gives up: of flock(2), and of open file
//! descriptions. Linux returns from close(2) when RELEASE is on its way, and another thread of the daemon may be done
//! with the next request before that is.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::sharded::lock;
use crate::writers::Writers;

/// How long a lock that is asked for at once waits for such a handle.
pub(crate) const LEAVING: Duration = Duration::from_millis(100);

/// RELEASE comes within this time, or does not: a handle of which only a copy was closed (dup(2), fork(2)) stays, and
/// others are to be refused at once again.
const RECENT: Duration = Duration::from_secs(1);

/// Counts such handles by inode; bounded by the number of open files.
#[derive(Default)]
pub(crate) struct Leaving {
    handles: Arc<Writers>,
    /// When any of them was closed last.
    last: Mutex<Option<Instant>>,
}

/// One of them, until it is gone or used again.
pub(crate) struct Left {
    all: Arc<Writers>,
    node: u64,
}

impl Leaving {
    /// A handle, or a copy of it, was closed.
    pub(crate) fn closed(&self, handle: &mut Option<Left>, node: u64) {
        *lock(&self.last) = Some(Instant::now());
        handle.get_or_insert_with(|| {
            self.handles.add(node);
            let all = Arc::clone(&self.handles);
            Left { all, node }
        });
    }

    /// Whether one of an inode may be about to go.
    pub(crate) fn any(&self, node: u64) -> bool {
        self.handles.any(node) && lock(&self.last).is_some_and(|at| at.elapsed() < RECENT)
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.all.remove(self.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_may_go_for_a_while_after_it_was_closed() {
        let leaving = Leaving::default();
        let mut handle = None;
        assert!(!leaving.any(1));
        leaving.closed(&mut handle, 1);
        assert!(leaving.any(1) && !leaving.any(2));
        *lock(&leaving.last) = Instant::now().checked_sub(RECENT);
        assert!(!leaving.any(1));
        leaving.closed(&mut handle, 1);
        assert!(leaving.any(1));
        drop(handle);
        assert!(!leaving.any(1));
        assert!(!leaving.handles.any(1), "counted once");
    }
}
