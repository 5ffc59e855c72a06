//! Pre-calls, post-calls, switches, needs, and answers that are held back.

use std::ffi::CString;
use std::sync::Arc;

use bickford::abi::{EntryOut, Opcode, OpenOut, OpenOutFlags};
use bickford::layer::{
    Call, Done, Interest, Layer, Layered, Needs, OperationKind, OperationSet, Outcome, PostCalls,
    PreCalls, Resume, Step, Switches,
};
use bickford::ops::{
    Attr, Create, Created, Data, Entry, Forget, Lookup, Mkdir, Open, Opened, Read, Write, Written,
};
use bickford::transport::memory::Kernel;
use bickford::{Context, Errno, FileHandle, FileSystem, NodeId, Reply};
use zerocopy::FromBytes;

use super::subject::*;

fn kernel(filesystem: impl FileSystem, journal: &Journal) -> Kernel {
    let mut kernel = Kernel::new(filesystem);
    assert_eq!(kernel.init().unwrap().error, 0);
    journal.take();
    kernel
}

fn fixture(layer: impl Layer, switches: &Switches) -> (Kernel, Journal) {
    let journal = Journal::default();
    let subject = Subject {
        journal: journal.clone(),
    };
    let layered = Layered::with_switches(layer, subject, switches);
    (kernel(layered, &journal), journal)
}

const ALL: Interest = Interest {
    pre: OperationSet::ALL,
    post: OperationSet::ALL,
    defer: OperationSet::NONE,
    forget: true,
    timed: false,
};

/// Renames what is looked up, answers for `own`, changes modes and sizes.
struct Renaming(Journal);

impl PreCalls for Renaming {
    fn lookup<'a>(&self, call: &Call<'a>, op: &mut Lookup<'a>) -> Step<Entry> {
        if op.name == c"own" {
            let attr = Attr::file(70, 0o600, 0);
            return Step::Answer(Ok(Entry::new(NodeId(70), attr, Default::default())));
        }
        let name = format!("{}.below", op.name.to_string_lossy());
        op.name = call.keep_name(CString::new(name).unwrap());
        let other = call.keep_name(c"another".into());
        assert_eq!(other, c"another");
        Step::Continue
    }

    fn mkdir<'a>(&self, _: &Call<'a>, op: &mut Mkdir<'a>) -> Step<Entry> {
        op.mode = 0o700;
        Step::Continue
    }
}

impl PostCalls for Renaming {
    fn lookup(&self, _: &Done, op: &Lookup<'_>, result: &mut Result<Entry, Errno>) {
        self.0.add(format!("after {}", op.name.to_string_lossy()));
        if let Ok(entry) = result {
            entry.attr.size = 99;
        }
    }

    fn mkdir(&self, done: &Done, op: &Mkdir<'_>, result: &mut Result<Entry, Errno>) {
        let name = op.name.to_string_lossy();
        let node = result.map(|entry| entry.node.0);
        let (kind, mode) = (done.kind(), op.mode);
        self.0.add(format!("after {kind} {name} {mode:o} {node:?}"));
    }
}

impl Layer for Renaming {
    fn name(&self) -> &str {
        "renaming"
    }

    fn interest(&self) -> Interest {
        ALL
    }
}

#[test]
fn arguments_and_results_can_be_changed_and_answers_given_instead() {
    let journal = Journal::default();
    let (mut kernel, below) = fixture(Renaming(journal.clone()), &Switches::default());
    let found: EntryOut = kernel
        .call(Opcode::Lookup, 1, b"name\0")
        .unwrap()
        .read()
        .unwrap();
    assert_eq!((found.nodeid, found.attr.size), (7, 99));
    assert!(below.take()[0].starts_with("lookup name.below "));
    let own: EntryOut = kernel
        .call(Opcode::Lookup, 1, b"own\0")
        .unwrap()
        .read()
        .unwrap();
    assert_eq!((own.nodeid, own.attr.size), (70, 99));
    assert!(below.take().is_empty());
    assert_eq!(journal.take(), ["after name.below", "after own"]);
    kernel.call(Opcode::Mkdir, 1, &mkdir_body()).unwrap();
    assert_eq!(below.take(), ["mkdir dir 700"]);
    assert_eq!(journal.take(), ["after mkdir dir 700 Ok(7)"]);
}

