//! Mounted sessions over each transport: the same tests for all.
//!
//! Needs root and /dev/fuse; without them each test says so and ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "mounted/subject.rs"]
mod subject;
mod support;

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write as _};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bickford::mount::{Unmount, unmount};
use bickford::transport::TransportChoice;
use bickford::{SessionConfig, Workers};
use subject::{DATA_SIZE, Subject, Unblock};
use support::{Fixture, over_each_transport, wait_until};

fn mounted(config: SessionConfig, prompt: bool) -> (Fixture, Subject) {
    let subject = Subject::new().prompt(prompt);
    (Fixture::new(subject.clone(), config), subject)
}

/// Over each transport, over io_uring also with a file system that is prompt.
fn over_each(body: impl Fn(SessionConfig, bool)) {
    over_each_transport(|config| {
        body(config, false);
        if config.transport == TransportChoice::IoUring {
            body(config, true);
        }
    });
}

/// A reply is counted after it was sent.
fn answered_once_each(fixture: &Fixture, subject: &Subject) {
    wait_until("every lookup is answered once", || {
        let stats = fixture.session().stats();
        stats.of(bickford::abi::Opcode::Lookup).count == subject.lookups()
    });
}

fn size_of(fixture: &Fixture, name: &str) -> u64 {
    fs::metadata(fixture.path(name)).unwrap().len()
}

#[test]
fn data_of_a_file_arrive_whole_and_end_where_it_ends() {
    over_each(|config, prompt| {
        let (fixture, subject) = mounted(config, prompt);
        let expected = subject.content();
        let read = fs::read(fixture.path("data")).unwrap();
        assert!(read == expected, "{} of {DATA_SIZE} bytes", read.len());

        let direct = fixture.path("direct");
        let file = File::options().read(true).open(direct).unwrap();
        for (offset, length) in [(0, 1), (1, 4095), (4097, 65_537), (100_001, 1 << 20)] {
            let mut buffer = vec![0; length];
            file.read_exact_at(&mut buffer, offset as u64).unwrap();
            assert!(buffer == expected[offset..offset + length], "at {offset}");
        }
        let mut buffer = vec![0; 1 << 20];
        let end = DATA_SIZE as u64;
        assert_eq!(file.read_at(&mut buffer, end - 1000).unwrap(), 1000);
        assert!(buffer[..1000] == expected[DATA_SIZE - 1000..]);
        assert_eq!(file.read_at(&mut buffer, end).unwrap(), 0);
        drop(file);
        fixture.finish();
    });
}

#[test]
fn written_data_arrive_whole() {
    over_each(|config, prompt| {
        for (name, splice) in [("data", false), ("direct", false), ("direct", true)] {
            let subject = Subject::new().prompt(prompt).splice_writes(splice);
            let fixture = Fixture::new(subject.clone(), config);
            let mut expected = subject.content();
            let mut file = File::options()
                .write(true)
                .open(fixture.path(name))
                .unwrap();
            for (number, length) in [1, 511, 4096, 8193, 70_001, 1 << 20]
                .into_iter()
                .enumerate()
            {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + number) as u8).collect();
                let offset = number * 150_001;
                file.seek(SeekFrom::Start(offset as u64)).unwrap();
                file.write_all(&bytes).unwrap();
                expected[offset..offset + length].copy_from_slice(&bytes);
            }
            file.sync_all().unwrap();
            drop(file);
            assert!(subject.content() == expected, "{name}, splice {splice}");
            fixture.finish();
        }
    });
}

#[test]
fn a_write_that_is_not_taken_leaves_nothing_behind() {
    over_each(|config, prompt| {
        let subject = Subject::new().prompt(prompt).splice_writes(true);
        let fixture = Fixture::new(subject.clone(), config);
        let refused = File::options()
            .write(true)
            .open(fixture.path("refused"))
            .unwrap();
        let accepted = File::options()
            .write(true)
            .open(fixture.path("direct"))
            .unwrap();
        let mut expected = subject.content();
        for round in 0..20u8 {
            let error = refused.write_at(&[0xee; 300_000], 0).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EDQUOT));
            let bytes = [round; 200_000];
            assert_eq!(accepted.write_at(&bytes, 1000).unwrap(), bytes.len());
            expected[1000..201_000].copy_from_slice(&bytes);
        }
        drop((refused, accepted));
        assert!(subject.content() == expected);
        fixture.finish();
    });
}

#[test]
fn replies_come_later_and_from_other_threads() {
    over_each(|config, prompt| {
        let (fixture, _) = mounted(config, prompt);
        thread::scope(|scope| {
            for client in 0..8u64 {
                let fixture = &fixture;
                scope.spawn(move || {
                    for round in 0..100 {
                        let size = client * 1000 + round;
                        assert_eq!(size_of(fixture, &format!("later-{size}")), size);
                    }
                });
            }
        });
        fixture.finish();
    });
}

