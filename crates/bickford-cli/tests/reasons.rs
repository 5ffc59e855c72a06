//! Why something is refused or falls back is said, and said once.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may end a test"
)]

mod common;

use std::fs;
use std::path::Path;

use bickford::transport::io_uring_obstacle;
use common::{Place, assert_refused, bickford, run, say, stderr};
use rustix::process::{Signal, kill_process};

fn crypt(place: &Place) -> String {
    let (key, passphrase) = (place.dir().join("key"), place.dir().join("passphrase"));
    fs::write(&passphrase, "secret").unwrap();
    let (key, passphrase) = (key.display(), passphrase.display());
    format!("crypt:key={key},passphrase-file={passphrase},create=true,memory=32K,passes=1")
}

#[track_caller]
fn assert_once(text: &str, parts: &[&str]) {
    for part in parts {
        assert_eq!(text.matches(part).count(), 1, "{part:?} in: {text}");
    }
}

#[test]
fn a_refused_session_says_why_once() {
    let Some(place) = Place::new() else { return };
    let crypt = crypt(&place);
    let refused: [(&[&str], &str); 2] = [
        (
            &["--io", "passthrough", "--layer", &crypt],
            "io=passthrough: ",
        ),
        (
            &["--transport", "uring", "-s"],
            "one worker handles one request",
        ),
    ];
    for (arguments, why) in refused {
        if let (true, Some(obstacle)) = (arguments.contains(&"uring"), io_uring_obstacle()) {
            say(format_args!("left out: {obstacle}"));
            continue;
        }
        for log in [&[][..], &["-f"], &["-f", "--log", "off"], &["--log", "off"]] {
            let output = place.mount(&[arguments, log].concat());
            assert_refused(&output, 1, &["the session did not begin"]);
            let said = stderr(&output);
            assert_once(&said, &[why]);
            assert!(
                !said.contains("refused to begin"),
                "it says nothing more: {said}"
            );
            assert_eq!(place.listed(), None);
        }
    }
    // What was logged of it stays in the log.
    let log = place.dir().join("log");
    let arguments = ["--io", "passthrough", "--layer", &crypt, "--log-file"];
    let output = place.mount(&[&arguments[..], &[log.to_str().unwrap()]].concat());
    assert_once(&stderr(&output), &["io=passthrough: "]);
    assert_once(&fs::read_to_string(&log).unwrap(), &["io=passthrough: "]);
}

#[test]
fn what_layers_turn_off_is_said_once() {
    let Some(place) = Place::new() else { return };
    fs::remove_file(place.source().join("f")).unwrap();
    let log = place.dir().join("log");
    let crypt = crypt(&place);
    let all: [(&str, &[&str]); 3] = [
        ("readonly", &["zero-message open is off"]),
        (
            &crypt,
            &[
                "kernel pass-through is off",
                "splice of written data is off",
                "zero-message open is off",
            ],
        ),
        ("fault:op=read,errno=EIO", &["kernel pass-through is off"]),
    ];
    let passes_through = common::passes_through();
    for (layer, parts) in all {
        // Before Linux 6.9 there is none to turn off.
        let parts: Vec<&str> = parts
            .iter()
            .copied()
            .filter(|part| passes_through || !part.contains("pass-through"))
            .collect();
        let arguments = ["--log-file", log.to_str().unwrap(), "--layer", layer];
        assert!(place.mount(&arguments).status.success());
        place.unmount(&place.mountpoint());
        assert_once(&fs::read_to_string(&log).unwrap(), &parts);
        fs::remove_file(&log).unwrap();
    }
}

#[test]
fn what_cannot_be_watched_is_said_once() {
    let Some(place) = Place::new() else { return };
    // No file handles there last.
    let source = Path::new("/proc/self/task");
    let mut command = bickford();
    command.args(["mount", "--lower", "watch"]).arg(source);
    let output = run(command.arg(place.mountpoint()));
    assert!(output.status.success(), "{output:?}");
    assert_once(&stderr(&output), &["cannot be watched"]);
    let daemon = place.daemon().unwrap();
    kill_process(daemon, Signal::TERM).unwrap();
    common::wait_until("it is unmounted", || place.listed().is_none());
}
