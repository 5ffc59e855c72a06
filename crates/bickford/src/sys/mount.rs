//! The mount watcher, a forked process, and descriptors named by number.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::path::DecInt;
use rustix::pipe::PipeFlags;

/// linux/stat.h, since Linux 6.8: `stx_mnt_id` is never used again.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// Duplicates descriptor `number` of this process, close-on-exec on both.
///
/// The original stays open: whoever put it there owns it.
pub(crate) fn duplicate_descriptor(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: a non-negative number may be borrowed for the two calls below: neither reads, writes nor
    // closes it, and where it names no open descriptor they answer EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let duplicate = rustix::io::fcntl_dupfd_cloexec(borrowed, 3)?;
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    Ok(duplicate)
}

/// What is to be taken away when its process has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched<'a> {
    /// Where it is mounted.
    pub(crate) mountpoint: &'a CStr,
    /// The identity of the mount.
    pub(crate) identity: u64,
    /// The path of fusermount3, for where the system call is not permitted.
    pub(crate) helper: Option<&'a CStr>,
    /// The path of the control socket, whether there is one or not.
    pub(crate) socket: &'a CStr,
    /// The directory of that, to go where it is empty then.
    pub(crate) directory: Option<&'a CStr>,
}

/// Forks a process that waits until the returned descriptor and all its duplicates are closed, which the
/// kernel does for a process killed with SIGKILL too, and then takes away what is watched, if the mount is still
/// there.
///
/// The process is nobody's child: it is forked twice, so it never becomes a zombie of the caller.
pub(crate) fn spawn_unmount_watcher(watched: Watched<'_>) -> io::Result<OwnedFd> {
    let (read_end, write_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: between fork and exit the child makes only system calls that are async-signal-safe (raw
    // rustix calls, setsid, sigprocmask, fork, _exit) on memory that was set up before the fork.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => run_child(&read_end, watched),
        pid => {
            let mut status = 0;
            loop {
                // SAFETY: `status` lives across the call, `pid` is the child forked above and not reaped yet.
                let reaped = unsafe { libc::waitpid(pid, &raw mut status, 0) };
                let interrupted =
                    reaped == -1 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
                if !interrupted {
                    break;
                }
            }
            if status == 0 {
                Ok(write_end)
            } else {
                Err(Errno::AGAIN.into())
            }
        }
    }
}

fn run_child(read_end: &OwnedFd, watched: Watched<'_>) -> ! {
    // SAFETY: async-signal-safe calls without pointers into shared state; `set` lives across its uses.
    // The first child ends at once, the second keeps only the pipe's read end (as descriptor 0), so that
    // it holds no descriptor of the caller open, least of all the pipe's write end or the FUSE device.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut set);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::setsid();
        match libc::fork() {
            0 => {}
            -1 => libc::_exit(1),
            _ => libc::_exit(0),
        }
        if libc::dup2(read_end.as_raw_fd(), 0) == -1 {
            libc::_exit(1);
        }
        if libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) != 0 {
            close_each_from(1);
        }
    }
    watch(watched);
    // SAFETY: ends this process without running exit handlers that belong to the caller.
    unsafe { libc::_exit(0) }
}

/// Closes descriptors where close_range(2) is refused: before Linux 5.9, or by a system call filter.
/// One that stayed open would keep the pipe, or the connection, from ending.
fn close_each_from(first: RawFd) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: async-signal-safe calls; `limit` lives across its use, and whoever calls this owns every
    // descriptor of its process, as a forked child does, and uses none of these afterwards.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        // The limit may be lower than when they were opened, and is at most fs.nr_open, a million.
        let end = limit.rlim_max.clamp(1 << 16, 1 << 20) as RawFd;
        for number in first..end {
            libc::close(number);
        }
    }
}

/// Runs in the forked process: no allocation, no locks, no panics.
fn watch(watched: Watched<'_>) {
    let _ = rustix::process::chdir(c"/");
    // SAFETY: descriptor 0 is the pipe's read end, put there by `run_child`, and stays open.
    let pipe = unsafe { BorrowedFd::borrow_raw(0) };
    let mut byte = [0_u8; 1];
    loop {
        match rustix::io::read(pipe, &mut byte) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
    if mount_identity_at(watched.mountpoint) != Some(watched.identity) {
        return;
    }
    // Before the mount: while that is there no other connection has its number, which the name of the socket is.
    let _ = rustix::fs::unlink(watched.socket);
    if let Some(directory) = watched.directory {
        let _ = rustix::fs::rmdir(directory);
    }
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    let unmounted = rustix::mount::unmount(watched.mountpoint, flags);
    if let (Err(Errno::PERM), Some(helper)) = (unmounted, watched.helper) {
        execute_helper(helper, watched.mountpoint);
    }
}

/// Becomes `fusermount3 -u -z -- MOUNTPOINT`. Returns only if that cannot be run.
fn execute_helper(helper: &CStr, mountpoint: &CStr) {
    let arguments = [c"fusermount3", c"-u", c"-z", c"--", mountpoint].map(CStr::as_ptr);
    let [name, unmount, lazy, end, path] = arguments;
    let arguments = [name, unmount, lazy, end, path, std::ptr::null()];
    let environment = [std::ptr::null()];
    // SAFETY: both arrays end with a null pointer and, like the strings they point to, live until the
    // call; open and execve are async-signal-safe. The opened descriptors are 1 and 2, the lowest free
    // ones: a helper without them would take its own files for standard output and error.
    unsafe {
        libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        libc::execve(helper.as_ptr(), arguments.as_ptr(), environment.as_ptr());
    }
}

/// What tells a mount from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountIds {
    /// From every other: the unique id of statx(2), or before Linux 6.8 that of mountinfo.
    pub(crate) identity: u64,
    /// The id of mountinfo, which is used again for later mounts.
    pub(crate) listed: u64,
}

