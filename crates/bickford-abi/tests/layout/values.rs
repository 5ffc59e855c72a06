//! Every flag and constant of the crate under the kernel's name.

use bickford_abi::*;
use bitflags::Flags;

/// A constant: the kernel's name and this crate's value.
pub(crate) type Value = (String, u64);

fn flags<F: Flags>(prefix: &str) -> Vec<Value>
where
    F::Bits: Into<u64>,
{
    let value = |flag: &bitflags::Flag<F>| {
        let name = flag.name().trim_start_matches('_');
        (format!("{prefix}{name}"), flag.value().bits().into())
    };
    F::FLAGS.iter().map(value).collect()
}

/// What every header since 7.36 has, and newer flags: all of them macros.
pub(crate) fn macros() -> Vec<Value> {
    let mut values = [
        flags::<InitFlags>("FUSE_"),
        flags::<CuseInitFlags>("CUSE_"),
        flags::<OpenInFlags>("FUSE_OPEN_"),
        flags::<OpenOutFlags>("FOPEN_"),
        flags::<SetattrValid>("FATTR_"),
        flags::<GetattrFlags>("FUSE_GETATTR_"),
        flags::<ReadFlags>("FUSE_READ_"),
        flags::<WriteFlags>("FUSE_WRITE_"),
        flags::<ReleaseFlags>("FUSE_RELEASE_"),
        flags::<FsyncFlags>("FUSE_FSYNC_"),
        flags::<LockFlags>("FUSE_LK_"),
        flags::<IoctlFlags>("FUSE_IOCTL_"),
        flags::<PollFlags>("FUSE_POLL_"),
        flags::<AttrFlags>("FUSE_ATTR_"),
        flags::<SetxattrFlags>("FUSE_SETXATTR_"),
        flags::<ExpireFlags>("FUSE_"),
        flags::<SetupmappingFlags>("FUSE_SETUPMAPPING_FLAG_"),
    ]
    .concat();
    let constants: &[(&str, u64)] = &[
        ("FUSE_KERNEL_VERSION", KERNEL_VERSION.into()),
        ("FUSE_ROOT_ID", ROOT_ID),
        ("FUSE_MIN_READ_BUFFER", MIN_READ_BUFFER as u64),
        ("FUSE_UNIQUE_RESEND", UNIQUE_RESEND),
        ("FUSE_INVALID_UIDGID", INVALID_UIDGID.into()),
        ("FUSE_COMPAT_ENTRY_OUT_SIZE", COMPAT_ENTRY_OUT_SIZE as u64),
        ("FUSE_COMPAT_ATTR_OUT_SIZE", COMPAT_ATTR_OUT_SIZE as u64),
        ("FUSE_COMPAT_MKNOD_IN_SIZE", COMPAT_MKNOD_IN_SIZE as u64),
        ("FUSE_COMPAT_WRITE_IN_SIZE", COMPAT_WRITE_IN_SIZE as u64),
        ("FUSE_COMPAT_STATFS_SIZE", COMPAT_STATFS_SIZE as u64),
        (
            "FUSE_COMPAT_SETXATTR_IN_SIZE",
            COMPAT_SETXATTR_IN_SIZE as u64,
        ),
        ("FUSE_COMPAT_INIT_OUT_SIZE", COMPAT_INIT_OUT_SIZE as u64),
        (
            "FUSE_COMPAT_22_INIT_OUT_SIZE",
            COMPAT_22_INIT_OUT_SIZE as u64,
        ),
        ("CUSE_INIT_INFO_MAX", CUSE_INIT_INFO_MAX as u64),
        ("FUSE_IOCTL_MAX_IOV", IOCTL_MAX_IOV as u64),
        (
            "FUSE_URING_IN_OUT_HEADER_SZ",
            URING_IN_OUT_HEADER_SIZE as u64,
        ),
        ("FUSE_URING_OP_IN_OUT_SZ", URING_OP_IN_OUT_SIZE as u64),
        ("FUSE_DEV_IOC_MAGIC", DEV_IOC_MAGIC.into()),
        ("FUSE_DEV_IOC_CLONE", DEV_CLONE.into()),
        ("FUSE_DEV_IOC_BACKING_OPEN", BACKING_OPEN.into()),
        ("FUSE_DEV_IOC_BACKING_CLOSE", BACKING_CLOSE.into()),
        ("FUSE_DEV_IOC_SYNC_INIT", SYNC_INIT.into()),
    ];
    values.extend(
        constants
            .iter()
            .map(|&(name, value)| (name.to_owned(), value)),
    );
    values
}

