//! Files that are computed: `live MOUNTPOINT`. `uptime` says how long this runs, each time it is
//! read. `ticks` counts seconds: who polls it is woken by each one, and who has it cached is told.

mod state;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bickford::abi::OpenOutFlags;
use bickford::ops::{Attr, Data, Opened, PollHandle, Timestamp};
use bickford::path::{Adapter, FileSystem, Listing, Open, Options, Subject};
use bickford::{Context, Errno, FileHandle, MountOptions};
use bickford_examples::{Outcome, arguments, serve_with};

use state::{Live, POLLIN, State, WAITERS_MAX, locked, tick};

impl FileSystem for Live {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
        let path = subject.path()?;
        if path == Path::new("/") {
            return Ok(Attr::directory(1, 0o555));
        }
        let size = self.contents(path)?.len() as u64;
        Ok(Attr {
            modified: Timestamp::now(),
            ..Attr::file(0, 0o444, size)
        })
    }

    fn readdir(
        &self,
        _: &Context<'_>,
        _: Subject<'_>,
        _: u64,
        listing: &mut Listing,
    ) -> Result<(), Errno> {
        listing.add("uptime", 0o100_000);
        listing.add("ticks", 0o100_000);
        Ok(())
    }

    /// `uptime` goes past the page cache. `ticks` is kept there until the next tick.
    fn open(&self, _: &Context<'_>, path: &Path, _: Open) -> Result<Opened, Errno> {
        let handle = self.0.handles.fetch_add(1, Ordering::Relaxed);
        let cached = path == Path::new("/ticks");
        if cached {
            locked(&self.0.seen).insert(handle, self.ticks());
        }
        let flags = if cached {
            OpenOutFlags::KEEP_CACHE
        } else {
            OpenOutFlags::DIRECT_IO
        };
        Ok(Opened {
            handle: FileHandle(handle),
            flags,
            ..Opened::default()
        })
    }

    fn release(&self, _: &Context<'_>, file: Subject<'_>) -> Result<(), Errno> {
        locked(&self.0.seen).remove(&file.handle().ok_or(Errno::BADF)?.0);
        Ok(())
    }

    fn read(
        &self,
        _: &Context<'_>,
        file: Subject<'_>,
        offset: u64,
        size: u32,
    ) -> Result<Data, Errno> {
        let text = self.contents(file.path()?)?.into_bytes();
        let from = text.len().min(offset as usize);
        let to = text.len().min(from + size as usize);
        Ok(text[from..to].to_vec().into())
    }

    /// Ready once for each tick.
    fn poll(
        &self,
        _: &Context<'_>,
        file: Subject<'_>,
        _: u32,
        waiter: Option<PollHandle>,
    ) -> Result<u32, Errno> {
        let mut waiters = locked(&self.0.waiters);
        let mut seen = locked(&self.0.seen);
        let Some(seen) = file.handle().and_then(|handle| seen.get_mut(&handle.0)) else {
            return Ok(POLLIN);
        };
        let now = self.ticks();
        if std::mem::replace(seen, now) < now || waiters.len() >= WAITERS_MAX {
            return Ok(POLLIN);
        }
        waiters.extend(waiter);
        Ok(0)
    }
}

fn main() -> Outcome {
    let [mountpoint] = arguments("live MOUNTPOINT")?;
    let state = Arc::new(State {
        started: Instant::now(),
        ticks: AtomicU64::new(0),
        handles: AtomicU64::new(1),
        seen: Mutex::default(),
        waiters: Mutex::default(),
    });
    let adapter = Adapter::new(Live(Arc::clone(&state)), Options::default());
    let names = adapter.names();
    let options = MountOptions::new().fsname("live").subtype("live");
    serve_with(adapter, mountpoint, &options, |session| {
        let notifier = session.notifier().clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                tick(&state, &names, &notifier);
            }
        });
    })
}
