//! `delay` and `throttle`: answers are held back without keeping a worker, and let go in the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bickford::abi::{InHeader, InterruptIn, Opcode, SetattrIn, SetattrValid};
use bickford::transport::{Outgoing, Responder, Ticket};
use zerocopy::IntoBytes;

use super::below::*;

/// Lets INTERRUPT come for a request.
fn interrupt(fixture: &mut Fixture, unique: u64) {
    let body = InterruptIn { unique };
    fixture.kernel.send(Opcode::Interrupt, 0, body.as_bytes());
}

#[test]
fn a_delayed_answer_comes_later_and_others_do_not_wait() {
    let mut fixture = fixture(&["delay:read=20ms,data=36000s"]);
    let read = fixture.kernel.send(Opcode::Read, 2, &read(1));
    let write = fixture.kernel.send(Opcode::Write, 2, &write(b"x"));
    assert_eq!(fixture.errno(Opcode::Open, 2, &open(0)), 0);
    assert_eq!(fixture.kernel.answer(read).unwrap().error, 0);
    assert_eq!(fixture.kernel.server().in_flight().len(), 1);
    fixture.kernel.send(Opcode::Destroy, 0, &[]);
    assert_eq!(fixture.kernel.answer(write).unwrap().error, 0);
}

#[test]
fn a_caller_that_gets_a_signal_does_not_wait() {
    for spec in ["delay:read=36000s", "throttle:read=1"] {
        let mut fixture = fixture(&[spec]);
        let unique = fixture.kernel.send(Opcode::Read, 2, &read(1 << 20));
        assert_eq!(fixture.kernel.server().in_flight().len(), 1, "{spec}");
        interrupt(&mut fixture, unique);
        let answer = fixture.kernel.answer(unique).unwrap();
        assert_eq!((answer.error, answer.body.len()), (0, 1 << 20));
        assert!(fixture.kernel.server().in_flight().is_empty());
    }
}

#[test]
fn who_does_not_wait_any_more_takes_the_place_of_nobody() {
    let mut fixture = fixture(&["delay:read=36000s"]);
    // As many as may wait at once.
    for _ in 0..65_536 {
        let unique = fixture.kernel.send(Opcode::Read, 2, &read(1));
        interrupt(&mut fixture, unique);
        assert_eq!(fixture.kernel.answer(unique).unwrap().error, 0);
    }
    let waits = fixture.kernel.send(Opcode::Read, 2, &read(1));
    assert_eq!(fixture.kernel.server().in_flight().len(), 1);
    assert_eq!(fixture.summary.report(), "");
    fixture.kernel.send(Opcode::Destroy, 0, &[]);
    assert_eq!(fixture.kernel.answer(waits).unwrap().error, 0);
}

/// A queue that has few entries left.
#[derive(Default)]
struct Short(AtomicUsize);

impl Responder for Short {
    fn respond(&self, _: Ticket, _: &Outgoing<'_>) -> io::Result<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }
}

/// Has a request answered that comes from such a queue, and tells how many answers there were.
fn short_of_entries(fixture: &Fixture, opcode: Opcode, body: &[u8]) -> usize {
    let server = fixture.kernel.server();
    let header = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode: opcode as u32,
        unique: 1000,
        nodeid: 2,
        ..InHeader::default()
    };
    let short = Arc::new(Short::default());
    let responder: Arc<dyn Responder> = short.clone();
    let message = [header.as_bytes(), body].concat();
    server.process_bytes(&server.worker(3), &message, &responder);
    short.0.load(Ordering::SeqCst)
}

#[test]
fn what_may_not_wait_is_answered_at_once() {
    for specs in [
        &["delay:read=36000s"][..],
        &["throttle:read=1"],
        &["stats", "delay:read=36000s", "readonly"],
    ] {
        let fixture = fixture(specs);
        let answers = short_of_entries(&fixture, Opcode::Read, &read(1 << 20));
        assert_eq!(answers, 1, "{specs:?}");
        let report = fixture.summary.report();
        assert!(report.contains("1 answers were not"), "{report}");
    }
}

/// `crypt` opens the file itself, by a reply of its own.
#[test]
fn nor_does_what_a_layer_above_asks_for_itself() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name| directory.path().join(name).display().to_string();
    std::fs::write(file("passphrase"), "secret").unwrap();
    let given = format!("key={},passphrase-file={}", file("key"), file("passphrase"));
    let crypt = format!("crypt:{given},create=true,memory=32K,passes=1");
    let fixture = fixture(&[&crypt, "delay:open=36000s"]);
    let truncate = SetattrIn {
        valid: SetattrValid::SIZE.bits(),
        ..SetattrIn::default()
    };
    let answers = short_of_entries(&fixture, Opcode::Setattr, truncate.as_bytes());
    assert_eq!(answers, 1);
    let report = fixture.summary.report();
    assert!(report.contains("1 answers were not"), "{report}");
}

#[test]
fn an_error_is_delayed_too() {
    let mut fixture = fixture(&["delay:lookup=36000s", "fault:op=lookup,errno=EIO"]);
    let lookup = fixture.kernel.send(Opcode::Lookup, 1, b"x\0");
    assert_eq!(fixture.kernel.server().in_flight().len(), 1);
    fixture.kernel.send(Opcode::Destroy, 0, &[]);
    assert_eq!(-fixture.kernel.answer(lookup).unwrap().error, libc::EIO);
}

#[test]
fn a_user_beyond_the_bound_waits_and_the_rest_go_on() {
    let mut fixture = fixture(&["throttle:read=100K,write=100K"]);
    assert_eq!(fixture.errno(Opcode::Read, 2, &read(1024)), 0);
    let much = fixture.kernel.send(Opcode::Read, 2, &read(1 << 30 >> 4));
    assert_eq!(fixture.kernel.server().in_flight().len(), 1);
    assert_eq!(fixture.errno(Opcode::Write, 2, &write(b"x")), 0);
    assert_eq!(fixture.errno(Opcode::Getattr, 2, &[0; 16]), 0);
    fixture.kernel.send(Opcode::Destroy, 0, &[]);
    assert_eq!(fixture.kernel.answer(much).unwrap().error, 0);
}

#[test]
fn layers_hold_back_one_after_the_other() {
    let (long, short) = ("delay:read=36000s", "delay:read=1ms,write=1ms");
    for specs in [[long, short, "stats"], [short, long, "stats"]] {
        let mut fixture = fixture(&specs);
        let read = fixture.kernel.send(Opcode::Read, 2, &read(1));
        // Let go after the read by the one that holds it for short.
        assert_eq!(fixture.errno(Opcode::Write, 2, &write(b"x")), 0);
        assert_eq!(fixture.kernel.server().in_flight().len(), 1, "{specs:?}");
        fixture.kernel.send(Opcode::Destroy, 0, &[]);
        assert_eq!(fixture.kernel.answer(read).unwrap().error, 0, "{specs:?}");
    }
}
