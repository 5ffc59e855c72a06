//! Tells one thread that requests come, at the price of one load a request.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

/// Whether requests have come of late.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    touched: AtomicBool,
    /// The thread looks by itself.
    awake: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Activity {
    /// A request has come.
    pub(crate) fn touch(&self) {
        if self.touched.load(Ordering::SeqCst) {
            return;
        }
        self.touched.store(true, Ordering::SeqCst);
        if !self.awake.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Waits for a request, or for `ended`; tells whether a request has come.
    pub(crate) fn wait(&self, ended: &AtomicBool) -> bool {
        self.thread.get_or_init(thread::current);
        self.awake.store(false, Ordering::SeqCst);
        loop {
            if ended.load(Ordering::SeqCst) {
                return false;
            }
            if self.touched.load(Ordering::SeqCst) {
                self.awake.store(true, Ordering::SeqCst);
                return true;
            }
            thread::park();
        }
    }

    /// Whether a request has come since this was last asked.
    pub(crate) fn take(&self) -> bool {
        self.touched.swap(false, Ordering::SeqCst)
    }
}
