//! Layers over the pass-through file system, mounted: what they turn off, what they encrypt, and
//! what a killed daemon leaves.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bickford_conformance::{
    Combination, Io, Mount, Preset, Scratch, Transport, close, full_length, passes_through,
    require_root, run, say, wait_for,
};

const DEADLINE: Duration = Duration::from_secs(60);

fn with_layer(lower: &Path, combination: &Combination, layer: &str) -> Mount {
    Mount::over(lower, combination)
        .argument("--layer")
        .argument(layer)
        .must_start()
}

#[test]
fn a_log_leaves_kernel_pass_through_on() {
    require_root();
    if !passes_through() {
        return say(format_args!("left out: Linux passes through from 6.9 on"));
    }
    let scratch = Scratch::new("layer-log");
    let log = scratch.path().join("operations");
    let layer = format!("log:format=json,file={}", log.display());
    let combination = Combination::fast(Transport::Dev, Io::Passthrough);
    // Starting makes sure that the I/O mode is in force.
    let mount = with_layer(&scratch.directory("lower"), &combination, &layer);
    fs::write(mount.path().join("file"), b"contents").expect("write");
    assert_eq!(
        fs::read(mount.path().join("file")).expect("read"),
        b"contents"
    );
    mount.finish();
    let lines = fs::read_to_string(log).expect("log");
    assert!(lines.contains("\"op\":\"create\""), "{lines}");
    assert!(lines.contains("\"path\":\"/file\""), "{lines}");
    for passed in ["\"op\":\"read\"", "\"op\":\"write\""] {
        assert!(!lines.contains(passed), "{lines}");
    }
}

#[test]
fn close_fails_as_a_fault_says_in_every_io_mode() {
    require_root();
    let scratch = Scratch::new("layer-flush");
    for io in [Io::Passthrough, Io::Cached, Io::Direct, Io::Plain] {
        if io == Io::Passthrough && !passes_through() {
            say(format_args!("left out: Linux passes through from 6.9 on"));
            continue;
        }
        let combination = Combination::fast(Transport::Dev, io);
        let lower = scratch.directory(&combination.to_string());
        let layer = "fault:op=flush,errno=EIO,path=file,after=1";
        let mount = with_layer(&lower, &combination, layer);
        let path = mount.path().join("file");
        let made = File::create(&path).expect("create");
        close(made).unwrap_or_else(|error| panic!("{combination}: {error}"));
        let opened = File::open(&path).expect("open");
        let error = close(opened).expect_err(&combination.to_string());
        assert_eq!(error.raw_os_error(), Some(5), "{combination}: {error}");
        mount.finish();
    }
}

#[test]
fn random_operations_are_encrypted_right() {
    require_root();
    let scratch = Scratch::new("layer-crypt-fsx");
    let layer = scratch.crypt_layer();
    let operations = if full_length() { "50000" } else { "4000" };
    for combination in Combination::few() {
        let lower = scratch.directory(&combination.to_string());
        let mount = with_layer(&lower, &combination, &layer);
        let finished = run(Command::new("fsx")
            .args(["-q", "-S", "3", "-N", operations, "-P"])
            .arg(scratch.path())
            .arg(mount.path().join("file")));
        assert!(finished.status.success(), "{}", finished.report());
        mount.finish();
    }
}

/// Bytes that tell their file and place.
fn pattern(file: usize, from: usize, length: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(31) ^ (at >> 8) ^ file.wrapping_mul(97)) as u8;
    (from..from + length).map(byte).collect()
}

const PIECES: usize = 12;
const PIECE: usize = 3001;

/// Writes files in pieces and syncs each, until the mount is gone.
fn write_files(directory: &Path, synced: &AtomicUsize) {
    for file in 0.. {
        let written = File::create(directory.join(file.to_string())).and_then(|mut out| {
            for piece in 0..PIECES {
                out.write_all(&pattern(file, piece * PIECE, PIECE))?;
            }
            out.sync_all()
        });
        if written.is_err() {
            return;
        }
        synced.store(file + 1, Ordering::SeqCst);
    }
}

/// What can be read of a file from its front, and whether it ended with an error.
fn front(path: &Path) -> std::io::Result<(Vec<u8>, bool)> {
    let mut file = File::open(path)?;
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok((all, false)),
            Ok(length) => all.extend_from_slice(&piece[..length]),
            Err(error) if error.raw_os_error() == Some(5) => return Ok((all, true)),
            Err(error) => return Err(error),
        }
    }
}

fn check(directory: &Path, synced: usize) {
    let size = PIECES * PIECE;
    for file in 0..synced {
        let found = fs::read(directory.join(file.to_string())).expect("a synced file");
        assert!(found == pattern(file, 0, size), "{file} is damaged");
    }
    let path = directory.join(synced.to_string());
    match front(&path) {
        Ok((found, failed)) => {
            let right = pattern(synced, 0, found.len());
            assert!(found == right, "{synced} reads as it never was");
            assert!(failed || found.len() <= size);
        }
        Err(error) => {
            let kind = error.kind();
            let expected = kind == ErrorKind::NotFound || error.raw_os_error() == Some(5);
            assert!(expected, "{}: {error}", path.display());
            if kind == ErrorKind::NotFound {
                return;
            }
        }
    }
    fs::remove_file(path).expect("what was being written can be removed");
}

#[test]
fn a_killed_daemon_leaves_no_wrong_contents() {
    require_root();
    let scratch = Scratch::new("layer-crypt-kill");
    let layer = scratch.crypt_layer();
    let combination = Combination::dev(Preset::Opt, 4);
    let rounds = if full_length() { 50 } else { 6 };
    for round in 0..rounds {
        let lower: PathBuf = scratch.directory(&format!("lower-{round}"));
        let mut mount = with_layer(&lower, &combination, &layer);
        let synced = Arc::new(AtomicUsize::new(0));
        let (directory, count) = (mount.path().to_owned(), Arc::clone(&synced));
        let writer = std::thread::spawn(move || write_files(&directory, &count));
        let enough = || synced.load(Ordering::SeqCst) >= 3 + round;
        assert!(wait_for(DEADLINE, enough), "nothing is written");
        mount.kill_daemon();
        writer.join().expect("writer");
        drop(mount);
        let again = with_layer(&lower, &combination, &layer);
        check(again.path(), synced.load(Ordering::SeqCst));
        again.finish();
    }
}
