//! Layers over a file system that writes down what it is asked.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use bickford::abi::{Opcode, OpenOut, OpenOutFlags};
use bickford::transport::memory::Kernel;
use bickford::{FileHandle, NodeId};

use super::*;
use crate::listing::bickford_listing_add_plus;

/// Node 7 behind every name, handle 9 behind every open.
#[derive(Default)]
struct Below {
    prompt: bool,
    journal: Arc<Mutex<Vec<String>>>,
    /// Locks that are waited for, until the end.
    waiting: Mutex<Vec<Reply<()>>>,
}

impl Below {
    fn add(&self, line: String) {
        self.journal.lock().unwrap().push(line);
    }
}

fn entry() -> Entry {
    Entry::new(NodeId(7), Attr::file(7, 0o644, 5), Duration::from_secs(1))
}

fn created() -> Created {
    Created {
        entry: entry(),
        opened: Opened::new(FileHandle(9)),
    }
}

impl FileSystem for Below {
    fn is_prompt(&self) -> bool {
        self.prompt
    }

    fn destroy(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        thread::spawn(|| waiting.into_iter().for_each(|reply| reply.ok(())));
    }

    fn setlk(&self, _: &Context<'_>, _: Setlk, reply: Reply<()>) {
        self.waiting.lock().unwrap().push(reply);
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>, reply: Reply<Written>) {
        let data = op.data.bytes().unwrap();
        self.add(format!("write {}", String::from_utf8_lossy(&data)));
        reply.ok(Written(data.len() as u32));
    }

    fn setxattr(&self, _: &Context<'_>, op: Setxattr<'_>, reply: Reply<()>) {
        let value = String::from_utf8_lossy(op.value);
        self.add(format!("setxattr {value}"));
        reply.ok(());
    }

    fn getxattr(&self, _: &Context<'_>, op: Getxattr<'_>, reply: Reply<XattrAnswer>) {
        reply.complete(XattrAnswer::fit(b"value".to_vec(), op.size));
    }

    fn forget(&self, forgets: &[Forget]) {
        for forget in forgets {
            self.add(format!("forget {} by {}", forget.node, forget.count));
        }
    }

    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        match op.name.to_bytes() {
            b"missing" => reply.ok(Entry::negative(Duration::ZERO)),
            _ => reply.ok(entry()),
        }
    }

    fn mknod(&self, _: &Context<'_>, _: Mknod<'_>, reply: Reply<Entry>) {
        reply.ok(entry());
    }

    fn mkdir(&self, _: &Context<'_>, _: Mkdir<'_>, reply: Reply<Entry>) {
        reply.ok(entry());
    }

    fn symlink(&self, _: &Context<'_>, _: Symlink<'_>, reply: Reply<Entry>) {
        reply.ok(entry());
    }

    fn link(&self, _: &Context<'_>, _: Link<'_>, reply: Reply<Entry>) {
        reply.ok(entry());
    }

    fn create(&self, _: &Context<'_>, _: Create<'_>, reply: Reply<Created>) {
        reply.ok(created());
    }

    fn tmpfile(&self, _: &Context<'_>, _: Tmpfile, reply: Reply<Created>) {
        reply.ok(created());
    }

    fn open(&self, _: &Context<'_>, _: Open, reply: Reply<Opened>) {
        let mut opened = Opened::new(FileHandle(9));
        opened.flags |= OpenOutFlags::NOFLUSH;
        reply.ok(opened);
    }

    fn opendir(&self, _: &Context<'_>, _: Opendir, reply: Reply<Opened>) {
        reply.ok(Opened::new(FileHandle(9)));
    }

    fn release(&self, _: &Context<'_>, op: Release, reply: Reply<()>) {
        self.add(format!("release {} {} {}", op.node, op.handle, op.flags));
        reply.ok(());
    }

    fn releasedir(&self, _: &Context<'_>, op: Releasedir, reply: Reply<()>) {
        self.add(format!("releasedir {} {}", op.node, op.handle));
        reply.ok(());
    }

    fn readdirplus(&self, _: &Context<'_>, op: Readdirplus, reply: Reply<Directory>) {
        let mut listing = op.listing();
        for (offset, name) in [(1, b".".as_slice()), (2, b"one"), (3, b"two")] {
            let name = DirectoryEntry {
                name,
                ino: 7,
                offset,
                mode: 0o100_000,
            };
            assert!(listing.push_entry(&name, &entry()));
        }
        reply.ok(listing);
    }
}

unsafe extern "C" fn pre(
    user: *mut c_void,
    _: *mut bickford_request,
    _: *mut bickford_answer,
) -> i32 {
    user.addr() as i32
}

