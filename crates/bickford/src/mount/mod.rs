//! Mounting and unmounting: from options to an open `/dev/fuse` descriptor with a mount behind it.
//!
//! [`mount`] takes the way this process may go: system calls with CAP_SYS_ADMIN, fusermount3 without, or
//! a descriptor that somebody else has mounted already (`/dev/fd/N` as mount point). Nobody answers
//! requests yet when it returns, so do not touch the mount point before a session serves the descriptor.

mod busy;
mod config;
mod direct;
mod elsewhere;
mod foreign;
mod fusermount;
mod mountinfo;
mod option_text;
mod options;
mod point;
mod probe;
mod remount;
mod unmount;

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use thiserror::Error;

pub use self::busy::{Holder, Use, device_holders};
pub use self::config::{FUSE_CONF, FuseConfig};
pub use self::direct::probe_device;
pub use self::elsewhere::{Elsewhere, device_elsewhere, elsewhere};
pub use self::fusermount::find_fusermount;
pub use self::mountinfo::MountEntry;
pub use self::option_text::{OptionError, escape_option, fsname_of, split_options, unknown};
pub use self::options::{AccessPolicy, GenericFlags, MountOptions, RootKind};
pub use self::probe::{KernelOffer, probe_kernel};
pub use self::remount::remount;
pub(crate) use self::unmount::open_abort;
pub use self::unmount::{Unmount, UnmountError, abort, unmount, unmount_only};

use self::direct::DirectError;
use self::point::MountPoint;
use self::unmount::Own;
use crate::sys::mount::{self as sys, MountIds, Watched};
use crate::trace::control::{self, socket_directory, socket_path};

