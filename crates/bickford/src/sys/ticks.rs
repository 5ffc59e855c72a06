//! The processor's counter of time.

/// Whether there is one that can be read for less than the kernel's clock costs.
pub(crate) const THERE: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// What it stands at. Its rate is the machine's, and whether it is the same on all processors, the
/// kernel knows.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn ticks() -> u64 {
    // SAFETY: reading the counter changes nothing. A process that has forbidden itself to read it
    // (PR_SET_TSC) cannot read the kernel's clock without a system call either.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn ticks() -> u64 {
    0
}