unsafe extern "C" fn post(
    user: *mut c_void,
    _: *const bickford_request,
    _: *mut bickford_answer,
    _: i32,
) -> i32 {
    user.addr() as i32
}

/// A layer without calls whose calls return `code`.
fn layer(code: i32) -> bickford_layer {
    bickford_layer {
        user: std::ptr::without_provenance_mut(code as usize),
        pre_operations: 0,
        call_operations: !0,
        post_operations: 0,
        metadata_only: 0,
        reserved: 0,
        pre: Some(pre),
        post: Some(post),
    }
}

struct Fixture {
    kernel: Kernel,
    journal: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    fn new(layer: &bickford_layer) -> Self {
        let below = Below::default();
        let journal = Arc::clone(&below.journal);
        let config = bickford_config::default();
        let layer = Layer::new(Arc::new(below), layer, config, false).unwrap();
        let mut kernel = Kernel::new(layer);
        assert_eq!(kernel.init().unwrap().error, 0);
        Self { kernel, journal }
    }

    /// The error of an answer, and what was asked below.
    fn call(&mut self, opcode: Opcode, node: u64, body: &[u8]) -> (i32, Vec<String>) {
        let answer = self.kernel.call(opcode, node, body).unwrap();
        let asked = std::mem::take(&mut *self.journal.lock().unwrap());
        (-answer.error, asked)
    }
}

/// A structure of the kernel's and a name.
fn body(words: &[u32], name: &[u8]) -> Vec<u8> {
    let words = words.iter().flat_map(|word| word.to_ne_bytes());
    words.chain(name.iter().copied()).collect()
}

/// `struct fuse_read_in`, and near enough `struct fuse_release_in`: handle 9.
fn handle_body() -> Vec<u8> {
    body(&[9, 0, 0, 0, 4096, 0, 0, 0, 0, 0], b"")
}

#[test]
fn a_layer_is_prompt_without_calls_or_when_it_says_so() {
    let with = |pre_operations, prompt, below| {
        let layer = bickford_layer {
            pre_operations,
            ..layer(0)
        };
        let below = Below {
            prompt: below,
            ..Below::default()
        };
        let config = bickford_config::default();
        let layer = Layer::new(Arc::new(below), &layer, config, prompt);
        layer.unwrap().is_prompt()
    };
    assert!(with(0, false, true));
    assert!(!with(bit(BICKFORD_OP_LOOKUP), false, true));
    assert!(with(bit(BICKFORD_OP_LOOKUP), true, true));
    assert!(!with(0, true, false));
}

#[test]
fn a_success_that_becomes_an_error_is_given_back() {
    const NOSPC: i32 = 28;
    let mut fixture = Fixture::new(&bickford_layer {
        post_operations: !0,
        ..layer(NOSPC)
    });
    let forgotten = "forget 7 by 1".to_owned();
    for (opcode, body) in [
        (Opcode::Lookup, body(&[], b"name\0")),
        (Opcode::Mknod, body(&[0o100_644, 0, 0, 0], b"name\0")),
        (Opcode::Mkdir, body(&[0o755, 0], b"name\0")),
        (Opcode::Symlink, body(&[], b"name\0target\0")),
        (Opcode::Link, body(&[3, 0], b"name\0")),
    ] {
        let answer = fixture.call(opcode, 1, &body);
        assert_eq!(answer, (NOSPC, vec![forgotten.clone()]), "{opcode:?}");
    }
    let missing = fixture.call(Opcode::Lookup, 1, b"missing\0");
    assert_eq!(missing, (NOSPC, vec![]));
    let made = vec!["release 7 9 2".to_owned(), forgotten.clone()];
    let new = body(&[2, 0o644, 0, 0], b"name\0");
    assert_eq!(fixture.call(Opcode::Create, 1, &new), (NOSPC, made.clone()));
    assert_eq!(fixture.call(Opcode::Tmpfile, 1, &new), (NOSPC, made));
    let open = body(&[1, 0], b"");
    let closed = vec!["release 5 9 1".to_owned()];
    assert_eq!(fixture.call(Opcode::Open, 5, &open), (NOSPC, closed));
    let closed = vec!["releasedir 3 9".to_owned()];
    assert_eq!(fixture.call(Opcode::Opendir, 3, &open), (NOSPC, closed));
    assert_eq!(
        fixture.call(Opcode::Readdirplus, 3, &handle_body()),
        (NOSPC, vec![forgotten.clone(), forgotten])
    );
}

#[test]
fn a_success_that_stays_is_not_given_back() {
    let mut fixture = Fixture::new(&bickford_layer {
        post_operations: !0,
        ..layer(0)
    });
    for (opcode, body) in [
        (Opcode::Lookup, body(&[], b"name\0")),
        (Opcode::Create, body(&[2, 0o644, 0, 0], b"name\0")),
        (Opcode::Open, body(&[1, 0], b"")),
        (Opcode::Readdirplus, handle_body()),
    ] {
        assert_eq!(fixture.call(opcode, 1, &body), (0, vec![]), "{opcode:?}");
    }
}

