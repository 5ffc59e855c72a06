//! Attributes that were read before a change, and reach the kernel after it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bickford::Errno;
use bickford::layer::{Done, Interest, Layer, OperationKind, OperationSet, PostCalls, PreCalls};
use bickford::ops::{Attributes, Getattr};
use bickford_stackfs::{IoMode, Preset};
use rustix::fs::XattrFlags;
use support::{Mount, can_mount, with_io};

/// Keeps an answer to GETATTR that it has been told to until it may go on.
struct Late {
    keeps: Mutex<Receiver<Held>>,
}

/// Says that the answer is there, and waits.
struct Held {
    begun: Sender<()>,
    until: Receiver<()>,
}

impl PreCalls for Late {}

impl PostCalls for Late {
    fn getattr(&self, _: &Done, _: &Getattr, _: &mut Result<Attributes, Errno>) {
        let held = self.keeps.lock().unwrap().try_recv();
        if let Ok(held) = held {
            held.begun.send(()).unwrap();
            let _ = held.until.recv();
        }
    }
}

impl Layer for Late {
    fn name(&self) -> &str {
        "late"
    }

    fn interest(&self) -> Interest {
        Interest {
            post: OperationSet::of(&[OperationKind::Getattr]),
            ..Interest::default()
        }
    }
}

/// Version 2: everybody may do what these bits say, by an ACL with a mask.
fn acl(permissions: u16) -> Vec<u8> {
    let mut acl = 2_u32.to_le_bytes().to_vec();
    // Owner, group, mask and others.
    for tag in [1_u16, 4, 16, 32] {
        acl.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        acl.extend(u32::MAX.to_le_bytes());
    }
    acl
}

#[test]
fn what_an_acl_or_an_attribute_changes_is_seen_whoever_asked_before() {
    const ACL: &str = "system.posix_acl_access";
    if !can_mount() {
        return;
    }
    let (keep, keeps) = channel();
    let layer = Late {
        keeps: Mutex::new(keeps),
    };
    let lower = tempfile::tempdir().unwrap();
    fs::write(lower.path().join("f"), "").unwrap();
    // With its write-back cache the kernel would tell a time of its own.
    let settings = with_io(Preset::Fast.settings(), IoMode::Direct);
    let mount = Mount::below_layer(layer, lower, |builder| builder.settings(settings));
    let path = mount.path("f");
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&path, name, value, XattrFlags::empty()).unwrap();
    };
    let told = |path: &Path| {
        let stat = rustix::fs::stat(path).unwrap();
        (stat.st_mode, stat.st_ctime, stat.st_ctime_nsec)
    };
    let changes: [&dyn Fn(); 3] = [
        &|| set(ACL, &acl(7)),
        &|| set("user.name", b"value"),
        &|| rustix::fs::removexattr(&path, "user.name").unwrap(),
    ];
    let mut number = 0;
    while let Some(change) = changes.get(number) {
        // The kernel asks for its time of change from now on.
        set("user.other", b"value");
        let (begun, begins) = channel();
        let (release, until) = channel();
        let (since, mut took) = (Instant::now(), Duration::ZERO);
        std::thread::scope(|scope| {
            keep.send(Held { begun, until }).unwrap();
            let asked = scope.spawn(|| told(&path));
            begins.recv().unwrap();
            change();
            took = since.elapsed();
            drop::<Sender<()>>(release);
            asked.join().unwrap();
        });
        // An answer that takes a second is not thought of: the machine was too busy.
        if took > Duration::from_millis(500) {
            continue;
        }
        assert_eq!(told(&path), told(&mount.below("f")), "change {number}");
        number += 1;
    }
}