/// Enumeration constants with the minor version whose header has them.
pub(crate) fn enumerations() -> Vec<(u32, Value)> {
    let mut values: Vec<(u32, Value)> = Vec::new();
    for &opcode in Opcode::ALL {
        let prefix = if opcode == Opcode::CuseInit {
            ""
        } else {
            "FUSE_"
        };
        let name = format!("{prefix}{}", opcode.name());
        values.push((opcode.minimum_minor(), (name, opcode as u64)));
    }
    for &code in NotifyCode::ALL {
        let name = format!("FUSE_NOTIFY_{}", code.name());
        values.push((code.minimum_minor(), (name, code as u64)));
    }
    let others: &[(u32, &str, u32)] = &[
        (38, "FUSE_MAX_NR_SECCTX", MAX_NR_SECCTX),
        (39, "FUSE_EXT_GROUPS", EXT_GROUPS),
        (42, "FUSE_IO_URING_CMD_REGISTER", FUSE_IO_URING_CMD_REGISTER),
        (
            42,
            "FUSE_IO_URING_CMD_COMMIT_AND_FETCH",
            FUSE_IO_URING_CMD_COMMIT_AND_FETCH,
        ),
    ];
    let other = |&(since, name, value): &(u32, &str, u32)| (since, (name.to_owned(), value.into()));
    values.extend(others.iter().map(other));
    values
}

/// Values of what headers older than 7.45 lack, from the kernel's 7.45 header; the ioctls are
/// those of architectures with the generic encoding.
pub(crate) const STATED: &[(&str, u64)] = &[
    ("FUSE_CREATE_SUPP_GROUP", 0x4_0000_0000),
    ("FUSE_DIRECT_IO_ALLOW_MMAP", 0x10_0000_0000),
    ("FUSE_PASSTHROUGH", 0x20_0000_0000),
    ("FUSE_NO_EXPORT_SUPPORT", 0x40_0000_0000),
    ("FUSE_HAS_RESEND", 0x80_0000_0000),
    ("FUSE_ALLOW_IDMAP", 0x100_0000_0000),
    ("FUSE_OVER_IO_URING", 0x200_0000_0000),
    ("FUSE_REQUEST_TIMEOUT", 0x400_0000_0000),
    ("FOPEN_PASSTHROUGH", 0x80),
    ("FUSE_UNIQUE_RESEND", 0x8000_0000_0000_0000),
    ("FUSE_INVALID_UIDGID", 0xffff_ffff),
    ("FUSE_URING_IN_OUT_HEADER_SZ", 128),
    ("FUSE_URING_OP_IN_OUT_SZ", 128),
    #[cfg(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64"
    ))]
    ("FUSE_DEV_IOC_BACKING_OPEN", 0x4010_e501),
    #[cfg(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64"
    ))]
    ("FUSE_DEV_IOC_BACKING_CLOSE", 0x4004_e502),
    #[cfg(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64"
    ))]
    ("FUSE_DEV_IOC_SYNC_INIT", 0xe503),
    ("FUSE_STATX", 52),
    ("FUSE_COPY_FILE_RANGE_64", 53),
    ("FUSE_NOTIFY_RESEND", 7),
    ("FUSE_NOTIFY_INC_EPOCH", 8),
    ("FUSE_NOTIFY_PRUNE", 9),
    ("FUSE_EXT_GROUPS", 32),
    ("FUSE_IO_URING_CMD_REGISTER", 1),
    ("FUSE_IO_URING_CMD_COMMIT_AND_FETCH", 2),
];
