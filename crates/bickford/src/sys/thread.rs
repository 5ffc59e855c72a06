//! What a thread has done, and ending it the hard way.

/// How often the calling thread has given its CPU up to wait for something: getrusage(2), `ru_nvcsw`.
pub(crate) fn waits() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills the structure, or answers otherwise than 0.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) != 0 {
            return 0;
        }
        usage.assume_init()
    };
    u64::try_from(usage.ru_nvcsw).unwrap_or(0)
}

/// Ends the calling thread without unwinding, as a fault in foreign code would.
#[cfg(test)]
pub(crate) fn end() -> ! {
    // SAFETY: exit(2) ends this thread alone. Its stack and thread-locals are never given back.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("exit(2) returned")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_waits() {
        let before = waits();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(waits() > before);
    }
}
