//! Requests that are received and handled by whoever asks for it, and by no thread of the session.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Channel;
use super::receiver::{Receipt, Receiver};
use crate::dispatch::Server;
use crate::transport::{Responder, abort};

/// What [`Driver::serve_one`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// It has handled a request. Others may wait.
    Request,
    /// No request waits.
    Nothing,
    /// The session has ended.
    End,
}

/// Serves a session where its caller has an event loop:
/// [`Session::driven`](crate::Session::driven). Its descriptor is what poll(2) and epoll(7) are asked about, and is not to be
/// read: POLLIN tells of a request, POLLERR, which comes alone, of the end. Between calls it keeps the memory of its largest request.
/// Dropped, it ends the session: there is nobody else to serve it.
pub struct Driver {
    server: Arc<Server>,
    channel: Arc<Channel>,
    /// Number of the connection, where it is known.
    connection: Option<u32>,
    responder: Arc<dyn Responder>,
    state: Mutex<State>,
    end: Arc<End>,
}

/// What was needed by more calls at a time than there are now is given back when a call finds nothing to do after so long.
const REST: Duration = Duration::from_millis(100);

/// What no call uses.
struct Resting {
    receiver: Receiver,
    since: Instant,
}

#[derive(Default)]
struct State {
    /// The last one comes first, so that the others rest.
    resting: Vec<Resting>,
    made: usize,
    calls: usize,
    /// The connection has ended: no call receives any more.
    over: bool,
}

/// Whether the file system has been told of the end.
#[derive(Debug, Default)]
pub(crate) struct End {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl End {
    fn tell(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for it.
    pub(crate) fn wait(&self) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(ended, |ended| !*ended));
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({:?})", self.as_fd())
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.device()
    }
}

impl Driver {
    /// Over a descriptor that does not wait.
    pub(crate) fn new(server: Arc<Server>, device: &Arc<OwnedFd>, connection: Option<u32>) -> Self {
        let channel = Arc::new(Channel::new(Arc::clone(device)));
        Self {
            server,
            responder: channel.clone(),
            channel,
            connection,
            state: Mutex::default(),
            end: Arc::default(),
        }
    }

    pub(crate) fn end(&self) -> Arc<End> {
        Arc::clone(&self.end)
    }

    /// Handles a request, if one waits: the method of the file system is called in here, and
    /// [`FileSystem::destroy`](crate::FileSystem::destroy) at the end. Several threads may call this at a time, and a method may, in an
    /// event loop of its own.
    ///
    /// A method over paths may not, with [`path::Adapter`](crate::path::Adapter) or [`Waiting`](crate::path::future::Waiting): a request
    /// that changes a name waits there for the methods that use it, and so would for the method that serves it.
    ///
    /// # Errors
    /// When there is no memory to receive with, or the device cannot be read.
    pub fn serve_one(&self) -> io::Result<Served> {
        let Some(call) = Call::begin(self) else {
            return Ok(Served::End);
        };
        let mut receiver = call.receiver()?;
        let served = self.serve_with(&mut receiver);
        self.rest(receiver, !matches!(served, Ok(Served::Request)));
        served
    }

    fn rest(&self, receiver: Receiver, is_quiet: bool) {
        let since = Instant::now();
        let mut state = self.state();
        state.resting.push(Resting { receiver, since });
        let over = state.over;
        let ends = |one: &mut Resting| over || is_quiet && since - one.since >= REST;
        let gone: Vec<_> = state.resting.extract_if(.., ends).collect();
        // Memory is given back and pipes are closed without the lock.
        drop(state);
        drop(gone);
    }

    fn serve_with(&self, receiver: &mut Receiver) -> io::Result<Served> {
        match receiver.receive(&self.channel) {
            Ok(Receipt::Request(received)) => {
                receiver.handle(&self.server, received, &self.responder);
                Ok(Served::Request)
            }
            Ok(Receipt::Nothing) => Ok(Served::Nothing),
            Ok(Receipt::End) => {
                self.server.in_flight().end();
                self.state().over = true;
                Ok(Served::End)
            }
            Err(error) => {
                let text = format!("receiving a request: {error}");
                Err(io::Error::new(io::Error::from(error).kind(), text))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Replies that are kept, backing files and a notification on its way have the device open, too.
        abort::give_up(self.connection, self.channel.device());
        self.server.in_flight().end();
        self.server.destroy();
        self.end.tell();
    }
}

/// One that is going on. The last one tells the file system of the end: none may be in a method by then.
struct Call<'a>(&'a Driver);

impl<'a> Call<'a> {
    /// None where the connection has ended.
    fn begin(driver: &'a Driver) -> Option<Self> {
        let mut state = driver.state();
        if state.over {
            return None;
        }
        state.calls += 1;
        drop(state);
        Some(Self(driver))
    }

    fn receiver(&self) -> io::Result<Receiver> {
        let mut state = self.0.state();
        if let Some(resting) = state.resting.pop() {
            return Ok(resting.receiver);
        }
        state.made += 1;
        let number = state.made;
        drop(state);
        Receiver::new(&self.0.server, number)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.calls -= 1;
        let last = state.over && state.calls == 0;
        drop(state);
        if last {
            self.0.server.destroy();
            self.0.end.tell();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;
    use crate::Blocking;
    use crate::dispatch::ServerConfig;

    struct Nothing;

    impl crate::filesystem::blocking::FileSystem for Nothing {}

    #[test]
    fn what_more_calls_at_a_time_needed_is_given_back() {
        let server = Server::new(Blocking(Nothing), ServerConfig::default());
        let (device, _other) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let driver = Driver::new(Arc::new(server), &Arc::new(device), None);
        let resting = || driver.state().resting.len();
        let call = Call::begin(&driver).unwrap();
        for receiver in [(); 3].map(|()| call.receiver().unwrap()) {
            driver.rest(receiver, false);
        }
        drop(call);
        assert_eq!(resting(), 3);
        std::thread::sleep(REST);
        assert_eq!(driver.serve_one().unwrap(), Served::Nothing);
        assert_eq!(resting(), 1);
        driver.state().over = true;
        driver.rest(Receiver::new(&driver.server, 9).unwrap(), false);
        assert_eq!(resting(), 0);
    }
}
