//! Notifications: what a file system tells the kernel. They are queued, so that callbacks may send
//! them too.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;

use bickford::notify::NotifyError;
use bickford::ops::PollHandle;
use bickford::path::Names;
use bickford::{Errno, NodeId, Notifier};

use crate::abi::{
    BICKFORD_DATA_MAX, BICKFORD_ERROR_HANDLE, BICKFORD_ERROR_LIMIT, bickford_retrieved,
};
use crate::dispatch::User;
use crate::guard::{Failure, guarded};
use crate::parameters::bytes;
use crate::session::session;

fn send(
    number: u64,
    notify: impl FnOnce(&Notifier) -> Result<(), NotifyError>,
) -> Result<i32, Failure> {
    let held = session(number)?;
    match notify(held.mounted.notifier()) {
        Ok(()) => Ok(0),
        Err(error @ NotifyError::Name) => Err(Failure::argument(error)),
        Err(error @ (NotifyError::Full | NotifyError::Retrievals)) => {
            Err(Failure::new(BICKFORD_ERROR_LIMIT, error))
        }
        Err(error) => Err(Failure::new(BICKFORD_ERROR_HANDLE, error)),
    }
}

fn name(name: Result<&[u8], Errno>) -> Result<CString, Failure> {
    let name = name.map_err(|_| Failure::argument("the name is NULL or too long"))?;
    CString::new(name).map_err(|_| Failure::argument("the name has a NUL byte"))
}

/// Drops cached attributes of an inode, and cached data from `offset` on for `length` bytes: a
/// negative offset keeps the data, a length of zero means to the end.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_notify_inode(session: u64, node: u64, offset: i64, length: i64) -> i32 {
    guarded(|| {
        send(session, |to| {
            to.invalidate_inode(NodeId(node), offset, length)
        })
    })
}

/// Drops cached attributes of an inode before it returns, and has the kernel refuse those that it has asked for before. It is
/// not queued, and may be called for an inode that a request is about before that is answered; there are
/// `bickford_reply_changed` and `bickford_deferred_changed` for what a request has changed.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_notify_attributes(session: u64, node: u64) -> i32 {
    guarded(|| send(session, |to| to.forget_attributes(NodeId(node))))
}

/// Drops a cached name; with `expire` not zero it is only looked up again at its next use.
///
/// # Safety
/// `name` points to `name_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_notify_entry(
    session: u64,
    parent: u64,
    name: *const u8,
    name_length: u64,
    expire: u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let name = self::name(unsafe { bytes(name, name_length) })?;
        let name: &CStr = &name;
        send(session, |to| match expire {
            0 => to.invalidate_entry(NodeId(parent), name),
            _ => to.expire_entry(NodeId(parent), name),
        })
    })
}

/// Drops what is cached of the file at a path of a file system over paths: its attributes, and its data from `offset` on for `length`
/// bytes, as `bickford_notify_inode` does. Returns 1 when the kernel knew the path, 0 when there was nothing to drop.
///
/// # Safety
/// `path` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_notify_path(
    session: u64,
    path: *const c_char,
    offset: i64,
    length: i64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { crate::session::path(path, "path")? };
        let Some(node) = names(session)?.node(path) else {
            return Ok(0);
        };
        send(session, |to| to.invalidate_inode(node, offset, length))?;
        Ok(1)
    })
}

/// Drops the cached name of a path of a file system over paths; with `expire` not zero it is only looked up again at its next use.
/// Returns 1 when the kernel knew the directory, 0 when there was nothing to drop.
///
/// # Safety
/// `path` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_notify_path_name(
    session: u64,
    path: *const c_char,
    expire: u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { crate::session::path(path, "path")? };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Failure::argument("path has no name: the root has none"));
        };
        let name = CString::new(name.as_bytes()).map_err(Failure::argument)?;
        let Some(parent) = names(session)?.node(parent) else {
            return Ok(0);
        };
        send(session, |to| match expire {
            0 => to.invalidate_entry(parent, &name),
            _ => to.expire_entry(parent, &name),
        })?;
        Ok(1)
    })
}

/// The names of a file system over paths.
fn names(number: u64) -> Result<Names, Failure> {
    session(number)?.names.clone().ok_or_else(|| {
        Failure::argument(format!("session {number} is not over paths: name a node"))
    })
}

/// A name was removed: drops it and tells those who watch the directory.
///
/// # Safety
/// `name` points to `name_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_notify_delete(
    session: u64,
    parent: u64,
    child: u64,
    name: *const u8,
    name_length: u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let name = self::name(unsafe { bytes(name, name_length) })?;
        send(session, |to| {
            to.delete(NodeId(parent), NodeId(child), &name)
        })
    })
}

/// Puts data into the page cache of an inode.
///
/// # Safety
/// `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_notify_store(
    session: u64,
    node: u64,
    offset: u64,
    data: *const u8,
    length: u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let data = unsafe { bytes(data, length) }.map_err(|_| {
            Failure::argument(format!(
                "data is NULL, or longer than {BICKFORD_DATA_MAX} bytes: store it in parts"
            ))
        })?;
        send(session, |to| to.store(NodeId(node), offset, data))
    })
}

/// Asks for data that the kernel has in the page cache of an inode; `receive` is called with them,
/// or not at all when the inode is not known.
///
/// # Safety
/// `receive` can be called by any thread, with `user`, until it was called or
/// `bickford_session_wait` has returned 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_notify_retrieve(
    session: u64,
    node: u64,
    offset: u64,
    size: u32,
    receive: bickford_retrieved,
    user: *mut c_void,
) -> i32 {
    guarded(|| {
        let receive = receive.ok_or_else(|| Failure::argument("receive is NULL"))?;
        let user = User(user);
        send(session, |to| {
            to.retrieve(NodeId(node), offset, size, move |offset, data| {
                let user = user;
                // SAFETY: passed with this signature; the data live during the call.
                unsafe { receive(user.0, offset, data.as_ptr(), data.len() as u64) };
            })
        })
    })
}

/// Lets every cached name of the mount expire: each is looked up again at its next use. Linux before 6.16 does not
/// know of it, and does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_notify_epoch(session: u64) -> i32 {
    guarded(|| send(session, Notifier::increment_epoch))
}

/// Asks the kernel to forget `count` inodes, as far as nobody uses them; `BICKFORD_OP_FORGET` tells of those that it
/// forgets. Linux before 6.18 does not know of it, and does nothing.
///
/// # Safety
/// `nodes` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_notify_prune(session: u64, nodes: *const u64, count: u64) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise; what comes of it is copied.
        let bytes = unsafe { bytes(nodes.cast(), count.saturating_mul(8)) }.map_err(|_| {
            Failure::argument(format!(
                "nodes are NULL, or more than {}: prune in parts",
                BICKFORD_DATA_MAX / 8
            ))
        })?;
        let (nodes, _) = bytes.as_chunks::<8>();
        let nodes: Vec<NodeId> = nodes
            .iter()
            .map(|node| NodeId(u64::from_ne_bytes(*node)))
            .collect();
        send(session, |to| to.prune(&nodes))
    })
}

/// Wakes whoever polls: `waiter` is the offset of the POLL request.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_notify_poll(session: u64, waiter: u64) -> i32 {
    guarded(|| send(session, |to| to.wake_poll(PollHandle(waiter))))
}

/// Waits until all notifications that were queued before have reached the kernel. Not to be called
/// by a callback: the kernel may be waiting for that very request.
#[unsafe(no_mangle)]
pub extern "C" fn bickford_notify_flush(session: u64) -> i32 {
    guarded(|| send(session, Notifier::flush))
}
