//! What is said where fewer threads are used than were asked for.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use bickford::transport::io_uring_obstacle;
use common::{Place, say, stderr};
use rustix::process::{Signal, kill_process};

#[test]
fn threads_that_are_not_used_are_told_once() {
    let Some(place) = Place::new() else { return };
    for (transport, asked, told) in [
        (
            "dev",
            "1500",
            Some("1024 threads are used of the 1500 that"),
        ),
        ("dev", "1024", None),
        (
            "uring",
            "1500",
            Some("threads for each CPU are used of the 1500 that"),
        ),
        ("uring", "2", None),
    ] {
        if let ("uring", Some(obstacle)) = (transport, io_uring_obstacle()) {
            say(format_args!("left out: {obstacle}"));
            continue;
        }
        let running = place.mount_in_foreground(&["--transport", transport, "--workers", asked]);
        kill_process(running.pid(), Signal::TERM).unwrap();
        let log = stderr(&running.output());
        assert_eq!(
            log.matches("were asked for").count(),
            usize::from(told.is_some()),
            "{log}"
        );
        assert!(log.contains(told.unwrap_or_default()), "{log}");
    }
}