#[test]
fn many_replies_that_are_due_hold_up_nobody() {
    over_each(|config, prompt| {
        let (fixture, subject) = mounted(config, prompt);
        let waiting = 100;
        thread::scope(|scope| {
            for number in 0..waiting {
                let fixture = &fixture;
                scope.spawn(move || {
                    let name = format!("held-{number}");
                    assert_eq!(size_of(fixture, &name), number);
                });
            }
            wait_until("all are held", || subject.held() == waiting as usize);
            for number in 0..500 {
                assert_eq!(size_of(&fixture, &format!("quick-{number}")), number);
            }
            subject.release_held();
        });
        // The entries are there once more.
        for number in 0..500 {
            assert_eq!(size_of(&fixture, &format!("quick-{number}")), number);
        }
        fixture.finish();
    });
}

/// Of one CPU, there are more than the queue has entries.
#[test]
fn replies_that_wait_leave_room_for_what_they_wait_for() {
    over_each(|config, prompt| {
        let (fixture, subject) = mounted(config, prompt);
        let callers = 600;
        thread::scope(|scope| {
            for number in 0..callers {
                let path = fixture.path(&format!("waiting-{number}"));
                scope.spawn(move || {
                    pin(0);
                    match fs::metadata(path) {
                        Ok(found) => assert_eq!(found.len(), number),
                        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOLCK)),
                    }
                });
            }
            wait_until("all wait or were refused", || {
                subject.held() + subject.refused() == callers as usize
            });
            let (held, refused) = (subject.held(), subject.refused());
            match config.transport {
                TransportChoice::DevFuse => assert_eq!(refused, 0),
                _ => assert!((400..512).contains(&held), "{held} wait"),
            }
            scope.spawn(|| {
                pin(0);
                for number in 0..500 {
                    assert_eq!(size_of(&fixture, &format!("quick-{number}")), number);
                }
                subject.release_held();
            });
        });
        fixture.finish();
    });
}

#[test]
fn a_killed_reader_interrupts_its_request() {
    over_each(|config, prompt| {
        let (fixture, subject) = mounted(config, prompt);
        let mut reader = Command::new("cat")
            .arg(fixture.path("endless"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the read is in flight", || subject.reads() > 0);
        reader.kill().unwrap();
        assert!(!reader.wait().unwrap().success());
        wait_until("the request has ended", || {
            fixture.session().server().in_flight().is_empty()
        });
        assert_eq!(subject.interrupted(), 1);
        fixture.finish();
    });
}

#[test]
fn a_handler_can_notify() {
    over_each(|config, prompt| {
        let (fixture, subject) = mounted(config, prompt);
        let cached = fixture.path("cached");
        fs::metadata(&cached).unwrap();
        let before = subject.lookups_of_cached();
        fs::metadata(&cached).unwrap();
        assert_eq!(subject.lookups_of_cached(), before, "the name is cached");
        fs::metadata(fixture.path("notify")).unwrap();
        wait_until("the name is looked up again", || {
            fs::metadata(&cached).unwrap();
            subject.lookups_of_cached() > before
        });
        fixture.finish();
    });
}

#[test]
fn retrieved_data_are_those_of_the_page_cache() {
    over_each(|config, prompt| {
        let (fixture, subject) = mounted(config, prompt);
        fs::read(fixture.path("data")).unwrap();
        let (to, from) = std::sync::mpsc::channel();
        let notifier = fixture.session().notifier();
        notifier
            .retrieve(subject::DATA, 4096, 8192, move |offset, data| {
                to.send((offset, data.to_vec())).unwrap();
            })
            .unwrap();
        let (offset, data) = from.recv_timeout(support::DEADLINE).unwrap();
        assert_eq!(offset, 4096);
        assert!(data == subject.content()[4096..4096 + 8192]);
        fixture.finish();
    });
}

#[test]
fn retrievals_that_the_kernel_refuses_leave_nothing_behind() {
    over_each_transport(|config| {
        let (fixture, _) = mounted(config, false);
        let notifier = fixture.session().notifier();
        let receiver = std::sync::Arc::new(());
        // More than may wait at once.
        for round in 0..5000 {
            let kept = std::sync::Arc::clone(&receiver);
            let unknown = bickford::NodeId(999_999);
            let sent = notifier.retrieve(unknown, 0, 4096, move |_, _| drop(kept));
            assert_eq!(sent, Ok(()), "round {round}");
            if round % 100 == 0 {
                notifier.flush().unwrap();
            }
        }
        notifier.flush().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&receiver), 1);
        fixture.finish();
    });
}

