//! Mounting by system call, for processes that may: the mount API of Linux 5.2, mount(2) before that.

use std::ffi::CString;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};

use super::MountError;
use super::option_text::FSNAME_MAX;
use super::options::{GenericFlags, MountOptions};
use super::point::MountPoint;
use crate::sys::mount::{MountIds, mount_ids};

/// The device every FUSE connection starts from.
pub(super) const DEVICE: &str = "/dev/fuse";

/// Why there is no direct mount.
pub(super) enum DirectError {
    /// This process may not mount; fusermount3 might.
    NotPermitted(&'static str),
    /// The mount itself failed.
    Failed(MountError),
}

impl From<MountError> for DirectError {
    fn from(error: MountError) -> Self {
        Self::Failed(error)
    }
}

/// The device, and what tells the mount from others where the kernel says so at once.
pub(super) fn mount(
    point: &MountPoint,
    options: &MountOptions,
) -> Result<(OwnedFd, Option<MountIds>), DirectError> {
    let device = open_device().map_err(|errno| match errno {
        Errno::ACCESS | Errno::PERM => DirectError::NotPermitted("/dev/fuse may not be opened"),
        errno => MountError::Device {
            source: errno.into(),
        }
        .into(),
    })?;
    let mounted = match fits_fsconfig(options) {
        true => mount_by_fsopen(point, options, device.as_fd()).map(Some),
        false => Err(Step::new("fsopen")(Errno::NOSYS)),
    };
    match mounted {
        Ok(mount) => {
            let ids = mount.and_then(|mount| mount_ids(&mount));
            Ok((device, ids))
        }
        // A kernel before 5.2, a container whose system call filter does not know the calls, or values
        // that are too long for them.
        Err(Step {
            at: "fsopen",
            errno: Errno::NOSYS | Errno::PERM,
            ..
        }) => match mount_by_mount(point, options, device.as_fd()) {
            Ok(()) => Ok((device, None)),
            Err(Step {
                errno: Errno::PERM, ..
            }) => Err(DirectError::NotPermitted("CAP_SYS_ADMIN is missing")),
            Err(step) => Err(step.explain(point, options).into()),
        },
        Err(step) => Err(step.explain(point, options).into()),
    }
}

fn open_device() -> Result<OwnedFd, Errno> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// The call that failed, and what the kernel wrote into the context's log.
struct Step {
    at: &'static str,
    errno: Errno,
    log: String,
}

impl Step {
    fn new(at: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self {
            at,
            errno,
            log: String::new(),
        }
    }

    fn explain(self, point: &MountPoint, options: &MountOptions) -> MountError {
        let mountpoint = point.path.clone();
        match self.errno {
            Errno::NODEV if !options.block_device => MountError::Device {
                source: self.errno.into(),
            },
            errno if options.block_device => MountError::BlockDevice {
                mountpoint,
                device: options.source().to_owned(),
                log: self.log,
                source: errno.into(),
            },
            Errno::BUSY => MountError::Busy { mountpoint },
            errno => MountError::Kernel {
                mountpoint,
                call: self.at,
                log: self.log,
                source: errno.into(),
            },
        }
    }
}

fn mount_by_fsopen(
    point: &MountPoint,
    options: &MountOptions,
    device: BorrowedFd<'_>,
) -> Result<OwnedFd, Step> {
    let context = fsopen(fs_type(options), FsOpenFlags::FSOPEN_CLOEXEC);
    let context = context.map_err(Step::new("fsopen"))?;
    let configured = configure(context.as_fd(), point.kind, options, device)
        .and_then(|()| fsconfig_create(&context))
        .map_err(|errno| Step {
            at: "fsconfig",
            errno,
            log: read_log(&context),
        })
        .and_then(|()| {
            fsmount(
                &context,
                FsMountFlags::FSMOUNT_CLOEXEC,
                attributes(options.flags),
            )
            .map_err(Step::new("fsmount"))
        });
    let mount = configured?;
    let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mount, c"", &point.fd, c"", whole).map_err(Step::new("move_mount"))?;
    Ok(mount)
}

fn fs_type(options: &MountOptions) -> &'static str {
    match options.block_device {
        true => "fuseblk",
        false => "fuse",
    }
}

/// A connection without a mount: the kernel sends INIT when the file system is created. It ends when
/// either descriptor is closed.
pub(super) fn connect(options: &MountOptions) -> Result<(OwnedFd, OwnedFd), Errno> {
    let device = open_device()?;
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let directory = FileType::Directory.as_raw_mode();
    configure(context.as_fd(), directory, options, device.as_fd())?;
    fsconfig_create(&context)?;
    Ok((device, context))
}

fn configure(
    context: BorrowedFd<'_>,
    kind: u32,
    options: &MountOptions,
    device: BorrowedFd<'_>,
) -> Result<(), Errno> {
    fsconfig_set_string(context, "source", options.source())?;
    if let Some(subtype) = &options.subtype {
        fsconfig_set_string(context, "subtype", subtype.as_str())?;
    }
    for (name, value) in kernel_values(kind, options, device) {
        fsconfig_set_string(context, name, value.as_str())?;
    }
    for name in kernel_switches(options) {
        fsconfig_set_flag(context, name)?;
    }
    for (name, value) in &options.contexts {
        fsconfig_set_string(context, name.as_str(), value.as_str())?;
    }
    let flags = [
        ("ro", GenericFlags::READ_ONLY),
        ("sync", GenericFlags::SYNC),
        ("dirsync", GenericFlags::DIR_SYNC),
    ];
    for (name, _) in flags
        .iter()
        .filter(|(_, flag)| options.flags.contains(*flag))
    {
        fsconfig_set_flag(context, *name)?;
    }
    Ok(())
}

