//! Named configurations, and what they consist of.

use std::path::Path;
use std::time::Duration;

use bickford::mount::{AccessPolicy, MountOptions, RootKind};

use crate::builder::Error;
use crate::io_mode::IoMode;
use crate::magic::Traits;

/// As long as the kernel remembers anything: nobody else changes the lower directory.
pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A named configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// StackfsBase of the literature: one thread, 4 KiB requests, no write-back cache, no splice,
    /// timeouts of one second.
    Base,
    /// StackfsOpt of the literature: write-back cache, requests of 128 KiB, many threads, splice,
    /// timeouts of one second.
    Opt,
    /// For a directory that nobody else changes: requests of 1 MiB, names and attributes cached
    /// for good, and the best I/O mode that the kernel offers.
    #[default]
    Fast,
}

impl Preset {
    /// The name as it is given to `--preset`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Opt => "opt",
            Self::Fast => "fast",
        }
    }

    /// Whether one thread serves all requests; otherwise there are as many as pay.
    #[must_use]
    pub fn single_threaded(self) -> bool {
        self == Self::Base
    }

    /// The settings of this preset, to be changed one by one.
    #[must_use]
    pub fn settings(self) -> Settings {
        let common = Settings {
            entry_timeout: Duration::from_secs(1),
            attr_timeout: Duration::from_secs(1),
            negative_timeout: Duration::ZERO,
            max_request: 128 << 10,
            read_ahead: 128 << 10,
            write_back: false,
            splice: false,
            exclusive: false,
            watch: false,
            xattr: true,
            permission_checks: true,
            nfs_export: false,
            allow_idmap: false,
            io: IoMode::Plain,
        };
        match self {
            Self::Base => Settings {
                max_request: 4 << 10,
                ..common
            },
            Self::Opt => Settings {
                write_back: true,
                splice: true,
                ..common
            },
            Self::Fast => Settings {
                entry_timeout: FOREVER,
                attr_timeout: FOREVER,
                negative_timeout: FOREVER,
                max_request: 1 << 20,
                read_ahead: 1 << 20,
                write_back: true,
                splice: true,
                exclusive: true,
                io: IoMode::Auto,
                ..common
            },
        }
    }
}

impl std::str::FromStr for Preset {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        match name {
            "base" => Ok(Self::Base),
            "opt" => Ok(Self::Opt),
            "fast" => Ok(Self::Fast),
            _ => Err(UnknownName::new(name, "base, opt or fast")),
        }
    }
}

/// A name that means no preset or mode.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("\"{0}\" is none of {1}")]
pub struct UnknownName(String, &'static str);

impl UnknownName {
    pub(crate) fn new(name: &str, known: &'static str) -> Self {
        Self(name.to_owned(), known)
    }
}

/// What a preset consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// How long the kernel takes a name to mean the same.
    pub entry_timeout: Duration,
    /// How long the kernel takes attributes to be right.
    pub attr_timeout: Duration,
    /// How long the kernel takes a name not to exist; zero asks every time.
    pub negative_timeout: Duration,
    /// Bytes of data in one request, 4 KiB to 1 MiB.
    pub max_request: u32,
    /// Bytes that the kernel reads ahead in a file that is read in sequence. Above 128 KiB only
    /// root gets it; without, 128 KiB is what it comes to.
    pub read_ahead: u32,
    /// Whether writes gather in the page cache, where the I/O mode allows it.
    pub write_back: bool,
    /// Whether data move through pipes where that saves copying them.
    pub splice: bool,
    /// Nobody else changes the lower directory. Locks are then the kernel's own business, and
    /// closing a file costs no request.
    pub exclusive: bool,
    /// Others change the lower directory, and their changes are watched; what cannot be watched
    /// is cached for a second.
    pub watch: bool,
    /// Whether extended attributes are served. Without, the kernel does not ask for
    /// `security.capability` before the first write to a file; and as with ext4's `noacl`, a file
    /// that has an ACL below grants its group what the ACL's mask allows.
    pub xattr: bool,
    /// Whether the kernel checks permissions, ACLs among them. Without, it does not ask for the mode
    /// of a directory again after each change in it; and whoever gets at the mount may do all that
    /// this process may, even with no capability. Only for mounts of root that are not shared
    /// ([`AccessPolicy::Owner`](bickford::mount::AccessPolicy::Owner)).
    pub permission_checks: bool,
    /// Whether file handles (name_to_handle_at(2), and so NFS) hold when the kernel has dropped the
    /// inode, and from one mount to the next (`FUSE_EXPORT_SUPPORT`). Only where node ids are file
    /// handles: ext2, ext3 and ext4. Whoever can make up handles, as an NFS client can, then reaches
    /// files beside SOURCE on its file system. Not below a [layer](bickford::layer), which sees no names of what comes by
    /// handles: the session does not begin then.
    pub nfs_export: bool,
    /// Whether mounts can be id-mapped (mount_setattr(2); `FUSE_ALLOW_IDMAP`, Linux 6.12), as containers with user
    /// namespaces of their own have them. The kernel then tells who calls only where something is made. What
    /// depends on more is done as for a caller without privileges: truncate(2), fallocate(2) and copy_file_range(2)
    /// drop set-id bits, root's too, and chown(path, -1, -1) of a file that has them wants `CAP_FOWNER`. Not with
    /// [`AccessPolicy::OwnerAndRoot`](bickford::mount::AccessPolicy::OwnerAndRoot).
    pub allow_idmap: bool,
    /// How data travel.
    pub io: IoMode,
}