/// Many threads that look up until `stop`, or until the mount is gone.
fn under_load(fixture: &Fixture, end: impl FnOnce()) -> u64 {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..16u64)
            .map(|client| {
                let stop = &stop;
                let kind = ["quick", "later", "slow"][client as usize % 3];
                let path = fixture.path(&format!("{kind}-{client}"));
                scope.spawn(move || {
                    let mut answered = 0;
                    while !stop.load(Ordering::Relaxed) {
                        match fs::metadata(&path) {
                            Ok(found) => assert_eq!(found.len(), client),
                            Err(_) => break,
                        }
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        let stats = || {
            fixture
                .session()
                .stats()
                .of(bickford::abi::Opcode::Lookup)
                .count
        };
        wait_until("there is load", || stats() > 500);
        end();
        stop.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum()
    })
}

#[test]
fn unmounting_under_load_ends_the_session() {
    over_each(|config, prompt| {
        let (fixture, subject) = mounted(config, prompt);
        let answered = under_load(&fixture, || {
            fixture.session().unmount(Unmount::Lazy).unwrap();
        });
        assert!(answered > 0);
        fixture.session().wait();
        assert!(fixture.session().server().in_flight().is_empty());
        assert!(subject.is_destroyed());
        answered_once_each(&fixture, &subject);
        drop(fixture);
    });
}

#[test]
fn aborting_under_load_ends_the_session() {
    over_each(|config, prompt| {
        let (fixture, subject) = mounted(config, prompt);
        under_load(&fixture, || fixture.session().abort().unwrap());
        let error = fs::metadata(fixture.path("quick-1")).unwrap_err();
        let expected = [libc::ENOTCONN, libc::ECONNABORTED];
        assert!(expected.contains(&error.raw_os_error().unwrap()), "{error}");
        fixture.session().wait();
        wait_until("nothing is in flight", || {
            fixture.session().server().in_flight().is_empty()
        });
        assert!(subject.is_destroyed());
        unmount(&fixture.path(""), Unmount::Lazy).unwrap();
    });
}

/// The end of a connection is an interrupt of all requests.
#[test]
fn aborting_ends_methods_that_wait_for_their_interrupt() {
    over_each_transport(|config| {
        let (fixture, subject) = mounted(config, false);
        support::show_connections();
        let connection = fixture.session().guard().connection().unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| fs::read(fixture.path("patient")).unwrap_err());
            }
            wait_until("the reads are in flight", || subject.reads() == 3);
            bickford::mount::abort(connection).unwrap();
        });
        fixture.session().wait();
        assert_eq!(subject.interrupted(), 3);
        unmount(&fixture.path(""), Unmount::Lazy).unwrap();
    });
}

/// Nobody waits for requests who would see it.
#[test]
fn a_session_that_is_aborted_from_here_ends_though_every_worker_waits() {
    for force in [false, true] {
        if !support::can_mount() {
            return;
        }
        let config = SessionConfig::default()
            .transport(TransportChoice::DevFuse)
            .workers(Workers::SINGLE);
        let (fixture, subject) = mounted(config, false);
        support::show_connections();
        thread::scope(|scope| {
            scope.spawn(|| fs::read(fixture.path("patient")).unwrap_err());
            wait_until("the read is in flight", || subject.reads() == 1);
            if force {
                fixture.session().unmount(Unmount::Force).unwrap();
            } else {
                fixture.session().abort().unwrap();
            }
        });
        fixture.session().wait();
        assert_eq!(subject.interrupted(), 1);
    }
}

#[test]
fn handlers_that_take_long_disturb_nobody() {
    over_each(|config, prompt| {
        let (fixture, subject) = mounted(config, prompt);
        thread::scope(|scope| {
            for client in 0..12u64 {
                let fixture = &fixture;
                scope.spawn(move || {
                    let kind = if client % 3 == 0 { "slow" } else { "quick" };
                    let rounds = if client % 3 == 0 { 15 } else { 400 };
                    for round in 0..rounds {
                        let size = client * 1000 + round;
                        assert_eq!(size_of(fixture, &format!("{kind}-{size}")), size);
                    }
                });
            }
        });
        answered_once_each(&fixture, &subject);
        fixture.finish();
    });
}

/// Handlers that wait for another request do not keep it from coming.
#[test]
fn handlers_may_wait_for_other_requests() {
    over_each_transport(|config| {
        let (fixture, subject) = mounted(config, false);
        let waiting = 6;
        thread::scope(|scope| {
            for number in 0..waiting {
                let fixture = &fixture;
                scope.spawn(move || {
                    // All on one CPU: in one queue.
                    pin(0);
                    let name = format!("blocked-{number}");
                    assert_eq!(size_of(fixture, &name), number);
                });
            }
            wait_until("all are blocked", || subject.blocked() == waiting as usize);
            pin(0);
            assert_eq!(size_of(&fixture, "unblock-1"), 1);
        });
        fixture.finish();
    });
}

