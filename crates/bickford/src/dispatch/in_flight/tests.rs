//! The table by itself.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::sync::mpsc::channel;

use super::*;

fn header(unique: u64) -> InHeader {
    InHeader {
        unique,
        ..InHeader::default()
    }
}

#[test]
fn an_interrupt_that_comes_first_is_remembered() {
    let table = InFlight::new(8);
    table.interrupt(Unique(5));
    let slot = table
        .insert(0, &header(5), Opcode::Read, Stamp::now())
        .unwrap();
    assert!(table.interrupt_of(slot, Unique(5)).is_raised());
    table.remove(slot);
    let slot = table
        .insert(0, &header(5), Opcode::Read, Stamp::now())
        .unwrap();
    assert!(!table.interrupt_of(slot, Unique(5)).is_raised());
}

#[test]
fn an_interrupt_whose_request_never_comes_is_forgotten() {
    let table = InFlight::new(8);
    let insert = |unique| {
        let slot = table.insert(0, &header(unique), Opcode::Read, Stamp::now());
        table.remove(slot.unwrap());
    };
    let early = || table.early_count.load(Ordering::SeqCst);
    table.interrupt(Unique(5));
    insert(6);
    assert_eq!(early(), 1, "it may be yet to come");
    let long_ago = |table: &InFlight| locked(&table.early)[0].1 = Stamp::from_bits(0);
    long_ago(&table);
    insert(7);
    assert_eq!(early(), 0);
    table.interrupt(Unique(5));
    long_ago(&table);
    table.interrupt(Unique(9));
    assert_eq!(early(), 1);
}

#[test]
fn what_gives_back_passes_beyond_the_limit() {
    let table = InFlight::new(1);
    let insert = |opcode| table.insert(0, &header(1), opcode, Stamp::now());
    let slot = insert(Opcode::Read).unwrap();
    assert_eq!(insert(Opcode::Read), None);
    for opcode in [Opcode::Release, Opcode::Releasedir, Opcode::Flush] {
        let beyond = insert(opcode).unwrap();
        assert!(!table.interrupt_of(beyond, Unique(1)).is_raised());
        assert_eq!(table.len(), 1);
        table.remove(beyond);
    }
    for _ in 0..BEYOND_MAX {
        assert!(insert(Opcode::Release).is_some());
    }
    assert_eq!(insert(Opcode::Release), None);
    table.remove(BEYOND);
    assert!(insert(Opcode::Release).is_some());
    table.remove(slot);
    assert_eq!(insert(Opcode::Read), Some(slot));
}

#[test]
fn the_end_waits_for_what_is_called_at_it() {
    let table = InFlight::new(8);
    let slot = table.insert(0, &header(1), Opcode::Read, Stamp::now());
    let interrupt = table.interrupt_of(slot.unwrap(), Unique(1));
    let (begun, has_begun) = channel();
    let called = Arc::new(AtomicBool::new(false));
    let here = Arc::clone(&called);
    interrupt.on_raise(move || {
        begun.send(()).unwrap();
        // Long enough for who does not wait.
        thread::sleep(Duration::from_millis(100));
        here.store(true, Ordering::SeqCst);
    });
    thread::scope(|scope| {
        scope.spawn(|| table.end());
        has_begun.recv().unwrap();
        table.end();
        table.wait_for_end();
        assert!(called.load(Ordering::SeqCst));
    });
}

#[test]
fn what_is_called_at_the_end_does_not_wait_for_itself() {
    let table = Arc::new(InFlight::new(8));
    let slot = table.insert(0, &header(1), Opcode::Read, Stamp::now());
    let interrupt = table.interrupt_of(slot.unwrap(), Unique(1));
    let (of, (done, is_done)) = (Arc::clone(&table), channel());
    interrupt.on_raise(move || {
        of.wait_for_end();
        done.send(()).unwrap();
    });
    thread::spawn(move || table.end());
    is_done.recv_timeout(Duration::from_secs(60)).unwrap();
}

#[test]
fn who_had_a_signal_before_is_looked_for_once() {
    let table = InFlight::new(8);
    let insert = |unique, pid| {
        let header = InHeader {
            pid,
            ..header(unique)
        };
        let slot = table.insert(0, &header, Opcode::Read, Stamp::now());
        (slot.unwrap(), Unique(unique))
    };
    let rung = Arc::new(AtomicUsize::new(0));
    let bell = Arc::clone(&rung);
    table.seek_signals(move || _ = bell.fetch_add(1, Ordering::SeqCst));
    let all = [(1, 7), (2, 8), (3, 0), (4, 7)].map(|(unique, pid)| insert(unique, pid));
    assert!(!table.seeks_signals());
    let [first, second, third] = [0, 1, 2].map(|at: usize| {
        let (slot, unique) = all[at];
        table.interrupt_of(slot, unique)
    });
    assert_eq!(rung.load(Ordering::SeqCst), 1, "the bell is rung once");
    table.look_at_signals(Duration::MAX, |_| panic!("all are too young"));
    assert!(table.seeks_signals());
    table.look_at_signals(Duration::ZERO, |_| None);
    assert!(table.list().iter().all(|request| !request.interrupted));
    assert!(table.seeks_signals(), "it is to be asked again");
    table.look_at_signals(Duration::ZERO, |pid| Some(pid == 7 || pid == 0));
    assert!(first.is_raised());
    assert!(!second.is_raised() && !third.is_raised());
    assert!(!table.seeks_signals());
    table.look_at_signals(Duration::ZERO, |_| panic!("each was looked at"));
    let interrupted = |request: &InFlightRequest| request.interrupted;
    assert_eq!(
        table.list().iter().filter(|one| interrupted(one)).count(),
        1
    );
}

#[test]
fn the_end_interrupts_what_is_here_and_what_comes() {
    let table = InFlight::new(8);
    let insert = |unique| {
        let header = header(unique);
        let slot = table.insert(unique as usize, &header, Opcode::Read, Stamp::now());
        table.interrupt_of(slot.unwrap(), Unique(unique))
    };
    let early = [insert(1), insert(2), insert(66)];
    assert!(early.iter().all(|interrupt| !interrupt.is_raised()));
    table.end();
    assert!(early.iter().all(|interrupt| interrupt.is_raised()));
    assert!(insert(3).is_raised());
}

#[test]
fn free_slots_of_one_worker_are_there_for_another() {
    let table = InFlight::new(3);
    let insert = |worker| table.insert(worker, &header(1), Opcode::Read, Stamp::now());
    let slots: Vec<_> = (0..3).map(|_| insert(5).unwrap()).collect();
    for slot in slots {
        table.remove(slot);
    }
    assert!(table.is_empty());
    for count in 1..=3 {
        assert!(insert(6).is_some());
        assert_eq!(table.len(), count);
    }
    assert!(insert(6).is_none());
    assert!(insert(5).is_none());
}

#[test]
fn the_limit_holds_and_slots_are_used_again() {
    let table = InFlight::new(2);
    let slots: Vec<_> = (0..2)
        .map(|n| {
            table
                .insert(n, &header(n as u64), Opcode::Read, Stamp::now())
                .unwrap()
        })
        .collect();
    assert!(
        table
            .insert(0, &header(9), Opcode::Read, Stamp::now())
            .is_none()
    );
    table.remove(slots[0]);
    table.remove(slots[0]);
    assert_eq!(table.len(), 1);
    assert_eq!(
        table.insert(0, &header(9), Opcode::Read, Stamp::now()),
        Some(slots[0])
    );
}
