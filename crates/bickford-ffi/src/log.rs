//! The log of the library, for programs that have none of ours.

use std::ffi::{CString, c_char, c_void};
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, PoisonError, RwLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::abi::{
    BICKFORD_ERROR_SYSTEM, BICKFORD_LOG_DEBUG, BICKFORD_LOG_ERROR, BICKFORD_LOG_INFO,
    BICKFORD_LOG_WARNING, bickford_logger,
};
use crate::guard::{Failure, guarded};

/// What C wants to hear, and who hears it.
#[derive(Clone, Copy)]
struct Listener {
    level: u32,
    logger: unsafe extern "C" fn(*mut c_void, u32, *const c_char),
    user: *mut c_void,
}

// SAFETY: whoever passes it promises that any thread may call the function with it.
unsafe impl Send for Listener {}
// SAFETY: as above.
unsafe impl Sync for Listener {}

static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);

fn listener() -> Option<Listener> {
    *LISTENER.read().unwrap_or_else(PoisonError::into_inner)
}

fn level_of(metadata: &Metadata<'_>) -> u32 {
    match *metadata.level() {
        Level::ERROR => BICKFORD_LOG_ERROR,
        Level::WARN => BICKFORD_LOG_WARNING,
        Level::INFO => BICKFORD_LOG_INFO,
        Level::DEBUG | Level::TRACE => BICKFORD_LOG_DEBUG,
    }
}

/// Turns events into lines for the listener.
struct Lines;

impl Subscriber for Lines {
    /// Who listens may change.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && listener().is_some_and(|listener| level_of(metadata) <= listener.level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(listener) = listener() else {
            return;
        };
        let mut line = Line::default();
        event.record(&mut line);
        let text = format!("{}{}", line.message, line.fields).replace('\0', " ");
        let Ok(text) = CString::new(text) else {
            return;
        };
        let level = level_of(event.metadata());
        // SAFETY: the promise of who passed the function; no lock is held.
        unsafe { (listener.logger)(listener.user, level, text.as_ptr()) };
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message, and behind it the rest: ` name=value`.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// Has `logger` called, with `user`, for each line of the library's log, of all sessions, from
/// `BICKFORD_LOG_ERROR` down to `level`: there stands why callers got EIO, such as an answer that is longer
/// than what was asked for, or that the kernel does not take. Nobody is told before. A later call takes the
/// place of an earlier one; with NULL for `logger` nobody is told any more, but for what is being told. It is
/// called by the thread that has something to tell, several at once, and should not wait; what it does
/// itself with this interface may have it called again.
///
/// # Safety
/// `logger` is null or can be called by any thread, with `user`, until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_log(
    level: u32,
    logger: bickford_logger,
    user: *mut c_void,
) -> i32 {
    static BEGIN: Once = Once::new();
    static BEGUN: AtomicBool = AtomicBool::new(false);
    guarded(|| {
        if !(BICKFORD_LOG_ERROR..=BICKFORD_LOG_DEBUG).contains(&level) {
            return Err(Failure::argument(format!(
                "level {level}: pass one of BICKFORD_LOG_ERROR ({BICKFORD_LOG_ERROR}) to BICKFORD_LOG_DEBUG \
                 ({BICKFORD_LOG_DEBUG})"
            )));
        }
        BEGIN.call_once(|| {
            let begun = tracing::subscriber::set_global_default(Lines).is_ok();
            BEGUN.store(begun, Ordering::Relaxed);
        });
        if !BEGUN.load(Ordering::Relaxed) {
            return Err(Failure::new(
                BICKFORD_ERROR_SYSTEM,
                "this process has a subscriber of the crate tracing already; the log goes there",
            ));
        }
        let listener = logger.map(|logger| Listener {
            level,
            logger,
            user,
        });
        *LISTENER.write().unwrap_or_else(PoisonError::into_inner) = listener;
        Ok(0)
    })
}
