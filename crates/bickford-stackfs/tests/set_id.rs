//! Set-user-id and set-group-id bits of a file that is written are what they are natively, above and
//! below, whichever way the data travel and whatever was open before.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bickford_stackfs::{IoMode, Lower, Preset};
use rustix::fs::{AtFlags, CWD, FallocateFlags, StatxFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use support::{Mount, can_mount, each_preset, permissions, with_io};

/// What the file has been through when its bits are set.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    Read,
    OpenForReading,
    OpenForWriting,
}

/// How it is written then.
#[derive(Clone, Copy, Debug)]
enum How {
    Write,
    Append,
    Splice,
    Truncate,
    Allocate,
    Copy,
}

/// Who writes.
#[derive(Clone, Copy, Debug)]
enum Writer {
    Root,
    Stranger,
    Owner,
    /// Of its group, which is not the one that the writer's files get.
    Member,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    mode: u32,
    before: Before,
    how: How,
    writer: Writer,
}

/// The user, and the group of the same number, that is not root.
const OTHER: u32 = 65_534;
const GROUP: u32 = 12_345;

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in [0o4777, 0o2777, 0o6777, 0o6755, 0o2767, 0o6767] {
        for before in [
            Before::Nothing,
            Before::Read,
            Before::OpenForReading,
            Before::OpenForWriting,
        ] {
            for how in [
                How::Write,
                How::Append,
                How::Splice,
                How::Truncate,
                How::Allocate,
                How::Copy,
            ] {
                for writer in [
                    Writer::Root,
                    Writer::Stranger,
                    Writer::Owner,
                    Writer::Member,
                ] {
                    cases.push(Case {
                        mode,
                        before,
                        how,
                        writer,
                    });
                }
            }
        }
    }
    // What may not be opened is not written.
    cases.retain(|case| match case.writer {
        Writer::Root | Writer::Owner => true,
        Writer::Stranger | Writer::Member => case.mode != 0o6755,
    });
    cases
}

/// What [`How::Copy`] copies, beside `file`.
fn source_of(file: &Path) -> PathBuf {
    file.with_extension("source")
}

/// `act` in a thread of this user, who is of its own group and of `groups`.
fn acting(user: u32, groups: &[u32], act: impl FnOnce() + Send) {
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let become_user = || -> Result<(), Errno> {
        let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_user().unwrap();
            act();
        });
    });
}

/// Who writes as `case` says opens `file`, unless it is `open`, and writes to it.
fn write(case: Case, file: &Path, open: Option<&File>) {
    let mut options = OpenOptions::new();
    match case.how {
        How::Write => options.read(true).write(true),
        How::Append => options.append(true),
        How::Truncate => options.write(true).truncate(true),
        How::Splice | How::Allocate | How::Copy => options.write(true),
    };
    let act = || {
        // A descriptor that only the writer closes.
        let opened = open.map_or_else(|| options.open(file), File::try_clone);
        let mut opened = opened.unwrap();
        let written = match case.how {
            How::Write | How::Append | How::Truncate => Ok(opened.write(b"abc").unwrap()),
            How::Splice => {
                let (from, mut to) = std::io::pipe().unwrap();
                to.write_all(b"abc").unwrap();
                let flags = rustix::pipe::SpliceFlags::empty();
                rustix::pipe::splice(&from, None, &opened, None, 3, flags)
            }
            How::Allocate => {
                rustix::fs::fallocate(&opened, FallocateFlags::empty(), 0, 3).map(|()| 3)
            }
            How::Copy => {
                let from = File::open(source_of(file)).unwrap();
                rustix::fs::copy_file_range(from, None, &opened, None, 3)
            }
        };
        assert_eq!(written, Ok(3), "{case:?}");
    };
    match case.writer {
        Writer::Root => acting(0, &[], act),
        Writer::Stranger | Writer::Owner => acting(OTHER, &[], act),
        Writer::Member => acting(OTHER, &[GROUP], act),
    }
}

/// Goes through `case` with `path`; the mode that the file has then.
fn mode_after(case: Case, path: &Path) -> u32 {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o777);
    drop(options.open(path).unwrap());
    fs::set_permissions(path, permissions(0o777)).unwrap();
    match case.writer {
        Writer::Root | Writer::Stranger => {}
        Writer::Owner => std::os::unix::fs::chown(path, Some(OTHER), Some(OTHER)).unwrap(),
        Writer::Member => std::os::unix::fs::chown(path, None, Some(GROUP)).unwrap(),
    }
    if let How::Copy = case.how {
        fs::write(source_of(path), "abc").unwrap();
    }
    let mut reader = None;
    let mut writer = None;
    match case.before {
        Before::Nothing => {}
        Before::Read => drop(fs::read(path).unwrap()),
        Before::OpenForReading => reader = Some(File::open(path).unwrap()),
        Before::OpenForWriting => {
            writer = Some(OpenOptions::new().write(true).open(path).unwrap());
        }
    }
    fs::set_permissions(path, permissions(case.mode)).unwrap();
    write(case, path, writer.as_ref());
    drop((reader, writer));
    // Asked for alone: what has changed besides would have all be asked for.
    let (flags, mask) = (AtFlags::empty(), StatxFlags::MODE);
    let shown = rustix::fs::statx(CWD, path, flags, mask).unwrap().stx_mode;
    let mode = fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(u32::from(shown) & 0o7777, mode, "{case:?}: the mode alone");
    let expected = match case.how {
        How::Allocate => b"\0\0\0",
        _ => b"abc",
    };
    assert_eq!(fs::read(path).unwrap(), expected, "{case:?}");
    mode
}

