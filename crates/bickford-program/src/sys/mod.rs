//! The only home of unsafe code in this crate.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};

/// Takes the socket that this process was started with as descriptor `number`, for itself alone; `None` where that is
/// not open, or another file, or was taken before.
pub(crate) fn take_socket(number: RawFd, inode: u64) -> Option<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // A socket is told from all others by its inode (proc_pid_fd(5)).
    let socket = format!("socket:[{inode}]");
    let open = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    if open != Path::new(&socket) || TAKEN.swap(true, Ordering::Relaxed) {
        return None;
    }
    // SAFETY: it is open. Whoever started this process passed it on for this one call, and nothing else here knows of it.
    let taken = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&taken, FdFlags::CLOEXEC).ok()?;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_is_taken_once_and_no_other() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let [inode, other] = [&theirs, &ours].map(|it| rustix::fs::fstat(it).unwrap().st_ino);
        fcntl_setfd(&theirs, FdFlags::empty()).unwrap();
        let number = theirs.into_raw_fd();
        assert!(take_socket(number, other).is_none());
        assert!(take_socket(-1, inode).is_none());
        let taken = take_socket(number, inode).unwrap();
        assert_eq!(taken.as_raw_fd(), number);
        let flags = rustix::io::fcntl_getfd(&taken).unwrap();
        assert!(flags.contains(FdFlags::CLOEXEC));
        assert!(take_socket(number, inode).is_none());
    }
}