/// Who changes the lower directory beside the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lower {
    /// Nobody: everything is cached for good.
    Exclusive,
    /// Other processes, and fanotify(7) tells of it: everything is cached for good, and dropped when it
    /// changes.
    Watch,
}

impl Lower {
    /// The name as it is given to `--lower`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Watch => "watch",
        }
    }
}

impl std::str::FromStr for Lower {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        [Self::Exclusive, Self::Watch]
            .into_iter()
            .find(|lower| lower.name() == name)
            .ok_or_else(|| UnknownName::new(name, "exclusive or watch"))
    }
}

impl Settings {
    /// Whether a mount may be served so.
    ///
    /// # Errors
    /// [`Error::Shared`] when permissions are not to be checked and it is not a mount of root alone;
    /// [`Error::IdMapped`] when id-mapped mounts are to be allowed without them; [`Error::Root`] when the root is to be a
    /// file.
    pub fn check_mount(&self, mountpoint: &Path, options: &MountOptions) -> Result<(), Error> {
        if options.root != RootKind::Directory {
            return Err(Error::Root);
        }
        if self.allow_idmap && !self.permission_checks {
            return Err(Error::IdMapped);
        }
        if self.permission_checks {
            return Ok(());
        }
        Err(Error::Shared(if options.access != AccessPolicy::Owner {
            "others than root may use this mount (allow_other, allow_root); leave one of the two out"
        } else if options.default_permissions {
            "default_permissions asks for them; leave one of the two out"
        } else if mountpoint.starts_with("/dev/fd") {
            "who may use the mount of a passed descriptor is not known; give its mount point"
        } else if !rustix::process::geteuid().is_root() {
            "only a mount of root can do without them"
        } else {
            return Ok(());
        }))
    }

    /// As far as a SOURCE that does this allows.
    pub(crate) fn over(self, source: Traits) -> Self {
        if !source.folds_case {
            return self;
        }
        // The kernel hears nothing of the other spellings of a name that is made or removed.
        Self {
            entry_timeout: Duration::ZERO,
            negative_timeout: Duration::ZERO,
            ..self
        }
    }

    /// Caches for good, as far as whoever else changes the lower directory allows.
    #[must_use]
    pub fn lower(self, lower: Lower) -> Self {
        Self {
            entry_timeout: FOREVER,
            attr_timeout: FOREVER,
            negative_timeout: FOREVER,
            exclusive: lower == Lower::Exclusive,
            watch: lower == Lower::Watch,
            ..self
        }
    }
}
