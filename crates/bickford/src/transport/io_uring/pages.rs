//! Puts the memory of entries that much has gone through into huge pages, which makes the copies of large requests
//! quicker. A thread of its own does it: where huge pages have to be made first, it takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Part, Shared};
use crate::dispatch;

/// Whether there is something to do, and whether somebody is there to do it.
#[derive(Debug, Default)]
pub(super) struct Pages {
    asked: AtomicBool,
    running: AtomicBool,
}

impl Pages {
    /// Something is to be done. Whether the watcher has to be told.
    pub(super) fn ask(&self) -> bool {
        self.asked.store(true, Ordering::SeqCst);
        !self.running.load(Ordering::SeqCst)
    }

    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether the caller is the one to do it.
    fn begin(&self) -> bool {
        self.asked.load(Ordering::SeqCst) && !self.running.swap(true, Ordering::SeqCst)
    }

    /// Does what is asked for until nothing is.
    fn run(&self, work: impl Fn()) {
        loop {
            while self.asked.swap(false, Ordering::SeqCst) {
                work();
            }
            self.running.store(false, Ordering::SeqCst);
            // Who asked before that has told nobody.
            if !self.begin() {
                return;
            }
        }
    }
}

/// Starts the thread, unless it runs.
pub(super) fn start(shared: &Arc<Shared>, dispatcher: &Arc<dispatch::Server>) {
    if !shared.pages.begin() {
        return;
    }
    let part = Part::new(shared, dispatcher);
    let started = thread::Builder::new()
        .name("bickford-pages".into())
        .spawn(move || {
            part.shared.pages.run(|| {
                for queue in &part.shared.queues {
                    queue.areas.collapse();
                }
            });
        });
    if let Err(error) = started {
        // It works without, too.
        tracing::debug!("no thread for huge pages: {error}");
        shared.pages.asked.store(false, Ordering::SeqCst);
        shared.pages.running.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_is_asked_for_meanwhile_is_done() {
        let pages = Pages::default();
        assert!(!pages.is_asked() && !pages.begin());
        assert!(pages.ask() && pages.is_asked(), "the watcher is told");
        assert!(pages.begin() && !pages.begin(), "one at a time");
        let done = Cell::new(0);
        pages.run(|| {
            done.set(done.get() + 1);
            if done.get() < 3 {
                assert!(!pages.ask(), "somebody is there");
            }
        });
        assert_eq!(done.get(), 3);
        assert!(!pages.is_asked() && pages.ask() && pages.begin());
    }
}
