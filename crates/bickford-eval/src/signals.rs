//! Signals that would end a program before it has taken down what it mounted or enabled.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bickford_program::signals::stop_on_signals;

use crate::error::EvalError;

/// A flag that they set instead: what is mounted and set up must be taken down before it ends.
pub(crate) fn catch() -> Result<Arc<AtomicBool>, EvalError> {
    stop_on_signals().map_err(|error| {
        EvalError::SetUp(format!(
            "{error}; without that an interrupt would leave mounts behind"
        ))
    })
}