#[test]
fn what_is_of_no_interest_goes_straight_through() {
    let journal = Journal::default();
    let mut filesystem: Box<dyn FileSystem> = Box::new(Subject {
        journal: journal.clone(),
    });
    for _ in 0..10 {
        filesystem = Box::new(Layered::new(Closures::default(), filesystem));
    }
    let mut kernel = kernel(filesystem, &journal);
    let unique = kernel.send(Opcode::Lookup, 1, b"name\0");
    assert_eq!(
        journal.take(),
        [format!("lookup name Reply(LOOKUP {unique})")]
    );
}

#[test]
fn what_is_of_no_interest_allocates_nothing() {
    let allocations = |layers: usize| {
        let journal = Journal::default();
        let mut filesystem: Box<dyn FileSystem> = Box::new(Subject {
            journal: journal.clone(),
        });
        for _ in 0..layers {
            filesystem = Box::new(Layered::new(Closures::default(), filesystem));
        }
        let mut kernel = kernel(filesystem, &journal);
        kernel.call(Opcode::Read, 7, &read_body()).unwrap();
        let body = read_body();
        let counted = allocation_counter::measure(|| {
            kernel.send(Opcode::Read, 7, &body);
        });
        counted.count_total
    };
    assert_eq!(allocations(10), allocations(0));
}

#[test]
fn layers_are_called_from_the_outside_in_and_back() {
    let journal = Journal::default();
    let subject = Subject {
        journal: journal.clone(),
    };
    let layer = |name: &'static str| {
        let (before, after) = (journal.clone(), journal.clone());
        Closures {
            interest: ALL,
            before: Box::new(move |call, _| {
                before.add(format!("before {} {name}", call.kind()));
                None
            }),
            after: Box::new(move |done, _, _| {
                after.add(format!("after {} {name}", done.kind()));
                None
            }),
            ..Closures::default()
        }
    };
    let layered = Layered::new(layer("outer"), Layered::new(layer("inner"), subject));
    let mut kernel = kernel(layered, &journal);
    kernel.call(Opcode::Open, 7, &open_body()).unwrap();
    assert_eq!(
        journal.take(),
        [
            "before open outer",
            "before open inner",
            "open 7",
            "after open inner",
            "after open outer"
        ]
    );
}

#[test]
fn switches_turn_calls_off() {
    let text = "[operations.open]\npre = false\n[operations.lookup]\ncall = false\n[operations.opendir]\npost = false\n";
    let journal = Journal::default();
    let (before, after) = (journal.clone(), journal.clone());
    let layer = Closures {
        interest: ALL,
        before: Box::new(move |call, _| {
            before.add(format!("before {}", call.kind()));
            None
        }),
        after: Box::new(move |done, _, outcome| {
            after.add(format!("after {} {:?}", done.kind(), outcome.errno));
            None
        }),
        ..Closures::default()
    };
    let (mut kernel, below) = fixture(layer, &text.parse().unwrap());
    kernel.call(Opcode::Open, 7, &open_body()).unwrap();
    assert_eq!(journal.take(), ["after open None"]);
    kernel.call(Opcode::Opendir, 7, &open_body()).unwrap();
    assert_eq!(journal.take(), ["before opendir"]);
    assert_eq!(below.take(), ["open 7", "opendir 7"]);
    let answer = kernel.call(Opcode::Lookup, 1, b"name\0").unwrap();
    assert_eq!(answer.error, -libc::ENOSYS);
    assert!(below.take().is_empty());
    let nosys = format!("after lookup {:?}", Some(Errno::NOSYS));
    assert_eq!(journal.take(), ["before lookup".to_owned(), nosys]);
}

#[test]
fn what_is_open_below_is_closed_though_that_call_is_switched_off() {
    let text = "[operations.release]\ncall = false\n[operations.releasedir]\ncall = false\n";
    let layer = Closures {
        interest: ALL,
        ..Closures::default()
    };
    let (mut kernel, below) = fixture(layer, &text.parse().unwrap());
    for opcode in [Opcode::Release, Opcode::Releasedir] {
        assert_eq!(kernel.call(opcode, 7, &release_body()).unwrap().error, 0);
        assert_eq!(below.take().len(), 1, "{opcode:?}");
    }
}

/// Turns contents into capitals, on both ways.
struct Capitals {
    contents: bool,
    journal: Journal,
}

