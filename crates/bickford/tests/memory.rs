//! The dispatcher over the memory transport, where the test plays the kernel.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bickford::abi::{
    AttrOut, BatchForgetIn, EntryOut, ForgetOne, InHeader, InitFlags, InitIn, InitOut, InterruptIn,
    NotifyRetrieveIn, NotifyRetrieveOut, Opcode,
};
use bickford::dispatch::{Admission, Server};
use bickford::ops::{Attr, Attributes, Data, Entry, Forget, Getattr, Lookup, Read};
use bickford::transport::memory::{Kernel, ServerConfig};
use bickford::transport::{Outgoing, Responder, Ticket};
use bickford::{Context, Errno, FileSystem, NodeId, Reply};
use zerocopy::IntoBytes;

/// Answers LOOKUP at once; READ of handle 1 panics, of handle 2 drops its reply, of 3 answers
/// when interrupted, of 4 panics then, of others is handed to the test.
struct Subject {
    forgets: Sender<Vec<Forget>>,
    reads: Mutex<Sender<Reply<Data>>>,
}

impl FileSystem for Subject {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        let (node, attr) = match op.name.to_bytes() {
            b".." => (NodeId::ROOT, Attr::directory(1, 0o755)),
            name => (NodeId(7), Attr::file(7, 0o644, name.len() as u64)),
        };
        reply.ok(Entry::new(node, attr, Duration::from_secs(1)));
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: Attr::directory(op.node.0, 0o755),
            valid: Duration::from_secs(1),
        });
    }

    fn read(&self, cx: &Context<'_>, op: Read, reply: Reply<Data>) {
        match op.handle.0 {
            1 => panic!("a panic of the file system"),
            2 => drop(reply),
            3 => {
                let interrupt = cx.interrupt();
                interrupt.on_raise(move || reply.error(Errno::INTR));
            }
            4 => cx.interrupt().on_raise(move || {
                let _reply = reply;
                panic!("a panic at an interrupt");
            }),
            _ => self.reads.lock().unwrap().send(reply).unwrap(),
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        self.forgets.send(forgets.to_vec()).unwrap();
    }
}

struct Fixture {
    kernel: Kernel,
    forgets: Receiver<Vec<Forget>>,
    reads: Receiver<Reply<Data>>,
}

fn before_init(config: ServerConfig) -> Fixture {
    let (forgets_to, forgets) = channel();
    let (reads_to, reads) = channel();
    let subject = Subject {
        forgets: forgets_to,
        reads: Mutex::new(reads_to),
    };
    Fixture {
        kernel: Kernel::with_config(subject, config),
        forgets,
        reads,
    }
}

fn fixture(config: ServerConfig) -> Fixture {
    let mut fixture = before_init(config);
    assert_eq!(fixture.kernel.init().unwrap().error, 0);
    fixture
}

fn read_of(handle: u64) -> Vec<u8> {
    let mut body = [0u64; 5];
    body[0] = handle;
    body[2] = 4096;
    body.as_bytes().to_vec()
}

#[test]
fn init_settles_the_lower_minor_and_offered_flags_only() {
    let mut kernel = before_init(ServerConfig::default()).kernel;
    let init = InitIn {
        major: 7,
        minor: 31,
        flags: 1,
        ..InitIn::default()
    };
    let out: InitOut = kernel.init_with(&init).unwrap().read().unwrap();
    assert_eq!((out.major, out.minor), (7, 45));
    assert_eq!(out.flags & !1, 0);
    assert_eq!(kernel.server().negotiated().unwrap().protocol.minor, 31);
}

#[test]
fn init_tells_the_kernel_how_long_to_wait_for_an_answer() {
    for seconds in [None, Some(0), Some(30)] {
        let mut config = ServerConfig::default();
        config.limits.request_timeout = seconds;
        let mut kernel = before_init(config).kernel;
        let (flags, flags2) = InitFlags::all().to_words();
        let init = InitIn {
            major: 7,
            minor: 45,
            flags,
            flags2,
            ..InitIn::default()
        };
        let out: InitOut = kernel.init_with(&init).unwrap().read().unwrap();
        let flags = InitFlags::from_words(out.flags, out.flags2);
        let told = flags.contains(InitFlags::REQUEST_TIMEOUT);
        let told = told.then_some(out.request_timeout);
        assert_eq!(told, seconds.filter(|seconds| *seconds > 0));
    }
}

