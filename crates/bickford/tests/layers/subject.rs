//! The file system below, a layer that a test makes of closures, and requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bickford::abi::{CreateIn, FlushIn, InitFlags, MkdirIn, OpenIn, ReadIn, ReleaseIn, WriteIn};
use bickford::layer::{About, Call, Done, Outcome};
use bickford::layer::{Interest, Layer, Needs, PostCalls, PreCalls, Resume};
use bickford::ops::{
    Attr, Create, Created, Data, Directory, DirectoryEntry, Entry, Forget, Lookup, Mkdir, Open,
    Opendir, Opened, Read, Readdirplus, Release, Releasedir, Write, Written,
};
use bickford::{Context, Errno, FileHandle, FileSystem, Negotiation, NodeId, Reply};
use zerocopy::IntoBytes;

/// Lines that say what happened, in order.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    pub(crate) fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Node 7 behind every name, handle 9 behind every open.
pub(crate) struct Subject {
    pub(crate) journal: Journal,
}

pub(crate) fn entry() -> Entry {
    Entry::new(NodeId(7), Attr::file(7, 0o644, 5), Duration::from_secs(1))
}

impl FileSystem for Subject {
    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        for flag in [InitFlags::PASSTHROUGH, InitFlags::NO_OPEN_SUPPORT] {
            if negotiation.want(flag) {
                self.journal.add(format!("offered {flag:?}"));
            }
        }
        negotiation.set_splice_writes(true);
        Ok(())
    }

    fn destroy(&self) {
        self.journal.add("destroy");
    }

    fn forget(&self, forgets: &[Forget]) {
        for forget in forgets {
            self.journal
                .add(format!("forget {} by {}", forget.node, forget.count));
        }
    }

    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        let name = op.name.to_string_lossy();
        self.journal.add(format!("lookup {name} {reply:?}"));
        match &*name {
            "missing" => reply.ok(Entry::negative(Duration::from_secs(1))),
            _ => reply.ok(entry()),
        }
    }

    fn mkdir(&self, cx: &Context<'_>, op: Mkdir<'_>, reply: Reply<Entry>) {
        let name = op.name.to_string_lossy();
        self.journal.add(format!("mkdir {name} {:o}", op.mode));
        let _ = cx;
        std::thread::spawn(move || reply.ok(entry()));
    }

    fn create(&self, _: &Context<'_>, _: Create<'_>, reply: Reply<Created>) {
        self.journal.add("create");
        reply.ok(Created {
            entry: entry(),
            opened: Opened::new(FileHandle(9)),
        });
    }

    fn open(&self, _: &Context<'_>, op: Open, reply: Reply<Opened>) {
        self.journal.add(format!("open {}", op.node));
        reply.ok(Opened::new(FileHandle(9)));
    }

    fn opendir(&self, _: &Context<'_>, op: Opendir, reply: Reply<Opened>) {
        self.journal.add(format!("opendir {}", op.node));
        reply.ok(Opened::new(FileHandle(9)));
    }

    fn release(&self, cx: &Context<'_>, op: Release, reply: Reply<()>) {
        self.journal.add(format!(
            "release {} {} {} for {}",
            op.node,
            op.handle,
            op.flags,
            cx.unique()
        ));
        reply.ok(());
    }

    fn releasedir(&self, _: &Context<'_>, op: Releasedir, reply: Reply<()>) {
        self.journal
            .add(format!("releasedir {} {}", op.node, op.handle));
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

    fn read(&self, _: &Context<'_>, _: Read, reply: Reply<Data>) {
        reply.ok(b"hello".as_slice().into());
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>, reply: Reply<Written>) {
        let data = op.data.bytes().unwrap();
        self.journal
            .add(format!("write {}", String::from_utf8_lossy(&data)));
        reply.ok(Written(data.len() as u32));
    }
}

type Before = dyn Fn(&Call<'_>, &About<'_>) -> Option<Errno> + Send + Sync;
type After = dyn Fn(&Done, &About<'_>, &Outcome) -> Option<Errno> + Send + Sync;

/// A layer of closures that treats every operation alike.
pub(crate) struct Closures {
    pub(crate) interest: Interest,
    pub(crate) needs: Needs,
    pub(crate) before: Box<Before>,
    pub(crate) after: Box<After>,
    pub(crate) held: Mutex<Vec<Resume>>,
}

impl Default for Closures {
    fn default() -> Self {
        Self {
            interest: Interest::default(),
            needs: Needs::default(),
            before: Box::new(|_, _| None),
            after: Box::new(|_, _, _| None),
            held: Mutex::default(),
        }
    }
}

impl PreCalls for Closures {
    fn every(&self, call: &Call<'_>, about: &About<'_>) -> Option<Errno> {
        (self.before)(call, about)
    }
}

impl PostCalls for Closures {
    fn every(&self, done: &Done, about: &About<'_>, outcome: &Outcome) -> Option<Errno> {
        (self.after)(done, about, outcome)
    }
}

impl Layer for Closures {
    fn name(&self) -> &str {
        "closures"
    }

    fn interest(&self) -> Interest {
        self.interest
    }

    fn needs(&self) -> Needs {
        self.needs.clone()
    }

    fn destroy(&self) {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        held.into_iter().for_each(Resume::now);
    }

    fn defer(&self, _: &Done, _: &Outcome, resume: Resume) {
        self.held.lock().unwrap().push(resume);
    }
}

pub(crate) fn mkdir_body() -> Vec<u8> {
    let input = MkdirIn {
        mode: 0o755,
        umask: 0,
    };
    [input.as_bytes(), b"dir\0"].concat()
}

pub(crate) fn create_body() -> Vec<u8> {
    let input = CreateIn {
        flags: 2,
        ..CreateIn::default()
    };
    [input.as_bytes(), b"file\0"].concat()
}

pub(crate) fn open_body() -> Vec<u8> {
    let input = OpenIn {
        flags: 1,
        ..OpenIn::default()
    };
    input.as_bytes().to_vec()
}

pub(crate) fn release_body() -> Vec<u8> {
    let input = ReleaseIn {
        fh: 9,
        ..ReleaseIn::default()
    };
    input.as_bytes().to_vec()
}

pub(crate) fn flush_body() -> Vec<u8> {
    let input = FlushIn {
        fh: 9,
        ..FlushIn::default()
    };
    input.as_bytes().to_vec()
}

pub(crate) fn read_body() -> Vec<u8> {
    let input = ReadIn {
        fh: 9,
        size: 4096,
        ..ReadIn::default()
    };
    input.as_bytes().to_vec()
}

pub(crate) fn write_body(data: &[u8]) -> Vec<u8> {
    let input = WriteIn {
        fh: 9,
        size: data.len() as u32,
        ..WriteIn::default()
    };
    [input.as_bytes(), data].concat()
}
