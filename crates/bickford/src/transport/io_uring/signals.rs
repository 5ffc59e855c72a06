//! Signals that callers got before their requests were handed over.
//!
//! A caller that gets a signal has INTERRUPT sent if its request was handed over before, and else leaves that to
//! who hands it over. Linux 6.18 does so for who reads `/dev/fuse`, and not over io_uring
//! (`fuse_uring_prepare_send` of fs/fuse/dev_uring.c): such a caller, killed or not, waits for the answer, and the
//! daemon is not told. The signal stays pending meanwhile, and is seen in /proc.

use std::fs::{read_link, read_to_string};

/// Whether the wait of a thread for its answer was ended by a signal; no for one that has ended, or is not known.
/// `None` while it is about to run, and what it makes of its signals is not seen yet.
pub(super) fn has_signal(thread: u32) -> Option<bool> {
    // Of another pid namespace its numbers would be others.
    let own = read_link("/proc/self").ok();
    if own.is_none_or(|own| own.to_str() != Some(&std::process::id().to_string())) {
        return Some(false);
    }
    let read = |name: &str| read_to_string(format!("/proc/{thread}/{name}"));
    match read("status") {
        Ok(status) => is_interrupted(&status, &read("wchan").unwrap_or_default()),
        Err(_) => Some(false),
    }
}

/// By proc_pid_status(5), and proc_pid_wchan(5) where that may be read. Signals to a process are pending for all of its
/// threads, and wake one: the others sleep on (S), and EINTR would be an error to them, of which flock(2) and fcntl(2) make
/// 512. Whoever waits for an answer and is woken by a signal waits on as only what kills it could wake it (D). So does
/// who waits for a page of the cache, with no request that could be interrupted.
fn is_interrupted(status: &str, waits_in: &str) -> Option<bool> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let mask = |name: &str| u64::from_str_radix(field(name)?.trim(), 16).ok();
    let pending = mask("SigPnd:").unwrap_or(0) | mask("ShdPnd:").unwrap_or(0);
    if pending & !mask("SigBlk:").unwrap_or(0) == 0 {
        return Some(false);
    }
    match field("State:").unwrap_or_default().trim().chars().next() {
        Some('R') => None,
        Some('D') => Some(!waits_in.starts_with("folio_")),
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: char, thread: u64, process: u64, blocked: u64) -> String {
        format!(
            "Name:\tSigPnd: 1\nState:\t{state} (some)\nSigQ:\t0/1\nSigPnd:\t{thread:016x}\nShdPnd:\t{process:016x}\n\
             SigBlk:\t{blocked:016x}\n"
        )
    }

    #[test]
    fn signals_that_are_blocked_do_not_count() {
        let seen = |thread, process, blocked| {
            is_interrupted(
                &status('D', thread, process, blocked),
                "request_wait_answer",
            )
        };
        assert_eq!(seen(0, 0, 0), Some(false));
        assert_eq!(seen(0x100, 0, 0), Some(true));
        assert_eq!(seen(0, 0x4000, 0x100), Some(true));
        assert_eq!(seen(0x100, 0x4000, 0x4100), Some(false));
        assert_eq!(is_interrupted("nothing", ""), Some(false));
    }

    #[test]
    fn who_sleeps_on_was_not_woken() {
        let seen = |state, waits_in| is_interrupted(&status(state, 0, 0x10000, 0), waits_in);
        for sleeps in ['S', 'T', 'Z'] {
            assert_eq!(seen(sleeps, "request_wait_answer"), Some(false));
        }
        assert_eq!(seen('R', "0"), None);
        assert_eq!(seen('D', "folio_wait_bit_common"), Some(false));
        for unknown in ["", "0", "__fuse_simple_request"] {
            assert_eq!(seen('D', unknown), Some(true));
        }
    }

    #[test]
    fn this_thread_has_none() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        assert_eq!(has_signal(thread.unsigned_abs()), Some(false));
        assert_eq!(has_signal(u32::MAX), Some(false));
    }
}
