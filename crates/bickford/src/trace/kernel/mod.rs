//! The kernel's tracepoints `fuse_request_send` and `fuse_request_end`: every request of any FUSE
//! mount, whoever serves it.
//!
//! They are read through an instance of tracefs of its own, which is removed afterwards, so that
//! nothing is left enabled and other users of tracing are not disturbed. Pages are read as the kernel
//! wrote them, since formatting each event as text would cost more than many requests do. FORGET and
//! INTERRUPT have no such tracepoints, and I/O that the kernel passes through makes no requests. Some kernels (Linux
//! 6.12) number a request only after they have told that it was sent: there the two are joined by the order of
//! requests. Then of requests that were under way at once the times and errors may be told of one another; how many there
//! were of which opcode is right there, too, but for as many as were under way when tracing began.
//!
//! On request ([`Tracepoints::watch`]) one thread is followed beside them, by the tracepoints of the
//! scheduler and of system calls, in the same instance and by the same clock. [`SystemCalls`] follows those of all
//! threads of a process.

mod calls;
mod format;
mod instance;
mod join;
mod ring_buffer;
mod thread;
mod unnumbered;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use bickford_abi::Opcode;

pub use self::calls::SystemCalls;
use self::format::Format;
pub use self::instance::tracefs;
use self::instance::{EVENTS, Instance};
use self::join::Join;
use self::thread::Watch;
pub use self::thread::{Step, ThreadStep};
use super::InFlightRow;
use super::stamp::monotonic;

/// A request as the kernel saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelRequest {
    /// Number of the connection, as in /sys/fs/fuse/connections.
    pub connection: u32,
    /// Number of the request within its connection. 0 of one that has not ended, where
    /// the kernel numbers it too late.
    pub unique: u64,
    /// Number of the opcode.
    pub opcode: u32,
    /// Command name of the caller; empty unless [`Tracepoints::name_callers`] was called, or where it
    /// is not known any more.
    pub comm: String,
    /// The calling thread.
    pub pid: u32,
    /// Bytes of the request.
    pub bytes_in: u32,
    /// Bytes of the answer; zero over io_uring.
    pub bytes_out: u32,
    /// Zero, or the negative errno of the answer.
    pub error: i32,
    /// When it was queued: nanoseconds of the monotonic clock. Of a request from before tracing began,
    /// about when its daemon received it.
    pub sent_ns: u64,
    /// When it was answered.
    pub ended_ns: u64,
    /// Whether it was sent before tracing began, and is known from its daemon
    /// ([`Tracepoints::expect`]).
    pub before: bool,
}

impl KernelRequest {
    /// The kernel's name of the opcode, such as `LOOKUP`.
    #[must_use]
    pub fn name(&self) -> String {
        Opcode::from_u32(self.opcode).map_or_else(
            || format!("opcode {}", self.opcode),
            |opcode| opcode.name().into(),
        )
    }

    /// Nanoseconds from being queued to being answered.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.sent_ns)
    }
}

/// Requests that one call of [`Tracepoints::take`] returns at most (a few more, to whole pages).
const BATCH_MAX: usize = 65_536;
/// How often the buffers are looked at while they are empty.
const PAUSE: Duration = Duration::from_millis(5);
/// Pages that are read at once of each CPU's buffer: twice what it holds.
const PAGES_MAX: usize = 8_192;
/// How long after its time an event can be read, at most.
const COMMIT_NS: u64 = 1_000_000;

/// Reads the tracepoints until it is dropped.
#[derive(Debug)]
pub struct Tracepoints {
    // Closed before the instance is removed, which is busy while they are open.
    buffers: Vec<File>,
    instance: Instance,
    send: Format,
    end: Format,
    join: Join,
    page: Vec<u8>,
    callers: bool,
    watch: Option<Watch>,
    stopped: bool,
}

impl Tracepoints {
    /// Begins to trace one connection, or all.
    ///
    /// # Errors
    /// When tracefs is not mounted, the process may not use it, or the kernel has no such
    /// tracepoints.
    pub fn open(connection: Option<u32>) -> io::Result<Self> {
        let root = tracefs()?;
        let [send, end] = EVENTS;
        let (send, end) = (Format::of_fuse(&root, send)?, Format::of_fuse(&root, end)?);
        let instance = Instance::make(&root)?;
        let buffers = instance.buffers()?;
        instance.enable(connection)?;
        Ok(Self {
            buffers,
            instance,
            send,
            end,
            join: Join::default(),
            page: vec![0; rustix::param::page_size()],
            callers: false,
            watch: None,
            stopped: false,
        })
    }

    /// From now on gives requests the command names of their callers, which takes a look at /proc for
    /// each caller.
    pub fn name_callers(&mut self) {
        self.callers = true;
    }

    /// From now on follows a thread too, until tracing ends; what it did is told by
    /// [`Tracepoints::take_steps`]. Only one thread is followed, the last that was named. Meanwhile
    /// system calls of all threads of the machine take a little longer: the kernel looks at each.
    ///
    /// # Errors
    /// When the kernel has no such tracepoints, or refuses.
    pub fn watch(&mut self, thread: u32) -> io::Result<()> {
        let root = tracefs()?;
        let [switch, enter, exit] = thread::EVENTS.map(|event| Format::read(&root, event));
        self.watch = Some(Watch::new(thread, [switch?, enter?, exit?]));
        for (event, filter) in Watch::filters(thread) {
            self.instance.enable_where(event, &filter)?;
        }
        Ok(())
    }

