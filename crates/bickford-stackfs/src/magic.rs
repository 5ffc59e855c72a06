//! File systems by the number that statfs(2) tells of them.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

/// ext2, ext3 and ext4.
pub(crate) const EXT: u32 = libc::EXT4_SUPER_MAGIC as u32;
pub(crate) const BTRFS: u32 = libc::BTRFS_SUPER_MAGIC as u32;
pub(crate) const FAT: u32 = libc::MSDOS_SUPER_MAGIC as u32;
pub(crate) const FUSE: u32 = libc::FUSE_SUPER_MAGIC as u32;
pub(crate) const OVERLAY: u32 = libc::OVERLAYFS_SUPER_MAGIC as u32;
pub(crate) const TMPFS: u32 = libc::TMPFS_MAGIC as u32;
pub(crate) const XFS: u32 = 0x5846_5342;

/// The number of the file system that `object` is on.
pub(crate) fn magic(object: impl AsFd) -> Result<u32, Errno> {
    Ok(rustix::fs::fstatfs(object)?.f_type as u32)
}

/// What a file system does that others do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    /// It makes contents when they are read, whatever size its files tell.
    pub(crate) computed: bool,
    /// close(2) can fail with what a write left undone.
    pub(crate) reports_on_close: bool,
    /// One name has as many spellings as its letters have cases, or may have.
    pub(crate) folds_case: bool,
    /// What somebody holds, by an `O_PATH` descriptor, too, is renamed before it is removed or replaced, and goes
    /// later.
    pub(crate) renames_held: bool,
}

/// By number and, as mountinfo tells it, by type.
type Known = &'static [(u32, &'static str)];

const COMPUTED: Known = &[
    (0x6265_6570, "configfs"),
    (0x6165_676c, "pstore"),
    (libc::PROC_SUPER_MAGIC as u32, "proc"),
    (libc::SYSFS_MAGIC as u32, "sysfs"),
    (libc::DEBUGFS_MAGIC as u32, "debugfs"),
    (libc::TRACEFS_MAGIC as u32, "tracefs"),
    (libc::SECURITYFS_MAGIC as u32, "securityfs"),
    (libc::CGROUP_SUPER_MAGIC as u32, "cgroup"),
    (libc::CGROUP2_SUPER_MAGIC as u32, "cgroup2"),
    (libc::BPF_FS_MAGIC as u32, "bpf"),
    (libc::RDTGROUP_SUPER_MAGIC as u32, "resctrl"),
    (libc::SELINUX_MAGIC as u32, "selinuxfs"),
];
const NFS: Known = &[
    (libc::NFS_SUPER_MAGIC as u32, "nfs"),
    (libc::NFS_SUPER_MAGIC as u32, "nfs4"),
];
/// Beside [`NFS`].
const REPORTING: Known = &[
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb3"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (FUSE, "fuse"),
    (FUSE, "fuseblk"),
    (FUSE, "virtiofs"),
];

const FOLDING: Known = &[
    (FAT, "vfat"),
    (FAT, "msdos"),
    (0x2011_bab0, "exfat"),
    (0x7366_746e, "ntfs3"),
    (0x7366_746e, "ntfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb3"),
    (0x4244, "hfs"),
    (0x482b, "hfsplus"),
];
/// `FS_CASEFOLD_FL`, which chattr(1) sets of a directory (`+F`).
const CASEFOLD: u32 = 0x4000_0000;

impl Traits {
    /// What a file system does of which nothing is known.
    pub(crate) const ANY: Self = Self {
        computed: true,
        reports_on_close: true,
        folds_case: true,
        renames_held: true,
    };

    /// What the file system of a directory does, `magic`, and what the directory says of itself.
    pub(crate) fn of_directory(directory: BorrowedFd<'_>, magic: u32) -> Self {
        let known = Self::of_magic(magic);
        let flags = rustix::fs::ioctl_getflags(directory).map(|flags| flags.bits());
        Self {
            folds_case: known.folds_case || flags.is_ok_and(|flags| flags & CASEFOLD != 0),
            ..known
        }
    }

    pub(crate) fn of_magic(magic: u32) -> Self {
        Self::of(|(number, _)| number == magic)
    }

    /// `kind` is the type, with a subtype or without.
    pub(crate) fn of_type(kind: &str) -> Self {
        let kind = kind.split('.').next().unwrap_or(kind);
        Self::of(|(_, name)| name == kind)
    }

    fn of(is: impl Fn((u32, &str)) -> bool) -> Self {
        let any = |known: Known| known.iter().any(|&one| is(one));
        Self {
            computed: any(COMPUTED),
            reports_on_close: any(REPORTING) || any(NFS),
            folds_case: any(FOLDING),
            renames_held: any(NFS),
        }
    }

    /// What either does.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            computed: self.computed || other.computed,
            reports_on_close: self.reports_on_close || other.reports_on_close,
            folds_case: self.folds_case || other.folds_case,
            renames_held: self.renames_held || other.renames_held,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_known_by_its_number_and_its_type() {
        let computed = Traits::of_type("proc");
        assert!(computed.computed && !computed.reports_on_close && !computed.folds_case);
        let nfs = Traits::of_type("nfs4");
        assert!(nfs.reports_on_close && nfs.renames_held && !nfs.folds_case);
        assert!(Traits::of_type("vfat").folds_case && Traits::of_magic(FAT).folds_case);
        assert_eq!(computed, Traits::of_magic(libc::PROC_SUPER_MAGIC as u32));
        for kind in ["fuse", "fuse.sshfs", "fuseblk"] {
            assert_eq!(Traits::of_type(kind), Traits::of_magic(FUSE), "{kind}");
        }
        assert_eq!(
            Traits::of_type("ext4").or(Traits::of_magic(EXT)),
            Traits::default()
        );
        assert_eq!(computed.or(Traits::ANY), Traits::ANY);
    }
}
