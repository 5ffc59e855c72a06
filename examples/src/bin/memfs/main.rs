//! A file system in memory, over paths: `memfs MOUNTPOINT`. Everything is gone when it ends.

mod contents;
mod data;
mod filesystem;
mod names;
mod store;

use std::sync::Mutex;

use bickford::MountOptions;
use bickford::mount::AccessPolicy;
use bickford::path::{Adapter, Options};
use bickford_examples::{Outcome, arguments, serve_with};
use rustix::process::{getgid, getuid};

use store::Store;

/// Bytes that files may hold together.
const CAPACITY: u64 = 1 << 30;
/// How many inodes there may be.
const INODES_MAX: usize = 1 << 20;

/// The file system. One lock, which no operation holds for long.
#[derive(Debug)]
struct MemFs {
    store: Mutex<Store>,
}

fn main() -> Outcome {
    let [mountpoint] = arguments("memfs MOUNTPOINT")?;
    let (uid, gid) = (getuid(), getgid());
    let memfs = MemFs {
        store: Mutex::new(Store::new(uid.as_raw(), gid.as_raw())),
    };
    // The kernel checks permissions, so everybody may come in where that is allowed.
    let mut mount = MountOptions::new()
        .fsname("memfs")
        .subtype("memfs")
        .default_permissions(true);
    if uid.is_root() {
        mount = mount.access(AccessPolicy::Everyone);
    }
    // Inode numbers are ours, and open files are known by their handles.
    let options = Options {
        use_ino: true,
        ..Options::default()
    };
    serve_with(Adapter::new(memfs, options), mountpoint, &mount, |_| {})
}
