//! Owners, modes, times, attributes, and what other users may do.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use bickford_conformance::{ordinary_user, run};
use rustix::fs::{AtFlags, CWD, IFlags, StatxFlags, XattrFlags};

use super::{Check, Seen, saw};

/// When files were born.
pub(crate) const BIRTH: &str = "statx";

pub(crate) const CHECKS: &[Check] = &[
    ("xattrs", xattrs),
    ("xattr-lengths", xattr_lengths),
    ("acls", acls),
    ("set-id-bits", set_id_bits),
    ("group-inheritance", group_inheritance),
    ("times", times),
    (BIRTH, birth_time),
    ("flags", flags),
    ("append-only", append_only),
    ("closed-directories", closed_directories),
    ("groups", groups),
    ("umask", umask),
    ("statfs", statfs),
];

fn xattrs(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, "x").expect("write");
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    let get = |name: &str, room: usize| {
        let mut value = vec![0; room];
        rustix::fs::getxattr(&path, name, &mut value).map(|length| value[..length].to_vec())
    };
    saw!(seen, get("user.a", 10));
    saw!(seen, set("user.a", b"value", XattrFlags::REPLACE));
    saw!(seen, set("user.a", b"value", XattrFlags::CREATE));
    saw!(seen, set("user.a", b"value", XattrFlags::CREATE));
    saw!(seen, set("user.empty", b"", XattrFlags::empty()));
    saw!(seen, set("trusted.b", b"t", XattrFlags::empty()));
    saw!(seen, set("nonsense.c", b"t", XattrFlags::empty()));
    saw!(seen, set("user.big", &vec![7; 3000], XattrFlags::empty()));
    saw!(
        seen,
        set("user.too-big", &vec![7; 70_000], XattrFlags::empty())
    );
    saw!(
        seen,
        get("user.a", 10),
        get("user.a", 2),
        get("user.empty", 4)
    );
    saw!(seen, get("user.big", 4000).map(|value| value.len()));
    let mut list = vec![0; 1000];
    let length = rustix::fs::listxattr(&path, &mut list).expect("list");
    let mut names: Vec<_> = list[..length]
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    names.sort();
    saw!(
        seen,
        names,
        rustix::fs::listxattr(&path, &mut [0_u8; 3]).is_err()
    );
    saw!(
        seen,
        rustix::fs::removexattr(&path, "user.a"),
        rustix::fs::removexattr(&path, "user.a")
    );
    let other = as_ordinary("getfattr", &["-n", "trusted.b"], &path);
    saw!(seen, other.0);
    seen
}

/// The lengths of extended attributes, which getfattr(1), cp(1), rsync(1) and tar(1) ask for first.
fn xattr_lengths(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, "x").expect("write");
    let big = [7; 3000];
    let attributes: [(&str, &[u8]); 4] = [
        ("user.a", b"value"),
        ("user.empty", b""),
        ("trusted.b", b"t"),
        ("user.big", &big),
    ];
    for (name, value) in attributes {
        saw!(
            seen,
            rustix::fs::setxattr(&path, name, value, XattrFlags::CREATE)
        );
    }
    let file = File::open(&path).expect("open");
    for name in ["user.a", "user.empty", "user.big", "user.none"] {
        saw!(
            seen,
            rustix::fs::getxattr_query(&path, name),
            rustix::fs::fgetxattr_query(&file, name)
        );
    }
    saw!(
        seen,
        rustix::fs::listxattr_query(&path),
        rustix::fs::flistxattr_query(&file)
    );
    let copy = top.join("copy");
    let copied = run(Command::new("cp").arg("-a").arg(&path).arg(&copy));
    let dumped = run(Command::new("getfattr")
        .args(["-d", "-m", "-", "-e", "hex", "copy"])
        .current_dir(top));
    saw!(
        seen,
        copied.status.code(),
        dumped.status.code(),
        dumped.output
    );
    // Only the privileged see trusted attributes.
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o666)).expect("chmod");
    saw!(seen, as_ordinary("getfattr", &["-d", "-m", "-"], &copy).0);
    seen
}

