use super::*;

const READ: i16 = libc::F_RDLCK as i16;
const ONE: Holder = Holder { node: 7, owner: 1 };
const TWO: Holder = Holder { node: 7, owner: 2 };

impl RecordLocks {
    fn carrier_of(&self, holder: Holder) -> Arc<OwnedFd> {
        Arc::clone(&self.carriers.of(holder.node).get(&holder).unwrap().fd)
    }
}

fn range(kind: i16, start: i64, length: i64) -> RecordLock {
    RecordLock {
        kind,
        start,
        length,
    }
}

#[test]
fn two_owners_conflict_and_one_does_not_with_itself() {
    let file = tempfile::tempfile().unwrap();
    let locks = RecordLocks::new(Share::alone(8)).unwrap();
    let claims = Claims::default();
    let set = |holder, pid, lock| locks.set(holder, pid, lock, file.as_fd(), &claims);
    set(ONE, 100, range(WRITE, 0, 10)).unwrap();
    set(ONE, 100, range(WRITE, 5, 10)).unwrap();
    assert_eq!(set(TWO, 200, range(WRITE, 9, 1)), Err(Errno::AGAIN));
    set(TWO, 200, range(WRITE, 20, 1)).unwrap();
    let get = |lock| locks.get(TWO, lock, file.as_fd()).unwrap();
    let found = |lock, pid, owner| {
        let owner = Some(owner);
        Some(Conflict { lock, pid, owner })
    };
    assert_eq!(get(range(WRITE, 0, 0)), found(range(WRITE, 0, 15), 100, 1));
    let three = Holder { node: 7, owner: 3 };
    set(three, 300, range(READ, 30, 0)).unwrap();
    set(ONE, 100, range(READ, 40, 5)).unwrap();
    assert_eq!(get(range(WRITE, 30, 1)), found(range(READ, 30, 0), 300, 3));
    assert_eq!(get(range(WRITE, 10, 1)), found(range(WRITE, 0, 15), 100, 1));
    assert!(locks.release(three));
    assert_eq!(get(range(WRITE, 30, 0)), found(range(READ, 40, 5), 100, 1));
    set(ONE, 100, range(UNLOCK, 0, 12)).unwrap();
    set(TWO, 200, range(WRITE, 9, 1)).unwrap();
    assert!(locks.release(ONE));
    assert!(!locks.release(ONE));
    assert_eq!(
        locks.get(TWO, range(WRITE, 0, 0), file.as_fd()).unwrap(),
        None
    );
}

#[test]
fn holders_are_bounded() {
    let file = tempfile::tempfile().unwrap();
    let locks = RecordLocks::new(Share::alone(1)).unwrap();
    let claims = Claims::default();
    let set = |holder, start| {
        let lock = range(WRITE, start, 1);
        locks.set(holder, 1, lock, file.as_fd(), &claims)
    };
    set(ONE, 0).unwrap();
    assert_eq!(set(TWO, 5), Err(Errno::NOLCK));
    locks.release(ONE);
    set(TWO, 5).unwrap();
}

#[test]
fn a_carrier_for_reading_has_no_locks_for_writing() {
    // A program that runs cannot be opened for writing.
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("sleep");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let reader = std::fs::File::open(&program).unwrap();
    let mut running = std::process::Command::new(&program)
        .arg("60")
        .spawn()
        .unwrap();
    let locks = RecordLocks::new(Share::alone(8)).unwrap();
    let claims = Claims::default();
    let set = |kind| locks.set(ONE, 1, range(kind, 0, 1), reader.as_fd(), &claims);
    let set = [READ, WRITE].map(set);
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(set, [Ok(()), Err(Errno::NOLCK)]);
}

