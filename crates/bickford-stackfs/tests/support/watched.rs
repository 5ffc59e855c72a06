//! A mount whose lower directory is watched.

use std::sync::mpsc::{Sender, channel};

use bickford::NodeId;
use bickford_stackfs::{Builder, Lower, LowerWatch, Preset};

use super::{Mount, can_mount};

/// The mount, and its watch, which ends first.
pub(crate) struct Watched {
    pub(crate) watch: Option<LowerWatch>,
    pub(crate) mount: Mount,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watch.take();
    }
}

pub(crate) fn watched() -> Option<Watched> {
    can_mount().then(|| watched_over(tempfile::tempdir().unwrap()))
}

pub(crate) fn settings(builder: Builder) -> Builder {
    builder.settings(Preset::Fast.settings().lower(Lower::Watch))
}

pub(crate) fn watched_over(lower: tempfile::TempDir) -> Watched {
    watch(Mount::over(lower, settings))
}

pub(crate) fn watch(mount: Mount) -> Watched {
    assert!(
        mount.stackfs.is_watched(),
        "the temporary directory cannot be watched"
    );
    let watch = mount.stackfs.watch_lower(mount.session.server()).unwrap();
    assert!(watch.is_some());
    Watched { watch, mount }
}

/// Keeps notifications from being sent until what it gives is dropped.
pub(crate) fn hold_notifications(mount: &Mount) -> Sender<()> {
    let (sender, until) = channel::<()>();
    let (begun, begins) = channel();
    let hold = move |_| {
        begun.send(()).unwrap();
        let _ = until.recv();
    };
    let notifier = mount.session.notifier();
    // Of no inode.
    let node = NodeId(u64::MAX);
    notifier.invalidate_inode_then(node, -1, 0, hold).unwrap();
    begins.recv().unwrap();
    sender
}

/// Changes are made by another process, since those of our own are not told.
pub(crate) fn below(mount: &Mount, script: &str) {
    let status = std::process::Command::new("sh")
        .arg("-ec")
        .arg(script)
        .current_dir(mount.below(""))
        .status()
        .unwrap();
    assert!(status.success(), "{script}");
}