impl MountIds {
    /// Whether no later mount gets this identity; unique ids are beyond all that mountinfo lists.
    pub(crate) fn are_unique(self) -> bool {
        self.identity != self.listed
    }
}

/// The topmost mount at `path`, without a request to its file system.
pub(crate) fn open_mount(path: &CStr) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// The ids of the mount that a descriptor is on, without a request to its file system.
pub(crate) fn mount_ids(on: &OwnedFd) -> Option<MountIds> {
    let listed = reusable_id(on)?;
    let identity = unique_id(on).unwrap_or(listed);
    Some(MountIds { identity, listed })
}

/// The identity of the topmost mount at `path`.
fn mount_identity_at(path: &CStr) -> Option<u64> {
    let root = open_mount(path)?;
    unique_id(&root).or_else(|| reusable_id(&root))
}

fn unique_id(root: &OwnedFd) -> Option<u64> {
    let wanted = StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(root, c"", flags, wanted).ok()?;
    (found.stx_mask & STATX_MNT_ID_UNIQUE != 0).then_some(found.stx_mnt_id)
}

/// The id of mountinfo of the mount that a descriptor is on.
pub(crate) fn reusable_id(root: &OwnedFd) -> Option<u64> {
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let infos = rustix::fs::open(c"/proc/self/fdinfo", place, Mode::empty()).ok()?;
    let (number, flags) = (DecInt::from_fd(root), OFlags::RDONLY | OFlags::CLOEXEC);
    let info = rustix::fs::openat(&infos, number.as_c_str(), flags, Mode::empty()).ok()?;
    let mut text = [0_u8; 512];
    let len = rustix::io::read(&info, &mut text).ok()?;
    parse_mount_id(text.get(..len)?)
}

/// The `mnt_id` line of proc_pid_fdinfo(5).
pub(crate) fn parse_mount_id(text: &[u8]) -> Option<u64> {
    let line = text
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"mnt_id:"))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_ids_are_read_from_fdinfo() {
        assert_eq!(
            parse_mount_id(b"pos:\t0\nflags:\t012000000\nmnt_id:\t31\nino:\t2\n"),
            Some(31)
        );
        assert_eq!(parse_mount_id(b"mnt_id:\t\n"), None);
        assert_eq!(parse_mount_id(b"mnt_id:\tx\n"), None);
        assert_eq!(parse_mount_id(b"pos:\t0\n"), None);
    }

    #[test]
    fn the_mount_id_of_the_root_is_the_one_in_mountinfo() {
        let listed = crate::mount::MountEntry::at(std::path::Path::new("/"))
            .unwrap()
            .unwrap();
        let root = rustix::fs::open(c"/", OFlags::PATH, Mode::empty()).unwrap();
        assert_eq!(reusable_id(&root), Some(listed.id));
        assert_eq!(mount_identity_at(c"/"), mount_identity_at(c"/"));
        assert!(mount_identity_at(c"/").is_some());
    }

    #[test]
    fn descriptors_are_closed_one_by_one() {
        let file = tempfile::tempfile().unwrap();
        let high = rustix::io::fcntl_dupfd_cloexec(&file, 900).unwrap();
        // SAFETY: the child makes only async-signal-safe calls and then ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            close_each_from(3);
            // SAFETY: as above.
            unsafe {
                let open = [file.as_raw_fd(), high.as_raw_fd()]
                    .map(|number| libc::fcntl(number, libc::F_GETFD) != -1);
                let kept = libc::fcntl(2, libc::F_GETFD) != -1;
                libc::_exit(i32::from(open != [false; 2] || !kept));
            }
        }
        let mut status = -1;
        // SAFETY: `status` lives across the call, the child was forked above.
        let reaped = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((reaped, status), (child, 0));
    }

    #[test]
    fn a_number_that_names_no_descriptor_is_refused() {
        assert!(duplicate_descriptor(-1).is_err());
        assert!(duplicate_descriptor(RawFd::MAX).is_err());
    }
}
