//! Clients that are moved between CPUs while they work: each CPU has a queue of its own.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use bickford_conformance::{BODY_DEADLINE, full_length, on_every_combination};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

const CLIENTS: usize = 4;

/// The CPUs that this process may use, each as a set of its own.
fn cpus() -> Vec<CpuSet> {
    let allowed = sched_getaffinity(None).expect("affinity");
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .map(|cpu| {
            let mut one = CpuSet::new();
            one.set(cpu);
            one
        })
        .collect()
}

/// Makes, reads, renames and removes a file of its own.
fn work(directory: &Path, round: usize) {
    let (old, new) = (directory.join("old"), directory.join("new"));
    let contents = vec![round as u8; 10_000 + round];
    fs::write(&old, &contents).expect("write");
    assert!(fs::read(&old).expect("read") == contents);
    fs::rename(&old, &new).expect("rename");
    assert!(!old.exists());
    assert_eq!(
        fs::metadata(&new).expect("stat").len(),
        contents.len() as u64
    );
    fs::remove_file(&new).expect("remove");
}

fn move_clients(top: &Path) {
    let rounds = if full_length() { 5000 } else { 100 };
    let cpus = cpus();
    let done = AtomicUsize::new(0);
    let (tell, clients) = channel::<Pid>();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (tell, done) = (tell.clone(), &done);
            let directory = top.join(client.to_string());
            fs::create_dir(&directory).expect("directory");
            scope.spawn(move || {
                tell.send(gettid()).expect("the test waits for it");
                for round in 0..rounds {
                    work(&directory, round);
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let clients: Vec<Pid> = clients.iter().take(CLIENTS).collect();
        for turn in 0.. {
            for (number, client) in clients.iter().enumerate() {
                let cpu = cpus.get((turn + number) % cpus.len()).expect("cpu");
                // Fails for those that have ended.
                let _ = sched_setaffinity(Some(*client), cpu);
            }
            if done.load(Ordering::SeqCst) == CLIENTS {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(1));
        }
    });
}

#[test]
fn clients_that_are_moved_between_cpus_lose_no_request() {
    on_every_combination("moving clients", BODY_DEADLINE, move_clients);
}
