//! How a path file system is shown to the kernel.

use std::time::Duration;

use crate::ops::Attr;

/// Options of [`super::Adapter`]; the names are those of fuse(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long the kernel may use a name without asking (`entry_timeout`).
    pub entry_timeout: Duration,
    /// How long the kernel may use attributes without asking (`attr_timeout`).
    pub attr_timeout: Duration,
    /// How long the kernel may take a name not to exist (`negative_timeout`); zero by default.
    pub negative_timeout: Duration,
    /// Reads and writes go past the page cache (`direct_io`).
    pub direct_io: bool,
    /// Opening a file keeps what the page cache has of it (`kernel_cache`).
    pub kernel_cache: bool,
    /// Opening a file keeps what the page cache has of it if neither its size nor its modification
    /// time changed since it was last opened (`auto_cache`).
    pub auto_cache: bool,
    /// Names and their node ids are kept for as long as the session lasts (`noforget`). Memory
    /// then grows with the number of names ever looked up.
    pub noforget: bool,
    /// Inode numbers are those that the file system answers, and tell which names are hard links
    /// of one file (`use_ino`). Otherwise they are made up, and hard links are known when they are
    /// made through the mount.
    pub use_ino: bool,
    /// All files belong to this user (`uid`).
    pub uid: Option<u32>,
    /// All files belong to this group (`gid`).
    pub gid: Option<u32>,
    /// Permissions of all files are 0777 without these bits (`umask`).
    pub umask: Option<u32>,
    /// Removing the last name of an open file renames it to `.fuse_hidden...` until it is closed,
    /// for file systems that know open files by path alone. What fuse(8) does without
    /// `hard_remove`; off here. A rename over an open file hides that one first: there is nothing of the name
    /// for a moment below, and for good if the daemon is killed in it.
    pub hide_removed: bool,
    /// Operations on open files and directories get their handle and no path, and claim none:
    /// cheaper, and renames do not wait for reads (what libfuse calls `nullpath_ok`). Handle zero
    /// tells nothing, and comes with the path: that of directories without `opendir`, for instance.
    pub handles_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            entry_timeout: Duration::from_secs(1),
            attr_timeout: Duration::from_secs(1),
            negative_timeout: Duration::ZERO,
            direct_io: false,
            kernel_cache: false,
            auto_cache: false,
            noforget: false,
            use_ino: false,
            uid: None,
            gid: None,
            umask: None,
            hide_removed: false,
            handles_only: false,
        }
    }
}

impl Options {
    /// With names, attributes and missing names all valid for `time`: what does not change, or
    /// changes with a notification, the kernel may remember for years.
    #[must_use]
    pub fn valid_for(time: Duration) -> Self {
        Self {
            entry_timeout: time,
            attr_timeout: time,
            negative_timeout: time,
            ..Self::default()
        }
    }

    /// Attributes as the kernel is to see them. Without `use_ino` the number is set elsewhere.
    pub(crate) fn apply(&self, attr: &mut Attr) {
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        if let Some(umask) = self.umask {
            attr.mode = attr.file_type() | (0o777 & !umask);
        }
    }
}
