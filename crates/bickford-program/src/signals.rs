//! SIGINT, SIGTERM and SIGHUP: the first ends the mount cleanly, the second at once; SIGINT and SIGHUP stay
//! ignored where they were, as nohup(1) and a shell's `&` ask. SIGUSR1 logs statistics. Where the program has handlers
//! for SIGHUP and SIGUSR1 these stay. SIGPIPE leaves a write that nobody reads with its error, as does SIGXFSZ one
//! beyond the limit of this process (`ulimit -f`), which anybody can make.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use bickford::MountedSession;
use bickford::mount::{MountGuard, Unmount, UnmountError, Via};
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::low_level::signal_name;

use crate::apart::unmount_apart;
use crate::elsewhere;
use crate::failure::{Failure, cure};
use crate::notify::notify;
use crate::statistics::statistics;

/// How long between attempts to detach a mount that another one covers.
const COVERED_PAUSE: Duration = Duration::from_millis(200);

/// How long after it was unmounted this process goes on where nobody else has the mount, at most mostly.
const PROMPT: Duration = Duration::from_secs(1);

/// Whether this process ignores `signal`, as whoever started it may have asked (nohup(1)).
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    is_among("SigIgn:", signal)
}

/// Whether this process has a handler for `signal`.
fn is_caught(signal: i32) -> bool {
    is_among("SigCgt:", signal)
}

/// Whether the line of /proc/self/status has it.
fn is_among(line: &str, signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(line));
    let mask = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// A flag that SIGINT, SIGTERM, SIGQUIT and SIGHUP set instead of ending this process. A hangup stays
/// ignored where it was, as nohup(1) asks.
///
/// # Errors
/// A signal cannot be caught.
pub fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGQUIT, SIGHUP] {
        if signal == SIGHUP && is_ignored(SIGHUP) {
            continue;
        }
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|e| io::Error::new(e.kind(), format!("catch signal {signal}: {e}")))?;
    }
    Ok(stop)
}

/// Has this process outlive whoever reads what it writes, as the runtime of Rust does where `main` is in Rust. What the
/// program runs does not inherit it.
///
/// # Errors
/// The signal cannot be caught.
pub(crate) fn outlive_readers() -> Result<(), Failure> {
    if is_ignored(SIGPIPE) || is_caught(SIGPIPE) {
        return Ok(());
    }
    signal_hook::flag::register(SIGPIPE, Arc::default())
        .map(drop)
        .map_err(|error| Failure::new(format!("catch SIGPIPE: {error}")))
}

/// Signals that are caught from now on, and acted on later.
pub struct Signals {
    /// To the thread that acts on them. It and the one that unmounts are there before the mount, which may take the last
    /// threads that there may be.
    session: Sender<Arc<MountedSession>>,
    aborting: Arc<AtomicBool>,
}

impl Signals {
    /// Catches the signals, and starts the threads that act on them. Handlers for SIGHUP and SIGUSR1 that are there stay.
    ///
    /// # Errors
    /// One cannot be caught, or a thread not be started.
    pub fn catch() -> Result<Self, Failure> {
        let asked = [SIGINT, SIGHUP].into_iter().filter(|it| !is_ignored(*it));
        let all = asked.chain([SIGTERM, SIGUSR1, SIGXFSZ]);
        // Programs read their configuration or empty caches at these; they would be unmounted besides.
        let is_left = |signal| matches!(signal, SIGHUP | SIGUSR1) && is_caught(signal);
        let caught = signal_hook::iterator::Signals::new(all.filter(|it| !is_left(*it)));
        let mut caught = caught.map_err(|error| Failure::new(format!("catch signals: {error}")))?;
        let aborting = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&aborting);
        let (session, mounted) = channel::<Arc<MountedSession>>();
        let (first, unmounting) = channel::<Arc<MountedSession>>();
        spawn("bickford-unmount", move || {
            if let Ok(session) = unmounting.recv() {
                end_cleanly(&session);
            }
        })?;
        spawn("bickford-signal", move || {
            // Where nothing is mounted nobody sends one.
            if let Ok(session) = mounted.recv() {
                act_on(&mut caught, &session, &first, &told);
            }
        })?;
        Ok(Self { session, aborting })
    }

    /// Has them end the session, those that came before, too. The answer is set when it is being aborted.
    #[must_use]
    pub fn end_on_signal(self, session: Arc<MountedSession>) -> Arc<AtomicBool> {
        // The thread is there until then.
        let _ = self.session.send(session);
        self.aborting
    }
}