#[test]
fn a_node_of_the_layer_is_nothing_to_the_file_system_below() {
    const ACCESS: i32 = 13;
    let ends = bit(BICKFORD_OP_RELEASE) | bit(BICKFORD_OP_RELEASEDIR);
    let mut fixture = Fixture::new(&bickford_layer {
        pre_operations: ends,
        ..layer(ACCESS)
    });
    let own = BICKFORD_NODE_OF_LAYER;
    for opcode in [Opcode::Release, Opcode::Releasedir] {
        let (code, lines) = fixture.call(opcode, own, &handle_body());
        assert_eq!((code, lines.len()), (ACCESS, 0), "{opcode:?}");
        assert_eq!(fixture.call(opcode, own - 1, &handle_body()).1.len(), 1);
    }
    let count = [2, 0];
    fixture.kernel.send(Opcode::Forget, own, &body(&count, b""));
    fixture.kernel.send(Opcode::Forget, 7, &body(&count, b""));
    let lines = std::mem::take(&mut *fixture.journal.lock().unwrap());
    assert_eq!(lines, ["forget 7 by 2"]);
}

/// Leaves one of two names out of a listing.
unsafe extern "C" fn hide(
    _: *mut c_void,
    _: *const bickford_request,
    answer: *mut bickford_answer,
    result: i32,
) -> i32 {
    let entry = bickford_answer {
        node: 7,
        ..bickford_answer::default()
    };
    // SAFETY: a layer passes an answer with a buffer that holds what was listed.
    let added = unsafe {
        (*answer).data_length = 0;
        bickford_listing_add_plus(answer, b"one".as_ptr(), 3, 2, &raw const entry)
    };
    assert_eq!(added, 1);
    result
}

#[test]
fn a_name_left_out_of_a_listing_is_given_back() {
    let mut fixture = Fixture::new(&bickford_layer {
        post_operations: bit(BICKFORD_OP_READDIRPLUS),
        post: Some(hide),
        ..layer(0)
    });
    let answer = fixture.call(Opcode::Readdirplus, 3, &handle_body());
    assert_eq!(answer, (0, vec!["forget 7 by 1".to_owned()]));
}

#[test]
fn an_end_reaches_below_whatever_the_pre_call_says() {
    const IO: i32 = 5;
    let ends = |code, call_operations| {
        let mut fixture = Fixture::new(&bickford_layer {
            pre_operations: !0,
            call_operations,
            ..layer(code)
        });
        [Opcode::Release, Opcode::Releasedir].map(|end| fixture.call(end, 7, &handle_body()))
    };
    let file = vec!["release 7 9 0".to_owned()];
    let directory = vec!["releasedir 7 9".to_owned()];
    assert_eq!(ends(IO, !0), [(IO, file.clone()), (IO, directory.clone())]);
    let opens = bit(BICKFORD_OP_CREATE) | bit(BICKFORD_OP_OPENDIR);
    assert_eq!(ends(0, opens), [(0, file), (0, directory)]);
    const NOSYS: i32 = 38;
    assert_eq!(ends(0, 0), [(NOSYS, vec![]), (NOSYS, vec![])]);
    // What a call opened with a handle of its own, it ends itself.
    assert_eq!(ends(BICKFORD_ANSWERED, !0), [(0, vec![]), (0, vec![])]);
}

static AT_WORK: Mutex<Option<mpsc::Receiver<()>>> = Mutex::new(None);
static RETURNED: AtomicBool = AtomicBool::new(false);

/// Returns some time after the test has gone on to wait for the end.
unsafe extern "C" fn linger(
    _: *mut c_void,
    _: *const bickford_request,
    _: *mut bickford_answer,
    result: i32,
) -> i32 {
    let go_on = AT_WORK.lock().unwrap().take().unwrap();
    go_on.recv().unwrap();
    thread::sleep(Duration::from_millis(50));
    RETURNED.store(true, Ordering::SeqCst);
    result
}

#[test]
fn the_end_waits_for_post_calls_on_other_threads() {
    let (go_on, at_work) = mpsc::channel();
    *AT_WORK.lock().unwrap() = Some(at_work);
    let mut fixture = Fixture::new(&bickford_layer {
        post_operations: bit(BICKFORD_OP_SETLK),
        post: Some(linger),
        ..layer(0)
    });
    fixture.kernel.send(Opcode::Setlkw, 7, &[0; 48]);
    go_on.send(()).unwrap();
    fixture.kernel.server().destroy();
    assert!(RETURNED.load(Ordering::SeqCst));
}

