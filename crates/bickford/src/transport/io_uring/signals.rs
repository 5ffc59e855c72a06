//! Signals that callers got before their requests were handed over.
//!
//! A caller that gets a signal has INTERRUPT sent if its request was handed over before, and else leaves that to
//! who hands it over. Linux 6.18 does so for who reads `/dev/fuse`, and not over io_uring
//! (`fuse_uring_prepare_send` of fs/fuse/dev_uring.c): such a caller, killed or not, waits for the answer, and the
//! daemon is not told. The signal stays pending meanwhile, and is seen in /proc.

use std::fs::{read_link, read_to_string};

/// Whether a thread has a signal that it does not block; also where that has ended, or is not known, it has none.
pub(super) fn has_signal(thread: u32) -> bool {
    // Of another pid namespace its numbers would be others.
    let own = read_link("/proc/self").ok();
    if own.is_none_or(|own| own.to_str() != Some(&std::process::id().to_string())) {
        return false;
    }
    let status = read_to_string(format!("/proc/{thread}/status"));
    status.is_ok_and(|status| is_pending(&status))
}

/// By proc_pid_status(5).
fn is_pending(status: &str) -> bool {
    let mask = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
    };
    let pending = mask("SigPnd:").unwrap_or(0) | mask("ShdPnd:").unwrap_or(0);
    pending & !mask("SigBlk:").unwrap_or(0) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_blocked_do_not_count() {
        let status = |thread: u64, process: u64, blocked: u64| {
            format!(
                "Name:\tSigPnd: 1\nSigQ:\t0/1\nSigPnd:\t{thread:016x}\nShdPnd:\t{process:016x}\nSigBlk:\t{blocked:016x}\n"
            )
        };
        assert!(!is_pending(&status(0, 0, 0)));
        assert!(is_pending(&status(0x100, 0, 0)));
        assert!(is_pending(&status(0, 0x4000, 0x100)));
        assert!(!is_pending(&status(0x100, 0x4000, 0x4100)));
        assert!(!is_pending("nothing"));
    }

    #[test]
    fn this_thread_has_none() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(!has_signal(thread.unsigned_abs()));
        assert!(!has_signal(u32::MAX));
    }
}
