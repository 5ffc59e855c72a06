//! From a directory and settings to a file system.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bickford::mount::GenericFlags;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::backing::Backings;
use crate::beneath::Beneath;
use crate::credentials::Identity;
use crate::descriptors::descriptor_limit;
use crate::fills::Fills;
use crate::handles::HandleTable;
use crate::leases::Leased;
use crate::leaving::Leaving;
use crate::lock_ops::WaitingLocks;
use crate::locks::RecordLocks;
use crate::lower_files::LowerFiles;
use crate::lower_watch::Overflows;
use crate::mapped::Mapped;
use crate::name_changes::NameChanges;
use crate::node::{DescriptorCache, Nodes, are_mapped};
use crate::presets::{Preset, Settings};
use crate::sys::fanotify::Fanotify;
use crate::unfinished::Unfinished;
use crate::writers::Writers;
use crate::{Inner, StackFs, magic, sys};

const DESCRIPTORS_MIN: usize = 64;
/// Opens at once, which bounds the memory for them; their descriptors are bounded apart.
const OPENS_MAX: usize = 1 << 20;

/// Files of each kind that are kept open at most where the kernel opens them without asking.
const CACHED_FILES_MAX: usize = 1024;

const ACCESS_TIMES: GenericFlags = GenericFlags::NO_ATIME
    .union(GenericFlags::NO_DIR_ATIME)
    .union(GenericFlags::STRICT_ATIME);

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// SOURCE cannot be opened.
    #[error("open SOURCE {path:?}: {error}; it must be a directory that this user can read", error = std::io::Error::from(*.errno))]
    Source {
        /// As it was given.
        path: PathBuf,
        /// What openat(2) answered.
        errno: Errno,
    },
    /// What is needed beside SOURCE cannot be had.
    #[error("prepare to serve {path:?}: {error}; /proc must be mounted and descriptors available", error = std::io::Error::from(*.errno))]
    Prepare {
        /// As it was given.
        path: PathBuf,
        /// What the system answered.
        errno: Errno,
    },
    /// There are too few descriptors.
    #[error("{0} descriptors are too few to serve a directory; raise ulimit -n to 256 at least")]
    Descriptors(usize),
    /// Without the kernel's checks whoever gets at the mount may do all that this process may.
    #[error("no permission checks: {0}")]
    Shared(&'static str),
    /// Mounts are to be id-mapped, and permissions not to be checked.
    #[error(
        "allow id-mapped mounts: the kernel has to check permissions for them; leave out one of allow-idmap and \
         no-permission-checks"
    )]
    IdMapped,
    /// What is mounted shows a directory.
    #[error("the root of what is served is a directory: leave root_kind=file out")]
    Root,
    /// File handles would not hold.
    #[error(
        "serve {0:?} for NFS: node ids there are no file handles; it takes root, and ext2, ext3 or ext4"
    )]
    Export(PathBuf),
}

/// Makes a [`StackFs`].
#[derive(Clone, Debug)]
pub struct Builder {
    source: PathBuf,
    settings: Settings,
    descriptors: Option<usize>,
    handles: bool,
    flags: GenericFlags,
}

impl StackFs {
    /// Begins with a directory and the default preset.
    pub fn builder(source: impl AsRef<Path>) -> Builder {
        Builder {
            source: source.as_ref().to_owned(),
            settings: Preset::default().settings(),
            descriptors: None,
            handles: true,
            flags: GenericFlags::empty(),
        }
    }
}

impl Builder {
    /// Takes all settings from a preset.
    #[must_use]
    pub fn preset(self, preset: Preset) -> Self {
        self.settings(preset.settings())
    }

    /// Takes these settings.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Keeps at most so many descriptors; by default what `ulimit -n` allows, but for a few.
    /// [`raise_descriptor_limit`](crate::raise_descriptor_limit) makes that more.
    #[must_use]
    pub fn descriptors(mut self, limit: usize) -> Self {
        self.descriptors = Some(limit);
        self
    }

    /// Whether inodes may be kept as file handles (the default) where that is possible. Without,
    /// each inode that the kernel knows costs a descriptor.
    #[must_use]
    pub fn file_handles(mut self, wanted: bool) -> Self {
        self.handles = wanted;
        self
    }

