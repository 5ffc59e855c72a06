//! What an idle mount does to the machine's accounts of its CPUs.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::fs;
use std::thread;
use std::time::Duration;

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
        support::say(format_args!(
            "SKIPPED: Linux {release} accounts threads that wait for a ring as waiting for I/O"
        ));
    }
    version >= (6, 15)
}

/// How many threads of the machine wait for I/O, as the kernel accounts it (proc_stat(5)).
fn blocked() -> usize {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let count = stat.lines().find_map(|l| l.strip_prefix("procs_blocked "));
    count.unwrap().parse().unwrap()
}

#[test]
fn an_idle_mount_is_not_accounted_as_waiting_for_io() {
    if !support::can_mount() || !support::can_use_io_uring() || !can_tell() {
        return;
    }
    let config = SessionConfig::default().transport(TransportChoice::IoUring);
    let fixture = Fixture::new(Blocking(Empty), config);
    fs::metadata(fixture.path("")).unwrap();
    let workers = fixture.session().worker_count();
    // Others may wait for I/O, but not as many all the time.
    support::wait_until("fewer threads wait for I/O than the mount has", || {
        thread::sleep(Duration::from_millis(200));
        blocked() < workers
    });
    fixture.finish();
}
