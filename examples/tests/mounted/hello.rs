//! The examples with one file.

use std::fs;

use bickford::mount::MountEntry;
use bickford::trace::control;

use crate::example::{Example, can_mount};

fn says_hello(program: &str) {
    if !can_mount() {
        return;
    }
    let example = Example::start(program, &[]);
    let names: Vec<_> = fs::read_dir(example.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["hello"]);
    assert_eq!(
        fs::read_to_string(example.path("hello")).unwrap(),
        "Hello, world!\n"
    );
    assert_eq!(fs::metadata(example.path("hello")).unwrap().len(), 14);
    let missing = fs::read(example.path("missing")).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    assert!(statistics(&example).contains(&"LOOKUP".to_owned()));
    example.finish();
}

/// The requests that `bickford stat` tells of.
fn statistics(example: &Example) -> Vec<String> {
    let mountpoint = example.path("").canonicalize().unwrap();
    let mount = MountEntry::at(&mountpoint).unwrap().unwrap();
    let user = rustix::process::geteuid().as_raw();
    let sockets = control::find(mount.connection(), user);
    let socket = sockets.into_iter().flatten().next();
    let socket = socket.expect("the session serves its control socket");
    let snapshot = control::snapshot(&socket.address()).unwrap();
    snapshot.opcodes.into_iter().map(|row| row.name).collect()
}

#[test]
fn over_inodes() {
    says_hello(env!("CARGO_BIN_EXE_hello"));
}

#[test]
fn over_paths() {
    says_hello(env!("CARGO_BIN_EXE_hello-path"));
}

#[test]
fn a_mount_that_fails_says_what_to_do() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hello"));
    let output = command.arg("/nowhere/at/all").output().unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    let expected = "mount /nowhere/at/all: the mount point does not exist; create it";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn under_a_layer() {
    if !can_mount() {
        return;
    }
    let example = Example::start(env!("CARGO_BIN_EXE_hello-layer"), &[]);
    assert_eq!(
        fs::read_to_string(example.path("hello")).unwrap(),
        "HELLO, WORLD!\n"
    );
    example.finish();
}

/// Far more readers than the example has threads.
#[test]
fn from_a_network_service() {
    if !can_mount() {
        return;
    }
    let example = Example::start(env!("CARGO_BIN_EXE_hello-async"), &[]);
    std::thread::scope(|scope| {
        for number in 0..300u64 {
            let path = example.path(&number.to_string());
            scope.spawn(move || {
                let expected = format!("the square of {number} is {}\n", number * number);
                assert_eq!(fs::read_to_string(path).unwrap(), expected);
            });
        }
    });
    assert!(fs::read(example.path("no-number")).is_err());
    example.finish();
}
