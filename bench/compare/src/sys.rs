//! The home of `unsafe`: what measuring needs of the system beyond rustix's safe part.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::mm::{MapFlags, ProtFlags};

/// Has the program begin a session, as one does that goes to the background or is a service: the
/// scheduler keeps the tasks of a session together (sched_autogroup, sched(7)), and where a caller is
/// woken depends on it. Ctrl-C ends the run, which then unmounts.
pub(crate) fn in_own_session(command: &mut Command) {
    let begin = || rustix::process::setsid().map(drop).map_err(io::Error::from);
    // SAFETY: setsid(2) is all that happens between fork and exec; it takes no lock and no memory.
    unsafe { command.pre_exec(begin) };
}

/// Gives this thread tables that others do not share, as processes have them. It may use no descriptor that another
/// thread opens or closes later.
pub(crate) fn part() -> io::Result<()> {
    let what = rustix::thread::UnshareFlags::FILES | rustix::thread::UnshareFlags::FS;
    // SAFETY: descriptors stay valid in this thread, which opens and closes its own ones only.
    unsafe { rustix::thread::unshare_unsafe(what) }?;
    Ok(())
}

/// CPU time of process `pid`, of threads that ended too, in nanoseconds; 0 where it has no clock any more.
pub(crate) fn cpu(pid: u32) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // As clock_getcpuclockid(3) makes it: the process's scheduler clock.
    let Ok(pid) = i32::try_from(pid) else {
        return 0;
    };
    let clock = (!pid << 3) | 2;
    // SAFETY: `time` is a timespec that lives through the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if result == 0 {
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    } else {
        0
    }
}

/// Maps the first `length` bytes of a file and reads a byte of each of its pages of `page` bytes, in turn. The file must
/// be as long, and nobody may cut it short meanwhile: that is SIGBUS.
pub(crate) fn fault(file: impl AsFd, length: usize, page: usize) -> io::Result<()> {
    let place = std::ptr::null_mut();
    // SAFETY: a new mapping, placed by the kernel.
    let map =
        unsafe { rustix::mm::mmap(place, length, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
    let mut sum = 0_u64;
    for offset in (0..length).step_by(page) {
        // SAFETY: the byte lies in the mapping, which is readable.
        sum += u64::from(unsafe { map.cast::<u8>().add(offset).read_volatile() });
    }
    std::hint::black_box(sum);
    // SAFETY: the mapping made above, in full; nothing refers to it any more.
    unsafe { rustix::mm::munmap(map, length) }?;
    Ok(())
}
