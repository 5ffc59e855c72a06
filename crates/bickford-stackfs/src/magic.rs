//! File systems by the number that statfs(2) tells of them.

use std::os::fd::AsFd;

use rustix::io::Errno;

/// ext2, ext3 and ext4.
pub(crate) const EXT: u32 = libc::EXT4_SUPER_MAGIC as u32;
pub(crate) const FAT: u32 = libc::MSDOS_SUPER_MAGIC as u32;
pub(crate) const FUSE: u32 = libc::FUSE_SUPER_MAGIC as u32;
pub(crate) const OVERLAY: u32 = libc::OVERLAYFS_SUPER_MAGIC as u32;
pub(crate) const TMPFS: u32 = libc::TMPFS_MAGIC as u32;
pub(crate) const XFS: u32 = 0x5846_5342;

/// The number of the file system that `object` is on.
pub(crate) fn magic(object: impl AsFd) -> Result<u32, Errno> {
    Ok(rustix::fs::fstatfs(object)?.f_type as u32)
}

/// Whether close(2) can fail with what a write left undone: NFS, CIFS, SMB2, FUSE, 9p, Ceph.
pub(crate) fn reports_on_close(magic: u32) -> bool {
    const NFS: u32 = libc::NFS_SUPER_MAGIC as u32;
    matches!(
        magic,
        NFS | 0xff53_4d42 | 0xfe53_4d42 | FUSE | 0x0102_1997 | 0x00c3_6400
    )
}

/// File systems that make contents when they are read, whatever size their files tell; the first are configfs and
/// pstore.
const COMPUTED: [u32; 12] = [
    0x6265_6570,
    0x6165_676c,
    libc::PROC_SUPER_MAGIC as u32,
    libc::SYSFS_MAGIC as u32,
    libc::DEBUGFS_MAGIC as u32,
    libc::TRACEFS_MAGIC as u32,
    libc::SECURITYFS_MAGIC as u32,
    libc::CGROUP_SUPER_MAGIC as u32,
    libc::CGROUP2_SUPER_MAGIC as u32,
    libc::BPF_FS_MAGIC as u32,
    libc::RDTGROUP_SUPER_MAGIC as u32,
    libc::SELINUX_MAGIC as u32,
];

/// Whether the contents of files are made when they are read.
pub(crate) fn is_computed(magic: u32) -> bool {
    COMPUTED.contains(&magic)
}
