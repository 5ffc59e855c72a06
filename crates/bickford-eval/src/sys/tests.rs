//! What the kernel kept back is told by close(2).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use bickford::filesystem::blocking;
use bickford::mount::{MountOptions, Unmount, unmount};
use bickford::ops::{
    Attr, Attributes, Data, Entry, Flush, Getattr, Lookup, Read, Setattr, Unlink, Write, Written,
};
use bickford::{Blocking, Context, Errno, NodeId, Session, SessionConfig};

use crate::engine::{self, Backend};
use crate::host::mounts;
use crate::rows::{Kind, Phase};
use crate::wml;
use crate::worker::{Job, perform};

const BYTES: u64 = 64 << 10;
const DIRECTORY: NodeId = NodeId(2);
const FILE: NodeId = NodeId(3);
const VALID: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(60);
const CLOSE: &str = "flowop closefile name=c,fd=1";
/// In the slot of the first.
const OPEN_AGAIN: &str = "flowop openfile name=a,filesetname=files,fd=1";

/// A directory `files` and otherwise files, every one of which fails when it is closed.
struct Late;

fn attributes(node: NodeId) -> Attributes {
    let attr = match node {
        FILE => Attr::file(3, 0o644, BYTES),
        NodeId(number) => Attr::directory(number, 0o755),
    };
    Attributes { attr, valid: VALID }
}

impl blocking::FileSystem for Late {
    fn lookup(&self, _: &Context<'_>, op: Lookup<'_>) -> Result<Entry, Errno> {
        let node = match op.name.to_bytes() {
            b"files" => DIRECTORY,
            _ => FILE,
        };
        Ok(Entry::new(node, attributes(node).attr, VALID))
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        Ok(attributes(op.node))
    }

    fn setattr(&self, _: &Context<'_>, op: Setattr) -> Result<Attributes, Errno> {
        Ok(attributes(op.node))
    }

    fn unlink(&self, _: &Context<'_>, _: Unlink<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn read(&self, _: &Context<'_>, op: Read) -> Result<Data, Errno> {
        Ok(Data::part([1; BYTES as usize], op.offset, op.size))
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>) -> Result<Written, Errno> {
        Ok(Written(op.data.len() as u32))
    }

    fn flush(&self, _: &Context<'_>, _: Flush) -> Result<(), Errno> {
        Err(Errno::DQUOT)
    }
}

fn workload(root: &Path, ops: &str) -> String {
    let text = format!(
        "define fileset name=files,path=/x,entries=4,size=4k,dirwidth=9,prealloc=100\n\
         define process name=p {{ thread name=t {{ flowop openfile name=o,filesetname=files,fd=1\n\
         {ops}\nflowop finishoncount name=f,value={} }} }}\n",
        1 + usize::from(!ops.is_empty())
    );
    let workload = wml::parse(&text, &BTreeMap::new()).unwrap();
    engine::run(&workload, root, Backend::Posix).unwrap_err()
}

fn errors(root: &Path) -> Vec<String> {
    let phases = Phase::ALL.map(|(phase, _)| Kind::Bonnie {
        phase,
        bytes: BYTES,
    });
    let buffers = Kind::BufferWrite {
        buffer: 4096,
        bytes: BYTES,
        times: 1,
    };
    let run = |kind| Job::Run {
        kind,
        directory: root.to_owned(),
    };
    let warm = Job::Warm {
        directory: root.to_owned(),
    };
    let jobs = phases.into_iter().chain([buffers]).map(run).chain([warm]);
    jobs.map(|job| perform(&job).unwrap_err()).collect()
}

#[test]
fn an_error_of_close_ends_every_workload() {
    let device = std::fs::File::open("/dev/fuse");
    if !crate::host::is_root() || device.is_err() {
        crate::terminal::warn("skipped: mounting needs root and /dev/fuse");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let root = place.path().to_owned();
    let options = MountOptions::new().fsname("bickford-test");
    let session =
        Session::mount(Blocking(Late), &root, &options, SessionConfig::default()).unwrap();
    let connection = session.connection().unwrap();
    let (done, over) = channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if over.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout) {
            let _ = mounts::abort(connection);
        }
    });
    let told = std::panic::catch_unwind(|| {
        let mut told = errors(&root);
        told.extend(["", CLOSE, OPEN_AGAIN].map(|ops| workload(&root, ops)));
        told
    });
    drop(done);
    watchdog.join().unwrap();
    unmount(&root, Unmount::Lazy).unwrap();
    session.wait();
    let told = told.unwrap();
    let quota = std::io::Error::from(Errno::DQUOT).to_string();
    for error in &told {
        assert!(
            error.contains("close: ") && error.contains(&quota),
            "{told:?}"
        );
    }
}
