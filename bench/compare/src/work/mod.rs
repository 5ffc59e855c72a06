//! The client: the work of a row, by a number of threads at once.
//!
//! Each thread has a directory, a descriptor table and a current directory of its own, as processes have.
//! Nothing is pinned. The time is from the moment all threads are let go to the end of the last one.

mod data;
mod names;
pub(crate) mod prepare;
pub(crate) mod warm_up;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use rustix::fs::{self, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::rows::{Row, Scale, Set, Work};
use crate::sys::{cpu, part};

/// What a client prints.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) ops: u64,
    pub(crate) ns: u64,
    /// CPU time of the daemon, what it did after the answers included.
    pub(crate) daemon_ns: u64,
}

/// What one thread works with.
pub(crate) struct Client {
    /// Its directory, and that as a descriptor.
    pub(crate) path: PathBuf,
    pub(crate) directory: OwnedFd,
    pub(crate) work: Work,
    /// Operations of this thread.
    pub(crate) ops: u64,
    /// Small files in the directory.
    pub(crate) files: u64,
    /// Bytes of the large file.
    pub(crate) bytes: u64,
    pub(crate) seed: u64,
}

pub(crate) fn client_directory(base: &Path, clients: usize, index: usize) -> PathBuf {
    base.join(format!("n{clients}")).join(format!("c{index}"))
}

impl Client {
    fn new(
        row: &Row,
        scale: &Scale,
        base: &Path,
        clients: usize,
        index: usize,
    ) -> io::Result<Self> {
        let path = match row.set {
            Set::List => base.join("list"),
            _ => client_directory(base, clients, index),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = fs::open(&path, flags, Mode::empty())
            .map_err(|e| io::Error::new(e.kind(), format!("open {}: {e}", path.display())))?;
        Ok(Self {
            directory,
            path,
            work: row.work,
            ops: match row.work {
                // Every client goes through the directory, twice at least in all.
                Work::List { .. } if row.ops == 0 => 2_u64.div_ceil(clients as u64),
                Work::List { .. } => 1,
                _ => scale.share(row.ops, clients),
            },
            files: scale.files(clients),
            bytes: scale.bytes(clients),
            seed: index as u64 + 1,
        })
    }

    /// Brings caches into the state that the row is about.
    fn warm(&self, row: &Row) -> io::Result<()> {
        match row.work {
            Work::Stat => names::stat_all(self, names::AGAIN),
            Work::StatMissing => names::missing(self, 1).map(drop),
            Work::OpenRead { again: true } => {
                data::open_read(self, 2 * names::AGAIN)?;
                Ok(())
            }
            Work::List { stat } if row.ops == 0 => {
                names::list(self, stat)?;
                names::list(self, stat).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn run(&self) -> io::Result<u64> {
        match self.work {
            Work::Lookup => names::lookup(self),
            Work::LookupMissing => names::lookup_missing(self),
            Work::Stat => names::stat_again(self),
            Work::StatMissing => names::missing(self, self.ops),
            Work::Unlink => names::unlink(self),
            Work::Mkdir => names::mkdir(self),
            Work::Rename => names::rename(self),
            Work::Symlink => names::symlink(self),
            Work::List { stat } => (0..self.ops).map(|_| names::list(self, stat)).sum(),
            Work::Create => data::create(self),
            Work::OpenRead { .. } => data::open_read(self, self.ops),
            Work::ReadAll { block } => data::read_all(self, block),
            Work::WriteAll { block } => data::write_all(self, block),
            Work::ReadRandom => data::read_random(self),
            Work::WriteRandom => data::write_random(self),
            Work::AppendSync => data::append_sync(self),
            Work::Fault => data::fault(self),
        }
    }
}

/// Daemons, each with the CPU time that it was last seen to have: one that has ended has no clock any more, but what it
/// took until then stays.
struct Daemons(Vec<(u32, u64)>);

impl Daemons {
    fn new(pids: &[u32]) -> Self {
        Self(pids.iter().map(|pid| (*pid, 0)).collect())
    }

    /// CPU time of all of them in nanoseconds.
    fn cpu(&mut self) -> u64 {
        for (pid, seen) in &mut self.0 {
            *seen = cpu(*pid).max(*seen);
        }
        self.0.iter().map(|(_, seen)| seen).sum()
    }

    /// CPU time once they have come to rest: what is answered asynchronously belongs to the work.
    fn cpu_at_rest(&mut self) -> u64 {
        let end = Instant::now() + Duration::from_millis(200);
        let mut last = self.cpu();
        while !self.0.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(4));
            let now = self.cpu();
            if now - last < 20_000 {
                return now;
            }
            last = now;
        }
        last
    }
}

/// Runs `row` with `clients` threads in `base`.
pub(crate) fn run(
    row: &Row,
    scale: &Scale,
    base: &Path,
    clients: usize,
    daemons: &[u32],
) -> io::Result<Outcome> {
    let mut daemons = Daemons::new(daemons);
    let ready = Arc::new(Barrier::new(clients + 1));
    let go = Arc::new(Barrier::new(clients + 1));
    let threads: Vec<_> = (0..clients)
        .map(|index| {
            let (row, scale, base) = (*row, *scale, base.to_owned());
            let (ready, go) = (Arc::clone(&ready), Arc::clone(&go));
            std::thread::spawn(move || -> io::Result<(u64, Instant)> {
                let begun = part()
                    .and_then(|()| Client::new(&row, &scale, &base, clients, index))
                    .and_then(|client| client.warm(&row).map(|()| client));
                ready.wait();
                go.wait();
                let client = begun?;
                let ops = client.run()?;
                Ok((ops, Instant::now()))
            })
        })
        .collect();
    ready.wait();
    let before = daemons.cpu_at_rest();
    let start = Instant::now();
    go.wait();
    let mut outcome = Outcome {
        ops: 0,
        ns: 0,
        daemon_ns: 0,
    };
    for thread in threads {
        let ended = thread
            .join()
            .map_err(|_| io::Error::other("a client thread panicked"))?;
        let (ops, at) = ended?;
        let took = at.duration_since(start).as_nanos();
        outcome.ops += ops;
        outcome.ns = outcome.ns.max(u64::try_from(took).unwrap_or(u64::MAX));
    }
    outcome.daemon_ns = daemons.cpu_at_rest() - before;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_daemon_took_stays_when_it_has_ended() {
        let mut shell = std::process::Command::new("sh");
        let mut child = shell
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("sh");
        let mut daemons = Daemons::new(&[child.id()]);
        let end = Instant::now() + Duration::from_secs(30);
        while daemons.cpu() < 1_000_000 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = daemons.cpu();
        child.kill().expect("to kill it");
        child.wait().expect("its end");
        assert!(before >= 1_000_000, "{before}");
        assert!(daemons.cpu() >= before);
        assert_eq!(daemons.cpu_at_rest(), daemons.cpu());
    }
}
