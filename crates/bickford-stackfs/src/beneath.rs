//! What SOURCE lies on, and what is mounted below it.

use std::os::fd::BorrowedFd;

use rustix::fs::StatVfsMountFlags;

use crate::listings::Lister;
use crate::magic::{OVERLAY, Traits};
use crate::node::mounts_about;

/// See the module.
/// By default one of which nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beneath {
    /// SOURCE's file system lies on another one itself.
    pub(crate) stacked: bool,
    /// SOURCE, or its mount, is read-only.
    pub(crate) read_only: bool,
    /// What it does.
    pub(crate) source: Traits,
    /// What any of those does that were mounted below SOURCE when it was opened.
    pub(crate) mounts: Traits,
    pub(crate) lister: Lister,
}

impl Beneath {
    /// Of SOURCE, open as `source`; `private` says that nobody can mount below it any more.
    pub(crate) fn of(source: BorrowedFd<'_>, magic: u32, private: bool) -> Self {
        let below = types_below(source);
        let types = below.iter().flatten();
        let mounts = types.map(|kind| Traits::of_type(kind)).reduce(Traits::or);
        let none = below.as_ref().is_some_and(Vec::is_empty);
        Self {
            stacked: magic == OVERLAY,
            read_only: rustix::fs::fstatvfs(source)
                .is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY)),
            source: Traits::of_directory(source, magic),
            mounts: match &below {
                Some(_) => mounts.unwrap_or_default(),
                None => Traits::ANY,
            },
            lister: Lister::new(magic, private && none),
        }
    }

    /// What SOURCE or anything below it does.
    pub(crate) fn any(&self) -> Traits {
        self.source.or(self.mounts)
    }
}

/// The types of what is mounted below a directory. None where that cannot be known.
fn types_below(directory: BorrowedFd<'_>) -> Option<Vec<String>> {
    let (path, mounts) = mounts_about(directory)?;
    let below = mounts.into_iter().filter(|mount| {
        let place = &mount.mountpoint;
        *place != path && place.starts_with(&path)
    });
    Some(below.map(|mount| mount.fs_type).collect())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::magic::EXT;

    #[test]
    fn mounts_below_are_found() {
        let root = std::fs::File::open("/").unwrap();
        let beneath = Beneath::of(root.as_fd(), EXT, true);
        assert!(beneath.mounts.computed, "/proc is there");
        assert!(!beneath.source.computed && !beneath.lister.is_alone());
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::File::open(dir.path()).unwrap();
        let beneath = Beneath::of(dir.as_fd(), EXT, true);
        assert_eq!(beneath.mounts, Traits::default());
        assert!(beneath.lister.is_alone());
        assert!(!Beneath::of(dir.as_fd(), EXT, false).lister.is_alone());
    }
}