impl PreCalls for Capitals {
    fn write<'a>(&self, call: &Call<'a>, op: &mut Write<'a>) -> Step<Written> {
        let data = op.data.bytes().unwrap();
        let (all, seen) = (call.length(), data.len());
        self.journal.add(format!("write of {all}, sees {seen}"));
        let data = call.keep_bytes(data.to_ascii_uppercase());
        op.data = bickford::ops::Payload::from_bytes(data);
        Step::Continue
    }
}

impl PostCalls for Capitals {
    fn read(&self, done: &Done, _: &Read, result: &mut Result<Data, Errno>) {
        let Ok(data) = result else { return };
        let (all, seen) = (done.length(), data.len());
        self.journal.add(format!("read of {all}, sees {seen}"));
        let bytes = std::mem::take(data).into_bytes().unwrap();
        *data = bytes.to_ascii_uppercase().into();
    }

    fn write(&self, _: &Done, op: &Write<'_>, _: &mut Result<Written, Errno>) {
        self.journal.add(format!("kept {}", op.data.len()));
    }
}

impl Layer for Capitals {
    fn name(&self) -> &str {
        "capitals"
    }

    fn interest(&self) -> Interest {
        ALL
    }

    fn needs(&self) -> Needs {
        Needs {
            contents: self.contents,
            because: "changes contents".into(),
            ..Needs::default()
        }
    }
}

#[test]
fn contents_are_seen_only_where_they_were_asked_for() {
    let metadata_only = Switches {
        metadata_only: true,
        ..Switches::default()
    };
    for (contents, switches, sees, read) in [
        (true, Switches::default(), true, b"HELLO"),
        (true, metadata_only, false, b"hello"),
        (false, Switches::default(), false, b"hello"),
    ] {
        let journal = Journal::default();
        let layer = Capitals {
            contents,
            journal: journal.clone(),
        };
        let (mut kernel, below) = fixture(layer, &switches);
        let answer = kernel.call(Opcode::Read, 7, &read_body()).unwrap();
        assert_eq!(answer.body, read);
        kernel.call(Opcode::Write, 7, &write_body(b"abc")).unwrap();
        assert_eq!(below.take(), [if sees { "write ABC" } else { "write abc" }]);
        let seen = if sees {
            ["read of 5, sees 5", "write of 3, sees 3", "kept 3"]
        } else {
            ["read of 5, sees 0", "write of 3, sees 0", "kept 3"]
        };
        assert_eq!(journal.take(), seen);
    }
}

#[test]
fn fast_modes_are_off_only_where_a_layer_needs_it() {
    let offered = |data, opens, contents| {
        let journal = Journal::default();
        let subject = Subject {
            journal: journal.clone(),
        };
        let layer = Closures {
            needs: Needs {
                data,
                contents,
                opens,
                because: "the test says so".into(),
                ..Needs::default()
            },
            ..Closures::default()
        };
        let layered = Layered::new(Closures::default(), Layered::new(layer, subject));
        let mut kernel = Kernel::new(layered);
        kernel.init().unwrap();
        let negotiated = kernel.server().negotiated().unwrap();
        (journal.take(), negotiated.negotiation.splice_writes())
    };
    let both = [
        "offered InitFlags(PASSTHROUGH)",
        "offered InitFlags(NO_OPEN_SUPPORT)",
    ];
    assert_eq!(
        offered(false, false, false),
        (both.map(Into::into).to_vec(), true)
    );
    assert_eq!(offered(true, false, false), (vec![both[1].into()], true));
    assert_eq!(offered(false, true, false), (vec![both[0].into()], true));
    assert_eq!(offered(false, false, true), (vec![both[1].into()], false));
}

/// Says in every way that nobody need flush.
struct Sparing;

impl FileSystem for Sparing {
    fn open(&self, _: &Context<'_>, _: Open, reply: Reply<Opened>) {
        reply.ok(spared());
    }

    fn create(&self, _: &Context<'_>, _: Create<'_>, reply: Reply<Created>) {
        reply.ok(Created {
            entry: entry(),
            opened: spared(),
        });
    }
}

fn spared() -> Opened {
    let mut opened = Opened::new(FileHandle(9));
    opened.flags = OpenOutFlags::NOFLUSH | OpenOutFlags::DIRECT_IO;
    opened
}

