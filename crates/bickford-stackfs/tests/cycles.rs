//! Mounting and unmounting again and again leaves nothing behind in the process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use bickford_stackfs::Preset;

use support::{Mount, can_mount, until};

/// What a leak would show in: open descriptors, threads, and resident memory in KiB.
fn held() -> (usize, usize, u64) {
    let count = |path| std::fs::read_dir(path).unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let resident = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (count("/proc/self/fd"), count("/proc/self/task"), resident)
}

fn cycle(preset: Preset) {
    let mount = Mount::new(preset);
    std::fs::write(mount.below("f"), "text").unwrap();
    let listed = std::process::Command::new("ls")
        .arg(mount.path(""))
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
}

#[test]
fn a_thousand_mounts_leave_nothing_behind() {
    if !can_mount() {
        return;
    }
    let full = std::env::var("BICKFORD_LENGTH").is_ok_and(|length| length == "full");
    let cycles = if full { 1_000 } else { 100 };
    for preset in [Preset::Base, Preset::Opt, Preset::Fast] {
        cycle(preset);
    }
    let (descriptors, threads, resident) = held();
    for number in 0..cycles {
        cycle([Preset::Base, Preset::Opt, Preset::Fast][number % 3]);
    }
    // A thread that has left its session may take a moment to end.
    let before = (descriptors, threads);
    until(
        &format!("no more descriptors and threads than {before:?}"),
        || {
            let (descriptors, threads, _) = held();
            descriptors <= before.0 && threads <= before.1
        },
    );
    let (_, _, resident_after) = held();
    eprintln!("{cycles} cycles: {resident} KiB resident before, {resident_after} KiB after");
    // A worker's stack or buffer a cycle would be far more.
    let grown = resident_after.saturating_sub(resident);
    assert!(grown < 16 << 10, "grown by {grown} KiB");
}
