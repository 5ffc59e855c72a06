//! Which methods run, for an end that is a request: while it is waited for, others may be under way. It may be received within
//! one of them, so that no thread waits: the method that is the last to return ends the session.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Server;
use crate::transport::{Responder, Ticket};

/// As many as there are mostly workers, so that each has its own.
const COUNTS: usize = 64;

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Count(AtomicUsize);

/// The request for the end.
type End = (Arc<dyn Responder>, Ticket);

/// How many methods run, by worker.
#[derive(Debug)]
pub(crate) struct Running {
    counts: Box<[Count]>,
    closed: AtomicBool,
    /// Until it is answered.
    end: Mutex<Option<End>>,
}

/// A method; dropped when it has returned.
#[derive(Debug)]
pub(crate) struct Method<'a> {
    server: &'a Server,
    count: &'a Count,
}

impl Default for Running {
    fn default() -> Self {
        Self {
            counts: (0..COUNTS).map(|_| Count::default()).collect(),
            closed: AtomicBool::new(false),
            end: Mutex::default(),
        }
    }
}

impl Running {
    fn end(&self) -> MutexGuard<'_, Option<End>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets no method be called any more.
    pub(super) fn close(&self, responder: &Arc<dyn Responder>, ticket: Ticket) {
        *self.end() = Some((Arc::clone(responder), ticket));
        self.closed.store(true, Ordering::SeqCst);
    }

    /// The request for the end, once, when no method runs any more.
    pub(super) fn take_end(&self) -> Option<End> {
        let runs = |count: &Count| count.0.load(Ordering::SeqCst) > 0;
        if !self.closed.load(Ordering::SeqCst) || self.counts.iter().any(runs) {
            return None;
        }
        self.end().take()
    }
}

impl<'a> Method<'a> {
    /// Before it is called; `None` where none is to be called any more.
    pub(super) fn begin(server: &'a Server, worker: usize) -> Option<Self> {
        let count = server.running.counts.get(worker % COUNTS)?;
        count.0.fetch_add(1, Ordering::SeqCst);
        let method = Self { server, count };
        (!server.running.closed.load(Ordering::SeqCst)).then_some(method)
    }
}

impl Drop for Method<'_> {
    fn drop(&mut self) {
        self.count.0.fetch_sub(1, Ordering::SeqCst);
        self.server.end_where_due();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::{Duration, Instant};

    use bickford_abi::{InHeader, Opcode};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::ops::{Data, Read};
    use crate::transport::Outgoing;
    use crate::transport::memory::Kernel;
    use crate::watchdog::DEADLINE;
    use crate::{Context, FileSystem, Reply};

    /// A method that runs until the test lets it.
    struct Slow {
        journal: Sender<&'static str>,
        go_on: Mutex<Receiver<()>>,
    }

    impl FileSystem for Slow {
        fn read(&self, _: &Context<'_>, _: Read, reply: Reply<Data>) {
            self.journal.send("read begins").unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
            self.journal.send("read ends").unwrap();
            reply.ok(Vec::new().into());
        }

        fn destroy(&self) {
            self.journal.send("destroy").unwrap();
        }
    }

    struct Nobody;

    impl Responder for Nobody {
        fn respond(&self, _: Ticket, _: &Outgoing<'_>) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_end_that_is_a_request_comes_after_the_methods_that_run() {
        let (journal, happens) = channel();
        let (let_go, go_on) = channel();
        let go_on = Mutex::new(go_on);
        let mut kernel = Kernel::new(Slow { journal, go_on });
        assert_eq!(kernel.init().unwrap().error, 0);
        let process = |opcode: Opcode, body: &[u8]| {
            let header = InHeader {
                len: (size_of::<InHeader>() + body.len()) as u32,
                opcode: opcode as u32,
                unique: 100,
                ..InHeader::default()
            };
            let message = [header.as_bytes(), body].concat();
            let server = Arc::clone(kernel.server());
            thread::spawn(move || {
                let responder: Arc<dyn Responder> = Arc::new(Nobody);
                server.process_bytes(&server.worker(opcode as usize), &message, &responder);
            })
        };
        let read = process(Opcode::Read, &[0; 40]);
        assert_eq!(happens.recv(), Ok("read begins"));
        let destroy = process(Opcode::Destroy, &[]);
        let end = Instant::now() + DEADLINE;
        while !destroy.is_finished() {
            assert!(Instant::now() < end, "it may be within the method");
            thread::sleep(Duration::from_millis(1));
        }
        let_go.send(()).unwrap();
        for thread in [read, destroy] {
            thread.join().unwrap();
        }
        let happened = happens.try_iter().collect::<Vec<_>>();
        assert_eq!(happened, ["read ends", "destroy"]);
        let late = kernel.call(Opcode::Read, 7, &[0; 40]).unwrap();
        assert_eq!(late.error, -libc::ENOTCONN);
        assert_eq!(happens.try_iter().count(), 0, "it was called");
    }
}
