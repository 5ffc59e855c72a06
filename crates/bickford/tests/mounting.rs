//! Mounts without a server: what the kernel lists, and that every kind of mount can be taken away.
//!
//! Needs /dev/fuse and CAP_SYS_ADMIN; without them each test says so and ends.
#![allow(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod support;

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

use bickford::mount::{
    GenericFlags, MountEntry, MountError, MountOptions, Mounted, Unmount, UnmountError, Via, mount,
    unmount,
};

use support::wait_until;

/// A mount point whose mounts are detached at the end, whatever the test did.
struct Place {
    dir: tempfile::TempDir,
    watchdog: Option<support::Watchdog>,
}

impl Place {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let watchdog = Some(support::watch(dir.path().to_owned(), None));
        let place = Self { dir, watchdog };
        match mount(&place.path(), &MountOptions::new()) {
            Ok(Mounted { guard, .. }) if guard.via() == Via::Direct => {
                guard.unmount(Unmount::Lazy).unwrap();
                Some(place)
            }
            other => {
                support::say(format_args!(
                    "left out: no direct FUSE mounts here: {other:?}"
                ));
                None
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn listed(&self) -> Option<MountEntry> {
        MountEntry::at(&self.path()).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while unmount(self.dir.path(), Unmount::Force).is_ok() {}
        drop(self.watchdog.take());
    }
}

fn has_unique_mount_ids() -> bool {
    const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
    let wanted = rustix::fs::StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
    let found =
        rustix::fs::statx(rustix::fs::CWD, "/", rustix::fs::AtFlags::empty(), wanted).unwrap();
    found.stx_mask & STATX_MNT_ID_UNIQUE != 0
}

#[test]
fn the_kernel_lists_what_the_options_say() {
    let Some(place) = Place::new() else { return };
    let text = r"fsname=a\,b c\\d,subtype=demo,allow_other,default_permissions,max_read=8192,ro,noexec,noatime";
    let mounted = mount(&place.path(), &MountOptions::parse(text).unwrap()).unwrap();
    let entry = place.listed().unwrap();
    assert_eq!(entry.source, r"a,b c\d");
    assert_eq!(entry.fs_type, "fuse.demo");
    assert_eq!(entry.options, "ro,nosuid,nodev,noexec,noatime");
    let expected = ["ro", "allow_other", "default_permissions", "max_read=8192"];
    let shown = entry.super_options.split(',').collect::<Vec<_>>();
    assert!(
        expected.iter().all(|option| shown.contains(option)),
        "{shown:?}"
    );
    assert_eq!(mounted.connection(), Some(entry.minor));
    assert!(mounted.guard.is_mounted());

    mounted.unmount(Unmount::Normal).unwrap();
    assert_eq!(place.listed(), None);
    assert!(!mounted.guard.is_mounted());
    mounted.unmount(Unmount::Normal).unwrap();
}

#[test]
fn the_source_is_the_subtype_where_no_name_is_given() {
    let Some(place) = Place::new() else { return };
    let options = MountOptions::new()
        .subtype("demo")
        .flags(GenericFlags::empty());
    let mounted = mount(&place.path(), &options).unwrap();
    let entry = place.listed().unwrap();
    assert_eq!(
        (entry.source.to_str(), entry.options.as_str()),
        (Some("demo"), "rw,relatime")
    );
    mounted.unmount(Unmount::Normal).unwrap();
}

#[test]
fn values_that_fsconfig_does_not_take_are_mounted_all_the_same() {
    let Some(place) = Place::new() else { return };
    for length in [255, 256, 3000] {
        let (name, subtype) = ("n".repeat(length), "s".repeat(length));
        let options = MountOptions::new()
            .fsname(name.as_str())
            .subtype(subtype.as_str())
            .flags(GenericFlags::NO_EXEC);
        let mounted = mount(&place.path(), &options).unwrap();
        let entry = place.listed().unwrap();
        assert_eq!(entry.source.to_str(), Some(name.as_str()));
        assert_eq!(entry.fs_type, format!("fuse.{subtype}"));
        assert_eq!(entry.options, "rw,noexec,relatime");
        mounted.unmount(Unmount::Normal).unwrap();
    }
}

/// In a mount namespace of its own, whose /proc is covered for a moment.
#[test]
fn a_mount_that_cannot_be_told_is_taken_away() {
    const NAMESPACE: &str = "BICKFORD_TEST_NAMESPACE";
    const TEST: &str = "a_mount_that_cannot_be_told_is_taken_away";
    let Some(place) = Place::new() else { return };
    if std::env::var_os(NAMESPACE).is_none() {
        let program = std::env::current_exe().unwrap();
        let output = std::process::Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--"])
            .arg(program)
            .args(["--exact", TEST, "--nocapture"])
            .env(NAMESPACE, "1")
            .output()
            .unwrap();
        let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && passed, "{output:?}");
        return;
    }
    let path = place.path();
    let none = rustix::mount::MountFlags::empty();
    rustix::mount::mount("cover", "/proc", "tmpfs", none, None).unwrap();
    let error = mount(&path, &MountOptions::new());
    rustix::mount::unmount("/proc", rustix::mount::UnmountFlags::DETACH).unwrap();
    let error = error.unwrap_err().to_string();
    assert!(error.contains("/proc/self/mountinfo"), "{error}");
    assert_eq!(place.listed(), None);
}

#[test]
fn a_dead_mount_is_recognised_and_unmounted() {
    let Some(place) = Place::new() else { return };
    let mounted = mount(&place.path(), &MountOptions::new()).unwrap();
    drop(mounted);
    let error = mount(&place.path(), &MountOptions::new()).unwrap_err();
    assert!(matches!(error, MountError::Dead { .. }), "{error}");
    // What to unmount is above.
    let error = mount(&place.path().join("inner"), &MountOptions::new()).unwrap_err();
    let cure = format!("bickford unmount {}", place.path().display());
    assert!(error.to_string().ends_with(&cure), "{error}");
    unmount(&place.path(), Unmount::Normal).unwrap();
    let error = unmount(&place.path(), Unmount::Normal).unwrap_err();
    assert!(matches!(error, UnmountError::NotMounted { .. }), "{error}");
}

#[test]
fn force_aborts_the_connection() {
    let Some(place) = Place::new() else { return };
    let mounted = mount(&place.path(), &MountOptions::new()).unwrap();
    unmount(&place.path(), Unmount::Force).unwrap();
    assert_eq!(place.listed(), None);
    // INIT would be there to read otherwise.
    let mut buffer = vec![0_u8; 65536];
    let read = rustix::io::read(&mounted.device, &mut buffer);
    assert!(
        matches!(
            read,
            Err(rustix::io::Errno::NODEV | rustix::io::Errno::CONNABORTED)
        ),
        "{read:?}"
    );
}

#[test]
fn auto_unmount_takes_the_mount_away_when_its_server_is_gone() {
    let Some(place) = Place::new() else { return };
    let options = MountOptions::new().auto_unmount(true);
    let mounted = mount(&place.path(), &options).unwrap();
    assert!(place.listed().is_some());
    // Dropping device and guard is what the kernel does for a process that was killed.
    drop(mounted);
    wait_until("the watcher unmounts", || place.listed().is_none());
}

#[test]
fn a_later_mount_at_the_same_place_is_left_alone() {
    let Some(place) = Place::new() else { return };
    if !has_unique_mount_ids() {
        support::say(format_args!(
            "left out: statx(2) of this kernel gives no unique mount ids (Linux 6.8)"
        ));
        return;
    }
    // Mount ids and device numbers are used again at once: these mounts differ in nothing that is listed.
    let options = MountOptions::new().auto_unmount(true);
    for _ in 0..20 {
        let earlier = mount(&place.path(), &options).unwrap();
        rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
        let later = mount(&place.path(), &MountOptions::new()).unwrap();
        assert!(later.guard.is_mounted());
        assert!(!earlier.guard.is_mounted());
        earlier.unmount(Unmount::Lazy).unwrap();
        assert!(later.guard.is_mounted());
        later.unmount(Unmount::Normal).unwrap();
    }
}

#[test]
fn what_is_elsewhere_since_a_directory_above_was_renamed_is_unmounted_there() {
    let Some(place) = Place::new() else { return };
    if !has_unique_mount_ids() {
        support::say(format_args!(
            "left out: statx(2) of this kernel gives no unique mount ids (Linux 6.8)"
        ));
        return;
    }
    let (before, after) = (place.path().join("before"), place.path().join("after"));
    std::fs::create_dir_all(before.join("inner")).unwrap();
    let mounted = mount(&before.join("inner"), &MountOptions::new()).unwrap();
    std::fs::rename(&before, &after).unwrap();
    let is_mounted = mounted.guard.is_mounted();
    let unmounted = mounted.unmount(Unmount::Normal);
    let left = MountEntry::at(&after.join("inner")).unwrap();
    if left.is_some() {
        unmount(&after.join("inner"), Unmount::Lazy).unwrap();
    }
    unmounted.unwrap();
    assert_eq!((is_mounted, left), (true, None));
}

#[test]
fn a_later_mount_elsewhere_is_left_alone() {
    let (Some(place), Some(other)) = (Place::new(), Place::new()) else {
        return;
    };
    // Mount ids and device numbers are used again at once.
    for _ in 0..20 {
        let earlier = mount(&place.path(), &MountOptions::new()).unwrap();
        rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
        let later = mount(&other.path(), &MountOptions::new()).unwrap();
        assert!(!earlier.guard.is_mounted());
        earlier.unmount(Unmount::Lazy).unwrap();
        assert!(later.guard.is_mounted());
        later.unmount(Unmount::Normal).unwrap();
    }
}

#[test]
fn force_aborts_no_connection_that_has_the_number_of_a_disk() {
    let (Some(other), Some(place)) = (Place::new(), Place::new()) else {
        return;
    };
    let other = mount(&other.path(), &MountOptions::new()).unwrap();
    let disk = format!("/dev/loop{}", other.connection().unwrap());
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let attached = Command::new("losetup")
        .arg(&disk)
        .arg(image.path())
        .status();
    if !attached.is_ok_and(|status| status.success()) {
        support::say(format_args!("left out: {disk} cannot be made"));
        return;
    }
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0",
        device.as_raw_fd()
    );
    let data = CString::new(data).unwrap();
    let none = rustix::mount::MountFlags::empty();
    let mounted = rustix::mount::mount(&disk, place.path(), "fuseblk", none, data.as_c_str());
    let unmounted = unmount(&place.path(), Unmount::Force);
    drop(device);
    let detached = Command::new("losetup").args(["-d", &disk]).status();
    mounted.unwrap();
    unmounted.unwrap();
    assert!(detached.unwrap().success());
    let mut buffer = vec![0_u8; 65536];
    let init = rustix::io::read(&other.device, &mut buffer);
    assert!(init.is_ok(), "another mount was aborted: {init:?}");
}

