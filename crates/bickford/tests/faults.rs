//! File systems that do wrong, over the memory transport: what their callers get, and what the log says.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "support/log.rs"]
mod log;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bickford::abi::{InHeader, InterruptIn, Opcode};
use bickford::ops::{Data, Read};
use bickford::transport::memory::{Kernel, Message};
use bickford::{Context, FileSystem, Reply};
use log::Log;
use zerocopy::IntoBytes;

type Method = dyn Fn(&Context<'_>, Read, Reply<Data>) + Send + Sync;

/// READ is what the test says.
struct Subject(Box<Method>);

impl FileSystem for Subject {
    fn read(&self, cx: &Context<'_>, op: Read, reply: Reply<Data>) {
        (self.0)(cx, op, reply);
    }
}

fn kernel(read: impl Fn(&Context<'_>, Read, Reply<Data>) + Send + Sync + 'static) -> Kernel {
    let mut kernel = Kernel::new(Subject(Box::new(read)));
    assert_eq!(kernel.init().unwrap().error, 0);
    kernel
}

/// Sends READ with a number of the test's own.
fn read(kernel: &mut Kernel, unique: u64) {
    let mut body = [0u64; 5];
    body[2] = 4096;
    let header = InHeader {
        opcode: Opcode::Read as u32,
        unique,
        nodeid: 7,
        ..InHeader::default()
    };
    kernel.send_with(header, body.as_bytes());
}

fn interrupt(kernel: &mut Kernel, unique: u64) {
    kernel.send(Opcode::Interrupt, 0, InterruptIn { unique }.as_bytes());
}

/// What READ answers, and what is logged meanwhile.
fn answer(kernel: &mut Kernel, unique: u64) -> (Message, Vec<String>) {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || read(kernel, unique));
    (kernel.answer(unique).unwrap(), log.take())
}

#[test]
fn a_panic_at_an_interrupt_that_came_before_is_not_the_methods() {
    let mut kernel = kernel(|cx, _, reply| {
        cx.interrupt()
            .on_raise(|| panic!("a panic at an interrupt"));
        reply.ok(Data::Static(b"data"));
    });
    interrupt(&mut kernel, 100);
    let (answer, log) = answer(&mut kernel, 100);
    assert_eq!((answer.error, &*answer.body), (0, &b"data"[..]));
    assert_eq!(log, ["what was to be called at an interrupt panicked"]);
}

#[test]
fn an_interrupt_that_is_asked_for_too_late_is_nobody_elses() {
    let (to, contexts) = channel();
    let held = Arc::<Mutex<Vec<_>>>::default();
    let keep = Arc::clone(&held);
    let mut kernel = kernel(move |cx, _, reply| {
        if cx.unique().0 == 100 {
            reply.ok(Data::Empty);
        } else {
            keep.lock().unwrap().push((cx.interrupt(), reply));
        }
        to.send(cx.detach()).unwrap();
    });
    read(&mut kernel, 100);
    let answered = contexts.recv().unwrap();
    // Takes the place of the first one.
    read(&mut kernel, 102);
    let called = Arc::<AtomicUsize>::default();
    let calls = Arc::clone(&called);
    let late = answered.context().interrupt();
    late.on_raise(move || {
        calls.fetch_add(1, Ordering::SeqCst);
    });
    interrupt(&mut kernel, 102);
    let (own, reply) = held.lock().unwrap().pop().unwrap();
    assert!(own.is_raised() && !late.is_raised());
    assert_eq!(called.load(Ordering::SeqCst), 0);
    reply.ok(Data::Empty);
}

/// Has a panic when it is dropped.
struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("a panic of what is dropped");
    }
}

#[test]
fn what_an_interrupt_would_have_called_is_dropped_with_no_lock_held() {
    let held = Arc::<Mutex<Option<Reply<Data>>>>::default();
    let other = Arc::clone(&held);
    let mut kernel = kernel(move |cx, _, reply| {
        let earlier = other.lock().unwrap().take();
        match cx.unique().0 {
            100 => return *other.lock().unwrap() = Some(reply),
            102 => cx.interrupt().on_raise(move || drop(earlier)),
            _ => {
                let fragile = Fragile;
                cx.interrupt().on_raise(move || drop(fragile));
            }
        }
        reply.ok(Data::Static(b"data"));
    });
    let (done, over) = channel();
    std::thread::spawn(move || {
        read(&mut kernel, 100);
        let answers = [102, 100, 104].map(|unique| {
            if unique != 100 {
                read(&mut kernel, unique);
            }
            kernel.answer(unique).map(|answer| answer.error)
        });
        let _ = done.send(answers);
    });
    let answers = over.recv_timeout(Duration::from_secs(30));
    assert_eq!(answers, Ok([Some(0), Some(-libc::EIO), Some(0)]));
}

#[test]
fn a_panic_is_told_once() {
    let mut kernel = kernel(|cx, _, reply| match cx.unique().0 {
        100 => {
            let _reply = reply;
            panic!("a panic with the reply");
        }
        102 => {
            reply.ok(Data::Empty);
            panic!("a panic after the answer");
        }
        104 => {
            let _below = reply.wrap::<Data>(|result, reply| reply.complete(result));
            panic!("a panic below a layer");
        }
        _ => drop(reply),
    });
    let panicked = "the file system panicked";
    let dropped = "a reply was dropped without an answer; the caller gets EIO";
    for (unique, error, line) in [
        (
            100,
            libc::EIO,
            "the file system panicked; the caller gets EIO",
        ),
        (102, 0, panicked),
        (104, libc::EIO, panicked),
        (106, libc::EIO, dropped),
    ] {
        let (answer, log) = answer(&mut kernel, unique);
        assert_eq!(answer.error, -error);
        assert_eq!(log, [line]);
    }
}
