//! What the file system below a directory offers to a pass-through.

use std::path::Path;

use bickford::mount::MountEntry;
use bickford_stackfs::StackFs;
use rustix::thread::CapabilitySet;

use super::{Finding, Status, as_root, capable};
use crate::cli::Failure;

pub(super) fn look(directory: &Path) -> Result<Vec<Finding>, Failure> {
    let failed = |error| Failure::new(format!("doctor {}: {error}", directory.display()));
    let path = directory.canonicalize().map_err(failed)?;
    if !path.is_dir() {
        return Err(Failure::new(format!(
            "doctor {}: not a directory; name the directory to pass through",
            directory.display()
        )));
    }
    let mounts = MountEntry::all().map_err(failed)?;
    let below = MountEntry::containing(&mounts, &path);
    let mut findings = Vec::from_iter(below.map(|below| file_system(&path, below)));
    findings.push(inodes(&path)?);
    findings.push(watching());
    Ok(findings)
}

fn file_system(path: &Path, mount: &MountEntry) -> Finding {
    let text = format!(
        "{} is on {} ({}, {})",
        path.display(),
        mount.mountpoint.display(),
        mount.fs_type,
        mount.options
    );
    if mount.is_fuse() {
        Finding::new("lower file system", Status::Limited, text)
            .advise("FUSE over FUSE works, each request costs twice; the kernel passes no I/O through to it")
    } else {
        Finding::works("lower file system", text)
    }
}

/// How the pass-through tells inodes apart there, found by opening it as a mount would.
fn inodes(path: &Path) -> Result<Finding, Failure> {
    const NAME: &str = "inodes";
    let stackfs = StackFs::builder(path).build();
    let identity = stackfs
        .map_err(|error| Failure::new(error.to_string()))?
        .identity();
    let text = format!("kept as {identity}");
    Ok(if identity == "descriptors" {
        Finding::new(
            NAME,
            Status::Limited,
            format!("{text}: each one the kernel knows costs a descriptor"),
        )
        .advise(format!(
            "{}; over a file system whose file handles last, which FAT and FUSE have not",
            as_root()
        ))
    } else {
        Finding::works(NAME, text)
    })
}

/// fanotify(7): marks of whole file systems need CAP_SYS_ADMIN, opening by handle CAP_DAC_READ_SEARCH.
fn watching() -> Finding {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH;
    if capable(needed) {
        Finding::works(
            "file handles",
            "may be opened, and the file system may be watched",
        )
    } else {
        Finding::new("file handles", Status::Limited, "may not be opened, and the file system not watched: CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH are missing")
            .advise(as_root())
    }
}