#[test]
fn a_passed_descriptor_is_used_as_it_is() {
    let Some(place) = Place::new() else { return };
    let mounted = mount(&place.path(), &MountOptions::new()).unwrap();
    let path = PathBuf::from(format!("/dev/fd/{}", mounted.device.as_raw_fd()));
    let passed = mount(&path, &MountOptions::new()).unwrap();
    assert_eq!(passed.guard.via(), Via::Descriptor);
    assert_eq!(passed.connection(), None);
    let mut buffer = vec![0_u8; 65536];
    let len = rustix::io::read(&passed.device, &mut buffer).unwrap();
    assert!(len >= 40, "the INIT request of this mount, {len} bytes");
    passed.unmount(Unmount::Normal).unwrap();
    assert!(mounted.guard.is_mounted());
}

#[test]
fn a_covered_mount_is_not_unmounted_in_place_of_the_one_on_top() {
    let Some(place) = Place::new() else { return };
    let mounted = mount(&place.path(), &MountOptions::new()).unwrap();
    rustix::mount::mount(
        "cover",
        place.path(),
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        None,
    )
    .unwrap();
    let error = mounted.unmount(Unmount::Normal).unwrap_err();
    assert!(
        matches!(&error, UnmountError::Covered { fs_type, .. } if fs_type == "tmpfs"),
        "{error}"
    );
    let error = unmount(&place.path(), Unmount::Normal).unwrap_err();
    assert!(matches!(error, UnmountError::NotFuse { .. }), "{error}");
    rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    mounted.unmount(Unmount::Normal).unwrap();
}