/// Why there is no mount.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// The options cannot be used.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The mount point is the empty path.
    #[error("mount: no mount point given; name a directory")]
    NoMountpoint,
    /// The mount point does not exist.
    #[error("mount {}: the mount point does not exist; create it", .mountpoint.display())]
    NotFound {
        /// The mount point as given.
        mountpoint: PathBuf,
    },
    /// A file over a directory, or the other way round.
    #[error("mount {}: the mount point is {found}, the root of the file system is {expected}; mount it on {expected}", .mountpoint.display())]
    WrongKind {
        /// The mount point, resolved.
        mountpoint: PathBuf,
        /// What it is.
        found: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A FUSE mount whose server is gone is in the way.
    #[error("mount {}: a FUSE mount whose server is gone is there; unmount it first: bickford unmount {}", .mountpoint.display(), .dead.display())]
    Dead {
        /// The mount point as given.
        mountpoint: PathBuf,
        /// Where the mount is that is in the way: there, or above.
        dead: PathBuf,
    },
    /// The mount point cannot be reached.
    #[error("mount {}: the mount point cannot be used: {source}", .mountpoint.display())]
    Unusable {
        /// The mount point as given.
        mountpoint: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// There is nothing to change the flags of.
    #[error("remount {}: no FUSE mount is there; give the mount point of one, see findmnt -t fuse.bickford", .mountpoint.display())]
    NotMounted {
        /// The mount point, resolved.
        mountpoint: PathBuf,
    },
    /// The kernel takes `dirsync` only from who mounts.
    #[error("remount {}: 'dirsync' cannot be changed by remounting: the kernel settles it when a file system is mounted; unmount it and mount it so, or leave the option out", .mountpoint.display())]
    DirSync {
        /// The mount point, resolved.
        mountpoint: PathBuf,
    },
    /// The kernel says EBUSY.
    #[error("mount {0}: busy: the same file system is mounted there, or the directory is being moved or removed; see findmnt {0}", .mountpoint.display())]
    Busy {
        /// The mount point, resolved.
        mountpoint: PathBuf,
    },
    /// The block device of a mount of one cannot be had.
    #[error("mount {} of the block device {device}: {source}{log}; it must be one that nobody has mounted or opened exclusively (O_EXCL), and blksize one that it can have", .mountpoint.display())]
    BlockDevice {
        /// The mount point, resolved.
        mountpoint: PathBuf,
        /// The source that was given.
        device: String,
        /// What the kernel said besides, starting with ": ", or nothing.
        log: String,
        /// The reason.
        source: io::Error,
    },
    /// /dev/fuse cannot be used.
    #[error(
        "open /dev/fuse: {source}; load the kernel module with 'modprobe fuse', or give the container the device"
    )]
    Device {
        /// The reason.
        source: io::Error,
    },
    /// Other users may not be let in.
    #[error("mount {}: option {option} is refused: {FUSE_CONF} does not contain user_allow_other; add that line, mount as root, or leave the option out", .mountpoint.display())]
    OthersRefused {
        /// The mount point, resolved.
        mountpoint: PathBuf,
        /// `allow_other` or `allow_root`.
        option: &'static str,
    },
    /// The rules for unprivileged users cannot be read.
    #[error("read {FUSE_CONF}: {source}")]
    Config {
        /// The reason.
        source: io::Error,
    },
    /// The system call failed.
    #[error("mount {}: {call}: {source}{log}", .mountpoint.display())]
    Kernel {
        /// The mount point, resolved.
        mountpoint: PathBuf,
        /// The system call.
        call: &'static str,
        /// What the kernel said besides, starting with ": ", or nothing.
        log: String,
        /// The reason.
        source: io::Error,
    },
    /// Neither privileged nor helped.
    #[error("mount {}: {reason} and fusermount3 was not found; install the fuse3 package or run as root", .mountpoint.display())]
    FusermountMissing {
        /// The mount point, resolved.
        mountpoint: PathBuf,
        /// Why it was not mounted directly.
        reason: &'static str,
    },
    /// fusermount3 refused.
    #[error("mount {}: fusermount3: {message}", .mountpoint.display())]
    Fusermount {
        /// The mount point, resolved.
        mountpoint: PathBuf,
        /// What it wrote.
        message: String,
    },
    /// fusermount3, or the watcher of `auto_unmount`, could not be run.
    #[error("mount {}: the helper process cannot be used: {source}", .mountpoint.display())]
    Helper {
        /// The mount point, resolved.
        mountpoint: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// `/dev/fd/N` is not an open FUSE device.
    #[error("mount {}: not an open /dev/fuse descriptor ({source}); whoever starts this program has to pass it", .mountpoint.display())]
    Descriptor {
        /// The path as given.
        mountpoint: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// How the descriptor was mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// By system calls of this process.
    Direct,
    /// By fusermount3.
    Fusermount,
    /// By whoever passed the descriptor `/dev/fd/N`.
    Descriptor,
}

/// A mounted FUSE device.
#[derive(Debug)]
#[non_exhaustive]
pub struct Mounted {
    /// The connection. When its last duplicate is closed the connection ends, and every further access to
    /// the mount answers ENOTCONN.
    pub device: OwnedFd,
    /// Unmounts, knows place and connection, and with `auto_unmount` unmounts when dropped.
    pub guard: MountGuard,
}

impl Mounted {
    /// Unmounts, see [`MountGuard::unmount`].
    pub fn unmount(&self, mode: Unmount) -> Result<(), UnmountError> {
        self.guard.unmount(mode)
    }

    /// The number of the connection, see [`MountGuard::connection`].
    pub fn connection(&self) -> Option<u32> {
        self.guard.connection()
    }
}

/// The mount behind a device, apart from the descriptor.
#[derive(Debug)]
pub struct MountGuard {
    mountpoint: PathBuf,
    via: Via,
    access: AccessPolicy,
    /// The mount as it was listed right after it was made; `None` for passed descriptors.
    own: Option<Own>,
    /// With `auto_unmount`: the end of the pipe that the watcher waits for.
    watch: Mutex<Option<OwnedFd>>,
}

impl MountGuard {
    /// Unmounts. Nothing to do, and no error, when the mount is gone already or was made by whoever passed
    /// the descriptor.
    pub fn unmount(&self, mode: Unmount) -> Result<(), UnmountError> {
        let Some(own) = &self.own else {
            return Ok(());
        };
        unmount::unmount_entry(own, mode)?;
        // Nothing is left for the watcher to do.
        let watch = self
            .watch
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(watch);
        Ok(())
    }

    /// The number of the connection, its directory in /sys/fs/fuse/connections. `None` for passed descriptors.
    pub fn connection(&self) -> Option<u32> {
        self.own.as_ref().map(|own| own.entry.connection())
    }

    /// What tells this mount from every other, also from a later one at the same place; before Linux 6.8
    /// a number that later mounts may get. `None` for passed descriptors, and where the mount point could
    /// not be opened.
    pub fn identity(&self) -> Option<u64> {
        self.own.as_ref().and_then(|own| own.identity)
    }

    /// Whether it was mounted with `default_permissions`. `None` for passed descriptors.
    pub(crate) fn checks_permissions(&self) -> Option<bool> {
        let mut options = self.own.as_ref()?.entry.super_options.split(',');
        Some(options.any(|option| option == "default_permissions"))
    }

    /// Where it is mounted: absolute and without symbolic links, or `/dev/fd/N` as given.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// How it was mounted.
    pub fn via(&self) -> Via {
        self.via
    }

    /// Who may use the mount, see [`AccessPolicy`] for who has to see to it.
    pub fn access(&self) -> AccessPolicy {
        self.access
    }

    /// Whether the mount is still listed.
    pub fn is_mounted(&self) -> bool {
        let Some(own) = &self.own else {
            return true;
        };
        MountEntry::all().is_ok_and(|all| own.is_among(&all))
    }

    /// Where other mount namespaces have it mounted, too, see [`elsewhere`]. Its session must not have ended.
    pub fn elsewhere(&self) -> Vec<Elsewhere> {
        self.own
            .as_ref()
            .map_or_else(Vec::new, |own| elsewhere(&own.entry))
    }
}

/// Mounts on `mountpoint`.
///
/// `/dev/fd/N` as mount point means: descriptor N is an open, mounted FUSE device; it is duplicated, and
/// of the options only the access policy counts.
pub fn mount(mountpoint: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    options.check()?;
    if let Some(number) = passed_descriptor(mountpoint) {
        return take_passed(mountpoint, number, options);
    }
    if mountpoint
        .components()
        .eq(Path::new("/dev/fd").components())
    {
        return Err(MountError::Descriptor {
            mountpoint: mountpoint.to_owned(),
            source: io::Error::other("it names no descriptor: write /dev/fd/N"),
        });
    }
    let point = MountPoint::resolve(mountpoint, options.root)?;
    if !rustix::process::geteuid().is_root() {
        check_others(&point.path, options)?;
    }
    if options.block_device {
        check_device(&point.path, options.source())?;
    }
    let (device, ids, via) = match direct::mount(&point, options) {
        Ok((device, ids)) => (device, ids, Via::Direct),
        Err(DirectError::Failed(error)) => return Err(error),
        Err(DirectError::NotPermitted(why)) => {
            let device = fusermount::mount(&point, options, why)?;
            (device, None, Via::Fusermount)
        }
    };
    let helper = |source: io::Error| MountError::Helper {
        mountpoint: point.path.clone(),
        source: match fusermount::no_process(&source) {
            Some(cure) => io::Error::new(source.kind(), format!("{source}; {cure}")),
            None => source,
        },
    };
    let own = listed(&point.path, ids, &device).map_err(|error| {
        // Nobody will serve it.
        take_away(&point.path, via);
        helper(error)
    })?;
    let watch = options.auto_unmount.then(|| watch(&own)).transpose();
    let watch = watch.map_err(|error| {
        // Without its watcher the mount would break the promise of the option.
        let _ = unmount::unmount_entry(&own, Unmount::Lazy);
        helper(error)
    })?;
    let guard = guard(point.path, via, options, Some(own), watch);
    Ok(Mounted { device, guard })
}

/// The mount that was just made. Another may have come to the same place at the same time.
fn listed(mountpoint: &Path, ids: Option<MountIds>, device: &OwnedFd) -> io::Result<Own> {
    let all = MountEntry::all()
        .map_err(|error| io::Error::new(error.kind(), format!("/proc/self/mountinfo: {error}")))?;
    let connection = crate::transport::abort::connection(device);
    let mut here = all.iter().filter(|entry| entry.mountpoint == mountpoint);
    let entry = match (&ids, connection) {
        (Some(ids), _) => here.find(|entry| entry.id == ids.listed),
        (None, Some(number)) => here.find(|entry| entry.connection() == number),
        (None, None) => MountEntry::top_of(&all, mountpoint),
    };
    let entry = entry
        .ok_or_else(|| io::Error::other("the new mount is not listed in /proc/self/mountinfo"))?;
    Ok(match ids {
        Some(ids) => Own::known_as(entry.clone(), ids),
        None => Own::listed_as(entry.clone()),
    })
}

/// Takes away what has just been mounted here and cannot be told from other mounts.
fn take_away(mountpoint: &Path, via: Via) {
    let result = match (via, find_fusermount()) {
        (Via::Fusermount, Some(program)) => fusermount::unmount(&program, mountpoint, true)
            .and_then(|refused| refused.map_err(io::Error::other)),
        _ => {
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            rustix::mount::unmount(mountpoint, flags).map_err(io::Error::from)
        }
    };
    if let Err(error) = result {
        tracing::warn!(mountpoint = %mountpoint.display(), "a mount that nobody serves is left: {error}");
    }
}

fn guard(
    mountpoint: PathBuf,
    via: Via,
    options: &MountOptions,
    own: Option<Own>,
    watch: Option<OwnedFd>,
) -> MountGuard {
    MountGuard {
        mountpoint,
        via,
        access: options.access,
        own,
        watch: Mutex::new(watch),
    }
}

fn watch(own: &Own) -> io::Result<OwnedFd> {
    let path = CString::new(own.entry.mountpoint.as_os_str().as_bytes())?;
    let identity = own
        .identity
        .ok_or_else(|| io::Error::other("the new mount has no identity: it cannot be opened"))?;
    let named = |path: PathBuf| CString::new(path.into_os_string().into_vec());
    let helper = find_fusermount().map(named).transpose()?;
    // Root's directory of sockets stays.
    let directory = socket_directory();
    let is_users = directory != Path::new(control::OF_ROOT);
    let directory = is_users.then(|| named(directory)).transpose()?;
    sys::spawn_unmount_watcher(Watched {
        mountpoint: &path,
        identity,
        helper: helper.as_deref(),
        socket: &named(socket_path(own.entry.connection()))?,
        directory: directory.as_deref(),
    })
}

fn check_others(mountpoint: &Path, options: &MountOptions) -> Result<(), MountError> {
    let Some(option) = options.access.option_name() else {
        return Ok(());
    };
    let config = FuseConfig::load().map_err(|source| MountError::Config { source })?;
    if config.user_allow_other {
        return Ok(());
    }
    Err(MountError::OthersRefused {
        mountpoint: mountpoint.to_owned(),
        option,
    })
}

/// Refuses a device that has a FUSE mount: the kernel would show that one here, too, and nobody could serve this one.
fn check_device(mountpoint: &Path, device: &str) -> Result<(), MountError> {
    let failed = |log: &str, source: io::Error| MountError::BlockDevice {
        mountpoint: mountpoint.to_owned(),
        device: device.to_owned(),
        log: log.to_owned(),
        source,
    };
    let stat = rustix::fs::stat(device).map_err(|errno| failed("", errno.into()))?;
    let number = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    let all = MountEntry::all().map_err(|error| failed(": /proc/self/mountinfo", error))?;
    let is_its = |entry: &&MountEntry| entry.is_fuse() && (entry.major, entry.minor) == number;
    match all.iter().find(is_its) {
        Some(entry) => {
            let there = format!(": it is mounted at {}", entry.mountpoint.display());
            Err(failed(&there, Errno::BUSY.into()))
        }
        None => Ok(()),
    }
}

fn passed_descriptor(mountpoint: &Path) -> Option<i32> {
    let digits = mountpoint.to_str()?.strip_prefix("/dev/fd/")?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

fn take_passed(
    mountpoint: &Path,
    number: i32,
    options: &MountOptions,
) -> Result<Mounted, MountError> {
    let failed = |source| MountError::Descriptor {
        mountpoint: mountpoint.to_owned(),
        source,
    };
    let device = sys::duplicate_descriptor(number).map_err(failed)?;
    let stat = rustix::fs::fstat(&device).map_err(|errno| failed(errno.into()))?;
    let is_device = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_char_device();
    // Documentation/admin-guide/devices.txt: 10 = miscellaneous, 229 = /dev/fuse.
    let number = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    if !is_device || number != (10, 229) {
        return Err(failed(io::Error::other("it is another file")));
    }
    let guard = guard(mountpoint.to_owned(), Via::Descriptor, options, None, None);
    Ok(Mounted { device, guard })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn only_dev_fd_numbers_are_passed_descriptors() {
        assert_eq!(passed_descriptor(Path::new("/dev/fd/7")), Some(7));
        assert_eq!(passed_descriptor(Path::new("/dev/fd/")), None);
        assert_eq!(passed_descriptor(Path::new("/dev/fd/7/x")), None);
        assert_eq!(passed_descriptor(Path::new("/dev/fd/-1")), None);
        assert_eq!(passed_descriptor(Path::new("/dev/fd/99999999999")), None);
    }

    /// Another mount, of whoever mounts at the same time, comes to the place before this one is looked for.
    #[test]
    fn a_mount_that_is_covered_at_once_is_still_known() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let options = MountOptions::new();
        let point = MountPoint::resolve(&path, options.root).unwrap();
        let Ok((device, ids)) = direct::mount(&point, &options) else {
            crate::watchdog::say(format_args!("left out: no direct FUSE mounts here"));
            return;
        };
        let none = rustix::mount::MountFlags::empty();
        rustix::mount::mount("cover", &path, "tmpfs", none, None).unwrap();
        let known = listed(&path, ids, &device);
        let by_number = listed(&path, None, &device);
        let cover = rustix::mount::unmount(&path, UnmountFlags::DETACH);
        let known = known.unwrap();
        let gone = unmount::unmount_entry(&known, Unmount::Lazy);
        cover.unwrap();
        gone.unwrap();
        assert!(known.entry.is_fuse(), "{known:?}");
        assert_eq!(known.identity.is_some(), ids.is_some());
        if crate::transport::abort::connection(&device).is_some() {
            assert_eq!(by_number.unwrap().entry, known.entry);
        }
        assert_eq!(
            MountEntry::at(&path).unwrap(),
            None,
            "another was taken for it"
        );
    }

    #[test]
    fn a_passed_descriptor_must_be_the_fuse_device() {
        let file = tempfile::tempfile().unwrap();
        let path = PathBuf::from(format!("/dev/fd/{}", file.as_raw_fd()));
        let message = mount(&path, &MountOptions::new()).unwrap_err().to_string();
        assert!(
            message.contains("not an open /dev/fuse descriptor"),
            "{message}"
        );
        let message = mount(Path::new("/dev/fd/"), &MountOptions::new());
        let message = message.unwrap_err().to_string();
        assert!(message.contains("names no descriptor"), "{message}");
        let message = mount(Path::new("/dev/fd/2147483647"), &MountOptions::new())
            .unwrap_err()
            .to_string();
        assert!(message.contains("/dev/fd/2147483647"), "{message}");
    }
}