    /// The flags that it is to be mounted with. Times of last access are kept in SOURCE; with
    /// `noatime`, `nodiratime` or `strictatime` they are kept there as that says, as far as it goes
    /// through the mount. Needs `CAP_SYS_ADMIN`; otherwise this is logged, and SOURCE's mount counts.
    #[must_use]
    pub fn mount_flags(mut self, flags: GenericFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Opens SOURCE.
    ///
    /// # Errors
    /// When SOURCE is not a directory that can be read, descriptors or /proc are missing, or handles for
    /// NFS are wanted and cannot be had.
    pub fn build(self) -> Result<StackFs, Error> {
        let descriptors = self.descriptors.unwrap_or_else(descriptor_limit);
        if descriptors < DESCRIPTORS_MIN {
            return Err(Error::Descriptors(descriptors));
        }
        let source = |errno| Error::Source {
            path: self.source.clone(),
            errno,
        };
        let root = Source::open(&self.source, self.flags).map_err(source)?;
        let magic = magic::magic(root.fd()).map_err(source)?;
        let inner = self
            .assemble(root, magic, descriptors)
            .map_err(|errno| Error::Prepare {
                path: self.source.clone(),
                errno,
            })?;
        if self.settings.nfs_export && !inner.nodes.are_handles() {
            return Err(Error::Export(self.source));
        }
        Ok(StackFs {
            inner: Arc::new(inner),
        })
    }

    fn assemble(&self, root: Source, magic: u32, descriptors: usize) -> Result<Inner, Errno> {
        let beneath = Beneath::of(root.shared.as_fd(), magic, root.own.is_some());
        let mapped = are_mapped(root.shared.as_fd());
        let root = root.own.unwrap_or(root.shared);
        let wanted = self.settings.watch;
        let marked = wanted.then(|| Fanotify::new(root.as_fd()));
        let nodes = Nodes::new(root, descriptors, self.handles, mapped)?;
        let fanotify = marked.map(|marked| match nodes.can_be_told() {
            true => marked,
            false => Err(Errno::OPNOTSUPP),
        });
        if let Some(Err(error)) = &fanotify {
            let (path, reason) = (&self.source, why_not_watched(*error));
            tracing::warn!(
                "StackFS: {path:?} cannot be watched ({error}): {reason}; names and attributes are cached for \
                 a second instead"
            );
        }
        let cached = (descriptors / 8).min(CACHED_FILES_MAX);
        let budget = nodes.budget().clone();
        let all = budget.limit();
        // Objects that take a descriptor each are to be found, whatever is open.
        let files = all
            - if nodes.has_handles() {
                all / 8
            } else {
                all / 2
            };
        Ok(Inner {
            settings: self.settings.over(beneath.source),
            nodes,
            files: HandleTable::new(OPENS_MAX),
            lower_files: LowerFiles::new(budget.share(files)),
            flocks: Arc::new(budget.share(all / 8)),
            dirs: HandleTable::new(OPENS_MAX),
            open_dirs: Arc::new(budget.share(files)),
            unfinished: Unfinished::default(),
            name_changes: NameChanges::default(),
            fills: Fills::default(),
            locks: Arc::new(RecordLocks::new(budget.share(all / 8))?),
            waiting: WaitingLocks::new("stackfs-locks"),
            leaving: Leaving::default(),
            leased: Leased::new("stackfs-leases"),
            identity: Identity::current()?,
            writers: Writers::default(),
            mapped: Mapped::default(),
            backings: Backings::new(OPENS_MAX, budget.share(all / 4)),
            readers: DescriptorCache::new(cached),
            on_demand_writers: DescriptorCache::new(cached),
            in_force: OnceLock::new(),
            fanotify: fanotify.and_then(Result::ok),
            overflows: Overflows::default(),
            beneath,
        })
    }
}

/// What fanotify_mark(2) and fanotify_init(2) mean by their errors, and what to do.
fn why_not_watched(error: Errno) -> &'static str {
    match error {
        Errno::XDEV => {
            "it is in a subvolume, as of btrfs, that is not the file system's top one, and Linux watches whole \
             file systems alone; take one that is mounted with subvolid=5"
        }
        Errno::NODEV => "its file system has no identity that fanotify(7) could tell changes by",
        Errno::PERM => "CAP_SYS_ADMIN is missing; run as root",
        Errno::OPNOTSUPP => {
            "CAP_DAC_READ_SEARCH and a file system whose file handles last are needed"
        }
        Errno::MFILE => {
            "this user has as many fanotify(7) groups as fs.fanotify.max_user_groups allows"
        }
        Errno::NOSPC => "this user has as many marks as fs.fanotify.max_user_marks allows",
        _ => "root and a file system with file handles are needed",
    }
}

/// SOURCE open for reading.
struct Source {
    /// Where it was found.
    shared: OwnedFd,
    /// In a copy of its mounts that is ours alone, where that can be had.
    own: Option<OwnedFd>,
}