/// The directory to compare with.
fn native() -> tempfile::TempDir {
    let native = tempfile::tempdir().unwrap();
    fs::set_permissions(native.path(), permissions(0o777)).unwrap();
    native
}

fn compare(native: &Path, mount: &Mount) {
    for (number, case) in cases().into_iter().enumerate() {
        let name = number.to_string();
        let file = native.join(&name);
        let expected = mode_after(case, &file);
        fs::remove_file(file).unwrap();
        let above = mode_after(case, &mount.path(&name));
        let below = fs::metadata(mount.below(&name)).unwrap().mode() & 0o7777;
        assert_eq!(
            format!("{above:o} above, {below:o} below"),
            format!("{expected:o} above, {expected:o} below"),
            "{case:?}"
        );
    }
}

#[test]
fn bits_are_those_of_the_native_file_system() {
    let native = native();
    each_preset(|mount| compare(native.path(), mount));
}

/// Nothing tells who has a file open, nor a write from chown(path, -1, -1).
#[test]
fn bits_are_those_of_the_native_file_system_where_opens_are_not_told() {
    if !can_mount() {
        return;
    }
    let settings = Preset::Fast.settings().lower(Lower::Watch);
    let mount = Mount::with(with_io(settings, IoMode::Cached));
    let native = native();
    compare(native.path(), &mount);
    let file = mount.path("another's");
    fs::write(&file, "").unwrap();
    for (user, left) in [(65534, 0o6755), (1, 0o755)] {
        std::os::unix::fs::chown(&file, Some(1), Some(1)).unwrap();
        fs::set_permissions(&file, permissions(0o6755)).unwrap();
        let mut chown = Command::new("chown");
        chown.arg(":").arg(&file).uid(user).gid(user);
        // Whatever it says: the mode counts.
        let _ = chown.output().unwrap();
        for path in [&file, &mount.below("another's")] {
            let mode = fs::metadata(path).unwrap().mode() & 0o7777;
            assert_eq!(mode, left, "{mode:o} after user {user}");
        }
    }
}

/// Version 2 of `vfs_cap_data`, with CAP_NET_BIND_SERVICE.
const CAPABILITY: [u8; 20] = [0, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn a_capability_that_is_set_after_a_write_stays() {
    if !can_mount() {
        return;
    }
    let presets = [Preset::Base, Preset::Opt, Preset::Fast].map(Preset::settings);
    let fast = || Preset::Fast.settings();
    let modes = [IoMode::Cached, IoMode::Plain, IoMode::Direct].map(|io| with_io(fast(), io));
    for settings in presets.into_iter().chain(modes) {
        let mount = Mount::with(settings);
        let mut file = File::create(mount.path("f")).unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let name = "security.capability";
        rustix::fs::fsetxattr(&file, name, &CAPABILITY, XattrFlags::empty()).unwrap();
        drop(file);
        assert_eq!(fs::read(mount.below("f")).unwrap(), [7; 10_000]);
        let mut value = [0; 32];
        let read = rustix::fs::getxattr(mount.below("f"), name, &mut value[..]);
        assert_eq!(read, Ok(CAPABILITY.len()), "{:?}", mount.stackfs.io_mode());
        assert_eq!(value[..CAPABILITY.len()], CAPABILITY);
    }
}

/// ACLs of who owns a directory but is not of its group: the bit goes with that of the mode alone, as in
/// `posix_acl_update_mode` of Linux.
#[test]
fn a_default_acl_leaves_the_set_group_id_bit() {
    const OWNER: u32 = 65_534;
    let minimal = [(1_u16, 7_u16), (4, 5), (32, 5)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions) in minimal {
        acl.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        acl.extend(u32::MAX.to_le_bytes());
    }
    each_preset(|mount| {
        let directory = mount.path("d");
        fs::create_dir(&directory).unwrap();
        std::os::unix::fs::chown(&directory, Some(OWNER), Some(0)).unwrap();
        fs::set_permissions(&directory, permissions(0o2775)).unwrap();
        for (name, left) in [
            ("system.posix_acl_default", 0o2775),
            ("system.posix_acl_access", 0o755),
        ] {
            acting(OWNER, &[], || {
                rustix::fs::setxattr(&directory, name, &acl, XattrFlags::empty()).unwrap();
            });
            for path in [&directory, &mount.below("d")] {
                let mode = fs::metadata(path).unwrap().mode() & 0o7777;
                assert_eq!(mode, left, "{mode:o} after {name}");
            }
        }
    });
}
