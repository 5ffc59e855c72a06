//! Files that are computed: `live MOUNTPOINT`. `uptime` says how long this runs, each time it is
//! read. `ticks` counts seconds: who polls it is woken by each one, and who has it cached is told.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bickford::abi::OpenOutFlags;
use bickford::ops::{Attr, Data, Opened, PollHandle, Timestamp};
use bickford::path::{Adapter, FileSystem, Listing, Names, Open, Options, Subject};
use bickford::{Context, Errno, FileHandle, Notifier, Result};
use bickford_program::Program;

const POLLIN: u32 = 1;
/// How many polls may wait; those beyond are told that the file is ready.
const WAITERS_MAX: usize = 1024;

/// What the file system and its clock share.
struct State {
    started: Instant,
    ticks: u64,
    handles: u64,
    /// The last tick that each open file of `ticks` was told of, and who polls.
    seen: HashMap<u64, u64>,
    waiters: Vec<PollHandle>,
}

/// The file system.
#[derive(Clone)]
struct Live(Arc<Mutex<State>>);

impl Live {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self, path: &Path) -> Result<String> {
        let state = self.state();
        match path.to_str() {
            Some("/uptime") => Ok(format!("{:.3} s\n", state.started.elapsed().as_secs_f64())),
            Some("/ticks") => Ok(format!("{}\n", state.ticks)),
            _ => Err(Errno::NOENT),
        }
    }

    /// Counts, tells the kernel that what it has is old, and wakes who waits. Nothing is locked
    /// while it tells.
    fn tick(&self, names: &Names, notifier: &Notifier) {
        let mut state = self.state();
        state.ticks += 1;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        let invalidated = names.invalidate(notifier, "/ticks").map(drop);
        let mut waiters = waiters.into_iter();
        let woken = waiters.try_for_each(|waiter| notifier.wake_poll(waiter));
        if let Err(error) = invalidated.and(woken) {
            eprintln!("tick: {error}");
        }
    }
}

impl FileSystem for Live {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        let path = subject.path()?;
        if path == Path::new("/") {
            return Ok(Attr::directory(1, 0o555));
        }
        Ok(Attr {
            modified: Timestamp::now(),
            ..Attr::file(0, 0o444, self.text(path)?.len() as u64)
        })
    }

    fn readdir(&self, _: &Context<'_>, _: Subject<'_>, listing: &mut Listing) -> Result<()> {
        listing.add("uptime", 0o100_000);
        listing.add("ticks", 0o100_000);
        Ok(())
    }

    /// `uptime` goes past the page cache. `ticks` is kept there until the next tick.
    fn open(&self, _: &Context<'_>, path: &Path, _: Open) -> Result<Opened> {
        let mut state = self.state();
        state.handles += 1;
        let (handle, ticks) = (state.handles, state.ticks);
        let mut flags = OpenOutFlags::DIRECT_IO;
        if path == Path::new("/ticks") {
            state.seen.insert(handle, ticks);
            flags = OpenOutFlags::KEEP_CACHE;
        }
        Ok(Opened {
            flags,
            ..Opened::new(FileHandle(handle))
        })
    }

    fn release(&self, _: &Context<'_>, file: Subject<'_>) -> Result<()> {
        let handle = file.handle().ok_or(Errno::BADF)?;
        self.state().seen.remove(&handle.0);
        Ok(())
    }

    fn read(&self, _: &Context<'_>, file: Subject<'_>, offset: u64, size: u32) -> Result<Data> {
        Ok(Data::part(self.text(file.path()?)?, offset, size))
    }

    /// Ready once for each tick.
    fn poll(
        &self,
        _: &Context<'_>,
        file: Subject<'_>,
        _: u32,
        waiter: Option<PollHandle>,
    ) -> Result<u32> {
        let mut state = self.state();
        let (now, full) = (state.ticks, state.waiters.len() >= WAITERS_MAX);
        let seen = file
            .handle()
            .and_then(|handle| state.seen.get_mut(&handle.0));
        if full || seen.is_none_or(|seen| std::mem::replace(seen, now) < now) {
            return Ok(POLLIN);
        }
        state.waiters.extend(waiter);
        Ok(0)
    }
}

fn main() -> ExitCode {
    Program::new("live")
        .about("Files that are computed")
        .path_options(Options::default())
        .run(|given| {
            let live = Live(Arc::new(Mutex::new(State {
                started: Instant::now(),
                ticks: 0,
                handles: 0,
                seen: HashMap::new(),
                waiters: Vec::new(),
            })));
            let adapter = Adapter::new(live.clone(), given.path_options);
            let names = adapter.names();
            given.when_mounted(move |mounted| {
                let notifier = mounted.session.notifier().clone();
                let clock = move || {
                    loop {
                        std::thread::sleep(Duration::from_secs(1));
                        live.tick(&names, &notifier);
                    }
                };
                std::thread::Builder::new().spawn(clock)?;
                Ok(())
            });
            Ok(adapter)
        })
}
