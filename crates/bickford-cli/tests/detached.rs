//! Mounts that were detached and are still used.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::fs::File;

use common::{Place, assert_refused, assert_silent, bickford, run, stop, wait_until};
use rustix::process::{Signal, kill_process};

/// A file of the mount that is held open while the mount is detached.
fn held_and_detached(place: &Place) -> File {
    let held = File::open(place.mountpoint().join("f")).unwrap();
    let mut command = bickford();
    assert_silent(&run(command
        .args(["unmount", "-z"])
        .arg(place.mountpoint())));
    assert_eq!(place.listed(), None);
    held
}

#[test]
fn a_detached_mount_is_told_of_and_ended_by_force() {
    let Some(place) = Place::new() else { return };
    let running = place.mount_in_foreground(&[]);
    let held = held_and_detached(&place);
    let unmount = |mode: &[&str]| {
        let mut command = bickford();
        run(command.arg("unmount").args(mode).arg(place.mountpoint()))
    };
    let daemon = format!("process {}", running.pid().as_raw_nonzero());
    let user = format!("pid {} (", std::process::id());
    for mode in [&[][..], &["-z"]] {
        let parts = ["detached", &daemon, &user, "descriptor", "--force"];
        assert_refused(&unmount(mode), 1, &parts);
    }
    assert_silent(&unmount(&["--force"]));
    let output = running.output();
    assert!(output.status.success(), "{output:?}");
    assert_refused(&unmount(&["--force"]), 1, &["nothing is mounted there"]);
    drop(held);
}

#[test]
fn a_detached_mount_is_found_by_a_relative_path_and_when_its_daemon_is_stopped() {
    let Some(place) = Place::new() else { return };
    let in_place = |arguments: &[&str]| {
        let mut command = bickford();
        run(command.args(arguments).current_dir(place.dir()))
    };
    assert_silent(&in_place(&["mount", "src", "mnt"]));
    let connection = place.listed().unwrap().connection();
    let socket = bickford::trace::control::socket_path(connection);
    let stream = bickford::trace::control::connect(&socket).unwrap();
    let daemon = rustix::net::sockopt::socket_peercred(&stream).unwrap().pid;
    drop(stream);
    let held = held_and_detached(&place);
    stop(daemon);
    let refused = in_place(&["unmount", "mnt"]);
    kill_process(daemon, Signal::CONT).unwrap();
    let shown = format!("process {daemon}");
    assert_refused(&refused, 1, &["detached", &shown, "descriptor"]);
    assert_silent(&in_place(&["unmount", "--force", "mnt"]));
    let process = format!("/proc/{daemon}");
    wait_until("the daemon has ended", || {
        !std::path::Path::new(&process).exists()
    });
    drop(held);
}