#[test]
fn a_time_to_wait_that_the_kernel_does_not_offer_is_refused() {
    for (seconds, error) in [(0, 0), (30, -libc::EPROTO)] {
        let mut config = ServerConfig::default();
        config.limits.request_timeout = Some(seconds);
        let mut kernel = before_init(config).kernel;
        let init = InitIn {
            major: 7,
            minor: 42,
            ..InitIn::default()
        };
        assert_eq!(kernel.init_with(&init).unwrap().error, error);
        assert_eq!(kernel.server().negotiated().is_some(), error == 0);
    }
}

#[test]
fn an_old_kernel_gets_an_answer_of_its_size() {
    for (minor, size) in [(4, 8), (22, 24), (23, 64)] {
        let mut kernel = before_init(ServerConfig::default()).kernel;
        let init = InitIn {
            major: 7,
            minor,
            ..InitIn::default()
        };
        assert_eq!(
            kernel.init_with(&init).unwrap().body.len(),
            size,
            "minor {minor}"
        );
    }
}

#[test]
fn a_newer_major_is_answered_with_ours_and_asked_again() {
    let mut kernel = before_init(ServerConfig::default()).kernel;
    let init = InitIn {
        major: 8,
        minor: 0,
        ..InitIn::default()
    };
    let out: InitOut = kernel.init_with(&init).unwrap().read().unwrap();
    assert_eq!(out.major, 7);
    assert!(kernel.server().negotiated().is_none());
    assert_eq!(kernel.init().unwrap().error, 0);
}

#[test]
fn requests_before_init_are_refused() {
    let mut kernel = before_init(ServerConfig::default()).kernel;
    assert_eq!(
        kernel.call(Opcode::Lookup, 1, b"x\0").unwrap().error,
        -libc::EIO
    );
}

#[test]
fn a_lookup_is_answered() {
    let mut fixture = fixture(ServerConfig::default());
    let answer = fixture.kernel.call(Opcode::Lookup, 1, b"name\0").unwrap();
    let entry: EntryOut = answer.read().unwrap();
    assert_eq!((answer.error, entry.nodeid, entry.attr.size), (0, 7, 4));
}

#[test]
fn malformed_and_unknown_requests_are_answered_and_the_session_goes_on() {
    let mut fixture = fixture(ServerConfig::default());
    let kernel = &mut fixture.kernel;
    assert_eq!(
        kernel.call(Opcode::Lookup, 1, b"no end").unwrap().error,
        -libc::EINVAL
    );
    assert_eq!(
        kernel.call(Opcode::Read, 1, b"short").unwrap().error,
        -libc::EINVAL
    );
    let header = InHeader {
        len: 40,
        opcode: 9999,
        unique: 1_000,
        ..InHeader::default()
    };
    kernel.send_raw(header.as_bytes());
    assert_eq!(kernel.answer(1_000).unwrap().error, -libc::ENOSYS);
    let header = InHeader {
        len: 4_000,
        opcode: 1,
        unique: 1_002,
        ..InHeader::default()
    };
    kernel.send_raw(header.as_bytes());
    assert_eq!(kernel.answer(1_002).unwrap().error, -libc::EINVAL);
    kernel.send_raw(&[1, 2, 3]);
    assert_eq!(kernel.call(Opcode::Lookup, 1, b"name\0").unwrap().error, 0);
}

#[test]
fn a_dropped_reply_and_a_panic_are_eio() {
    let mut fixture = fixture(ServerConfig::default());
    for handle in [1, 2] {
        let answer = fixture
            .kernel
            .call(Opcode::Read, 7, &read_of(handle))
            .unwrap();
        assert_eq!(answer.error, -libc::EIO);
    }
    assert!(fixture.kernel.server().in_flight().is_empty());
}

