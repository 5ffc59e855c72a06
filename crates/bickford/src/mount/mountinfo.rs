//! /proc/self/mountinfo: what is mounted where, read without touching the file systems themselves.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::options::GenericFlags;

/// One line of /proc/self/mountinfo, see proc_pid_mountinfo(5).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountEntry {
    /// The mount's id.
    pub id: u64,
    /// The id of the mount it is mounted on.
    pub parent: u64,
    /// Major number of the device; 0 for file systems without one.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// What of the file system is mounted, as a path in it: `/` for all.
    pub root: PathBuf,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// The options of this mount, as the kernel prints them.
    pub options: String,
    /// The type, `fuse` or `fuse.SUBTYPE` for FUSE.
    pub fs_type: String,
    /// The source, `fsname` for FUSE.
    pub source: OsString,
    /// The options of the file system, as the kernel prints them.
    pub super_options: String,
}

impl MountEntry {
    /// Whether this is a FUSE mount.
    pub fn is_fuse(&self) -> bool {
        self.is_of_type("fuse") || self.is_block_device()
    }

    /// Whether this is a FUSE mount of a block device.
    pub fn is_block_device(&self) -> bool {
        self.is_of_type("fuseblk")
    }

    /// The subtype of a FUSE mount that has one.
    pub fn subtype(&self) -> Option<&str> {
        let subtype = self.fs_type.split_once('.').map(|(_, subtype)| subtype);
        subtype.filter(|_| self.is_fuse())
    }