/// Nor do they where replies have been due later, for which further entries had come.
#[test]
fn handlers_may_wait_after_replies_were_due_later() {
    over_each_transport(|config| {
        let (fixture, subject) = mounted(config, false);
        pin(0);
        thread::scope(|scope| {
            for number in 0..100 {
                let fixture = &fixture;
                scope.spawn(move || size_of(fixture, &format!("held-{number}")));
            }
            wait_until("all are held", || subject.held() == 100);
            subject.release_held();
        });
        for round in 1..=5 {
            subject.block_again();
            thread::scope(|scope| {
                let end = Unblock(&subject);
                for number in 0..6 {
                    let fixture = &fixture;
                    scope.spawn(move || size_of(fixture, &format!("blocked-{round}{number}")));
                }
                wait_until("all are blocked", || subject.blocked() == round * 6);
                let begun = Instant::now();
                for number in 0..100 {
                    assert_eq!(size_of(&fixture, &format!("quick-{number}")), number);
                }
                assert!(begun.elapsed() < support::DEADLINE, "held up");
                drop(end);
            });
        }
        fixture.finish();
    });
}

fn pin(cpu: usize) {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    rustix::thread::sched_setaffinity(None, &cpus).unwrap();
}

#[test]
fn callers_may_move_between_cpus() {
    over_each(|config, prompt| {
        let (fixture, _) = mounted(config, prompt);
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let cpus: Vec<_> = (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|cpu| allowed.is_set(*cpu))
            .collect();
        thread::scope(|scope| {
            for client in 0..4u64 {
                let (fixture, cpus) = (&fixture, &cpus);
                scope.spawn(move || {
                    for round in 0..200u64 {
                        pin(cpus[(client + round) as usize % cpus.len()]);
                        let size = client * 1000 + round;
                        let kind = ["quick", "later"][round as usize % 2];
                        assert_eq!(size_of(fixture, &format!("{kind}-{size}")), size);
                    }
                });
            }
        });
        fixture.finish();
    });
}

/// The threads that answered `clients` which look up `name` for some time.
fn threads_that_answer(fixture: &Fixture, subject: &Subject, clients: u64, name: &str) -> u32 {
    subject.forget_threads();
    thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                for _ in 0..300 {
                    assert_eq!(size_of(fixture, &format!("{name}-{client}")), client);
                }
            });
        }
    });
    subject.threads()
}

#[test]
fn requests_gather_at_one_thread_while_methods_are_quick() {
    if !support::can_mount() || !support::can_use_io_uring() {
        return;
    }
    let config = SessionConfig::default().transport(TransportChoice::IoUring);
    let (fixture, subject) = mounted(config, true);
    let queues = u32::try_from(thread::available_parallelism().unwrap().get()).unwrap();
    // A thread may be held up by others of the machine, so that an entry stays where it is for once.
    wait_until("one thread of each queue answers", || {
        threads_that_answer(&fixture, &subject, 8, "quick") <= queues
    });
    wait_until("threads share what waits", || {
        threads_that_answer(&fixture, &subject, 8, "pausing") > 2 * queues
    });
    wait_until("one thread of each queue answers again", || {
        threads_that_answer(&fixture, &subject, 8, "quick") <= queues
    });
    answered_once_each(&fixture, &subject);
    fixture.finish();
}

#[test]
fn workers_of_a_burst_rest_and_are_called_for_the_next() {
    const BLOCKED: usize = 12;
    if !support::can_mount() {
        return;
    }
    let config = SessionConfig::default().transport(TransportChoice::DevFuse);
    for pause in [0, 200, 1500] {
        let (fixture, subject) = mounted(config, false);
        let workers = || fixture.session().worker_count();
        for burst in 1..=2 {
            subject.block_again();
            thread::scope(|scope| {
                for number in 0..BLOCKED {
                    let fixture = &fixture;
                    scope.spawn(move || size_of(fixture, &format!("blocked-{burst}{number}")));
                }
                // Each keeps a worker, and one more takes what ends it.
                wait_until("all are blocked", || subject.blocked() == burst * BLOCKED);
                assert!(workers() > BLOCKED, "{} workers", workers());
                assert_eq!(size_of(&fixture, "unblock-1"), 1);
            });
            let end = Instant::now() + Duration::from_millis(pause);
            while Instant::now() < end {
                size_of(&fixture, "quick-1");
            }
        }
        // On a busy machine each request may call another that rests: with little between them, none would rest for long.
        wait_until("those not needed end", || {
            thread::sleep(Duration::from_millis(200));
            size_of(&fixture, "quick-1");
            workers() <= Workers::default().max_idle + 1
        });
        fixture.finish();
    }
}
