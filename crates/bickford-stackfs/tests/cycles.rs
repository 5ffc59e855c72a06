//! Mounting and unmounting again and again leaves nothing behind in the process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use bickford_stackfs::Preset;

use support::{Mount, can_mount, until};

/// What a leak would show in: open descriptors, threads, and KiB that nothing but this process has in memory.
fn held() -> (usize, usize, u64) {
    let count = |path| std::fs::read_dir(path).unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
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
    let count = if full { 334 } else { 34 };
    let presets = [Preset::Base, Preset::Opt, Preset::Fast];
    // What the allocator keeps for later, it has then.
    presets.into_iter().cycle().take(12).for_each(cycle);
    let (descriptors_before, threads_before, _) = held();
    let has_grown = |preset| {
        let (_, _, resident) = held();
        (0..count).for_each(|_| cycle(preset));
        let (_, _, resident_after) = held();
        eprintln!("{count} cycles: {resident} KiB resident before, {resident_after} KiB after");
        // Half of a buffer of 64 KiB a cycle.
        resident_after.saturating_sub(resident) >= 32 * count as u64
    };
    // It goes up and down. What leaks goes up every time.
    let leaks = presets.map(|preset| (0..3).all(|_| has_grown(preset)));
    // A thread that has left its session may take a moment to end.
    until("no more descriptors and threads than before", || {
        let (descriptors, threads, _) = held();
        descriptors <= descriptors_before && threads <= threads_before
    });
    assert_eq!(leaks, [false; 3], "it grows by more than 32 KiB a cycle");
}
