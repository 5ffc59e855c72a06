//! A file system in memory, over paths: `memfs MOUNTPOINT`. Everything is gone when it ends.

mod contents;
mod filesystem;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bickford::mount::AccessPolicy;
use bickford::ops::Attr;
use bickford::path::memory::{Inode, Tree};
use bickford::path::{Adapter, Options, Subject};
use bickford::{Errno, MountOptions, Result};
use bickford_examples::{Outcome, arguments, serve_with};
use rustix::process::{getgid, getuid};

use contents::Contents;

/// How many inodes there may be.
const INODES_MAX: u64 = 1 << 20;

/// The file system. One lock, which no operation holds for long.
struct MemFs {
    tree: Mutex<Tree<Contents>>,
    /// Blocks that files hold.
    used: Arc<AtomicU64>,
}

impl MemFs {
    fn tree(&self) -> MutexGuard<'_, Tree<Contents>> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// What a new inode holds, if there may be another one.
    fn contents(&self) -> Result<Contents> {
        match (self.tree().inodes() as u64) < INODES_MAX {
            true => Ok(Contents::new(&self.used)),
            false => Err(Errno::NOSPC),
        }
    }

    fn change(
        &self,
        subject: Subject<'_>,
        change: impl FnOnce(&mut Inode<Contents>),
    ) -> Result<()> {
        self.tree().get_mut(subject).map(change)
    }
}

fn main() -> Outcome {
    let [mountpoint] = arguments("memfs MOUNTPOINT")?;
    let (user, used) = (getuid(), Arc::default());
    let root = Attr {
        uid: user.as_raw(),
        gid: getgid().as_raw(),
        ..Attr::directory(1, 0o755)
    };
    let memfs = MemFs {
        tree: Mutex::new(Tree::new(root, Contents::new(&used))),
        used,
    };
    // The kernel checks permissions, so everybody may come in where that is allowed.
    let mut mount = MountOptions::new()
        .fsname("memfs")
        .subtype("memfs")
        .default_permissions(true);
    if user.is_root() {
        mount = mount.access(AccessPolicy::Everyone);
    }
    // Inode numbers are the tree's.
    let options = Options {
        use_ino: true,
        ..Options::default()
    };
    serve_with(Adapter::new(memfs, options), mountpoint, &mount, |_| {})
}
