//! The file system of these tests: names say how their requests are answered.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use bickford::abi::OpenOutFlags;
use bickford::ops::{
    Attr, Attributes, Data, Entry, Fsync, Getattr, Lookup, Open, Opened, Read, Setattr, Write,
    Written,
};
use bickford::{Context, Errno, FileHandle, FileSystem, Negotiation, NodeId, Reply};

pub(crate) const DATA: NodeId = NodeId(2);
const DIRECT: NodeId = NodeId(3);
const ENDLESS: NodeId = NodeId(4);
const CACHED: NodeId = NodeId(5);
const REFUSED: NodeId = NodeId(6);
const PATIENT: NodeId = NodeId(7);
/// Nodes of names with a number.
const NUMBERED: u64 = 1000;

pub(crate) const DATA_SIZE: usize = 3 * 1024 * 1024 + 123;
const HOUR: Duration = Duration::from_secs(3600);

/// - `data`, `direct`: a file below, read by ranges and written; `direct` without the page cache.
/// - `refused`: writes answer EDQUOT without taking the data.
/// - `endless`, `patient`: reads end when interrupted; those of `patient` keep their thread until then.
/// - `cached`: counts its lookups; `notify` has it looked up again.
/// - `quick-N`, `pausing-N`, `slow-N`, `later-N`, `held-N`, `waiting-N`, `blocked-N`: files of N bytes, answered at
///   once, after 0.3 ms, after 10 ms, from another thread, when released, when released or ENOLCK where they may not wait, or after `unblock-N` was
///   looked up.
#[derive(Clone)]
pub(crate) struct Subject(Arc<State>);

/// Has what is blocked go on, after a panic too.
pub(crate) struct Unblock<'a>(pub(crate) &'a Subject);

impl Drop for Unblock<'_> {
    fn drop(&mut self) {
        self.0.unblock();
    }
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static NUMBER: u64 = NUMBERS.fetch_add(1, Ordering::Relaxed);
}

struct State {
    file: Arc<OwnedFd>,
    splice_writes: AtomicBool,
    prompt: AtomicBool,
    /// A bit for each thread, by its number.
    threads: AtomicU64,
    held: Mutex<Vec<(Reply<Entry>, Entry)>>,
    refused: AtomicUsize,
    blocked: AtomicUsize,
    unblocked: (Mutex<bool>, Condvar),
    reads: AtomicUsize,
    interrupted: Arc<AtomicUsize>,
    lookups: AtomicU64,
    lookups_of_cached: AtomicUsize,
    destroyed: AtomicBool,
}

