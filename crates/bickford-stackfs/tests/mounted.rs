//! Operations through a real mount.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;

use bickford_stackfs::Preset;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use support::{Mount, Mounted, can_mount, each_preset, permissions, until};

#[test]
fn objects_of_every_kind_are_themselves() {
    each_preset(|mount| {
        let odd = OsStr::from_bytes(b"\xff\n name\x01");
        fs::write(mount.path(odd), "odd").unwrap();
        assert_eq!(fs::read(mount.below(odd)).unwrap(), b"odd");
        symlink("no/where", mount.path("link")).unwrap();
        assert_eq!(
            fs::read_link(mount.path("link")).unwrap().to_str(),
            Some("no/where")
        );
        let cwd = rustix::fs::CWD;
        let mode = Mode::from_raw_mode(0o600);
        for (name, kind) in [
            ("fifo", rustix::fs::FileType::Fifo),
            ("socket", rustix::fs::FileType::Socket),
            ("null", rustix::fs::FileType::CharacterDevice),
        ] {
            let device = rustix::fs::makedev(1, 3);
            rustix::fs::mknodat(cwd, mount.path(name), kind, mode, device).unwrap();
        }
        assert!(
            fs::metadata(mount.below("fifo"))
                .unwrap()
                .file_type()
                .is_fifo()
        );
        assert!(
            fs::metadata(mount.path("socket"))
                .unwrap()
                .file_type()
                .is_socket()
        );
        assert_eq!(
            fs::metadata(mount.path("null")).unwrap().rdev(),
            rustix::fs::makedev(1, 3)
        );
    });
}

#[test]
fn hard_links_share_an_inode_and_its_number_is_the_lower_one() {
    each_preset(|mount| {
        fs::write(mount.path("a"), "x").unwrap();
        fs::hard_link(mount.path("a"), mount.path("b")).unwrap();
        let (a, b) = (
            fs::metadata(mount.path("a")).unwrap(),
            fs::metadata(mount.path("b")).unwrap(),
        );
        assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
        assert_eq!(a.ino(), fs::metadata(mount.below("a")).unwrap().ino());
    });
}

#[test]
fn renames_keep_exchange_and_refuse() {
    each_preset(|mount| {
        let cwd = rustix::fs::CWD;
        let rename = |from: &str, to: &str, flags| {
            rustix::fs::renameat_with(cwd, mount.path(from), cwd, mount.path(to), flags)
        };
        fs::write(mount.path("a"), "a").unwrap();
        fs::write(mount.path("b"), "b").unwrap();
        assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename("a", "b", RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read(mount.path("a")).unwrap(), b"b");
        rename("a", "c", RenameFlags::WHITEOUT).unwrap();
        let whiteout = fs::metadata(mount.path("a")).unwrap();
        assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
        rename("c", "b", RenameFlags::empty()).unwrap();
        assert_eq!(fs::read(mount.below("b")).unwrap(), b"b");
    });
}

#[test]
fn data_holes_and_appends_reach_the_lower_file() {
    each_preset(|mount| {
        let path = mount.path("f");
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .open(&path)
            .unwrap();
        file.write_all_at(b"data", 1 << 20).unwrap();
        let seek = |from| rustix::fs::seek(file.as_fd(), from);
        assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(1 << 20));
        assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(0));
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4 << 20).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 1 << 20, 4096).unwrap();
        file.seek(SeekFrom::Start(1 << 20)).unwrap();
        let mut text = [1; 4];
        file.read_exact(&mut text).unwrap();
        assert_eq!(text, [0; 4]);
        file.set_len(3).unwrap();
        let mut one = OpenOptions::new().append(true).open(&path).unwrap();
        let mut two = OpenOptions::new().append(true).open(&path).unwrap();
        one.write_all(b"1").unwrap();
        two.write_all(b"2").unwrap();
        one.write_all(b"3").unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(mount.below("f")).unwrap(), b"\0\0\x00123");
        let copy = File::create_new(mount.path("copy")).unwrap();
        let (mut from, mut to) = (2, 0);
        let copied = rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 100);
        assert_eq!(copied, Ok(4));
        drop(copy);
        assert_eq!(fs::read(mount.below("copy")).unwrap(), b"\x00123");
    });
}

