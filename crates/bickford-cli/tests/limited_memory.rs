//! A daemon in a cgroup with little memory.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::fs;
use std::process::Command;

use bickford_eval::host::cgroup::MemoryLimit;
use common::{Place, assert_silent, run};

/// The kernel keeps a share of what may be dirty in the machine: bytes change a little as its free
/// memory does.
const SLACK: u64 = 1 << 20;

fn max_bytes(place: &Place) -> u64 {
    let entry = place.listed().unwrap();
    let file = format!("/sys/class/bdi/0:{}/max_bytes", entry.minor);
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

fn least_limit() -> Option<MemoryLimit> {
    MemoryLimit::new(0, 0)
        .inspect_err(|reason| eprintln!("left out: {reason}"))
        .ok()
}

/// Mounted by a daemon in `limit`, or in the group of this test.
fn mounted_with(preset: &str, limit: Option<&MemoryLimit>) -> Option<Place> {
    let place = Place::new()?;
    let entrance = limit.map_or_else(|| "/dev/null".into(), MemoryLimit::entrance);
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo $$ > \"$1\" && shift && exec \"$@\"", "sh"])
        .arg(entrance)
        .arg(env!("CARGO_BIN_EXE_bickford"))
        .args(["mount", "--preset", preset])
        .args([place.source(), place.mountpoint()]);
    assert_silent(&run(&mut command));
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
        eprintln!(
            "tells little: this machine has so little memory that {kernels} bytes are the kernel's own limit"
        );
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