impl Subject {
    pub(crate) fn new() -> Self {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..DATA_SIZE).map(|at| (at % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        Self(Arc::new(State {
            file: Arc::new(file.into()),
            splice_writes: AtomicBool::new(false),
            prompt: AtomicBool::new(false),
            threads: AtomicU64::new(0),
            held: Mutex::default(),
            refused: AtomicUsize::new(0),
            blocked: AtomicUsize::new(0),
            unblocked: Default::default(),
            reads: AtomicUsize::new(0),
            interrupted: Arc::default(),
            lookups: AtomicU64::new(0),
            lookups_of_cached: AtomicUsize::new(0),
            destroyed: AtomicBool::new(false),
        }))
    }

    pub(crate) fn splice_writes(self, splice: bool) -> Self {
        self.0.splice_writes.store(splice, Ordering::SeqCst);
        self
    }

    pub(crate) fn prompt(self, prompt: bool) -> Self {
        self.0.prompt.store(prompt, Ordering::SeqCst);
        self
    }

    /// How many threads have answered numbered names since [`Subject::forget_threads`].
    pub(crate) fn threads(&self) -> u32 {
        self.0.threads.load(Ordering::SeqCst).count_ones()
    }

    pub(crate) fn forget_threads(&self) {
        self.0.threads.store(0, Ordering::SeqCst);
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        let file = std::fs::File::from(self.0.file.try_clone().unwrap());
        let mut bytes = vec![0; DATA_SIZE];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    pub(crate) fn held(&self) -> usize {
        self.0.held.lock().unwrap().len()
    }

    /// How many were not to wait.
    pub(crate) fn refused(&self) -> usize {
        self.0.refused.load(Ordering::SeqCst)
    }

    pub(crate) fn release_held(&self) {
        for (reply, entry) in self.0.held.lock().unwrap().drain(..) {
            reply.ok(entry);
        }
    }

    pub(crate) fn blocked(&self) -> usize {
        self.0.blocked.load(Ordering::SeqCst)
    }

    pub(crate) fn unblock(&self) {
        *self.0.unblocked.0.lock().unwrap() = true;
        self.0.unblocked.1.notify_all();
    }

    pub(crate) fn block_again(&self) {
        *self.0.unblocked.0.lock().unwrap() = false;
    }

    pub(crate) fn reads(&self) -> usize {
        self.0.reads.load(Ordering::SeqCst)
    }

    pub(crate) fn interrupted(&self) -> usize {
        self.0.interrupted.load(Ordering::SeqCst)
    }

    pub(crate) fn lookups(&self) -> u64 {
        self.0.lookups.load(Ordering::SeqCst)
    }

    pub(crate) fn lookups_of_cached(&self) -> usize {
        self.0.lookups_of_cached.load(Ordering::SeqCst)
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.0.destroyed.load(Ordering::SeqCst)
    }

    fn numbered(&self, kind: &str, number: u64, reply: Reply<Entry>) {
        let attr = Attr::file(NUMBERED + number, 0o644, number);
        let entry = Entry::new(NodeId(NUMBERED + number), attr, Duration::ZERO);
        let thread = NUMBER.with(|number| 1 << (number % 64));
        self.0.threads.fetch_or(thread, Ordering::SeqCst);
        match kind {
            "quick" => reply.ok(entry),
            "slow" => {
                thread::sleep(Duration::from_millis(10));
                reply.ok(entry);
            }
            "pausing" => {
                thread::sleep(Duration::from_micros(300));
                reply.ok(entry);
            }
            "later" => drop(thread::spawn(move || reply.ok(entry))),
            "held" => self.0.held.lock().unwrap().push((reply, entry)),
            "waiting" if !reply.may_wait() => {
                self.0.refused.fetch_add(1, Ordering::SeqCst);
                reply.error(Errno::NOLCK);
            }
            "waiting" => self.0.held.lock().unwrap().push((reply, entry)),
            "blocked" => {
                let (open, changed) = &self.0.unblocked;
                self.0.blocked.fetch_add(1, Ordering::SeqCst);
                let open = open.lock().unwrap();
                drop(changed.wait_while(open, |open| !*open).unwrap());
                reply.ok(entry);
            }
            "unblock" => {
                self.unblock();
                reply.ok(entry);
            }
            _ => reply.error(Errno::NOENT),
        }
    }
}

fn attr(node: NodeId) -> Attr {
    match node {
        NodeId::ROOT => Attr::directory(1, 0o755),
        CACHED => Attr::file(CACHED.0, 0o644, 0),
        NodeId(number) if number >= NUMBERED => Attr::file(number, 0o644, number - NUMBERED),
        NodeId(number) => Attr::file(number, 0o644, DATA_SIZE as u64),
    }
}

impl FileSystem for Subject {
    fn is_prompt(&self) -> bool {
        self.0.prompt.load(Ordering::SeqCst)
    }

    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        if self.0.splice_writes.load(Ordering::SeqCst) {
            negotiation.set_splice_writes(true);
            // So that every process gets a pipe that is large enough.
            negotiation.set_max_write(256 << 10);
        }
        Ok(())
    }

    fn destroy(&self) {
        self.0.destroyed.store(true, Ordering::SeqCst);
    }

    fn lookup(&self, cx: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        self.0.lookups.fetch_add(1, Ordering::SeqCst);
        let name = op.name.to_str().unwrap_or_default();
        let node = match name {
            "data" => DATA,
            "direct" => DIRECT,
            "endless" => ENDLESS,
            "refused" => REFUSED,
            "patient" => PATIENT,
            "cached" => {
                self.0.lookups_of_cached.fetch_add(1, Ordering::SeqCst);
                CACHED
            }
            "notify" => {
                let sent = cx.notifier().invalidate_entry(NodeId::ROOT, c"cached");
                return match sent {
                    Ok(()) => reply.ok(Entry::new(DATA, attr(DATA), Duration::ZERO)),
                    Err(_) => reply.error(Errno::IO),
                };
            }
            other => {
                let parsed = other.split_once('-');
                return match parsed.map(|(kind, number)| (kind, number.parse())) {
                    Some((kind, Ok(number))) => self.numbered(kind, number, reply),
                    _ => reply.error(Errno::NOENT),
                };
            }
        };
        reply.ok(Entry::new(node, attr(node), HOUR));
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: attr(op.node),
            valid: HOUR,
        });
    }

    fn setattr(&self, _: &Context<'_>, op: Setattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: attr(op.node),
            valid: HOUR,
        });
    }

    fn open(&self, _: &Context<'_>, op: Open, reply: Reply<Opened>) {
        let flags = match op.node {
            DATA => OpenOutFlags::KEEP_CACHE,
            _ => OpenOutFlags::DIRECT_IO,
        };
        reply.ok(Opened {
            flags,
            ..Opened::new(FileHandle(op.node.0))
        });
    }

    fn read(&self, cx: &Context<'_>, op: Read, reply: Reply<Data>) {
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        if op.node == ENDLESS {
            let interrupted = Arc::clone(&self.0.interrupted);
            return cx.interrupt().on_raise(move || {
                interrupted.fetch_add(1, Ordering::SeqCst);
                reply.error(Errno::INTR);
            });
        }
        if op.node == PATIENT {
            while !cx.interrupt().wait(HOUR) {}
            self.0.interrupted.fetch_add(1, Ordering::SeqCst);
            return reply.error(Errno::INTR);
        }
        let file = Arc::clone(&self.0.file);
        reply.ok(Data::range(file, op.offset, op.size));
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>, reply: Reply<Written>) {
        if op.node == REFUSED {
            return reply.error(Errno::DQUOT);
        }
        let written = op.data.write_to(&*self.0.file, Some(op.offset));
        reply.complete(match written {
            Ok(length) => Ok(Written(length as u32)),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        });
    }

    fn fsync(&self, _: &Context<'_>, _: Fsync, reply: Reply<()>) {
        reply.ok(());
    }
}