#[test]
fn what_is_locked_for_reading_stays_so_when_its_holder_locks_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let writer = std::fs::File::create(&path).unwrap();
    let reader = std::fs::File::open(&path).unwrap();
    let locks = RecordLocks::new(Share::alone(8)).unwrap();
    let [first, second, other] = [(); 3].map(|()| Claims::default());
    let read = |lock| locks.set(ONE, 1, lock, reader.as_fd(), &first);
    let write = |lock| locks.set(ONE, 1, lock, writer.as_fd(), &second);
    let two = |lock| locks.set(TWO, 2, lock, writer.as_fd(), &other);
    read(range(READ, 0, 10)).unwrap();
    read(range(READ, 50, 0)).unwrap();
    write(range(WRITE, 20, 10)).unwrap();
    for (start, kind) in [(9, WRITE), (50, WRITE), (1 << 40, WRITE), (20, READ)] {
        assert_eq!(two(range(kind, start, 1)), Err(Errno::AGAIN), "{start}");
    }
    two(range(READ, 9, 1)).unwrap();
    assert_eq!(write(range(WRITE, 0, 10)), Err(Errno::AGAIN));
    two(range(UNLOCK, 0, 0)).unwrap();
    write(range(WRITE, 0, 10)).unwrap();
    assert_eq!(two(range(READ, 9, 1)), Err(Errno::AGAIN));
    read(range(UNLOCK, 0, 0)).unwrap();
    two(range(WRITE, 0, 0)).unwrap();
    locks.release_claims(7, &first);
    assert!(locks.release(ONE) && locks.release(TWO));
    assert_eq!(locks.room.taken(), 0);
}

#[test]
fn what_a_thread_sets_while_the_locks_of_its_process_move_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let writer = std::fs::File::create(&path).unwrap();
    let reader = std::fs::File::open(&path).unwrap();
    for (meanwhile, free) in [(range(UNLOCK, 0, 10), true), (range(READ, 50, 10), false)] {
        let locks = RecordLocks::new(Share::alone(8)).unwrap();
        let claims = Claims::default();
        let read = |lock| locks.set(ONE, 1, lock, reader.as_fd(), &claims);
        let write = |holder, lock| locks.set(holder, 1, lock, writer.as_fd(), &claims);
        read(range(READ, 0, 10)).unwrap();
        let narrow = locks.carrier_of(ONE);
        let wide = locks.widened(&narrow, writer.as_fd()).unwrap();
        read(meanwhile).unwrap();
        locks.replace(ONE, &narrow, wide);
        drop(narrow);
        write(ONE, range(WRITE, 20, 10)).unwrap();
        let others = write(TWO, range(WRITE, meanwhile.start, 10));
        assert_eq!(others.is_ok(), free, "{meanwhile:?}: {others:?}");
        assert!(locks.release(ONE));
        locks.release(TWO);
    }
}

