//! The computed files.

use std::fs::{self, File};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::example::{Example, can_mount};

fn ticks(example: &Example) -> u64 {
    fs::read_to_string(example.path("ticks"))
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn polls_wake_and_caches_are_told() {
    if !can_mount() {
        return;
    }
    let example = Example::start(env!("CARGO_BIN_EXE_live"), &[]);
    let uptime = fs::read_to_string(example.path("uptime")).unwrap();
    assert!(uptime.ends_with(" s\n"), "{uptime}");
    let file = File::open(example.path("ticks")).unwrap();
    let before = ticks(&example);
    for round in 1..=2 {
        let mut polled = [PollFd::new(&file, PollFlags::IN)];
        let patience = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        assert_eq!(
            rustix::event::poll(&mut polled, Some(&patience)).unwrap(),
            1,
            "round {round}"
        );
    }
    assert!(ticks(&example) > before, "what is cached is not dropped");
    drop(file);
    example.finish();
}