#[test]
fn removed_objects_that_are_in_use_live_on() {
    each_preset(|mount| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        let file = options.open(mount.path("f")).unwrap();
        file.write_all_at(b"text", 0).unwrap();
        let path_only = rustix::fs::open(mount.path("f"), OFlags::PATH, Mode::empty()).unwrap();
        fs::create_dir(mount.path("d")).unwrap();
        let dir = rustix::fs::open(mount.path("d"), OFlags::PATH, Mode::empty()).unwrap();
        fs::remove_file(mount.path("f")).unwrap();
        fs::remove_dir(mount.path("d")).unwrap();
        file.set_permissions(permissions(0o640)).unwrap();
        file.set_len(2).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(
            (metadata.nlink(), metadata.len(), metadata.mode() & 0o777),
            (0, 2, 0o640)
        );
        drop(file);
        assert_eq!(rustix::fs::fstat(&path_only).unwrap().st_size, 2);
        assert_eq!(rustix::fs::fstat(&dir).unwrap().st_nlink, 0);
    });
}

#[test]
fn an_unnamed_file_gets_a_name() {
    each_preset(|mount| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let mode = Mode::from_raw_mode(0o600);
        let file = File::from(rustix::fs::open(mount.path("."), flags, mode).unwrap());
        file.write_all_at(b"text", 0).unwrap();
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let cwd = rustix::fs::CWD;
        let follow = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(cwd, own, cwd, mount.path("named"), follow).unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(mount.below("named")).unwrap(), b"text");
    });
}

#[test]
fn default_acls_override_the_umask_as_they_do_below() {
    // user::rwx group::rwx mask::rwx other::--- , version 2
    let entry = |tag: u16, permissions: u16| {
        [
            &tag.to_le_bytes()[..],
            &permissions.to_le_bytes(),
            &u32::MAX.to_le_bytes(),
        ]
        .concat()
    };
    let acl = [
        2_u32.to_le_bytes().to_vec(),
        entry(1, 7),
        entry(4, 7),
        entry(16, 7),
        entry(32, 0),
    ]
    .concat();
    each_preset(|mount| {
        let name = "system.posix_acl_default";
        for dir in ["plain", "acl"] {
            fs::create_dir(mount.path(dir)).unwrap();
        }
        rustix::fs::setxattr(mount.path("acl"), name, &acl, XattrFlags::empty()).unwrap();
        for dir in ["plain", "acl"] {
            let create = format!("umask 027; echo >$0/{dir}/through; echo >$1/{dir}/native");
            let paths = [mount.path(""), mount.below("")];
            let status = Command::new("sh")
                .arg("-c")
                .arg(create)
                .args(paths)
                .status();
            assert!(status.unwrap().success());
            let mode = |file| fs::metadata(mount.below(dir).join(file)).unwrap().mode();
            assert_eq!(mode("through"), mode("native"), "{dir}");
        }
    });
}

#[test]
fn attributes_of_symbolic_links_are_their_own() {
    each_preset(|mount| {
        fs::write(mount.path("file"), "").unwrap();
        symlink("file", mount.path("link")).unwrap();
        let set = |path, name, value: &[u8]| {
            rustix::fs::lsetxattr(mount.path(path), name, value, XattrFlags::CREATE)
        };
        set("link", "trusted.own", b"1").unwrap();
        set("file", "user.own", b"2").unwrap();
        assert_eq!(set("file", "user.own", b"3"), Err(Errno::EXIST));
        let mut names = [0; 64];
        let length = rustix::fs::llistxattr(mount.below("link"), &mut names[..]).unwrap();
        assert_eq!(&names[..length], b"trusted.own\0");
        let mut value = [0; 64];
        let get = rustix::fs::getxattr(mount.path("file"), "trusted.own", &mut value[..]);
        assert_eq!(get, Err(Errno::NODATA));
    });
}

