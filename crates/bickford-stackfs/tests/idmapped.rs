//! Id-mapped mounts: what is done through one is what is done through one of the lower file system.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

use bickford::abi::InitFlags;
use bickford::mount::{MountOptions, probe_kernel};
use bickford_stackfs::{Error, IoMode, Preset};
use rustix::mount::UnmountFlags;

use support::{Mount, Mounted, can_mount};

/// Mounts $ARGV[0] at $ARGV[1], with owners shown as $ARGV[2] says (user_namespaces(7)). Ends with 3 where the file
/// system allows no such mount. mount(8) can do it from util-linux 2.39 on.
const MAP: &str = r#"
    my ($from, $to, $shown) = @ARGV;
    my ($setattr, $move, $tree, $unshare) = (442, 429, 428, `uname -m` =~ /x86_64/ ? 272 : 97);
    pipe(my $ready, my $tell) or die $!;
    my $child = fork() // die $!;
    if (!$child) {
        syscall($unshare, 0x10000000) == 0 or die "unshare: $!";
        syswrite($tell, "x");
        sleep 60;
        exit;
    }
    sysread($ready, my $word, 1);
    for my $kind ("uid", "gid") {
        open(my $map, ">", "/proc/$child/${kind}_map") or die $!;
        syswrite($map, $shown) or die "${kind}_map: $!";
    }
    open(my $users, "<", "/proc/$child/ns/user") or die $!;
    my $at = -100;
    my $flags = 1 | 0x80000;
    my $mount = syscall($tree, $at, $from, $flags);
    die "open_tree: $!" if $mount < 0;
    my $attributes = pack("QQQQ", 0x00100000, 0, 0, fileno($users));
    my $empty = "";
    if (syscall($setattr, $mount, $empty, 0x1000, $attributes, length $attributes) != 0) {
        my $refused = $!{EINVAL};
        kill 9, $child;
        exit 3 if $refused;
        die "mount_setattr: $!";
    }
    syscall($move, $mount, $empty, $at, $to, 4) == 0 or die "move_mount: $!";
    kill 9, $child;
"#;

/// False where the file system of `from` allows no such mount.
fn mount_mapped(from: &Path, to: &Path, shown: &str) -> bool {
    let mut command = Command::new("perl");
    command.args(["-e", MAP]).args([from, to]).arg(shown);
    let output = command.output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    output.status.success()
}

/// An id-mapped mount, with the owners 0 to 999 shown as 100000 to 100999, while it lives.
struct Mapped {
    _mounted: Mounted,
    point: tempfile::TempDir,
}

impl Mapped {
    /// None where the file system of `from` allows none.
    fn of(from: &Path) -> Option<Self> {
        let point = tempfile::tempdir().unwrap();
        if !mount_mapped(from, point.path(), "0 100000 1000") {
            return None;
        }
        Some(Self {
            _mounted: Mounted(point.path().to_owned()),
            point,
        })
    }

    fn path(&self) -> &Path {
        self.point.path()
    }
}

/// Runs a script in a directory as a user who has no privileges, or as root.
fn run(user: u32, directory: &Path, script: &str) -> Output {
    let user = user.to_string();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"])
        .args(["sh", "-c", script])
        .current_dir(directory);
    command.output().unwrap()
}

const IN_VIEW: u32 = 100_005;
const ELSEWHERE: u32 = 5;

