//! Errors of entries, and the panics that must not leave them.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{BICKFORD_ABI_VERSION, BICKFORD_ERROR_ARGUMENT, BICKFORD_ERROR_PANIC};

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Why an entry failed: its code and message.
#[derive(Debug)]
pub(crate) struct Failure {
    code: i32,
    message: String,
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    pub(crate) fn new(code: i32, message: impl Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }

    pub(crate) fn argument(message: impl Display) -> Self {
        Self::new(BICKFORD_ERROR_ARGUMENT, message)
    }
}

fn remember(message: &str) {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // The thread may be ending; then nobody asks.
    let _ = MESSAGE.try_with(|slot| slot.replace(message));
}

/// Runs an entry: its failure, or a panic, becomes a code and the message of the thread.
pub(crate) fn guarded(entry: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    match catch_unwind(AssertUnwindSafe(entry)) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => {
            remember(&failure.message);
            failure.code
        }
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("without a message");
            remember(&format!("a defect of Bickford: {text}; please report it"));
            BICKFORD_ERROR_PANIC
        }
    }
}

/// Text that C passed.
///
/// # Safety
/// `text` is null or a NUL-terminated string that stays as it is during `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format!("{what} is NULL; pass a string")));
    }
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// The version of the interface that this library has; compare it with `BICKFORD_ABI_VERSION` of
/// the header before all else, as structures of another version may differ. The shared library is
/// named after it, too: `libbickford_ffi.so.` and the version.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_abi_version() -> u32 {
    BICKFORD_ABI_VERSION
}

/// The version of Bickford, as text that lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// That message.
pub(crate) fn message() -> String {
    let told = MESSAGE.try_with(|slot| slot.borrow().to_string_lossy().into_owned());
    told.unwrap_or_default()
}

/// What went wrong in the last call of this thread that failed. The text stays until the next
/// failure of the thread.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_last_error() -> *const c_char {
    MESSAGE
        .try_with(|slot| slot.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_code_and_a_message() {
        assert_eq!(guarded(|| panic!("upside down")), BICKFORD_ERROR_PANIC);
        // SAFETY: the text stays until the next failure of this thread.
        let message = unsafe { CStr::from_ptr(bickford_last_error()) };
        assert!(message.to_str().unwrap().contains("upside down"));
    }
}
