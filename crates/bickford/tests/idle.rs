//! What an idle mount does to the machine's accounts of its CPUs.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use bickford::ops::{Attr, Attributes, Getattr};
use bickford::transport::TransportChoice;
use bickford::{Blocking, Context, Errno, SessionConfig};

use support::Fixture;

struct Empty;

impl bickford::filesystem::blocking::FileSystem for Empty {
    fn getattr(&self, _: &Context<'_>, _: Getattr) -> Result<Attributes, Errno> {
        Ok(Attributes {
            attr: Attr::directory(1, 0o755),
            valid: Duration::ZERO,
        })
    }
}

/// Linux 6.15 has `IORING_ENTER_NO_IOWAIT`.
fn can_tell() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_str().unwrap();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap_or(0));
    if version < (6, 15) {
        println!(
            "SKIPPED: Linux {release} accounts threads that wait for a ring as waiting for I/O"
        );
    }
    version >= (6, 15)
}

/// Hundredths of a second that CPUs were idle, without and with something that waited for I/O on them (proc_stat(5)).
fn idle() -> [u64; 2] {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let all = stat.lines().next().unwrap();
    let mut times = all.split_whitespace().skip(4);
    [0; 2].map(|_| times.next().unwrap().parse().unwrap())
}

#[test]
fn an_idle_mount_is_not_accounted_as_waiting_for_io() {
    if !support::can_mount() || !support::can_use_io_uring() || !can_tell() {
        return;
    }
    let config = SessionConfig::default().transport(TransportChoice::IoUring);
    let fixture = Fixture::new(Blocking(Empty), config);
    fs::metadata(fixture.path("")).unwrap();
    // Each CPU has threads that wait for its queue; others may have the CPUs busy.
    let begun = Instant::now();
    let mut waited = 0;
    loop {
        let before = idle();
        thread::sleep(Duration::from_millis(200));
        let after = idle();
        let [idle, waiting] = [0, 1].map(|kind| after[kind].saturating_sub(before[kind]));
        waited += waiting;
        if idle >= 10 {
            break;
        }
        if begun.elapsed() > Duration::from_secs(60) {
            assert!(
                waited < 100,
                "{waited} hundredths of a second, and no time idle"
            );
            support::say(format_args!("left out: no CPU is idle here"));
            break;
        }
    }
    fixture.finish();
}
