//! An ordinary user mounts through fusermount3, for no one else.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bickford_conformance::{
    Combination, Finished, Io, Mount, OpenDevice, Preset, Scratch, Transport, command_path,
    ordinary_user, require_root, run,
};

/// An existing user who is neither root nor the one who mounts: `daemon`.
const OTHER: (u32, u32) = (1, 1);

/// What an ordinary user can ask for: pass-through and the like need privileges.
fn combination() -> Option<Combination> {
    Combination::selected().into_iter().next()
}

fn as_user(user: (u32, u32), program: &str, arguments: &[&str], path: &Path) -> Finished {
    run(Command::new(program)
        .args(arguments)
        .arg(path)
        .current_dir("/")
        .uid(user.0)
        .gid(user.1))
}

/// A directory of the ordinary user, and that user's mount of it.
fn mount_of_user(scratch: &Scratch, combination: &Combination) -> (PathBuf, Mount) {
    let lower = scratch.directory_of_user("lower");
    let mount = Mount::over(&lower, combination).by_ordinary_user();
    (lower, mount.must_start())
}

#[test]
fn the_mount_is_its_users_and_nobody_elses() {
    require_root();
    let Some(combination) = combination() else {
        return;
    };
    let _open = OpenDevice::new();
    let user = ordinary_user();
    let scratch = Scratch::new("user");
    let (lower, mount) = mount_of_user(&scratch, &combination);
    let file = mount.path().join("file");
    let made = as_user(
        user,
        "sh",
        &["-c", "echo mine > \"$0\" && cat \"$0\""],
        &file,
    );
    assert!(made.status.success(), "{}", made.report());
    assert_eq!(made.output, "mine\n");
    assert_eq!(
        fs::read_to_string(lower.join("file")).expect("read"),
        "mine\n"
    );
    for other in [OTHER, (0, 0)] {
        let refused = as_user(other, "cat", &[], &file);
        assert!(
            !refused.status.success(),
            "user {other:?}: {}",
            refused.report()
        );
        assert!(
            refused.errors.contains("Permission denied"),
            "{}",
            refused.report()
        );
    }
    let unmounted = run(Command::new(command_path())
        .arg("unmount")
        .arg(mount.path())
        .current_dir("/"));
    // Root may take down what a user has mounted.
    assert!(unmounted.status.success(), "{}", unmounted.report());
    assert!(!mount.is_mounted());
}

/// What is open for writing is written, whatever the mode says meanwhile.
#[test]
fn a_file_of_the_user_is_written_after_its_mode_forbids_it() {
    require_root();
    let _open = OpenDevice::new();
    let user = ordinary_user();
    let auto = Combination::preset(Preset::Fast);
    let others = [Io::Cached, Io::Direct].map(|io| Combination::fast(Transport::Dev, io));
    for combination in others.into_iter().chain([auto]) {
        let scratch = Scratch::new("user-modes");
        let (lower, mount) = mount_of_user(&scratch, &combination);
        // dd(1) cuts the file that it has made to where it begins to write.
        let script = "cd \"$0\" && umask 0222 && printf x | dd of=cut bs=1 seek=99 2>&1 && \
                      umask 0022 && exec 3>late && chmod 0444 late && echo text >&3 && exec 3>&- && \
                      wc -c < cut && cat late";
        let made = as_user(user, "sh", &["-c", script], mount.path());
        let ends = made.output.ends_with("100\ntext\n");
        assert!(
            made.status.success() && ends,
            "{combination}: {}",
            made.report()
        );
        let below = fs::read_to_string(lower.join("late")).expect("read");
        assert_eq!(below, "text\n", "{combination}");
        mount.finish();
    }
}

#[test]
fn the_user_unmounts_what_the_user_mounted() {
    require_root();
    let Some(combination) = combination() else {
        return;
    };
    let _open = OpenDevice::new();
    let user = ordinary_user();
    let scratch = Scratch::new("user");
    let (_, mut mount) = mount_of_user(&scratch, &combination);
    // Reachable by that user, unlike the directory of the build.
    let program = mount.path().with_file_name("bickford");
    let program = program.to_str().expect("path");
    let by_other = as_user(OTHER, program, &["unmount"], mount.path());
    assert!(!by_other.status.success(), "{}", by_other.report());
    assert!(mount.is_mounted(), "another user unmounted it");
    let by_user = as_user(user, program, &["unmount"], mount.path());
    assert!(by_user.status.success(), "{}", by_user.report());
    assert!(!mount.is_mounted());
    let status = mount.wait_for_daemon();
    assert!(status.success(), "{status}: {}", mount.log());
}

#[test]
fn allow_other_needs_the_administrators_leave() {
    require_root();
    let Some(combination) = combination() else {
        return;
    };
    let _open = OpenDevice::new();
    let user = ordinary_user();
    let scratch = Scratch::new("other");
    let lower = scratch.directory_of_user("lower");
    let mountpoint = scratch.directory_of_user("mnt");
    let program = scratch.path().join("bickford");
    fs::copy(command_path(), &program).expect("copy");
    let configuration = scratch.path().join("fuse.conf");
    fs::write(&configuration, "# user_allow_other is not set\n").expect("configuration");
    // The machine's own configuration may allow it; a mount namespace hides it.
    let script = "touch /etc/fuse.conf && mount --bind \"$1\" /etc/fuse.conf && shift && \
                  exec setpriv --reuid=$0 --regid=$0 --clear-groups -- \"$@\"";
    let finished = run(Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(user.0.to_string())
        .arg(&configuration)
        .arg(&program)
        .args(["mount", "-f", "-o", "allow_other"])
        .args(combination.flags())
        .args([&lower, &mountpoint])
        .current_dir("/"));
    assert!(!finished.status.success(), "{}", finished.report());
    for part in ["allow_other", "user_allow_other", "/etc/fuse.conf"] {
        assert!(
            finished.errors.contains(part),
            "{part}: {}",
            finished.report()
        );
    }
}
