//! Locks that a file system over paths keeps itself: what closes a file gives them up.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::fs::File;
use std::sync::Mutex;

use bickford::abi::{FileLock, FlushIn, InitFlags, LkIn, Opcode, OpenIn, ReleaseIn};
use bickford::ops::{Attr, Lock, LockKind};
use bickford::path::{Adapter, FileSystem, Options, Subject};
use bickford::transport::memory::Kernel;
use bickford::{Context, Errno, LockOwner, Negotiation, Result};
use rustix::fs::FlockOperation;
use zerocopy::IntoBytes;

use support::Fixture;

/// One file, and who has its record lock and its lock as a whole. As little as an author may write.
#[derive(Default)]
struct Locks {
    record: Mutex<Option<LockOwner>>,
    whole: Mutex<Option<LockOwner>>,
}

fn change(holder: &Mutex<Option<LockOwner>>, owner: LockOwner, kind: LockKind) -> Result<()> {
    let mut holder = holder.lock().unwrap();
    if holder.is_some_and(|other| other != owner) {
        return match kind {
            LockKind::Unlock => Ok(()),
            _ => Err(Errno::AGAIN),
        };
    }
    *holder = (kind != LockKind::Unlock).then_some(owner);
    Ok(())
}

impl FileSystem for Locks {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        negotiation.want(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS);
        Ok(())
    }

    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        match subject.path()?.to_str() {
            Some("/") => Ok(Attr::directory(1, 0o755)),
            Some("/file") => Ok(Attr::file(0, 0o644, 0)),
            _ => Err(Errno::NOENT),
        }
    }

    fn setlk(
        &self,
        _: &Context<'_>,
        _: Subject<'_>,
        owner: LockOwner,
        lock: Lock,
        _: bool,
    ) -> Result<()> {
        change(&self.record, owner, lock.kind)
    }

    fn flock(
        &self,
        _: &Context<'_>,
        _: Subject<'_>,
        owner: LockOwner,
        kind: LockKind,
        _: bool,
    ) -> Result<()> {
        change(&self.whole, owner, kind)
    }
}

#[test]
fn a_file_that_is_closed_is_locked_no_more() {
    support::over_each_transport(|config| {
        let adapter = Adapter::new(Locks::default(), Options::default());
        let fixture = Fixture::new(adapter, config);
        let open = || File::open(fixture.path("file")).unwrap();
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        let (first, second) = (open(), open());
        rustix::fs::flock(&first, exclusive).unwrap();
        assert_eq!(rustix::fs::flock(&second, exclusive), Err(Errno::AGAIN));
        drop(first);
        // RELEASE is not waited for by whoever closes.
        support::wait_until("the lock is given up", || {
            rustix::fs::flock(&second, exclusive).is_ok()
        });
        drop(second);
        fixture.finish();
    });
}

fn lock(owner: u64) -> LkIn {
    LkIn {
        owner,
        lk: FileLock {
            end: i64::MAX as u64,
            r#type: 1,
            ..FileLock::default()
        },
        ..LkIn::default()
    }
}

/// FLUSH of one who closes, SETLK of the next.
#[test]
fn a_process_that_closes_a_file_has_no_record_locks_of_it() {
    let mut kernel = Kernel::new(Adapter::new(Locks::default(), Options::default()));
    assert_eq!(kernel.init().unwrap().error, 0);
    let mut ask = |opcode, body: &[u8]| kernel.call(opcode, 1, body).unwrap().error;
    for owner in [1, 2, 3] {
        assert_eq!(ask(Opcode::Setlk, lock(owner).as_bytes()), 0);
        let other = ask(Opcode::Setlk, lock(owner + 1).as_bytes());
        assert_eq!(other, -Errno::AGAIN.raw_os_error());
        let flush = FlushIn {
            lock_owner: owner,
            ..FlushIn::default()
        };
        // Not ENOSYS, after which it would not come any more.
        assert_eq!(ask(Opcode::Flush, flush.as_bytes()), 0);
    }
}

/// With F_OFD_SETLK the owner is the open file. Closing it sends FLUSH with the process for owner, and RELEASE.
#[test]
fn an_open_file_that_ends_has_no_record_locks() {
    let mut kernel = Kernel::new(Adapter::new(Locks::default(), Options::default()));
    assert_eq!(kernel.init().unwrap().error, 0);
    let mut ask = |opcode, body: &[u8]| kernel.call(opcode, 1, body).unwrap().error;
    let flush = FlushIn {
        lock_owner: 9,
        ..FlushIn::default()
    };
    // Both have one handle.
    for _ in 0..2 {
        assert_eq!(ask(Opcode::Open, OpenIn::default().as_bytes()), 0);
    }
    assert_eq!(ask(Opcode::Setlk, lock(1).as_bytes()), 0);
    for other in [-Errno::AGAIN.raw_os_error(), 0] {
        assert_eq!(ask(Opcode::Flush, flush.as_bytes()), 0);
        assert_eq!(ask(Opcode::Release, ReleaseIn::default().as_bytes()), 0);
        assert_eq!(ask(Opcode::Setlk, lock(2).as_bytes()), other);
    }
}
