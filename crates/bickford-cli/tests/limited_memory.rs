//! A daemon in a cgroup with little memory.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Output};

use bickford_eval::host::cgroup::MemoryLimit;
use common::{Place, assert_silent, in_namespace, installed, run, stderr};
use rustix::mount::MountFlags;

/// The kernel keeps a share of what may be dirty in the machine: bytes change a little as its free
/// memory does.
const SLACK: u64 = 1 << 20;

fn max_bytes(place: &Place) -> u64 {
    let entry = place.listed().unwrap();
    let file = format!("/sys/class/bdi/0:{}/max_bytes", entry.minor);
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

fn least_limit() -> Option<MemoryLimit> {
    let devices = fs::read_dir("/sys/class/bdi").unwrap().flatten();
    if !devices
        .into_iter()
        .any(|device| device.path().join("max_bytes").exists())
    {
        crate::common::say(format_args!("left out: no max_bytes before Linux 6.2"));
        return None;
    }
    MemoryLimit::new(0, 0)
        .inspect_err(|reason| crate::common::say(format_args!("left out: {reason}")))
        .ok()
}

/// Runs the command in `limit`, or in the group of this test.
fn bickford_in(limit: Option<&MemoryLimit>, arguments: &[&OsStr]) -> Output {
    let entrance = limit.map_or_else(|| "/dev/null".into(), MemoryLimit::entrance);
    let enter = "echo $$ > \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", enter, "sh"]).arg(entrance);
    run(command.arg(env!("CARGO_BIN_EXE_bickford")).args(arguments))
}

fn mount(place: &Place, preset: &str, limit: Option<&MemoryLimit>) -> Output {
    let (source, mountpoint) = (place.source(), place.mountpoint());
    let options = ["mount", "--preset", preset].map(OsStr::new);
    let places = [source.as_os_str(), mountpoint.as_os_str()];
    bickford_in(limit, &[&options[..], &places].concat())
}

fn mounted_with(preset: &str, limit: Option<&MemoryLimit>) -> Option<Place> {
    let place = Place::new()?;
    assert_silent(&mount(&place, preset, limit));
    Some(place)
}

#[test]
fn a_write_back_cache_fills_an_eighth_of_it() {
    let Some(limit) = least_limit() else { return };
    let Some(free) = mounted_with("opt", None) else {
        return;
    };
    let Some(place) = mounted_with("opt", Some(&limit)) else {
        return;
    };
    let (found, most) = (max_bytes(&place), limit.bytes / 8 + SLACK);
    assert!(found > 0 && found <= most, "{found} of at most {most}");
    let kernels = max_bytes(&free);
    if kernels <= most {
        crate::common::say(format_args!(
            "tells little: this machine has so little memory that {kernels} bytes are the kernel's own limit"
        ));
    }
}

#[test]
fn without_a_write_back_cache_nothing_is_set() {
    let Some(limit) = least_limit() else { return };
    let (Some(limited), Some(free)) = (
        mounted_with("base", Some(&limit)),
        mounted_with("base", None),
    ) else {
        return;
    };
    let (found, kernels) = (max_bytes(&limited), max_bytes(&free));
    assert!(found.abs_diff(kernels) <= SLACK, "{found}, not {kernels}");
}

#[test]
fn a_limit_that_cannot_be_set_is_warned_of() {
    if !installed("unshare") {
        return;
    }
    let Some(limit) = least_limit() else { return };
    let Some(place) = Place::new() else { return };
    if !in_namespace("a_limit_that_cannot_be_set_is_warned_of", &place, "") {
        return;
    }
    let read_only = MountFlags::RDONLY | MountFlags::BIND;
    rustix::mount::mount_remount("/sys", read_only, c"").unwrap();
    let advance = doctor(Some(&limit));
    assert!(advance.contains("Read-only file system"), "{advance}");
    let output = mount(&place, "opt", Some(&limit));
    assert!(output.status.success(), "{output:?}");
    let (said, share) = (stderr(&output), (limit.bytes / 8).to_string());
    if max_bytes(&place) <= limit.bytes / 8 {
        assert_eq!(said, "", "the kernel's own limit is less");
        return;
    }
    for part in [&share, "max_bytes", "mount as root", "without write-back"] {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
}

/// What the doctor says of unwritten data.
fn doctor(limit: Option<&MemoryLimit>) -> String {
    let output = bickford_in(limit, &[OsStr::new("doctor")]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("unwritten data"));
    line.unwrap().to_owned()
}

#[test]
fn the_doctor_tells_of_it() {
    let Some(limit) = least_limit() else { return };
    let share = format!("{} bytes of a write-back cache at most", limit.bytes / 8);
    let limited = doctor(Some(&limit));
    assert!(limited.contains(&share), "{limited}");
    let free = doctor(None);
    assert!(!free.contains(&share), "{free}");
}