#[test]
fn locks_that_cannot_be_told_do_not_move() {
    if !rustix::process::geteuid().is_root() {
        crate::say(format_args!("SKIPPED: only root hides /proc from a thread"));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let writer = std::fs::File::create(&path).unwrap();
    let reader = std::fs::File::open(&path).unwrap();
    let locks = RecordLocks::new(Share::alone(8)).unwrap();
    let [first, second] = [(); 2].map(|()| Claims::default());
    let read = || locks.set(ONE, 1, range(READ, 0, 10), reader.as_fd(), &first);
    let write = |holder, start| {
        let lock = range(WRITE, start, 10);
        locks.set(holder, 1, lock, writer.as_fd(), &second)
    };
    read().unwrap();
    let without_proc = || {
        sys::unshare_fs().unwrap();
        rustix::process::chroot(dir.path()).unwrap();
        write(ONE, 20)
    };
    let refused = std::thread::scope(|scope| scope.spawn(without_proc).join().unwrap());
    assert_eq!(refused, Err(Errno::NOLCK));
    assert_eq!(write(TWO, 0), Err(Errno::AGAIN));
    write(ONE, 20).unwrap();
    assert_eq!(write(TWO, 0), Err(Errno::AGAIN));
}

/// As the daemon of an ordinary user has them.
#[test]
fn files_that_cannot_be_opened_again_are_locked_as_far_as_they_can() {
    let lock = |mode: u32, kinds: [i16; 2]| {
        let file = tempfile::tempfile().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        file.set_permissions(mode).unwrap();
        let locks = RecordLocks::new(Share::alone(8)).unwrap();
        let claims = Claims::default();
        let set = |kind| locks.set(ONE, 1, range(kind, 0, 1), file.as_fd(), &claims);
        kinds.map(set)
    };
    let unprivileged = || {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut fewer = capabilities(None).unwrap();
        let overrides = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        fewer.effective.remove(overrides);
        set_capabilities(None, fewer).unwrap();
        let refused = Err(Errno::NOLCK);
        assert_eq!(lock(0o600, [READ, WRITE]), [Ok(()); 2]);
        assert_eq!(lock(0o200, [READ, WRITE]), [refused, Ok(())]);
        assert_eq!(lock(0o400, [READ, WRITE]), [Ok(()), refused]);
        assert_eq!(lock(0o400, [WRITE, READ]), [refused, Ok(())]);
        assert_eq!(lock(0, [READ, WRITE]), [refused; 2]);
    };
    std::thread::scope(|scope| scope.spawn(unprivileged).join().unwrap());
}

/// As by a child that has not called execve(2) yet.
#[test]
fn what_is_given_up_is_so_while_the_description_lives() {
    let file = tempfile::tempfile().unwrap();
    let locks = RecordLocks::new(Share::alone(8)).unwrap();
    let [first, second] = [(); 2].map(|()| Claims::default());
    let set = |holder, claims| locks.set(holder, 1, range(WRITE, 0, 1), file.as_fd(), claims);
    set(ONE, &first).unwrap();
    let child = locks.carrier_of(ONE);
    assert!(locks.release(ONE));
    set(TWO, &second).unwrap();
    let other = locks.carrier_of(TWO);
    locks.release_claims(7, &second);
    set(ONE, &first).unwrap();
    drop((child, other));
}

#[test]
fn a_holder_is_not_in_its_own_way_while_a_description_lives_that_had_its_locks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let writer = std::fs::File::create(&path).unwrap();
    let reader = std::fs::File::open(&path).unwrap();
    let locks = RecordLocks::new(Share::alone(8)).unwrap();
    let claims = Claims::default();
    let set =
        |kind, file: &std::fs::File| locks.set(ONE, 1, range(kind, 0, 10), file.as_fd(), &claims);
    set(READ, &reader).unwrap();
    let child = locks.carrier_of(ONE);
    set(WRITE, &writer).unwrap();
    drop(child);
}

#[test]
fn a_handle_gives_up_only_what_was_locked_through_it_and_through_no_other() {
    let file = tempfile::tempfile().unwrap();
    let locks = RecordLocks::new(Share::alone(8)).unwrap();
    let [first, second, other] = [(); 3].map(|()| Claims::default());
    let set = |holder, claims| locks.set(holder, 1, range(WRITE, 0, 1), file.as_fd(), claims);
    set(ONE, &first).unwrap();
    assert!(locks.release(ONE));
    set(ONE, &second).unwrap();
    locks.release_claims(7, &first);
    assert_eq!(set(TWO, &other), Err(Errno::AGAIN), "it is the second's");
    set(ONE, &first).unwrap();
    locks.release_claims(7, &first);
    assert_eq!(
        set(TWO, &other),
        Err(Errno::AGAIN),
        "it is the second's, too"
    );
    locks.release_claims(7, &second);
    set(TWO, &other).unwrap();
}

#[test]
fn a_handle_remembers_no_owner_that_is_gone() {
    let file = tempfile::tempfile().unwrap();
    let locks = RecordLocks::new(Share::alone(8)).unwrap();
    let claims = Claims::default();
    for owner in 0..100 {
        let holder = Holder { node: 7, owner };
        let lock = range(WRITE, 0, 1);
        locks.set(holder, 1, lock, file.as_fd(), &claims).unwrap();
        locks.release(holder);
        claims.prune();
        assert_eq!(claims.0.lock().unwrap().len(), 0);
    }
}
