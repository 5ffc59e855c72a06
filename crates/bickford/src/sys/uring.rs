//! A ring of FUSE commands, and the memory that its entries share with the kernel.
//!
//! Who may touch an entry's memory follows from a value: the kernel has it until a completion
//! makes a [`Held`]; then it is ours until the `Held` goes back with [`Ring::commit`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bickford_abi::{
    FUSE_IO_URING_CMD_COMMIT_AND_FETCH, FUSE_IO_URING_CMD_REGISTER, OutHeader, UringCmdReq,
    UringEntInOut, UringReqHeader,
};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::payloads::Area;

/// Commands and completions that one ring has room for at a time; more are submitted in turns.
const DEPTH: u32 = 16;
/// How long a ring waits before it hands over again what the kernel had no memory for.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(1);
/// Marks the poll of the descriptor that wakes a ring.
const WAKE: u64 = u64::MAX;
/// The only registered file.
const DEVICE: types::Fixed = types::Fixed(0);
/// Segments that a registration names: header and payload.
const SEGMENTS: u32 = 2;

/// Where the list of segments lies behind the header.
const SEGMENTS_AT: usize = 1024;
const _: () = assert!(size_of::<UringReqHeader>() <= SEGMENTS_AT);
const _: () = assert!(SEGMENTS_AT + size_of::<[libc::iovec; 2]>() <= Area::HEAD);

impl Area {
    /// Writes the list of segments and answers with its address, which the kernel reads while the
    /// registration is submitted.
    fn segments(&self) -> u64 {
        let list = [
            libc::iovec {
                iov_base: self.head().cast(),
                iov_len: size_of::<UringReqHeader>(),
            },
            libc::iovec {
                iov_base: self.payload().cast(),
                iov_len: self.payload_size(),
            },
        ];
        // SAFETY: the head belongs to the area, is aligned, and holds the list at SEGMENTS_AT;
        // nobody else touches these bytes.
        unsafe {
            let at = self.head().add(SEGMENTS_AT);
            at.cast::<[libc::iovec; 2]>().write(list);
            at as u64
        }
    }
}

/// An entry whose memory is ours: a request came in it and was not answered yet.
#[derive(Debug)]
pub(crate) struct Held {
    area: Area,
    index: u32,
    commit_id: u64,
    due: bool,
}

impl Held {
    /// Whether the one who gave out the memory should look at it: see [`Area::moved`].
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// The entry's number in its queue.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The header as the kernel wrote it.
    pub(crate) fn header(&self) -> UringReqHeader {
        // SAFETY: the memory is mapped, aligned to a page, valid for every bit pattern, and the
        // kernel does not write while the entry is held.
        unsafe { self.area.head().cast::<UringReqHeader>().read() }
    }

    /// The first `length` bytes of the payload, or all of it.
    pub(crate) fn payload(&self, length: usize) -> &[u8] {
        let length = length.min(self.area.payload_size());
        // SAFETY: inside the mapping; while the entry is held and shared nobody writes.
        unsafe { std::slice::from_raw_parts(self.area.payload(), length) }
    }

    /// Room for the answer.
    pub(crate) fn payload_mut(&mut self) -> &mut [u8] {
        // SAFETY: inside the mapping; the entry is held and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.area.payload(), self.area.payload_size()) }
    }

    /// Writes the header of the answer, whose `payload` bytes are already in their place.
    pub(crate) fn set_answer(&mut self, unique: u64, error: i32, payload: usize) {
        let payload = payload.min(self.area.payload_size());
        self.due |= self.area.moved(payload);
        let length = size_of::<OutHeader>() + payload;
        let out = OutHeader {
            len: u32::try_from(length).unwrap_or(u32::MAX),
            error,
            unique,
        };
        let entry = UringEntInOut {
            commit_id: self.commit_id,
            payload_sz: u32::try_from(payload).unwrap_or(u32::MAX),
            ..UringEntInOut::default()
        };
        let header = self.area.head().cast::<UringReqHeader>();
        // SAFETY: as in `payload_mut`; both fields lie inside the header and are written as the
        // kernel reads them.
        unsafe {
            (&raw mut (*header).in_out).cast::<OutHeader>().write(out);
            (&raw mut (*header).ring_ent_in_out).write(entry);
        }
    }
}

