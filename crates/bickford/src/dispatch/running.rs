//! Which methods run, for an end that is a request: while it is waited for, others may be under way.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// As many as there are mostly workers, so that each has its own.
const COUNTS: usize = 64;
/// How long between looks at methods that are waited for.
const PAUSE: Duration = Duration::from_millis(1);

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Count(AtomicUsize);

/// How many methods run, by worker.
#[derive(Debug)]
pub(crate) struct Running {
    counts: Box<[Count]>,
    closed: AtomicBool,
}

/// A method; dropped when it has returned.
#[derive(Debug)]
pub(crate) struct Method<'a>(&'a Count);

impl Default for Running {
    fn default() -> Self {
        Self {
            counts: (0..COUNTS).map(|_| Count::default()).collect(),
            closed: AtomicBool::new(false),
        }
    }
}

impl Running {
    /// Before a method is called; `None` where none is to be called any more.
    pub(crate) fn enter(&self, worker: usize) -> Option<Method<'_>> {
        let count = self.counts.get(worker % COUNTS)?;
        count.0.fetch_add(1, Ordering::SeqCst);
        let method = Method(count);
        (!self.closed.load(Ordering::SeqCst)).then_some(method)
    }

    /// Lets no method be called any more, and waits until those that run have returned.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let runs = |count: &Count| count.0.load(Ordering::SeqCst) > 0;
        while self.counts.iter().any(runs) {
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Method<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};

    use bickford_abi::{InHeader, Opcode};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::ops::{Data, Read};
    use crate::transport::memory::Kernel;
    use crate::transport::{Outgoing, Responder, Ticket};
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
        thread::sleep(Duration::from_millis(50));
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