    /// What the watched thread did, in order, as far as [`Tracepoints::take`] has read it.
    pub fn take_steps(&mut self) -> Vec<ThreadStep> {
        self.watch.as_mut().map(Watch::take).unwrap_or_default()
    }

    /// Ends tracing; what is in the buffers can still be taken.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn stop(&mut self) -> io::Result<()> {
        self.instance.disable()?;
        self.stopped = true;
        Ok(())
    }

    /// How many events were lost: the kernel dropped them because they were not read in time, or too
    /// many requests were open at once.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let steps = self.watch.as_ref().map_or(0, |watch| watch.lost);
        self.join.lost() + steps + self.instance.overrun()
    }

    /// Requests that were sent and have not ended since tracing began.
    pub fn unanswered(&self) -> impl Iterator<Item = &KernelRequest> {
        self.join.open()
    }

    /// Requests that have not ended, oldest first, with the names of their callers as
    /// [`Tracepoints::take`] has them.
    #[must_use]
    pub fn open_requests(&self) -> Vec<KernelRequest> {
        let mut open: Vec<KernelRequest> = self.join.open().cloned().collect();
        open.sort_by_key(|request| request.sent_ns);
        if self.callers {
            self.name(&mut open);
        }
        open
    }

    /// Takes in a request that was sent before tracing began, as its daemon tells of it
    /// ([`super::Snapshot::in_flight`]), so that its end is told, too. The answer is the request, if
    /// its end was read already.
    ///
    /// What was sent since then is known better and left as it is, if it was read: call
    /// [`Tracepoints::take`] between asking the daemon and this. A request whose opcode has no
    /// tracepoints is not taken in.
    pub fn expect(&mut self, connection: u32, row: &InFlightRow) -> Option<KernelRequest> {
        let named = |opcode: &&Opcode| opcode.name() == row.name;
        let opcode = *Opcode::ALL.iter().find(named)?;
        // Of others the kernel tells no end, or nothing.
        if !opcode.is_answered() {
            return None;
        }
        let age = row.age_us.saturating_mul(1_000);
        let mut ended = self.join.expect(KernelRequest {
            connection,
            unique: row.unique,
            opcode: opcode as u32,
            comm: String::new(),
            pid: row.pid,
            bytes_in: 0,
            bytes_out: 0,
            error: 0,
            sent_ns: monotonic().saturating_sub(age),
            ended_ns: 0,
            before: true,
        })?;
        if self.callers {
            self.name(std::slice::from_mut(&mut ended));
        }
        Some(ended)
    }

    /// Requests that ended since the last call; waits for at most `timeout` when there are none.
    ///
    /// # Errors
    /// When a buffer cannot be read.
    pub fn take(&mut self, timeout: Duration) -> io::Result<Vec<KernelRequest>> {
        let mut ended = Vec::new();
        let mut waited = Duration::ZERO;
        loop {
            let read = self.pass(&mut ended)?;
            if !ended.is_empty() || (waited >= timeout && !read) {
                break;
            }
            if !read {
                std::thread::sleep(PAUSE);
                waited += PAUSE;
            }
        }
        if self.callers {
            self.name(&mut ended);
        }
        Ok(ended)
    }

    /// Reads what every CPU has; `false` when there was nothing.
    fn pass(&mut self, ended: &mut Vec<KernelRequest>) -> io::Result<bool> {
        let mut any = false;
        // What is in the buffers by now is read below.
        let now = monotonic().saturating_sub(COMMIT_NS);
        let mut until = if self.stopped { u64::MAX } else { now };
        let mut complete = true;
        for buffer in &mut self.buffers {
            let mut pages = 0;
            while ended.len() < BATCH_MAX && pages < PAGES_MAX {
                let Some(page) = next_page(buffer, &mut self.page)? else {
                    pages = 0;
                    break;
                };
                any = true;
                pages += 1;
                complete &= !ring_buffer::follows_loss(page);
                let formats = [&self.send, &self.end];
                follow(page, formats, &mut self.join, &mut self.watch, ended);
            }
            if pages > 0 {
                until = 0;
            }
        }
        if !complete {
            self.join.forget_unnumbered();
        }
        self.join.join_unnumbered(until, ended);
        if !any {
            // Everything was read that was there when this pass began.
            self.join.settle();
        }
        Ok(any)
    }

    fn name(&self, requests: &mut [KernelRequest]) {
        let mut names: HashMap<u32, String> = HashMap::new();
        for request in requests.iter_mut() {
            let name = names
                .entry(request.pid)
                .or_insert_with(|| self.instance.name_of(request.pid));
            request.comm.clone_from(name);
        }
    }
}

/// What a buffer has next; `None` when there is nothing.
fn next_page<'p>(buffer: &mut File, page: &'p mut [u8]) -> io::Result<Option<&'p [u8]>> {
    loop {
        match buffer.read(page) {
            Ok(0) => return Ok(None),
            Ok(length) => return Ok(page.get(..length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Joins the events of a page of the buffer.
fn follow(
    page: &[u8],
    [send, end]: [&Format; 2],
    join: &mut Join,
    watch: &mut Option<Watch>,
    ended: &mut Vec<KernelRequest>,
) {
    ring_buffer::read_page(page, |time, payload| {
        let kind = format::kind(payload);
        if kind == Some(send.id) {
            ended.extend(
                send.sent(payload, time)
                    .and_then(|request| join.send(request)),
            );
        } else if kind == Some(end.id) {
            ended.extend(end.ended(payload, time).and_then(|answer| join.end(answer)));
        } else if let Some(watch) = watch {
            watch.follow(payload, time);
        }
    });
}