fn act_on(
    caught: &mut signal_hook::iterator::Signals,
    session: &Arc<MountedSession>,
    unmounting: &Sender<Arc<MountedSession>>,
    aborting: &AtomicBool,
) {
    let mountpoint = session.guard().mountpoint().display();
    let mut limit_said = false;
    let mut signals = caught.forever().filter(|signal| {
        match *signal {
            SIGUSR1 => tracing::info!("{}", statistics(session)),
            SIGXFSZ if !limit_said => {
                limit_said = true;
                tracing::warn!(
                    "a write to {mountpoint} was refused with EFBIG: this process may make no larger file; \
                     mount with a higher ulimit -f"
                );
            }
            SIGXFSZ => {}
            _ => return true,
        }
        false
    });
    let Some(first) = signals.next() else { return };
    tracing::info!("{}: unmounting {mountpoint}", name(first));
    notify("STOPPING=1");
    // In another thread: unmounting writes dirty pages back, which may take long or hang.
    let _ = unmounting.send(Arc::clone(session));
    let Some(second) = signals.next() else { return };
    tracing::warn!("{}: aborting {mountpoint}", name(second));
    aborting.store(true, Ordering::SeqCst);
    end_at_once(session);
}

fn name(signal: i32) -> &'static str {
    signal_name(signal).unwrap_or("signal")
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(run).map(drop).map_err(|error| {
        let cure = cure(&error);
        Failure::new(format!("start the thread {name}: {error}{cure}"))
    })
}

fn end_cleanly(session: &MountedSession) {
    let guard = session.guard();
    if guard.via() == Via::Descriptor {
        return end_connection(session);
    }
    if guard.is_mounted() {
        match unmount_apart(guard) {
            Ok(()) => return tell_of_others(guard, "unmounted here"),
            Err(reason) => tracing::warn!("{reason}"),
        }
    }
    match detach(guard) {
        Ok(()) => {
            tracing::warn!(
                "{}: detached; serving until the last user is gone, a second signal aborts",
                guard.mountpoint().display()
            );
            tell_of_others(guard, "detached here");
        }
        Err(error) => tracing::error!("{error}; a second signal aborts the connection"),
    }
}

/// Says where else it is mounted, if this process, which ends with the last mount, does not.
fn tell_of_others(guard: &MountGuard, done: &str) {
    std::thread::sleep(PROMPT);
    if let Some(where_still) = elsewhere::told(&guard.elsewhere()) {
        tracing::warn!(
            "{}: {done}, but {where_still}; serving until then, a second signal aborts",
            guard.mountpoint().display()
        );
    }
}

/// Detaches the mount, when nothing covers it any more: another was perhaps mounted there since the signal came.
fn detach(guard: &MountGuard) -> Result<(), UnmountError> {
    let mut said = false;
    loop {
        match guard.unmount(Unmount::Lazy) {
            Err(covered @ UnmountError::Covered { .. }) => {
                if !said {
                    tracing::warn!("{covered}; serving until then, a second signal aborts");
                }
                said = true;
                std::thread::sleep(COVERED_PAUSE);
            }
            other => return other,
        }
    }
}

/// The mount is its maker's: the session ends by its connection, and leaves a dead mount.
fn end_connection(session: &MountedSession) {
    if let Err(error) = session.abort() {
        tracing::warn!("{error}; the connection ends with this process");
        session.server().destroy();
        std::process::exit(0);
    }
}

/// Requests in flight end with an error; so does this process, whatever its threads are doing.
pub(crate) fn end_at_once(session: &MountedSession) -> ! {
    if let Err(error) = session.abort() {
        tracing::warn!("{error}; the connection ends with this process");
    }
    if let Err(error) = session.guard().unmount(Unmount::Lazy) {
        tracing::error!("{error}");
    }
    std::process::exit(1);
}