/// Wakes the thread that waits for a ring. Clones wake the same ring.
#[derive(Clone, Debug)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn wake(&self) {
        if let Err(error) = rustix::io::write(&*self.0, &1u64.to_ne_bytes()) {
            tracing::error!("waking a ring: {error}");
        }
    }
}

/// What a ring has to tell.
#[derive(Debug)]
pub(crate) enum Event {
    /// A request came.
    Request(Held),
    /// Somebody used the [`Waker`].
    Woken,
    /// The kernel gave an entry up.
    Lost(Errno),
}

/// One ring, used by the thread that made it.
pub(crate) struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    queue: u16,
    waker: Waker,
    /// Entries that the kernel may complete in this ring, by their number in the queue.
    areas: Vec<Option<Area>>,
    unsubmitted: bool,
    /// How the ring is entered to wait.
    waiting: EnterFlags,
}

impl Ring {
    /// A ring for one queue of the connection behind `device`.
    pub(crate) fn new(device: &OwnedFd, queue: u16) -> io::Result<Self> {
        // With these, completions are delivered when the ring is entered: no interrupts.
        let mut best = builder();
        best.setup_single_issuer().setup_defer_taskrun();
        let ring = match best.build(DEPTH) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                tracing::debug!("no SINGLE_ISSUER and DEFER_TASKRUN");
                builder().build(DEPTH)?
            }
            built => built?,
        };
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let waker = Waker(Arc::new(rustix::event::eventfd(0, flags)?));
        let mut waiting = EnterFlags::GETEVENTS;
        if ring.params().is_feature_no_iowait() {
            // An entry waits for a request all the time: the CPUs of an idle mount would be accounted
            // as waiting for I/O, in /proc/stat and as pressure (Linux 6.15).
            waiting |= EnterFlags::NO_IOWAIT;
        }
        let mut ring = Self {
            ring,
            queue,
            waker,
            areas: Vec::new(),
            unsubmitted: false,
            waiting,
        };
        ring.watch_waker()?;
        Ok(ring)
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Whether there are answers that the kernel does not know of yet.
    pub(crate) fn has_unsubmitted(&self) -> bool {
        self.unsubmitted
    }

    fn watch_waker(&mut self) -> io::Result<()> {
        let fd = types::Fd(self.waker.0.as_fd().as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as _)
            .multi(true)
            .build();
        self.push(squeue::Entry128::from(poll).user_data(WAKE))
    }

    fn push(&mut self, entry: squeue::Entry128) -> io::Result<()> {
        self.unsubmitted = true;
        loop {
            // SAFETY: what the entries refer to outlives the ring: areas are kept in `areas`, the
            // wake descriptor in `waker`, and the kernel reads the segment list at submission.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.submit(0)?;
        }
    }

    fn command(&self, code: u32, commit_id: u64, segments: Option<u64>) -> squeue::Entry128 {
        let request = UringCmdReq {
            flags: 0,
            commit_id,
            qid: self.queue,
            padding: [0; 6],
        };
        let mut area = [0u8; 80];
        for (to, from) in area.iter_mut().zip(request.as_bytes()) {
            *to = *from;
        }
        let mut entry = opcode::UringCmd80::new(DEVICE, code)
            .cmd(area)
            .addr(segments)
            .build();
        if segments.is_some() {
            // The builder has no field for the number of segments.
            // SAFETY: the entry is a `struct io_uring_sqe` (128 bytes), whose `len` is a u32 at
            // offset 24.
            unsafe {
                (&raw mut entry)
                    .cast::<u8>()
                    .add(SQE_LEN_AT)
                    .cast::<u32>()
                    .write(SEGMENTS);
            }
        }
        entry
    }

    /// Gives the kernel a further entry with a number that no other one of the queue has. It takes
    /// effect when the ring is entered next.
    pub(crate) fn register(&mut self, area: Area, index: u32) -> io::Result<()> {
        let command = self.command(FUSE_IO_URING_CMD_REGISTER, 0, Some(area.segments()));
        self.keep(index, area);
        self.push(command.user_data(u64::from(index)))
    }

    /// Answers a request and waits for the next one in the same entry, when the ring is entered
    /// next. The request may have come in another ring of the queue: the entry is this one's then.
    pub(crate) fn commit(&mut self, held: Held) -> io::Result<()> {
        let command = self.command(FUSE_IO_URING_CMD_COMMIT_AND_FETCH, held.commit_id, None);
        let index = held.index;
        self.keep(index, held.area);
        self.push(command.user_data(u64::from(index)))
    }

    /// Keeps an entry's memory while it is the kernel's.
    fn keep(&mut self, index: u32, area: Area) {
        let at = index as usize;
        if self.areas.len() <= at {
            self.areas.resize_with(at + 1, || None);
        }
        if let Some(slot) = self.areas.get_mut(at) {
            *slot = Some(area);
        }
    }

    /// Hands everything to the kernel and waits for `want` completions.
    pub(crate) fn submit(&mut self, want: usize) -> io::Result<()> {
        match self.enter(want) {
            Ok(_) => {
                self.unsubmitted = false;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            // Completions wait to be taken first.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
            // No memory for a command, and none was taken: it is tried again, as io_uring_enter(2) says.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                thread::sleep(NO_MEMORY_PAUSE);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn enter(&mut self, want: usize) -> io::Result<usize> {
        #[cfg(test)]
        if let Some(number) = tests::FAILURE.take() {
            return Err(io::Error::from_raw_os_error(number));
        }
        if want == 0 {
            return self.ring.submit();
        }
        let unsubmitted = self.ring.submission().len();
        // SAFETY: no argument is given; both numbers are at most those of the ring.
        unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(
                u32::try_from(unsubmitted).unwrap_or(DEPTH),
                u32::try_from(want).unwrap_or(1),
                self.waiting.bits(),
                None,
            )
        }
    }

    /// The next completion that has come.
    pub(crate) fn next_event(&mut self) -> io::Result<Option<Event>> {
        let Some(completion) = self.ring.completion().next() else {
            return Ok(None);
        };
        if completion.user_data() == WAKE {
            if !cqueue::more(completion.flags()) {
                self.watch_waker()?;
            }
            return Ok(Some(Event::Woken));
        }
        if completion.result() < 0 {
            let errno = Errno::from_raw_os_error(-completion.result());
            return Ok(Some(Event::Lost(errno)));
        }
        let number = completion.user_data();
        let slot = usize::try_from(number)
            .ok()
            .and_then(|at| self.areas.get_mut(at));
        let area = slot.and_then(Option::take);
        let (Some(area), Ok(index)) = (area, u32::try_from(number)) else {
            return Err(io::Error::other("a completion names no entry of this ring"));
        };
        let mut held = Held {
            area,
            index,
            commit_id: 0,
            due: false,
        };
        let came = held.header().ring_ent_in_out;
        held.commit_id = came.commit_id;
        held.due = held.area.moved(came.payload_sz as usize);
        Ok(Some(Event::Request(held)))
    }
}