fn acls(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let file = top.join("file");
    fs::write(&file, "for some\n").expect("write");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
    saw!(seen, as_ordinary("cat", &[], &file));
    let acl = |arguments: &[&str], path: &Path| {
        run(Command::new("setfacl").args(arguments).arg(path))
            .status
            .code()
    };
    saw!(seen, acl(&["-m", "u:65534:r"], &file));
    saw!(seen, as_ordinary("cat", &[], &file));
    saw!(
        seen,
        fs::metadata(&file).map(|metadata| metadata.mode()).ok()
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
    saw!(seen, as_ordinary("cat", &[], &file));
    let folder = top.join("folder");
    fs::create_dir(&folder).expect("directory");
    saw!(seen, acl(&["-d", "-m", "u:65534:rwx,g::r,o::-"], &folder));
    File::create(folder.join("inherits")).expect("create");
    fs::create_dir(folder.join("below")).expect("directory");
    for name in ["inherits", "below"] {
        let shown = run(Command::new("getfacl")
            .args(["-n", "-c", "-p"])
            .arg(folder.join(name)));
        saw!(seen, shown.output);
        saw!(
            seen,
            fs::metadata(folder.join(name))
                .map(|metadata| metadata.mode())
                .ok()
        );
    }
    seen
}

fn set_id_bits(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let user = ordinary_user();
    let file = top.join("file");
    let mode = || {
        fs::metadata(&file)
            .map(|metadata| format!("{:o}", metadata.mode()))
            .ok()
    };
    let reset = || {
        fs::write(&file, "contents").expect("write");
        chown(&file, Some(user.0), Some(user.1)).expect("chown");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).expect("chmod");
    };
    reset();
    saw!(seen, mode());
    saw!(
        seen,
        as_ordinary("sh", &["-c", "echo more >> \"$0\""], &file),
        mode()
    );
    reset();
    saw!(seen, as_ordinary("truncate", &["-s", "3"], &file), mode());
    reset();
    saw!(seen, chown(&file, Some(1), None).is_ok(), mode());
    reset();
    fs::write(&file, "by root").expect("write");
    saw!(seen, mode());
    seen
}

fn group_inheritance(top: &Path) -> Seen {
    let mut seen = Seen::new();
    chown(top, Some(0), Some(42)).expect("chown");
    fs::set_permissions(top, fs::Permissions::from_mode(0o2777)).expect("chmod");
    fs::create_dir(top.join("folder")).expect("directory");
    saw!(seen, as_ordinary("touch", &[], &top.join("file")));
    for name in ["folder", "file"] {
        let metadata = fs::metadata(top.join(name)).expect("stat");
        saw!(
            seen,
            (
                format!("{:o}", metadata.mode()),
                metadata.uid(),
                metadata.gid()
            )
        );
    }
    seen
}

fn times(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    let file = File::create(&path).expect("create");
    let times = |stat: &fs::Metadata| {
        (
            stat.atime(),
            stat.atime_nsec(),
            stat.mtime(),
            stat.mtime_nsec(),
        )
    };
    for seconds in [0, 1, 1 << 31, (1 << 33) + 7] {
        let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
        let set = fs::FileTimes::new().set_accessed(time).set_modified(time);
        saw!(
            seen,
            file.set_times(set).is_ok(),
            times(&fs::metadata(&path).expect("stat"))
        );
    }
    drop(file);
    saw!(seen, times(&fs::metadata(&path).expect("stat")));
    let before = fs::metadata(&path).expect("stat");
    // Longer than the clock of any file system ticks.
    std::thread::sleep(Duration::from_millis(50));
    fs::write(&path, "x").expect("write");
    let after = fs::metadata(&path).expect("stat");
    let stamp = |stat: &fs::Metadata| (stat.ctime(), stat.ctime_nsec());
    saw!(
        seen,
        after.modified().ok() < before.modified().ok(),
        stamp(&after) > stamp(&before)
    );
    saw!(
        seen,
        after.modified().expect("time") <= SystemTime::now() + Duration::from_secs(1)
    );
    seen
}

fn birth_time(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, "x").expect("write");
    let statx = || rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::ALL).expect("statx");
    let first = statx();
    saw!(
        seen,
        first.stx_mask & StatxFlags::BTIME.bits() != 0,
        first.stx_btime.tv_sec > 0
    );
    std::thread::sleep(Duration::from_millis(50));
    fs::write(&path, "y").expect("write");
    let second = statx();
    let birth = |statx: &rustix::fs::Statx| (statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec);
    saw!(
        seen,
        birth(&first) == birth(&second),
        first.stx_ino == second.stx_ino
    );
    seen
}