#[test]
fn an_errno_that_the_kernel_would_refuse_is_eio() {
    let mut fixture = fixture(ServerConfig::default());
    for (errno, expected) in [(511, 511), (512, libc::EIO), (4095, libc::EIO)] {
        let unique = fixture.kernel.send(Opcode::Read, 7, &read_of(9));
        let reply = fixture.reads.recv().unwrap();
        reply.error(Errno::from_raw_os_error(errno));
        assert_eq!(fixture.kernel.answer(unique).unwrap().error, -expected);
        let unique = fixture.kernel.send(Opcode::Read, 7, &read_of(9));
        fixture.reads.recv().unwrap().ok(Data::Empty);
        assert_eq!(fixture.kernel.answer(unique).unwrap().error, 0);
    }
}

/// Takes nothing, and counts what comes: answers with data, and bare EIO.
#[derive(Default)]
struct Refusing {
    errno: i32,
    answers: AtomicUsize,
    bare: AtomicUsize,
}

impl Responder for Refusing {
    fn respond(&self, _: Ticket, answer: &Outgoing<'_>) -> io::Result<()> {
        let bare = answer.error == libc::EIO && answer.fixed.is_empty();
        let counter = if bare { &self.bare } else { &self.answers };
        counter.fetch_add(1, Ordering::SeqCst);
        Err(io::Error::from_raw_os_error(self.errno))
    }
}

#[test]
fn an_answer_that_is_not_taken_becomes_eio_once() {
    let mut fixture = fixture(ServerConfig::default());
    let server: Arc<Server> = Arc::clone(fixture.kernel.server());
    let header = InHeader {
        len: 45,
        opcode: Opcode::Lookup as u32,
        unique: 100,
        nodeid: 1,
        ..InHeader::default()
    };
    let message = [header.as_bytes(), b"name\0"].concat();
    for (errno, expected) in [(libc::EINVAL, 1), (libc::ENOENT, 0), (libc::ENODEV, 0)] {
        let refusing = Arc::new(Refusing {
            errno,
            ..Refusing::default()
        });
        let responder: Arc<dyn Responder> = refusing.clone();
        server.process_bytes(&server.worker(2), &message, &responder);
        assert_eq!(refusing.answers.load(Ordering::SeqCst), 1);
        assert_eq!(refusing.bare.load(Ordering::SeqCst), expected, "{errno}");
    }
    assert_eq!(
        fixture
            .kernel
            .call(Opcode::Lookup, 1, b"x\0")
            .unwrap()
            .error,
        0
    );
}

#[test]
fn a_reply_can_be_sent_later_from_another_thread() {
    let mut fixture = fixture(ServerConfig::default());
    let unique = fixture.kernel.send(Opcode::Read, 7, &read_of(9));
    let reply = fixture.reads.recv().unwrap();
    assert_eq!(fixture.kernel.server().in_flight().list().len(), 1);
    std::thread::spawn(move || reply.ok(b"data".as_slice().into()))
        .join()
        .unwrap();
    assert_eq!(fixture.kernel.answer(unique).unwrap().body, b"data");
    assert!(fixture.kernel.server().in_flight().is_empty());
}

#[test]
fn an_interrupt_reaches_its_request_before_or_after_it() {
    let mut fixture = fixture(ServerConfig::default());
    let kernel = &mut fixture.kernel;
    let unique = kernel.send(Opcode::Read, 7, &read_of(3));
    kernel.send(Opcode::Interrupt, 0, InterruptIn { unique }.as_bytes());
    assert_eq!(kernel.answer(unique).unwrap().error, -libc::EINTR);
    let early = unique + 6;
    kernel.send(
        Opcode::Interrupt,
        0,
        InterruptIn { unique: early }.as_bytes(),
    );
    assert_eq!(kernel.send(Opcode::Read, 7, &read_of(3)), early);
    assert_eq!(kernel.answer(early).unwrap().error, -libc::EINTR);
}

#[test]
fn what_waits_for_its_interrupt_waits_no_longer_than_there_is_a_kernel() {
    let mut fixture = fixture(ServerConfig::default());
    fixture.kernel.send(Opcode::Read, 7, &read_of(3));
    let server = Arc::clone(fixture.kernel.server());
    drop(fixture);
    assert!(server.in_flight().is_empty());
}

#[test]
fn a_panic_at_an_interrupt_leaves_the_session() {
    let mut fixture = fixture(ServerConfig::default());
    let kernel = &mut fixture.kernel;
    let unique = kernel.send(Opcode::Read, 7, &read_of(4));
    kernel.send(Opcode::Interrupt, 0, InterruptIn { unique }.as_bytes());
    assert_eq!(kernel.answer(unique).unwrap().error, -libc::EIO);
    assert_eq!(kernel.call(Opcode::Lookup, 1, b"x\0").unwrap().error, 0);
}

