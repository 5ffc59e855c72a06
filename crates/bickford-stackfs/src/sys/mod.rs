//! System calls that `rustix` does not offer. The only home of `unsafe` in this crate.
#![allow(unsafe_code)]

mod credentials;
pub(crate) mod fanotify;
mod handle;
mod ioctl;
mod lease;
mod lock;
mod tree;

pub(crate) use credentials::{set_fsgid, set_fsuid, unshare_fs};
pub(crate) use handle::{
    HANDLE_INODE_GENERATION, HandleParts, LowerHandle, name_to_handle, open_by_handle,
};
pub(crate) use ioctl::{close_reporting, ioctl_buffer};
pub(crate) use lease::is_open_for_writing;
pub(crate) use lock::{RecordLock, get_record_lock, record_locks, try_record_lock};
pub(crate) use tree::{detach_tree, set_access_times};

use rustix::io::Errno;

/// The error the last libc call of this thread left behind.
fn last_error() -> Errno {
    crate::io::errno(&std::io::Error::last_os_error())
}
