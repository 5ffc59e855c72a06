//! Threads that are started before they are needed, so that one that cannot be started is known of in time.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// A thread that waits for the word to begin. Without it, it ends; whoever drops this waits for that, so that
/// what it had is there for others.
#[derive(Debug)]
pub(crate) struct Parked<T>(Option<(Sender<T>, JoinHandle<()>)>);

#[cfg(test)]
thread_local! {
    /// How many further threads this thread can park; those that get no word are there again.
    pub(crate) static LEFT: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}

impl<T: Send + 'static> Parked<T> {
    pub(crate) fn new(
        name: String,
        run: impl FnOnce(&Receiver<T>) + Send + 'static,
    ) -> io::Result<Self> {
        #[cfg(test)]
        match LEFT.get().checked_sub(1) {
            Some(left) => LEFT.set(left),
            None => return Err(rustix::io::Errno::AGAIN.into()),
        }
        let (go, word) = channel();
        let started = thread::Builder::new().name(name).spawn(move || run(&word));
        Ok(Self(Some((go, started?))))
    }

    /// Gives the word. Answers the thread, if it was there for it.
    pub(crate) fn go(mut self, word: T) -> Option<JoinHandle<()>> {
        let (go, thread) = self.0.take()?;
        go.send(word).is_ok().then_some(thread)
    }
}

impl<T> Drop for Parked<T> {
    fn drop(&mut self) {
        if let Some((go, thread)) = self.0.take() {
            drop(go);
            // A panic of it has been told.
            let _ = thread.join();
            #[cfg(test)]
            LEFT.set(LEFT.get().saturating_add(1));
        }
    }
}