#[test]
fn panics_of_what_notifications_call_leave_the_session() {
    let mut fixture = fixture(ServerConfig::default());
    let notifier = fixture.kernel.server().notifier().clone();
    let node = NodeId(7);
    let panics = |_: io::Result<()>| panic!("a panic after a notification");
    notifier.invalidate_inode_then(node, 0, 0, panics).unwrap();
    let (called, calls) = channel();
    let panics = move |_: u64, data: &[u8]| {
        called.send(data.to_vec()).unwrap();
        panic!("a panic of a receiver");
    };
    notifier.retrieve(node, 0, 1, panics).unwrap();
    notifier.flush().unwrap();
    let sent = fixture.kernel.drain().pop().unwrap();
    let retrieve: NotifyRetrieveOut = sent.read().unwrap();
    let data = NotifyRetrieveIn {
        size: 1,
        ..NotifyRetrieveIn::default()
    };
    let body = [data.as_bytes(), b"x"].concat();
    let header = InHeader {
        opcode: Opcode::NotifyReply as u32,
        unique: retrieve.notify_unique,
        ..InHeader::default()
    };
    fixture.kernel.send_with(header, &body);
    assert_eq!(
        fixture
            .kernel
            .call(Opcode::Lookup, 1, b"x\0")
            .unwrap()
            .error,
        0
    );
    assert_eq!(calls.recv().unwrap(), b"x");
    notifier.invalidate_entry(node, c"name").unwrap();
    notifier.flush().unwrap();
}

/// What comes through a descriptor alone.
const OF_OPEN: [Opcode; 18] = [
    Opcode::Read,
    Opcode::Write,
    Opcode::Fsync,
    Opcode::Release,
    Opcode::Readdir,
    Opcode::Readdirplus,
    Opcode::Fsyncdir,
    Opcode::Releasedir,
    Opcode::Flush,
    Opcode::Getlk,
    Opcode::Setlk,
    Opcode::Setlkw,
    Opcode::Ioctl,
    Opcode::Poll,
    Opcode::Fallocate,
    Opcode::Lseek,
    Opcode::CopyFileRange,
    Opcode::CopyFileRange64,
];

/// The kernel lets everybody in, and shows what it has cached without asking.
#[test]
fn the_attributes_of_the_root_are_not_cached_where_not_all_are_admitted() {
    let valid = |access, nodeid: u64| {
        let mut fixture = fixture(ServerConfig {
            access,
            ..ServerConfig::default()
        });
        let header = InHeader {
            opcode: Opcode::Getattr as u32,
            unique: 100,
            nodeid,
            ..InHeader::default()
        };
        fixture.kernel.send_with(header, &[0; 16]);
        let out: AttrOut = fixture.kernel.answer(100).unwrap().read().unwrap();
        out.attr_valid
    };
    let some = Admission::OwnerAndRoot(1000);
    assert_eq!(valid(some, NodeId::ROOT.0), 0);
    assert_eq!(valid(some, 7), 1);
    assert_eq!(valid(Admission::Kernel, NodeId::ROOT.0), 1);
    let looked_up = |access, name: &[u8]| {
        let mut fixture = fixture(ServerConfig {
            access,
            ..ServerConfig::default()
        });
        let answer = fixture.kernel.call(Opcode::Lookup, 7, name).unwrap();
        answer.read::<EntryOut>().unwrap().attr_valid
    };
    assert_eq!(looked_up(some, b"..\0"), 0);
    assert_eq!(looked_up(some, b"name\0"), 1);
    assert_eq!(looked_up(Admission::Kernel, b"..\0"), 1);
}