/// fsconfig(2) takes strings of at most 255 bytes, mount(2) those of a page.
fn fits_fsconfig(options: &MountOptions) -> bool {
    let contexts = options.contexts.iter().map(|(_, value)| value.as_str());
    let mut values = contexts.chain([options.source(), options.subtype.as_deref().unwrap_or("")]);
    values.all(|value| value.len() <= FSNAME_MAX)
}

/// The options of the kernel's fuse that carry a value, see Documentation/filesystems/fuse.
fn kernel_values(
    kind: u32,
    options: &MountOptions,
    device: BorrowedFd<'_>,
) -> Vec<(&'static str, String)> {
    let mut values = vec![
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", format!("{kind:o}")),
        ("user_id", rustix::process::getuid().as_raw().to_string()),
        ("group_id", rustix::process::getgid().as_raw().to_string()),
    ];
    let sizes = [
        ("max_read", options.max_read),
        ("blksize", options.block_size),
    ];
    values.extend(
        sizes
            .into_iter()
            .filter_map(|(name, bytes)| Some((name, bytes?.to_string()))),
    );
    values
}

fn kernel_switches(options: &MountOptions) -> impl Iterator<Item = &'static str> {
    let switches = [
        ("default_permissions", options.default_permissions),
        ("allow_other", options.kernel_allows_other()),
    ];
    switches
        .into_iter()
        .filter_map(|(name, on)| on.then_some(name))
}

fn attributes(flags: GenericFlags) -> MountAttrFlags {
    let map = [
        (GenericFlags::READ_ONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (GenericFlags::NO_SUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (GenericFlags::NO_DEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (GenericFlags::NO_EXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (GenericFlags::NO_ATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (
            GenericFlags::NO_DIR_ATIME,
            MountAttrFlags::MOUNT_ATTR_NODIRATIME,
        ),
        (
            GenericFlags::STRICT_ATIME,
            MountAttrFlags::MOUNT_ATTR_STRICTATIME,
        ),
        (
            GenericFlags::NO_SYMFOLLOW,
            MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW,
        ),
    ];
    let chosen = map.into_iter().filter(|(flag, _)| flags.contains(*flag));
    chosen.fold(MountAttrFlags::empty(), |all, (_, attribute)| {
        all | attribute
    })
}

/// The kernel's messages for a context, one per read, each with a letter and a space before it.
fn read_log(context: &OwnedFd) -> String {
    let mut log = String::new();
    let mut message = [0_u8; 512];
    for _ in 0..8 {
        let Ok(len @ 1..) = rustix::io::read(context, &mut message) else {
            break;
        };
        let text = String::from_utf8_lossy(message.get(..len).unwrap_or_default()).into_owned();
        // Writing to a String cannot fail.
        let _ = write!(
            log,
            "{}{}",
            if log.is_empty() { ": " } else { "; " },
            text.get(2..).unwrap_or("").trim_end()
        );
    }
    log
}

fn mount_by_mount(
    point: &MountPoint,
    options: &MountOptions,
    device: BorrowedFd<'_>,
) -> Result<(), Step> {
    let failed = Step::new("mount");
    let mut data = kernel_values(point.kind, options, device)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .chain(kernel_switches(options).map(str::to_owned))
        .collect::<Vec<_>>();
    data.extend(
        options
            .contexts
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\"")),
    );
    let data = CString::new(data.join(",")).map_err(|_| failed(Errno::INVAL))?;
    let fs_type = fs_type(options);
    let fs_type = match &options.subtype {
        Some(subtype) => format!("{fs_type}.{subtype}"),
        None => fs_type.to_owned(),
    };
    let flags = legacy_flags(options.flags);
    // By descriptor, so that nobody exchanges the directory between the check and the call.
    let target = format!("/proc/self/fd/{}", point.fd.as_raw_fd());
    rustix::mount::mount(
        options.source(),
        target,
        fs_type,
        flags,
        Some(data.as_c_str()),
    )
    .map_err(failed)
}

pub(super) fn legacy_flags(flags: GenericFlags) -> MountFlags {
    let map = [
        (GenericFlags::READ_ONLY, MountFlags::RDONLY),
        (GenericFlags::NO_SUID, MountFlags::NOSUID),
        (GenericFlags::NO_DEV, MountFlags::NODEV),
        (GenericFlags::NO_EXEC, MountFlags::NOEXEC),
        (GenericFlags::NO_ATIME, MountFlags::NOATIME),
        (GenericFlags::NO_DIR_ATIME, MountFlags::NODIRATIME),
        (GenericFlags::STRICT_ATIME, MountFlags::STRICTATIME),
        (GenericFlags::SYNC, MountFlags::SYNCHRONOUS),
        (GenericFlags::DIR_SYNC, MountFlags::DIRSYNC),
        // MS_NOSYMFOLLOW, Linux 5.10.
        (
            GenericFlags::NO_SYMFOLLOW,
            MountFlags::from_bits_retain(256),
        ),
    ];
    let chosen = map.into_iter().filter(|(flag, _)| flags.contains(*flag));
    chosen.fold(MountFlags::empty(), |all, (_, flag)| all | flag)
}

/// Whether /dev/fuse can be opened by this process.
pub fn probe_device() -> io::Result<()> {
    open_device()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_reaches_the_kernel_in_both_ways() {
        for flag in GenericFlags::all().iter() {
            let on_super = GenericFlags::SYNC | GenericFlags::DIR_SYNC;
            assert_eq!(
                attributes(flag).is_empty(),
                on_super.contains(flag),
                "{flag:?}"
            );
            assert!(!legacy_flags(flag).is_empty(), "{flag:?}");
        }
    }
}
