//! Descriptors: room for those that a file system opens, and how the device is read.
//!
//! The kernel makes the descriptor table of a process larger when a number no longer fits, and in a
//! process of several threads waits for all CPUs with it (`expand_fdtable` of fs/file.c): each time
//! whoever opens a file stands still for milliseconds. So the table gets its size once, before the
//! first request.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Resource, getrlimit};

/// Descriptors that fit without the table growing, where the limit of the process allows so many. The
/// kernel keeps a pointer and two bits for each.
const ROOM: u64 = 4096;

/// Makes the table as large as it is likely to become.
pub(super) fn make_room(any: impl AsFd) {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(ROOM);
    let Some(last) = limit.min(ROOM).checked_sub(1) else {
        return;
    };
    let Ok(last) = i32::try_from(last) else {
        return;
    };
    // The table does not shrink when the descriptor is closed.
    if let Err(error) = rustix::io::fcntl_dupfd_cloexec(any, last) {
        tracing::debug!("no room made for {} descriptors: {error}", last + 1);
    }
}

/// Has read(2) of the device wait for requests. Whoever mounted and passed it on may have opened it with
/// `O_NONBLOCK`, as for epoll(7): a thread that reads would then do so without a pause.
pub(super) fn make_waiting(device: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&device)?;
    if flags.contains(OFlags::NONBLOCK) {
        fcntl_setfl(&device, flags - OFlags::NONBLOCK)?;
    }
    Ok(())
}

/// Has read(2) of the device answer EAGAIN where no request waits.
pub(super) fn make_not_waiting(device: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&device)?;
    Ok(fcntl_setfl(&device, flags | OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of this process's table, as proc_pid_status(5) has them.
    fn size() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let size = line.expect("FDSize").trim();
        size.parse().expect("a number")
    }

    #[test]
    fn the_table_has_room_for_what_the_limit_allows() {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(ROOM);
        make_room(std::io::stdin());
        assert!(size() >= limit.min(ROOM), "{}", size());
    }
}