#[test]
fn of_mounts_that_were_moved_the_one_on_top_is_unmounted() {
    let (Some(place), Some(first)) = (Place::new(), Place::new()) else {
        return;
    };
    // What is older is listed first, wherever it is.
    let top = mount(&first.path(), &MountOptions::new().fsname("top")).unwrap();
    let below = mount(&place.path(), &MountOptions::new().fsname("below")).unwrap();
    let moved = rustix::mount::mount_move(first.path(), place.path());
    if moved.is_err() {
        support::say(format_args!(
            "left out: nothing can be moved where mounts are shared: {moved:?}"
        ));
        return;
    }
    assert_eq!(place.listed().unwrap().source, "top");
    unmount(&place.path(), Unmount::Force).unwrap();
    assert_eq!(place.listed().unwrap().source, "below");
    let mut buffer = vec![0_u8; 65536];
    assert!(
        rustix::io::read(&below.device, &mut buffer).is_ok(),
        "it was aborted"
    );
    assert!(rustix::io::read(&top.device, &mut buffer).is_err());
    below.unmount(Unmount::Normal).unwrap();
}

#[test]
fn what_is_hidden_by_a_mount_above_is_covered() {
    let Some(place) = Place::new() else { return };
    let inner = place.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let mounted = mount(&inner, &MountOptions::new()).unwrap();
    let none = rustix::mount::MountFlags::empty();
    rustix::mount::mount("cover", place.path(), "tmpfs", none, None).unwrap();
    std::fs::create_dir(&inner).unwrap();
    let hidden = mounted.unmount(Unmount::Normal);
    let (is_mounted, nothing) = (mounted.guard.is_mounted(), unmount(&inner, Unmount::Normal));
    rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    let error = hidden.unwrap_err();
    assert!(
        matches!(&error, UnmountError::Covered { by, .. } if *by == place.path()),
        "{error}"
    );
    assert!(is_mounted);
    let error = nothing.unwrap_err();
    assert!(matches!(error, UnmountError::NotMounted { .. }), "{error}");
    mounted.unmount(Unmount::Normal).unwrap();
}