#[test]
fn who_is_not_admitted_may_use_what_is_open() {
    let config = ServerConfig {
        access: Admission::OwnerAndRoot(1000),
        ..ServerConfig::default()
    };
    let mut fixture = fixture(config);
    let mut number = 100;
    let mut ask = |uid: u32, opcode: Opcode, flags: u8| {
        number += 2;
        let body = match opcode {
            Opcode::Lookup => b"name\0".to_vec(),
            _ => vec![flags; 88],
        };
        let header = InHeader {
            opcode: opcode as u32,
            unique: number,
            nodeid: 7,
            uid,
            ..InHeader::default()
        };
        fixture.kernel.send_with(header, &body);
        if opcode == Opcode::Read {
            fixture.reads.try_recv().ok()?.error(Errno::IO);
        }
        Some(-fixture.kernel.answer(number)?.error)
    };
    for uid in [0, 1000] {
        assert_eq!(ask(uid, Opcode::Lookup, 0), Some(0));
    }
    for opcode in [
        Opcode::Lookup,
        Opcode::Getattr,
        Opcode::Setattr,
        Opcode::Open,
    ] {
        assert_eq!(ask(5, opcode, 0), Some(libc::EACCES), "{opcode:?}");
    }
    // With all flags GETATTR and SETATTR have a handle.
    let with_handle = [(Opcode::Getattr, 0xff), (Opcode::Setattr, 0xff)];
    for (opcode, flags) in OF_OPEN
        .map(|opcode| (opcode, 0))
        .into_iter()
        .chain(with_handle)
    {
        let answer = ask(5, opcode, flags);
        assert!(
            answer.is_some_and(|errno| errno != libc::EACCES),
            "{opcode:?}: {answer:?}"
        );
    }
}

#[test]
fn forgets_count_exactly() {
    let mut fixture = fixture(ServerConfig::default());
    let ones: Vec<_> = (1..=100)
        .map(|n| ForgetOne {
            nodeid: n,
            nlookup: n * 2,
        })
        .collect();
    let head = BatchForgetIn {
        count: 100,
        dummy: 0,
    };
    let body = [head.as_bytes(), ones.as_bytes()].concat();
    fixture.kernel.send(Opcode::BatchForget, 0, &body);
    let seen: Vec<_> = fixture.forgets.try_iter().flatten().collect();
    let expected: Vec<_> = (1..=100)
        .map(|n| Forget {
            node: NodeId(n),
            count: n * 2,
        })
        .collect();
    assert_eq!(seen, expected);
    let wrong = BatchForgetIn {
        count: u32::MAX,
        dummy: 0,
    };
    fixture
        .kernel
        .send(Opcode::BatchForget, 0, wrong.as_bytes());
    assert_eq!(fixture.forgets.try_iter().count(), 0);
}

#[test]
fn what_exceeds_the_bound_is_refused_not_queued() {
    let config = ServerConfig {
        max_in_flight: 2,
        ..ServerConfig::default()
    };
    let mut fixture = fixture(config);
    let first = fixture.kernel.send(Opcode::Read, 7, &read_of(9));
    fixture.kernel.send(Opcode::Read, 7, &read_of(9));
    let third = fixture.kernel.call(Opcode::Read, 7, &read_of(9)).unwrap();
    assert_eq!(third.error, -libc::ENOMEM);
    // What would not come again reaches the file system.
    for opcode in [Opcode::Release, Opcode::Releasedir, Opcode::Flush] {
        let answer = fixture.kernel.call(opcode, 7, &[0; 24]).unwrap();
        assert_ne!(answer.error, -libc::ENOMEM, "{opcode:?}");
    }
    fixture.reads.recv().unwrap().error(Errno::IO);
    assert_eq!(fixture.kernel.answer(first).unwrap().error, -libc::EIO);
    fixture.kernel.send(Opcode::Read, 7, &read_of(9));
    assert_eq!(fixture.kernel.server().in_flight().len(), 2);
}

#[test]
fn a_notification_goes_out() {
    let fixture = fixture(ServerConfig::default());
    let notifier = fixture.kernel.server().notifier().clone();
    notifier.invalidate_entry(NodeId(1), c"name").unwrap();
    notifier.flush().unwrap();
    let messages = fixture.kernel.drain();
    assert_eq!((messages[0].unique, messages[0].error), (0, 3));
    assert!(messages[0].body.ends_with(b"name\0"));
}

#[test]
fn io_uring_is_not_taken_where_the_transport_cannot() {
    let fixture = fixture(ServerConfig::default());
    let flags = fixture.kernel.server().negotiated().unwrap().protocol.flags;
    assert!(!flags.contains(InitFlags::OVER_IO_URING));
}