/// Offset of `len` in `struct io_uring_sqe`.
const SQE_LEN_AT: usize = 24;

fn builder() -> io_uring::Builder<squeue::Entry128, cqueue::Entry> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(DEPTH * 64).dontfork();
    builder
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;

    use super::*;

    thread_local! {
        /// What this thread gets the next time that it enters a ring.
        pub(super) static FAILURE: Cell<Option<i32>> = const { Cell::new(None) };
    }

    #[test]
    fn what_the_kernel_could_not_take_for_now_is_handed_over_again() {
        let device = File::open("/dev/fuse").map(OwnedFd::from);
        let mut ring = match device.and_then(|device| Ring::new(&device, 0)) {
            Ok(ring) => ring,
            Err(error) => return crate::watchdog::say(format_args!("SKIPPED: a ring: {error}")),
        };
        ring.waker().wake();
        for number in [libc::EAGAIN, libc::EINTR, libc::EBUSY] {
            FAILURE.set(Some(number));
            ring.submit(1).unwrap();
            assert!(ring.has_unsubmitted() && ring.next_event().unwrap().is_none());
        }
        ring.submit(1).unwrap();
        assert!(matches!(ring.next_event(), Ok(Some(Event::Woken))));
        FAILURE.set(Some(libc::EBADF));
        assert!(ring.submit(1).is_err());
    }
}
