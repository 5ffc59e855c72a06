//! Who may set an attribute that the lower file system alone knows: whoever it lets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bickford::mount::{AccessPolicy, MountGuard, MountOptions, Unmount, mount};
use bickford::ops::{Attr, Attributes, Getattr, Getxattr, Removexattr, Setxattr, XattrAnswer};
use bickford::{Context, Errno, FileSystem, NodeId, Reply, Session, SessionConfig};
use bickford_stackfs::Preset;
use rustix::fs::XattrFlags;
use support::{Mount, can_mount};

const NOBODY: u32 = 65_534;
const ASKED_BELOW: &str = "system.below";
const ASKED_ABOVE: &str = "user.above";

/// A directory that notes who asks for its attributes.
#[derive(Clone, Default)]
struct Noting(Arc<Mutex<Vec<(String, u32)>>>);

impl Noting {
    fn note(&self, cx: &Context<'_>, name: &CStr) {
        let name = name.to_str().unwrap().to_owned();
        self.0.lock().unwrap().push((name, cx.uid()));
    }
}

impl FileSystem for Noting {
    fn getattr(&self, _: &Context<'_>, _: Getattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: Attr {
                ino: NodeId::ROOT.0,
                mode: 0o040_777,
                links: 2,
                ..Attr::default()
            },
            valid: Duration::from_secs(1),
        });
    }

    fn getxattr(&self, cx: &Context<'_>, op: Getxattr<'_>, reply: Reply<XattrAnswer>) {
        self.note(cx, op.name);
        // Older kernels ask for ACLs by this, too.
        match op.name.to_str() {
            Ok(ASKED_BELOW | ASKED_ABOVE) => {
                reply.complete(XattrAnswer::fit(b"value".to_vec(), op.size));
            }
            _ => reply.error(Errno::NODATA),
        }
    }

    fn setxattr(&self, cx: &Context<'_>, op: Setxattr<'_>, reply: Reply<()>) {
        self.note(cx, op.name);
        match cx.uid() {
            0 => reply.ok(()),
            _ => reply.error(Errno::PERM),
        }
    }

    fn removexattr(&self, cx: &Context<'_>, op: Removexattr<'_>, reply: Reply<()>) {
        self.note(cx, op.name);
        reply.ok(());
    }
}

/// A mount that ends with its test, also one that fails.
struct Foreign {
    guard: MountGuard,
    session: Session,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.guard.unmount(Unmount::Lazy);
        let _ = self.session.abort();
    }
}

/// Sets, reads and removes it as a user without rights; what setting it came to.
fn use_as_nobody(path: &Path, name: &'static str) -> Result<(), rustix::io::Errno> {
    let path = path.to_owned();
    let user = std::thread::spawn(move || {
        rustix::thread::set_thread_res_uid(
            rustix::process::Uid::from_raw(NOBODY),
            rustix::process::Uid::from_raw(NOBODY),
            rustix::process::Uid::from_raw(NOBODY),
        )
        .unwrap();
        let set = rustix::fs::setxattr(&path, name, b"value", XattrFlags::empty());
        let read = rustix::fs::getxattr(&path, name, &mut [0; 16][..]);
        assert_eq!(read, Ok(5));
        rustix::fs::removexattr(&path, name).unwrap();
        set
    });
    user.join().unwrap()
}

#[test]
fn the_lower_file_system_sees_who_sets_an_attribute_of_its_own() {
    if !can_mount() {
        return;
    }
    for preset in [Preset::Base, Preset::Opt, Preset::Fast] {
        // Goes last, when nothing is mounted in it any more.
        let around = tempfile::tempdir().unwrap();
        let lower = tempfile::tempdir_in(around.path()).unwrap();
        let place = lower.path().join("foreign");
        fs::create_dir(&place).unwrap();
        let options = MountOptions::new()
            .access(AccessPolicy::Everyone)
            .default_permissions(true);
        let mounted = mount(&place, &options).unwrap();
        let noting = Noting::default();
        let session = Session::start(noting.clone(), mounted.device, SessionConfig::default());
        let _foreign = Foreign {
            guard: mounted.guard,
            session: session.unwrap(),
        };
        let above = Mount::over(lower, |builder| builder.preset(preset));
        let path = above.path("foreign");
        let asked = |name: &str| {
            let seen = noting.0.lock().unwrap();
            let mut of_name = seen.iter().filter(|(of, _)| of == name).peekable();
            assert!(of_name.peek().is_some(), "{name}: {seen:?}");
            of_name.map(|(_, uid)| *uid).collect::<Vec<_>>()
        };
        assert_eq!(
            use_as_nobody(&path, ASKED_BELOW),
            Err(rustix::io::Errno::PERM)
        );
        assert!(asked(ASKED_BELOW).iter().all(|&uid| uid == NOBODY));
        // What the kernel has asked for already is done with the rights of the daemon.
        assert_eq!(use_as_nobody(&path, ASKED_ABOVE), Ok(()));
        assert!(asked(ASKED_ABOVE).iter().all(|&uid| uid == 0));
        drop(above);
    }
}