const TOGETHER: &[u8] = b"GOOD";

/// Puts other data in place of those that came, if any did.
unsafe extern "C" fn replace(
    _: *mut c_void,
    request: *mut bickford_request,
    _: *mut bickford_answer,
) -> i32 {
    // SAFETY: the arguments live during the call.
    let request = unsafe { &mut *request };
    if request.data_length > 0 {
        put_data(request, TOGETHER);
    }
    0
}

/// Answers as its errno how many bytes it sees of the request, plus 100, if they are as they went
/// below.
unsafe extern "C" fn count_data(
    _: *mut c_void,
    request: *const bickford_request,
    _: *mut bickford_answer,
    _: i32,
) -> i32 {
    // SAFETY: the arguments live during the call.
    let data = unsafe { bytes((*request).data, (*request).data_length) }.unwrap();
    match data {
        [] | b"data" | b"GOOD" => 100 + data.len() as i32,
        _ => 99,
    }
}

#[test]
fn a_post_call_sees_the_data_of_the_request() {
    let write = body(&[9, 0, 0, 0, 4, 0, 0, 0, 0, 0], b"data");
    let setxattr = body(&[4, 0], b"user.name\0data");
    let seen = |pre_operations, metadata_only| {
        let mut fixture = Fixture::new(&bickford_layer {
            pre_operations,
            post_operations: !0,
            metadata_only,
            pre: Some(replace),
            post: Some(count_data),
            ..layer(0)
        });
        let calls = [(Opcode::Write, &write), (Opcode::Setxattr, &setxattr)];
        calls.map(|(opcode, body)| {
            let (seen, mut asked) = fixture.call(opcode, 7, body);
            (seen, asked.remove(0))
        })
    };
    let expected = |write, wrote: &str, set: &str| {
        [
            (write, format!("write {wrote}")),
            (104, format!("setxattr {set}")),
        ]
    };
    assert_eq!(seen(0, 0), expected(104, "data", "data"));
    assert_eq!(seen(0, 1), expected(100, "data", "data"));
    assert_eq!(seen(!0, 0), expected(104, "GOOD", "GOOD"));
    assert_eq!(seen(!0, 1), expected(100, "data", "GOOD"));
}

#[test]
fn each_close_is_flushed_only_for_calls_of_flush() {
    const NOSYS: i32 = 38;
    let (open, flush) = (bit(BICKFORD_OP_OPEN), bit(BICKFORD_OP_FLUSH));
    for (pre_operations, flags, errno) in [
        (open, OpenOutFlags::NOFLUSH, NOSYS),
        (flush, OpenOutFlags::empty(), 0),
        (open | flush, OpenOutFlags::empty(), 0),
    ] {
        let mut fixture = Fixture::new(&bickford_layer {
            pre_operations,
            ..layer(0)
        });
        let opened = fixture.kernel.call(Opcode::Open, 7, &body(&[0, 0], b""));
        let opened = opened.unwrap().read::<OpenOut>().unwrap();
        assert_eq!(opened.open_flags, flags.bits());
        let flushed = fixture.call(Opcode::Flush, 7, &body(&[9, 0, 0, 0, 0, 0], b""));
        assert_eq!(flushed.0, errno);
    }
}

/// Asks for as many bytes as the user says.
unsafe extern "C" fn ask_for(
    user: *mut c_void,
    request: *mut bickford_request,
    _: *mut bickford_answer,
) -> i32 {
    // SAFETY: the arguments live during the call.
    unsafe { (*request).size = user.addr() as u64 };
    0
}

#[test]
fn who_asks_for_a_value_gets_no_length_though_a_pre_call_asked_for_that() {
    let answered = |asked: u32, instead: i32| {
        let mut fixture = Fixture::new(&bickford_layer {
            pre_operations: bit(BICKFORD_OP_GETXATTR),
            pre: Some(ask_for),
            ..layer(instead)
        });
        let body = body(&[asked, 0], b"user.name\0");
        let answer = fixture.kernel.call(Opcode::Getxattr, 7, &body).unwrap();
        (-answer.error, answer.body)
    };
    let length = body(&[5, 0], b"");
    for instead in [0, 5, 100] {
        assert_eq!(answered(0, instead), (0, length.clone()), "{instead}");
    }
    for asked in [5, 8, 100] {
        assert_eq!(answered(asked, 100), (0, b"value".to_vec()), "{asked}");
    }
    const IO: i32 = 5;
    const RANGE: i32 = 34;
    assert_eq!(answered(8, 0).0, IO);
    assert_eq!(answered(4, 100).0, RANGE);
    assert_eq!(answered(100, 4).0, RANGE);
}