impl Source {
    fn open(path: &Path, mount: GenericFlags) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let shared = rustix::fs::open(path, flags, Mode::empty())?;
        let tree = sys::detach_tree(shared.as_fd());
        let kept = match &tree {
            Ok(tree) => sys::set_access_times(tree.as_fd(), mount),
            Err(_) if !mount.intersects(ACCESS_TIMES) => Ok(()),
            Err(error) => Err(*error),
        };
        if let Err(error) = kept {
            tracing::warn!(
                "StackFS: times of last access are kept as the mount of {path:?} has it, not as this mount \
                 says: {error}; root is needed"
            );
        }
        let own = tree.and_then(|tree| rustix::fs::openat(&tree, c".", flags, Mode::empty()));
        if let Err(errno) = &own {
            tracing::debug!("StackFS: no private copy of the mounts of {path:?}: {errno}");
        }
        Ok(Self {
            shared,
            own: own.ok(),
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.own.as_ref().unwrap_or(&self.shared).as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bickford::layer::{Interest, Layer, Layered, PostCalls, PreCalls};
    use bickford::transport::memory::Kernel;

    use super::*;
    use crate::magic::Traits;
    use crate::node::ROOT;

    #[test]
    fn a_source_that_is_missing_or_a_file_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let error = StackFs::builder(&missing).build().unwrap_err().to_string();
        assert!(
            error.contains("missing") && error.contains("No such file"),
            "{error}"
        );
        std::fs::write(&missing, "").unwrap();
        let error = StackFs::builder(&missing).build().unwrap_err().to_string();
        assert!(error.contains("Not a directory"), "{error}");
    }

    #[test]
    fn too_few_descriptors_are_said() {
        let error = StackFs::builder("/")
            .descriptors(5)
            .build()
            .unwrap_err()
            .to_string();
        assert!(error.contains("ulimit -n"), "{error}");
    }

    #[test]
    fn no_name_is_cached_that_may_have_other_spellings() {
        let fast = Preset::Fast.settings();
        let folding = fast.over(Traits::ANY);
        let names = |settings: Settings| (settings.entry_timeout, settings.negative_timeout);
        assert_eq!(names(folding), (Duration::ZERO, Duration::ZERO));
        assert_eq!(folding.attr_timeout, fast.attr_timeout);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        for handles in [true, false] {
            let builder = StackFs::builder(dir.path()).file_handles(handles);
            let root = Source::open(dir.path(), GenericFlags::empty()).unwrap();
            let mut inner = builder.assemble(root, magic::EXT, 256).unwrap();
            let found = inner.nodes.lookup(ROOT, c"file").unwrap();
            assert_eq!(inner.entry(&found).entry_valid, fast.entry_timeout);
            inner.beneath.mounts.folds_case = true;
            // On SOURCE, unless that cannot be told.
            let valid = match inner.nodes.on_source(found.node) {
                true => fast.entry_timeout,
                false => Duration::ZERO,
            };
            assert_eq!(inner.entry(&found).entry_valid, valid);
            assert_eq!(
                inner.name_timeout(found.node, Duration::MAX).is_zero(),
                valid.is_zero()
            );
        }
    }

    #[test]
    fn what_goes_is_held_where_that_does_not_keep_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let root = Source::open(dir.path(), GenericFlags::empty()).unwrap();
        let builder = StackFs::builder(dir.path());
        let mut inner = builder.assemble(root, magic::EXT, 256).unwrap();
        inner.nodes.lookup(ROOT, c"file").unwrap();
        let directory = inner.nodes.directory(ROOT).unwrap();
        let holds = |inner: &Inner| {
            inner
                .doom(ROOT, directory.as_fd(), c"file", false)
                .is_some()
        };
        assert_eq!(holds(&inner), inner.nodes.has_handles());
        inner.beneath.source = Traits::of_type("nfs");
        assert!(!holds(&inner) || !inner.nodes.on_source(ROOT));
    }

    struct Bare;

    impl PreCalls for Bare {}

    impl PostCalls for Bare {}

    impl Layer for Bare {
        fn name(&self) -> &str {
            "bare"
        }

        fn interest(&self) -> Interest {
            Interest::default()
        }
    }

    #[test]
    fn what_is_exported_has_no_layer() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Preset::default().settings();
        settings.nfs_export = true;
        let builder = StackFs::builder(dir.path()).settings(settings);
        let stackfs = || {
            let root = Source::open(dir.path(), GenericFlags::empty()).unwrap();
            let inner = Arc::new(builder.assemble(root, magic::EXT, 256).unwrap());
            StackFs { inner }
        };
        let begun = |mut kernel: Kernel| kernel.init().unwrap().error;
        assert_eq!(begun(Kernel::new(stackfs())), 0);
        let below = Kernel::new(Layered::new(Bare, stackfs()));
        assert_eq!(begun(below), -Errno::PROTO.raw_os_error());
    }
}
