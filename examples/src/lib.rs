//! What the examples share.

use bickford::MountOptions;
use bickford::mount::AccessPolicy;
use bickford::ops::Attr;
use rustix::process::{getgid, getuid};

/// The attributes of an empty root directory that belongs to whoever mounts.
#[must_use]
pub fn root() -> Attr {
    Attr {
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
        ..Attr::directory(1, 0o755)
    }
}

/// Mount options of a file system that has owners and permissions of its own: the kernel checks them, and
/// so everybody may come in where that is allowed.
#[must_use]
pub fn for_all() -> MountOptions {
    let mount = MountOptions::new().default_permissions(true);
    match getuid().is_root() {
        true => mount.access(AccessPolicy::Everyone),
        false => mount,
    }
}

/// The code of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