    fn is_of_type(&self, name: &str) -> bool {
        let rest = self.fs_type.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// The number of the connection of a FUSE mount, its directory in /sys/fs/fuse/connections: the kernel's
    /// `dev_t`. With `fuseblk` that is the number of a disk.
    pub fn connection(&self) -> u32 {
        (self.major << 20) | self.minor
    }

    /// The user who mounted it, where it is a FUSE mount.
    pub fn owner(&self) -> Option<u32> {
        let mut options = self.super_options.split(',');
        let user = options.find_map(|option| option.strip_prefix("user_id="));
        user?.parse().ok()
    }

    /// The flags common to all file systems that are in force here, of the mount and of the file system.
    pub fn flags(&self) -> GenericFlags {
        let names = self.options.split(',').chain(self.super_options.split(','));
        let told = names
            .filter_map(GenericFlags::set_by)
            .fold(GenericFlags::empty(), GenericFlags::union);
        let is_told = |name| self.options.split(',').any(|option| option == name);
        // The kernel has no word for it.
        match is_told("noatime") || is_told("relatime") {
            true => told,
            false => told | GenericFlags::STRICT_ATIME,
        }
    }

    /// Whether both lines say the same of id, device and place. All three may be used again by a later mount.
    pub fn is_same_mount(&self, other: &Self) -> bool {
        self.has_numbers_of(other) && self.mountpoint == other.mountpoint
    }

    /// Whether both lines say the same of id and device.
    pub(super) fn has_numbers_of(&self, other: &Self) -> bool {
        let key = |entry: &Self| (entry.id, entry.major, entry.minor);
        key(self) == key(other)
    }

    /// Every mount of this mount namespace that the process can see. One that was moved to a mount point may come
    /// before what it covers there.
    pub fn all() -> io::Result<Vec<Self>> {
        Self::listed_in(Path::new("/proc/self/mountinfo"))
    }

    /// Those of the mount namespace of another process.
    pub(super) fn listed_in(mountinfo: &Path) -> io::Result<Vec<Self>> {
        let bytes = fs::read(mountinfo)?;
        Ok(bytes
            .split(|byte| *byte == b'\n')
            .filter_map(parse_line)
            .collect())
    }

    /// A mount of a connection that its path leads to, and not to what was mounted over it.
    pub(crate) fn of_connection(connection: u32) -> io::Result<Option<Self>> {
        Ok(Self::within_reach(&Self::all()?, connection).cloned())
    }

    /// The same in a list of all mounts. Numbers of other file systems are of the same kind.
    fn within_reach(all: &[Self], connection: u32) -> Option<&Self> {
        let is_reached = |entry: &Self| {
            let top = Self::top_of(all, &entry.mountpoint);
            top.is_some_and(|top| top.is_same_mount(entry))
        };
        let mut its = all
            .iter()
            .filter(|entry| entry.is_fuse() && entry.connection() == connection);
        its.find(|entry| is_reached(entry))
    }

    /// The topmost mount at exactly `mountpoint` (an absolute path without symbolic links), which is what the
    /// path leads to; none where something that is mounted above hides it.
    pub fn at(mountpoint: &Path) -> io::Result<Option<Self>> {
        Ok(Self::top_of(&Self::all()?, mountpoint).cloned())
    }

    /// The same in a list of all mounts.
    pub fn top_of<'a>(all: &'a [Self], mountpoint: &Path) -> Option<&'a Self> {
        Self::containing(all, mountpoint).filter(|entry| entry.mountpoint == mountpoint)
    }

    /// The mount in which a path (absolute, without symbolic links) ends, found as the kernel does: from the root
    /// down, at each step by what is mounted on the mount where the path has come to.
    pub fn containing<'a>(all: &'a [Self], path: &Path) -> Option<&'a Self> {
        let root = Path::new("/");
        let ids = all.iter().map(|entry| entry.id).collect::<HashSet<_>>();
        let mut found: Option<&Self> = None;
        for _ in all {
            let on = |entry: &&Self| match found {
                // In a root that is no mount point several have a parent that cannot be seen.
                None => entry.parent == entry.id || !ids.contains(&entry.parent),
                // Paths begin at the root of the process, and not at what was mounted over that.
                Some(mount) => entry.parent == mount.id && entry.mountpoint != root,
            };
            let leads = |entry: &&Self| path.starts_with(&entry.mountpoint);
            let next = all.iter().filter(on).filter(leads);
            let Some(next) = next.min_by_key(|entry| entry.mountpoint.as_os_str().len()) else {
                break;
            };
            found = Some(next);
        }
        found
    }
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = text(fields.next()?);
    let (major, minor) = device.split_once(':')?;
    let root = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let mountpoint = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let options = text(fields.next()?);
    // Optional fields end with a single dash.
    fields.by_ref().find(|field| *field == b"-")?;
    let fs_type = text(fields.next()?);
    let source = OsString::from_vec(unescape(fields.next()?));
    let super_options = text(fields.next()?);
    Some(MountEntry {
        id,
        parent,
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        root,
        mountpoint,
        options,
        fs_type,
        source,
        super_options,
    })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Undoes the kernel's `\ooo` for space, tab, newline, backslash and hash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        if let (
            b'\\',
            [
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ],
        ) = (first, tail)
        {
            bytes.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
            rest = after;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_escapes_and_optional_fields() {
        let line = br"36 35 0:47 /c\040d /mnt/a\040b\134 rw,nosuid shared:1 master:2 - fuse.x my\040fs rw,user_id=0";
        let entry = parse_line(line).unwrap();
        assert_eq!(
            (entry.id, entry.parent, entry.major, entry.minor),
            (36, 35, 0, 47)
        );
        assert_eq!(entry.root, Path::new("/c d"));
        assert_eq!(entry.mountpoint, Path::new(r"/mnt/a b\"));
        assert_eq!(
            (entry.fs_type.as_str(), entry.source.to_str()),
            ("fuse.x", Some("my fs"))
        );
        assert_eq!(
            (entry.options.as_str(), entry.super_options.as_str()),
            ("rw,nosuid", "rw,user_id=0")
        );
        assert!(entry.is_fuse());
        assert_eq!(entry.owner(), Some(0));
        let none = MountEntry {
            super_options: "rw,user_id=x".to_owned(),
            ..entry
        };
        assert_eq!(none.owner(), None);
    }

    #[test]
    fn types_tell_what_kind_of_mount_it_is() {
        for (fs_type, expected) in [
            ("fuse", (true, false, None)),
            ("fuse.x.y", (true, false, Some("x.y"))),
            ("fuseblk", (true, true, None)),
            ("fuseblk.x", (true, true, Some("x"))),
            ("fusectl", (false, false, None)),
            ("other.x", (false, false, None)),
        ] {
            let line = format!("36 35 0:47 / /m rw - {fs_type} x rw");
            let entry = parse_line(line.as_bytes()).unwrap();
            let told = (entry.is_fuse(), entry.is_block_device(), entry.subtype());
            assert_eq!(told, expected, "{fs_type}");
        }
    }

    #[test]
    fn a_mount_of_a_connection_is_fuse_and_not_covered() {
        let list = |lines: &[&str]| -> Vec<MountEntry> {
            let entry = |line: &&str| parse_line(line.as_bytes()).unwrap();
            lines.iter().map(entry).collect()
        };
        let root = "1 1 0:1 / / rw - ext4 x rw";
        let mount = "2 1 0:53 / /m rw - fuse.x x rw";
        let found = |lines: &[&str]| {
            let all = list(lines);
            MountEntry::within_reach(&all, 53).map(|entry| entry.id)
        };
        assert_eq!(found(&[root, mount]), Some(2));
        assert_eq!(found(&[root, "2 1 0:53 / /m rw - tmpfs x rw"]), None);
        let cover = "3 2 0:54 / /m rw - fuse.x y rw";
        assert_eq!(found(&[root, mount, cover]), None);
        let bound = "4 1 0:53 / /n rw - fuse.x x rw";
        assert_eq!(found(&[root, mount, cover, bound]), Some(4));
    }

    #[test]
    fn a_connection_is_known_by_its_whole_device_number() {
        let of = |device: &str| {
            let line = format!("36 35 {device} / /m rw - fuseblk x rw");
            parse_line(line.as_bytes()).unwrap().connection()
        };
        assert_eq!(of("0:53"), 53);
        // /dev/loop3.
        assert_eq!(of("7:3"), 7_340_035);
    }

    #[test]
    fn access_times_are_strict_where_nothing_else_is_said() {
        let flags = |options: &str| {
            let line = format!("36 35 0:47 / /m {options} - fuse x rw,sync");
            parse_line(line.as_bytes()).unwrap().flags()
        };
        let sync = GenericFlags::SYNC;
        assert_eq!(flags("rw,relatime"), sync);
        assert_eq!(flags("rw,noatime"), sync | GenericFlags::NO_ATIME);
        assert_eq!(flags("rw"), sync | GenericFlags::STRICT_ATIME);
    }

    #[test]
    fn the_top_is_found_by_what_is_mounted_on_what() {
        let all = [
            "20 1 0:20 / / rw - ext4 root rw",
            // Moved over 31 though it is older.
            "30 31 0:30 / /m rw - fuse moved rw",
            "31 20 0:31 / /m rw - fuse below rw",
            "32 20 0:32 / /p/m rw - fuse hidden rw",
            "33 20 0:33 / /p rw - tmpfs cover rw",
            "34 33 0:34 / /p/n rw - fuse seen rw",
            "35 20 0:35 / / rw - tmpfs over-root rw",
            "36 35 0:36 / /q rw - fuse unreachable rw",
        ];
        let all = all.map(|line| parse_line(line.as_bytes()).unwrap());
        let top = |path| MountEntry::top_of(&all, Path::new(path)).map(|entry| entry.id);
        assert_eq!(top("/"), Some(20));
        assert_eq!(top("/m"), Some(30));
        assert_eq!(top("/m/x"), None);
        assert_eq!(top("/p/m"), None);
        assert_eq!(top("/p/n"), Some(34));
        assert_eq!(top("/q"), None);
        let of = |path| MountEntry::containing(&all, Path::new(path)).map(|entry| entry.id);
        assert_eq!(
            (of("/p/m"), of("/m/x"), of("/z")),
            (Some(33), Some(30), Some(20))
        );
        // In a root that is no mount point the first mounts have a parent that is not listed.
        assert_eq!(
            MountEntry::top_of(&all[2..4], Path::new("/p/m")).map(|it| it.id),
            Some(32)
        );
        assert_eq!(MountEntry::containing(&[], Path::new("/")), None);
    }

    #[test]
    fn cut_lines_are_no_entries() {
        let line = br"36 35 0:47 / /mnt rw - fuse x rw";
        for end in 0..line.len() - b" rw".len() {
            assert_eq!(parse_line(&line[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn the_root_of_this_process_is_listed() {
        assert!(
            MountEntry::at(Path::new("/"))
                .unwrap()
                .is_some_and(|entry| !entry.is_fuse())
        );
    }
}
