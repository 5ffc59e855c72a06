//! Objects that lose a name, and perhaps their last one.

use std::ffi::CStr;
use std::fmt::Arguments;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::devices::device;
use super::table::Key;
use super::{Nodes, mounts, statx_of};
use crate::sys;

/// An object whose name is about to go, held so that the node outlives it.
pub(crate) struct Doomed {
    node: u64,
    /// By which the table knows a node that may be forgotten meanwhile.
    key: Option<(u16, sys::LowerHandle)>,
    fd: OwnedFd,
    /// Nothing else can have come by the name, and no other leads to it: it need not be looked at afterwards.
    surely: bool,
}

impl Nodes {
    /// Holds what `name` means now, to be told by [`Self::removed`] whether it is gone: `surely` if the name is.
    pub(crate) fn doom(&self, dir: BorrowedFd<'_>, name: &CStr, surely: bool) -> Option<Doomed> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(dir, name, flags, Mode::empty());
        if matches!(opened, Err(Errno::MFILE | Errno::NFILE)) {
            self.say_lost(format_args!("{name:?}"));
        }
        let fd = opened.ok()?;
        let mounts = self.mounts.as_ref()?;
        let (handle, id) = sys::name_to_handle(fd.as_fd(), c"", AtFlags::EMPTY_PATH).ok()?;
        let mode = || Some(rustix::fs::fstat(&fd).ok()?.st_mode);
        let mount = mounts.of_object(mounts.known(id)?, mode)?;
        let mount_number = mount.number;
        let (node, key) = match mount.direct_id(&handle) {
            Some(node) => (node, None),
            None => {
                let key = Key::Handle {
                    mount: mount_number,
                    handle: handle.parts(),
                };
                (self.table.find(key)?, Some((mount_number, handle)))
            }
        };
        Some(Doomed {
            node,
            key,
            fd,
            surely,
        })
    }

    /// After the name is gone: keeps the object for its node if that was its last name. `known` says that
    /// the kernel has looked up what the name meant last.
    pub(crate) fn removed(&self, doomed: Option<Doomed>, known: bool) {
        let Some(Doomed {
            node,
            key,
            fd,
            surely,
        }) = doomed
        else {
            return;
        };
        let gone = surely || statx_of(fd.as_fd()).is_ok_and(|statx| statx.stx_nlink == 0);
        if !gone {
            return;
        }
        let kept = match &key {
            None => self.keep(node, fd),
            // Once it is forgotten, its id is another's.
            Some((mount, handle)) => {
                let key = Key::Handle {
                    mount: *mount,
                    handle: handle.parts(),
                };
                self.table.with(key, |node| self.keep(node, fd)) != Some(false)
            }
        };
        if !kept {
            self.say_lost(format_args!("inode {node:#x}"));
        } else if mounts::is_direct(node) && !known {
            self.parked.doubt(node);
        }
    }

    /// The node of a name, where the kernel may know it, not counted.
    pub(crate) fn node_at(&self, dir: BorrowedFd<'_>, name: &CStr) -> Option<u64> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let statx = |wanted| rustix::fs::statx(dir, name, flags, wanted).ok();
        let Some(mounts) = &self.mounts else {
            let statx = statx(StatxFlags::INO)?;
            return self.table.find(Key::Object {
                device: device(&statx),
                inode: statx.stx_ino,
                handle: None,
            });
        };
        let (handle, id) = sys::name_to_handle(dir, name, AtFlags::empty()).ok()?;
        let mode = || Some(statx(StatxFlags::TYPE)?.stx_mode.into());
        let mount = mounts.of_object(mounts.known(id)?, mode)?;
        self.node_on(&mount, &handle)
    }

    fn say_lost(&self, what: Arguments<'_>) {
        if !self.opens_unasked.load(Ordering::Relaxed) {
            tracing::debug!("StackFS: no descriptor left to keep {what}, which has no name");
        } else if !self.limit_said.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "StackFS: no descriptor left to keep {what}, which is removed, and others; whoever has \
                 them open loses them; raise ulimit -Hn"
            );
        }
    }
}
