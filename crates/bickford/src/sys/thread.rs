//! What a thread has done, how it is scheduled, and ending it the hard way.

use std::io;

use rustix::process::Pid;

/// A scheduling policy: sched(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// `SCHED_OTHER`, what threads have by themselves.
    Other,
    /// `SCHED_IDLE`: it runs when no other wants to, or hardly.
    Idle,
}

/// The policy of a thread of this process; `None` when it is another one, or children do not inherit it.
pub(crate) fn policy(thread: Pid) -> io::Result<Option<Policy>> {
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: sched_getscheduler(2) takes a number and changes nothing. The call itself, since musl's function is
    // always ENOSYS: POSIX speaks of processes there, Linux of threads.
    match unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread) } {
        -1 => Err(io::Error::last_os_error()),
        policy if policy == i64::from(libc::SCHED_OTHER) => Ok(Some(Policy::Other)),
        policy if policy == i64::from(libc::SCHED_IDLE) => Ok(Some(Policy::Idle)),
        _ => Ok(None),
    }
}

/// Sets the policy of a thread of this process, which keeps its nice value.
pub(crate) fn set_policy(thread: Pid, policy: Policy) -> io::Result<()> {
    let policy = match policy {
        Policy::Other => libc::SCHED_OTHER,
        Policy::Idle => libc::SCHED_IDLE,
    };
    let thread = thread.as_raw_nonzero().get();
    // The kernel's struct sched_param is this number alone; musl's is longer.
    let priority: libc::c_int = 0;
    // SAFETY: sched_setscheduler(2) reads the number, which lives until it returns. The call itself, as above.
    match unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            thread,
            policy,
            &raw const priority,
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

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

/// Sleeps for a millisecond, and until that was a wait: on a slow machine it can be over before it is one.
#[cfg(test)]
pub(crate) fn sleep_and_wait() {
    let before = waits();
    for _ in 0..1_000 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        if waits() > before {
            break;
        }
    }
}

/// Has a system call fail with EPERM on the calling thread and those that it starts, as a system call filter
/// does: seccomp(2).
#[cfg(test)]
pub(crate) fn refuse(call: libc::c_long) {
    let step = |code: u32, jf, k| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: 0,
        jf,
        k,
    };
    let errno = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let mut steps = [
        // The number is what `struct seccomp_data` begins with.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            u32::try_from(call).unwrap(),
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, errno),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(steps.len()).unwrap(),
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: prctl(2) copies the program, which lives until it returns.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) != 0
    };
    assert!(!refused, "{}", io::Error::last_os_error());
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::gettid;

    #[test]
    fn a_policy_is_that_of_one_thread() {
        let here = policy(gettid()).unwrap();
        let there = std::thread::spawn(|| {
            set_policy(gettid(), Policy::Idle).unwrap();
            policy(gettid()).unwrap()
        });
        assert_eq!(there.join().unwrap(), Some(Policy::Idle));
        assert_eq!(policy(gettid()).unwrap(), here);
    }

    #[test]
    fn who_sleeps_waits() {
        let before = waits();
        sleep_and_wait();
        assert!(waits() > before);
    }
}