#[test]
fn each_close_is_flushed_only_where_a_layer_needs_it() {
    let spared = OpenOutFlags::NOFLUSH | OpenOutFlags::DIRECT_IO;
    for (flushes, flags, errno) in [
        (false, spared, libc::ENOSYS),
        (true, OpenOutFlags::DIRECT_IO, 0),
    ] {
        let layer = Closures {
            needs: Needs {
                flushes,
                ..Needs::default()
            },
            ..Closures::default()
        };
        let mut kernel = kernel(Layered::new(layer, Sparing), &Journal::default());
        let opened = kernel.call(Opcode::Open, 7, &open_body()).unwrap();
        let opened = opened.read::<OpenOut>().unwrap();
        assert_eq!(opened.open_flags, flags.bits());
        let created = kernel.call(Opcode::Create, 1, &create_body()).unwrap();
        let (_, opened) = created.body.split_at(size_of::<EntryOut>());
        let opened = OpenOut::read_from_bytes(opened).unwrap();
        assert_eq!(opened.open_flags, flags.bits());
        let flushed = kernel.call(Opcode::Flush, 7, &flush_body()).unwrap();
        assert_eq!(flushed.error, -errno);
    }
}

#[test]
fn answers_that_are_held_back_go_on_when_let_go_and_at_the_end() {
    let layer = Arc::new(Closures {
        interest: Interest {
            defer: OperationSet::of(&[OperationKind::Lookup]),
            ..Interest::default()
        },
        ..Closures::default()
    });
    let (mut kernel, _) = fixture(Shared(Arc::clone(&layer)), &Switches::default());
    let first = kernel.send(Opcode::Lookup, 1, b"name\0");
    let second = kernel.send(Opcode::Lookup, 1, b"name\0");
    kernel.call(Opcode::Open, 7, &open_body()).unwrap();
    assert_eq!(kernel.server().in_flight().len(), 2);
    let held = layer.held.lock().unwrap().remove(0);
    held.now();
    assert_eq!(kernel.answer(first).unwrap().error, 0);
    kernel.send(Opcode::Destroy, 0, &[]);
    assert_eq!(kernel.answer(second).unwrap().error, 0);
}

/// A layer that the test keeps hold of.
struct Shared(Arc<Closures>);

impl PreCalls for Shared {}
impl PostCalls for Shared {}

impl Layer for Shared {
    fn name(&self) -> &str {
        "shared"
    }

    fn interest(&self) -> Interest {
        self.0.interest
    }

    fn destroy(&self) {
        self.0.destroy();
    }

    fn defer(
        &self,
        done: &Done,
        outcome: &bickford::layer::Outcome,
        resume: bickford::layer::Resume,
    ) {
        self.0.defer(done, outcome, resume);
    }
}

/// Panics wherever a layer is told something.
struct Panicking;

impl PreCalls for Panicking {}
impl PostCalls for Panicking {}

impl Layer for Panicking {
    fn name(&self) -> &str {
        "panicking"
    }

    fn interest(&self) -> Interest {
        Interest {
            defer: OperationSet::ALL,
            forget: true,
            ..Interest::default()
        }
    }

    fn destroy(&self) {
        panic!("a panic of the layer");
    }

    fn forget(&self, _: &[Forget]) {
        panic!("a panic of the layer");
    }

    fn defer(&self, _: &Done, _: &Outcome, _: Resume) {
        panic!("a panic of the layer");
    }
}

/// Has something to do after its answer.
struct Busy(Subject);

impl FileSystem for Busy {
    fn lookup(&self, cx: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        self.0.lookup(cx, op, reply);
        self.0.journal.add("goes on");
    }

    fn forget(&self, forgets: &[Forget]) {
        self.0.forget(forgets);
    }

    fn destroy(&self) {
        self.0.destroy();
    }
}

#[test]
fn a_panic_of_the_layer_keeps_nothing_from_the_file_system_below() {
    let journal = Journal::default();
    let subject = Subject {
        journal: journal.clone(),
    };
    let mut kernel = kernel(Layered::new(Panicking, Busy(subject)), &journal);
    let answer = kernel.call(Opcode::Lookup, 1, b"name\0").unwrap();
    assert_eq!(answer.error, 0);
    assert_eq!(journal.take().last().unwrap(), "goes on");
    kernel.send(Opcode::Forget, 7, &1_u64.to_ne_bytes());
    assert_eq!(journal.take(), ["forget 7 by 1"]);
    kernel.send(Opcode::Destroy, 0, &[]);
    assert_eq!(journal.take(), ["destroy"]);
}
