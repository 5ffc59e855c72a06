//! Signals that would end a program before it has taken down what it mounted or enabled.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::error::EvalError;

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

/// The same for an evaluation: what is mounted and set up must be taken down before it ends.
pub(crate) fn catch() -> Result<Arc<AtomicBool>, EvalError> {
    stop_on_signals().map_err(|error| {
        EvalError::SetUp(format!(
            "{error}; without that an interrupt would leave mounts behind"
        ))
    })
}

/// Whether this process ignores `signal`, as whoever started it may have asked (nohup(1)).
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let mask = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}
