//! Locks that wait for one another, of more callers than requests are taken in.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};

use bickford_stackfs::{Preset, raise_descriptor_limit};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use support::{Mount, can_mount, until};

fn pin() {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(0);
    rustix::thread::sched_setaffinity(None, &cpus).unwrap();
}

/// All requests come from one CPU: over io_uring in one queue, which has 512 entries.
#[test]
fn an_unlock_gets_through_however_many_wait() {
    if !can_mount() {
        return;
    }
    // An eighth of the descriptors is for locks.
    raise_descriptor_limit().unwrap();
    let mount = Mount::new(Preset::Opt);
    std::fs::write(mount.below("f"), "").unwrap();
    let open = || File::open(mount.path("f")).unwrap();
    let callers = 560;
    let (locked, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let holder = open();
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                pin();
                match flock(open(), FlockOperation::LockShared) {
                    Ok(()) => locked.fetch_add(1, Ordering::SeqCst),
                    Err(Errno::NOLCK) => refused.fetch_add(1, Ordering::SeqCst),
                    Err(error) => unreachable!("{error}"),
                };
            });
        }
        until("all wait or were refused", || {
            let waiting = mount.session.server().in_flight().list();
            let waiting = waiting
                .iter()
                .filter(|request| request.opcode == bickford::abi::Opcode::Setlkw)
                .count();
            waiting + refused.load(Ordering::SeqCst) >= callers
        });
        assert_eq!(locked.load(Ordering::SeqCst), 0);
        scope.spawn(|| {
            pin();
            flock(&holder, FlockOperation::Unlock).unwrap();
        });
    });
    let (locked, refused) = (locked.into_inner(), refused.into_inner());
    let transport = mount.session.transport_name();
    eprintln!("{transport}: {locked} locked, {refused} refused");
    assert_eq!(locked + refused, callers);
    match transport {
        "io_uring" => assert!((400..512).contains(&locked), "{locked} had the lock"),
        _ => assert_eq!(refused, 0),
    }
}
