//! Ending a thread the hard way, for tests of what happens then.

/// Ends the calling thread without unwinding, as a fault in foreign code would.
pub(crate) fn end() -> ! {
    // SAFETY: exit(2) ends this thread alone. Its stack and thread-locals are never given back.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("exit(2) returned")
}
