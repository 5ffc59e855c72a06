//! The control socket over the memory transport.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bickford::abi::Opcode;
use bickford::ops::{Data, Read};
use bickford::trace::control::{Control, DirectoryLock, EventReader, snapshot, snapshot_within};
use bickford::transport::memory::Kernel;
use bickford::{Context, FileSystem, Reply};

/// Keeps the reply of a READ until the test ends.
#[derive(Default)]
struct Slow(Mutex<Vec<Reply<Data>>>);

impl FileSystem for Slow {
    fn read(&self, _: &Context<'_>, _: Read, reply: Reply<Data>) {
        self.0.lock().unwrap().push(reply);
    }
}

/// A session whose control socket is at `path`.
fn session(path: &Path) -> (Kernel, Control) {
    let mut kernel = Kernel::new(Slow::default());
    kernel.init().unwrap();
    let server = Arc::clone(kernel.server());
    let control = Control::serve(path, server, "memory".into()).unwrap();
    (kernel, control)
}

#[test]
fn statistics_and_requests_in_flight_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sock");
    let (mut kernel, control) = session(&path);
    for _ in 0..3 {
        kernel.call(Opcode::Lookup, 1, b"name\0").unwrap();
    }
    kernel.send(Opcode::Read, 9, &[0; 40]);
    let seen = snapshot(&path).unwrap();
    assert_eq!(seen.transport, "memory");
    let row = &seen.opcodes[0];
    assert_eq!((row.name.as_str(), row.count, row.errors), ("LOOKUP", 3, 3));
    for column in &row.histogram {
        assert_eq!(column.iter().sum::<u64>(), 3);
    }
    assert_eq!(seen.opcodes.len(), 1);
    assert_eq!((seen.in_flight.len(), seen.in_flight[0].node), (1, 9));
    assert_eq!(seen.in_flight[0].name, "READ");
    drop(control);
    assert!(!path.exists());
}

#[test]
fn a_later_session_keeps_its_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sock");
    let (_earlier, ending) = session(&path);
    let (_later, control) = session(&path);
    drop(ending);
    assert_eq!(snapshot(&path).unwrap().transport, "memory");
    drop(control);
    assert!(!path.exists());
}

#[test]
fn events_are_streamed_to_one_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sock");
    let (mut kernel, _control) = session(&path);
    let mut reader = EventReader::connect(&path).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let event = loop {
        assert!(std::time::Instant::now() < deadline, "no event came");
        kernel.call(Opcode::Lookup, 1, b"name\0").unwrap();
        if let Some(event) = reader.next_event().unwrap() {
            break event;
        }
    };
    assert_eq!(
        (event.opcode, event.error),
        (Opcode::Lookup as u32, libc::ENOSYS)
    );
    assert!(event.received <= event.decoded && event.decoded <= event.handled);
    let mut second = EventReader::connect(&path).unwrap();
    let refusal = loop {
        assert!(
            std::time::Instant::now() < deadline,
            "the second reader was not refused"
        );
        if let Err(refusal) = second.next_event() {
            break refusal;
        }
    };
    assert!(
        refusal.to_string().starts_with("another program"),
        "{refusal}"
    );
    // Who comes just after the first has gone is served.
    drop(reader);
    let mut next = EventReader::connect(&path).unwrap();
    while std::time::Instant::now() < deadline {
        kernel.call(Opcode::Lookup, 1, b"name\0").unwrap();
        match next.next_event() {
            Ok(Some(_)) => return,
            Ok(None) => {}
            // On a busy machine that the first has gone is noticed later.
            Err(_) => next = EventReader::connect(&path).unwrap(),
        }
    }
    panic!("no event came");
}

#[test]
fn a_daemon_that_only_says_what_it_lost_holds_nobody_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let line = format!("{{\"dropped\":{}}}\n", u64::MAX).repeat(1_000);
        // Until the reader has gone.
        while std::io::Write::write_all(&mut stream, line.as_bytes()).is_ok() {}
    });
    let mut reader = EventReader::connect(&path).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while reader.dropped != u64::MAX && std::time::Instant::now() < deadline {
        assert_eq!(reader.next_event().unwrap().map(|event| event.unique), None);
    }
    assert_eq!(reader.dropped, u64::MAX);
    drop(reader);
    daemon.join().unwrap();
}

/// Whether a session ends at once that has events for somebody who `reads` a little all the time, or nothing.
fn ends_at_once(reads: bool) -> bool {
    use std::io::{Read, Write};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sock");
    let (mut kernel, control) = session(&path);
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    client.set_nonblocking(true).unwrap();
    client.write_all(b"events\n").unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while client.read(&mut [0; 64]).is_err() {
        assert!(std::time::Instant::now() < deadline, "no event came");
        kernel.call(Opcode::Lookup, 1, b"name\0").unwrap();
    }
    // Some MB, of which the socket holds a part, and the reader would read for a minute.
    for _ in 0..20_000 {
        kernel.call(Opcode::Lookup, 1, b"name\0").unwrap();
    }
    let (over, ended) = std::sync::mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let _ = reads.then(|| client.read(&mut [0; 1_024]));
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let begun = std::time::Instant::now();
    drop(control);
    let took = begun.elapsed();
    drop(over);
    reader.join().unwrap();
    // A client has five.
    took < Duration::from_secs(4)
}

#[test]
fn a_reader_of_events_that_is_slow_does_not_keep_the_session() {
    for reads in [false, true] {
        // More than once: this machine may be busy.
        assert!((0..3).any(|_| ends_at_once(reads)), "reads: {reads}");
    }
}

#[test]
fn a_client_that_never_ends_its_line_does_not_keep_the_session() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sock");
    let (_kernel, control) = session(&path);
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let (over, ended) = std::sync::mpsc::channel::<()>();
    let trickle = std::thread::spawn(move || {
        while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let _ = std::io::Write::write_all(&mut client, b"s");
            std::thread::sleep(Duration::from_millis(400));
        }
    });
    // It is being served by then.
    std::thread::sleep(Duration::from_millis(300));
    let begin = std::time::Instant::now();
    drop(control);
    let took = begin.elapsed();
    drop(over);
    trickle.join().unwrap();
    // As long as a line of 64 bytes takes, if each byte renewed the time that it has, is longer.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn who_does_not_answer_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let ask = || snapshot_within(&path, Duration::from_millis(20)).unwrap_err();
    // Also when as many wait as may.
    for _ in 0..8 {
        assert_eq!(ask().kind(), std::io::ErrorKind::TimedOut);
    }
    drop(listener);
    assert_eq!(ask().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn who_makes_a_socket_waits_for_others_but_not_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sock");
    let held = DirectoryLock::of(&path);
    let begin = std::time::Instant::now();
    let (_kernel, control) = session(&path);
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert!(snapshot(&path).is_ok());
    drop(control);
    drop(held);
    let place = std::fs::File::open(directory.path()).unwrap();
    let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    assert_eq!(rustix::fs::flock(&place, lock), Ok(()));
}

#[test]
fn a_socket_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    for path in [
        file.join("x.sock"),
        directory.path().join("x").join("7".repeat(200)),
    ] {
        let server = Arc::clone(Kernel::new(Slow::default()).server());
        let error = Control::serve(&path, server, "memory".into()).unwrap_err();
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
    }
}

#[test]
fn an_answer_of_another_version_is_told_to_be_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let daemon = std::thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        std::io::Write::write_all(&mut client, b"{\"process\":1}\n").unwrap();
    });
    let error = snapshot(&path).unwrap_err();
    daemon.join().unwrap();
    assert!(error.to_string().contains("another version"), "{error}");
}