fn flags(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let directory = top.join("directory");
    fs::create_dir(&directory).expect("directory");
    // The write-back cache has the kernel keep the times of files: only a directory tells of its flags'.
    let changed = || {
        let stat = fs::metadata(&directory).expect("stat");
        (stat.ctime(), stat.ctime_nsec())
    };
    for path in [top.join("file"), directory.clone()] {
        let file = match path.exists() {
            true => File::open(&path).expect("open"),
            false => File::create(&path).expect("create"),
        };
        let no_dump =
            || rustix::fs::ioctl_getflags(&file).map(|flags| flags.contains(IFlags::NODUMP));
        saw!(seen, no_dump());
        let set = rustix::fs::ioctl_getflags(&file).map(|flags| flags | IFlags::NODUMP);
        let before = changed();
        std::thread::sleep(Duration::from_millis(50));
        saw!(
            seen,
            set.and_then(|flags| rustix::fs::ioctl_setflags(&file, flags)),
            no_dump(),
            changed() > before
        );
    }
    seen
}

/// A file that may only be appended to, as logs are kept.
fn append_only(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = top.join("file");
    fs::write(&path, "made").expect("write");
    let set = |on: bool| {
        let file = File::open(&path).expect("open");
        let flags = rustix::fs::ioctl_getflags(&file).expect("flags");
        let with = match on {
            true => flags | IFlags::APPEND,
            false => flags - IFlags::APPEND,
        };
        rustix::fs::ioctl_setflags(&file, with)
    };
    saw!(seen, set(true));
    let append = |text: &str| {
        let mut file = File::options().append(true).open(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    for text in [" grown", " and more", &"x".repeat(3000)] {
        saw!(seen, append(text).ok(), fs::read_to_string(&path).ok());
    }
    let touch = |at: &[&str]| run(Command::new("touch").args(at).arg(&path)).status.code();
    saw!(seen, touch(&[]), touch(&["-d", "2001-01-01"]));
    // Until the flag is gone, so that the file can be removed.
    saw!(seen, set(false), fs::read_to_string(&path).ok());
    seen
}

/// What others may do behind a directory that is closed to them, after its owner has been there.
fn closed_directories(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let closed = top.join("closed");
    fs::create_dir(&closed).expect("directory");
    let secret = closed.join("secret");
    fs::write(&secret, "secret\n").expect("write");
    saw!(seen, as_ordinary("cat", &[], &secret));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("chmod");
    saw!(seen, fs::read_to_string(&secret).ok());
    saw!(
        seen,
        as_ordinary("cat", &[], &secret),
        as_ordinary("stat", &["-c", "%s"], &secret)
    );
    saw!(
        seen,
        as_ordinary("ls", &[], &closed),
        as_ordinary("touch", &[], &closed.join("new"))
    );
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o711)).expect("chmod");
    saw!(
        seen,
        as_ordinary("cat", &[], &secret),
        as_ordinary("ls", &[], &closed)
    );
    // The sticky bit keeps others' files.
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o1777)).expect("chmod");
    saw!(
        seen,
        as_ordinary("rm", &["-f"], &secret),
        as_ordinary("touch", &[], &closed.join("mine"))
    );
    saw!(seen, as_ordinary("rm", &[], &closed.join("mine")));
    saw!(
        seen,
        as_ordinary("chmod", &["777"], &secret),
        as_ordinary("chown", &["65534"], &secret)
    );
    seen
}

/// Supplementary groups give what they give below.
fn groups(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let file = top.join("file");
    fs::write(&file, "for the group\n").expect("write");
    chown(&file, Some(0), Some(42)).expect("chown");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("chmod");
    for groups in ["--clear-groups", "--groups=42", "--groups=7,42,9"] {
        let finished = run(Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", groups, "cat"])
            .arg(&file));
        saw!(seen, (groups, finished.status.code(), finished.output));
    }
    seen
}

fn umask(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let script =
        "umask 027; cd \"$0\" && touch file && mkdir folder && mkfifo fifo && ln -s x link";
    saw!(
        seen,
        run(Command::new("sh").args(["-c", script]).arg(top))
            .status
            .code()
    );
    for name in ["file", "folder", "fifo", "link"] {
        let metadata = fs::symlink_metadata(top.join(name)).expect("stat");
        saw!(seen, (name, format!("{:o}", metadata.mode())));
    }
    seen
}

fn statfs(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let found = rustix::fs::statvfs(top).expect("statvfs");
    saw!(
        seen,
        found.f_bsize,
        found.f_frsize,
        found.f_blocks,
        found.f_files,
        found.f_namemax
    );
    saw!(
        seen,
        found.f_bfree > 0,
        found.f_bavail > 0,
        found.f_ffree > 0
    );
    seen
}

/// Exit status and output of a program that an ordinary user runs on a path.
fn as_ordinary(program: &str, arguments: &[&str], path: &Path) -> (Option<i32>, String) {
    let (user, group) = ordinary_user();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(path)
        .uid(user)
        .gid(group)
        .current_dir("/");
    let finished = run(&mut command);
    (finished.status.code(), finished.output)
}