/// What becomes of scripts in an id-mapped view of `below`, as they are seen there and below.
fn happens(view: &Path, below: &Path) -> Vec<String> {
    let mine = below.join("mine");
    fs::create_dir(&mine).unwrap();
    chown(&mine, Some(5), Some(5)).unwrap();
    let mine = view.join("mine");
    let mut seen = Vec::new();
    for (user, script) in [
        (
            IN_VIEW,
            "umask 027; echo text >f && mkdir d && ln -s f l && mkfifo p && ln f hard",
        ),
        (
            IN_VIEW,
            "chmod 640 f && chgrp 100005 f && touch -d @7 f && cat f && mv d e && truncate -s 2 f",
        ),
        // Whoever has these ids below is nobody here.
        (ELSEWHERE, "cat f"),
        (ELSEWHERE, "chmod 777 f || echo more >g"),
        (IN_VIEW, "chown 100006 f"),
        (0, "touch g"),
        (IN_VIEW, "setfacl -m u:100007:rw f && getfacl -cn f"),
        (100_007, "test -r f && echo x >>f && rm f"),
        (
            IN_VIEW,
            "echo x >s && chmod 6755 s && chgrp 100005 s && stat -c %a s",
        ),
        (IN_VIEW, "chmod 6755 s && echo y >>s && stat -c %a s"),
        (IN_VIEW, "chattr +d s && lsattr s | cut -c1-22"),
        (ELSEWHERE, "chattr -d s"),
        (100_000, "rm hard && mkdir e/sub && rmdir e/sub"),
        (IN_VIEW, "rm f p && stat -c '%n %u %g %a %s' *"),
    ] {
        let output = run(user, &mine, script);
        seen.push(format!(
            "{user}: {script}: {:?} {}",
            output.status.code(),
            String::from_utf8_lossy(&output.stdout)
        ));
    }
    let mut names: Vec<_> = fs::read_dir(below.join("mine"))
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    names.sort();
    for name in names {
        let found = name.symlink_metadata().unwrap();
        let file = name.file_name().unwrap().display();
        seen.push(format!(
            "{file} {} {} {:o}",
            found.uid(),
            found.gid(),
            found.mode()
        ));
    }
    seen
}

/// Where a file system of its own is mounted, that, and a directory in it; to be dropped the other way round.
fn lower() -> (tempfile::TempDir, Mounted, tempfile::TempDir) {
    let point = tempfile::tempdir().unwrap();
    let own = Mounted::at(point.path(), "tmpfs", Some(c"mode=755"));
    let directory = tempfile::tempdir_in(point.path()).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    (point, own, directory)
}

/// Else whoever owns a file by the one name would own it by the other.
#[test]
fn a_file_that_two_mounts_show_with_different_owners_is_two() {
    if !can_mount() {
        return;
    }
    let (_point, _own, lower) = lower();
    let [first, second] = ["first", "second"].map(|name| lower.path().join(name));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    fs::write(first.join("file"), "text").unwrap();
    chown(first.join("file"), Some(5), Some(5)).unwrap();
    // The directory itself has the same owner in both.
    if !mount_mapped(&first, &second, "0 0 1\n1 100001 999\n") {
        support::say(format_args!(
            "left out: mounts of tmpfs cannot be id-mapped before Linux 6.3"
        ));
        return;
    }
    let mount = Mount::over(lower, |builder| builder.preset(Preset::Fast));
    rustix::mount::unmount(&second, UnmountFlags::DETACH).unwrap();
    for (name, owner) in [("first", 5), ("second", 100_005), ("first", 5)] {
        let found = fs::metadata(mount.path(name).join("file")).unwrap();
        assert_eq!((found.uid(), found.gid()), (owner, owner), "{name}");
    }
}

#[test]
fn owners_are_mapped_as_they_are_without_fuse() {
    if !can_mount() {
        return;
    }
    let offer = probe_kernel().unwrap();
    if !offer.flags.contains(InitFlags::ALLOW_IDMAP) {
        support::say(format_args!(
            "left out: id-mapped mounts of FUSE need Linux 6.12"
        ));
        return;
    }
    let (_point, _own, native) = lower();
    let view = Mapped::of(native.path()).expect("mounts of tmpfs can be id-mapped");
    let expected = happens(view.path(), native.path());
    for io in [IoMode::Passthrough, IoMode::Cached, IoMode::Direct] {
        let (_point, _own, directory) = lower();
        let mount = Mount::over(directory, |builder| {
            let mut settings = Preset::Fast.settings();
            (settings.io, settings.allow_idmap) = (io, true);
            builder.settings(settings)
        });
        let view = Mapped::of(&mount.path("")).expect("the mount can be id-mapped");
        let found = happens(view.path(), &mount.below(""));
        assert_eq!(found, expected, "{io:?}");
    }
}

#[test]
fn others_are_not_mapped() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(Preset::Fast);
    assert!(Mapped::of(&mount.path("")).is_none());
}

#[test]
fn they_take_permission_checks() {
    let mut settings = Preset::Fast.settings();
    (settings.allow_idmap, settings.permission_checks) = (true, false);
    let refused = settings.check_mount(Path::new("/mnt"), &MountOptions::new());
    assert!(matches!(refused, Err(Error::IdMapped)), "{refused:?}");
}