#[test]
fn a_long_directory_is_listed_once_while_it_shrinks() {
    each_preset(|mount| {
        let count = 2000;
        for number in 0..count {
            fs::write(mount.below(format!("a-file-with-a-long-name-{number}")), "").unwrap();
        }
        let mut seen = std::collections::BTreeSet::new();
        for entry in fs::read_dir(mount.path("")).unwrap() {
            let entry = entry.unwrap();
            assert!(seen.insert(entry.file_name()), "{entry:?} twice");
            assert_eq!(
                entry.metadata().unwrap().ino(),
                std::os::unix::fs::DirEntryExt::ino(&entry)
            );
            fs::remove_file(entry.path()).unwrap();
        }
        assert_eq!(seen.len(), count);
        assert_eq!(fs::read_dir(mount.below("")).unwrap().count(), 0);
    });
}

fn as_nobody(script: &str, path: &std::path::Path) -> bool {
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(script)
        .arg(path)
        .uid(65534)
        .gid(65534);
    command
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
        .success()
}

#[test]
fn other_users_get_their_rights_and_no_more() {
    each_preset(|mount| {
        fs::create_dir(mount.path("closed")).unwrap();
        fs::set_permissions(mount.path("closed"), permissions(0o700)).unwrap();
        fs::write(mount.path("closed/secret"), "x").unwrap();
        assert!(!as_nobody("cat $0/closed/secret", &mount.path("")));
        assert!(!as_nobody("echo >$0/closed/new", &mount.path("")));
        assert!(as_nobody("echo >$0/mine && mkdir $0/dir", &mount.path("")));
        for name in ["mine", "dir"] {
            let owner = fs::metadata(mount.below(name)).unwrap();
            assert_eq!((owner.uid(), owner.gid()), (65534, 65534), "{name}");
        }
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .mode(0o777)
            .open(mount.path("suid"))
            .unwrap();
        file.set_permissions(permissions(0o6777)).unwrap();
        drop(file);
        assert!(as_nobody("echo more >>$0/suid", &mount.path("")));
        assert_eq!(
            fs::metadata(mount.below("suid")).unwrap().mode() & 0o7000,
            0
        );
        assert_eq!(fs::metadata(mount.path("suid")).unwrap().mode() & 0o7000, 0);
    });
}

#[test]
fn flags_of_files_are_the_lower_ones() {
    each_preset(|mount| {
        let file = File::create_new(mount.path("f")).unwrap();
        let flags = match rustix::fs::ioctl_getflags(&file) {
            Ok(flags) => flags,
            Err(Errno::NOTTY | Errno::OPNOTSUPP) => return,
            Err(error) => panic!("{error}"),
        };
        rustix::fs::ioctl_setflags(&file, flags | rustix::fs::IFlags::NODUMP).unwrap();
        let below = File::open(mount.below("f")).unwrap();
        let below = rustix::fs::ioctl_getflags(&below).unwrap();
        assert!(below.contains(rustix::fs::IFlags::NODUMP));
    });
}

/// Whether the mount has a request for a lock that another has.
fn waits_for_a_lock(mount: &Mount) -> bool {
    let all = mount.session.server().in_flight().list();
    all.iter()
        .any(|one| one.opcode == bickford::abi::Opcode::Setlkw)
}

#[test]
fn a_flock_is_exclusive_and_a_waiter_gets_it() {
    each_preset(|mount| {
        let path = mount.path("f");
        let one = File::create_new(&path).unwrap();
        let two = File::open(&path).unwrap();
        one.lock().unwrap();
        assert!(two.try_lock().is_err());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| two.lock().unwrap());
            // The kernel itself has those of an exclusive mount.
            if !mount.stackfs.settings().exclusive {
                until("it waits", || waits_for_a_lock(mount));
            }
            one.unlock().unwrap();
            waiter.join().unwrap();
        });
        assert!(one.try_lock().is_err());
    });
}

#[test]
fn locks_are_seen_on_the_lower_file() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(Preset::Opt);
    let through = File::create_new(mount.path("f")).unwrap();
    let below = OpenOptions::new()
        .write(true)
        .open(mount.below("f"))
        .unwrap();
    through.lock().unwrap();
    assert!(below.try_lock().is_err());
    through.unlock().unwrap();
    below.try_lock().unwrap();
    assert!(through.try_lock().is_err());
    below.unlock().unwrap();
    through.try_lock().unwrap();
}

#[test]
fn a_waiting_lock_ends_with_its_process() {
    if !can_mount() {
        return;
    }
    for preset in [Preset::Base, Preset::Opt] {
        let mount = Mount::new(preset);
        let held = File::create_new(mount.path("f")).unwrap();
        held.lock().unwrap();
        let mut waiter = Command::new("flock")
            .arg(mount.path("f"))
            .arg("true")
            .spawn()
            .unwrap();
        until("it waits", || waits_for_a_lock(&mount));
        // With one worker, this shows that the waiting request does not keep it.
        fs::write(mount.path("other"), "x").unwrap();
        waiter.kill().unwrap();
        waiter.wait().unwrap();
        until("it waits no more", || !waits_for_a_lock(&mount));
        held.unlock().unwrap();
        let other = File::open(mount.path("f")).unwrap();
        assert!(other.try_lock().is_ok(), "it has the lock");
    }
}

#[test]
fn mounts_below_source_are_crossed_and_do_not_collide() {
    if !can_mount() {
        return;
    }
    let lower = tempfile::tempdir().unwrap();
    let (one, two) = (lower.path().join("one"), lower.path().join("two"));
    let own = [&one, &two].map(|dir| {
        fs::create_dir(dir).unwrap();
        let own = Mounted::at(dir, "tmpfs", None);
        fs::write(dir.join("f"), dir.as_os_str().as_bytes()).unwrap();
        own
    });
    let (below_one, below_two) = (one.clone(), two.clone());
    let mount = Mount::over(lower, |builder| builder.preset(Preset::Opt));
    let files = ["one/f", "two/f"].map(|name| fs::metadata(mount.path(name)).unwrap());
    assert_ne!(files[0].ino(), files[1].ino());
    assert_eq!(
        fs::read(mount.path("one/f")).unwrap(),
        below_one.as_os_str().as_bytes()
    );
    assert_eq!(
        fs::read(mount.path("two/f")).unwrap(),
        below_two.as_os_str().as_bytes()
    );
    fs::write(mount.path("two/new"), "x").unwrap();
    assert_eq!(fs::read(below_two.join("new")).unwrap(), b"x");
    // The directory that they are in goes with the mount.
    drop(own);
}

#[test]
fn without_file_handles_descriptors_are_bounded_and_given_back() {
    if !can_mount() {
        return;
    }
    let lower = tempfile::tempdir().unwrap();
    let mount = Mount::over(lower, |builder| {
        builder
            .preset(Preset::Base)
            .file_handles(false)
            .descriptors(256)
    });
    assert_eq!(mount.stackfs.identity(), "descriptors");
    for number in 0..300 {
        fs::write(mount.below(number.to_string()), "").unwrap();
    }
    // Half of what is left when an eighth is set aside for directories.
    let most = 112;
    // Held open here, so that the kernel forgets none of them.
    let open =
        |number: i32| rustix::fs::open(mount.path(number.to_string()), OFlags::PATH, Mode::empty());
    let opened: Vec<_> = (0..300).map(open).collect();
    assert!(opened.iter().take(most).all(Result::is_ok));
    assert!(
        opened
            .iter()
            .skip(most)
            .all(|open| matches!(open, Err(Errno::NFILE)))
    );
    assert_eq!(mount.stackfs.table_len(), most);
}

#[test]
fn a_source_is_held_whatever_is_mounted_over_it() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(Preset::Base);
    fs::write(mount.path("f"), "x").unwrap();
    let own = Mounted::at(&mount.below(""), "tmpfs", None);
    let seen = fs::read(mount.path("f"));
    let over = fs::read(mount.below("f")).map_err(|error| error.kind());
    drop(own);
    assert_eq!(seen.unwrap(), b"x");
    assert_eq!(over, Err(ErrorKind::NotFound));
}
