//! Names: lookup, what makes and removes them.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bickford::ops::{
    Created, Entry, Link, Lookup, Mkdir, Mknod, Rename, Rmdir, Symlink, Tmpfile, Unlink,
    decode_device,
};
use bickford::{Context, NodeId};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, StatxAttributes};
use rustix::io::Errno;

use crate::Inner;
use crate::backing::Register;
use crate::credentials::{Caller, set_umask};
use crate::descriptors::as_seen_by_callers;
use crate::io::{Lower, lower_flags};
use crate::io_mode::IoMode;
use crate::node::{Doomed, ProcFd, checked};

/// Who made a request.
pub(crate) fn caller(cx: &Context<'_>) -> Caller {
    Caller {
        uid: cx.uid(),
        gid: cx.gid(),
    }
}

fn unmake(dir: BorrowedFd<'_>, name: &CStr, kind: AtFlags) {
    if let Err(error) = rustix::fs::unlinkat(dir, name, kind) {
        tracing::warn!("StackFS: {name:?} stays below, though it could not be made: {error}");
    }
}

impl Inner {
    pub(crate) fn do_lookup(&self, op: &Lookup<'_>) -> Result<Entry, Errno> {
        let (node, name) = (op.parent.0, op.name);
        let found = match name.to_bytes() {
            b"." if self.settings.nfs_export => self.nodes.again(node),
            b".." if self.settings.nfs_export => self.nodes.parent(node),
            _ => self.nodes.lookup(node, name),
        };
        match found {
            Ok(found) => Ok(self.entry(&found)),
            Err(Errno::NOENT) if !self.settings.negative_timeout.is_zero() => {
                let valid = self.name_timeout(node, self.settings.negative_timeout);
                Ok(Entry::negative(valid))
            }
            Err(error) => Err(error),
        }
    }

    /// Asks the kernel to forget inodes that it does not use, where they take descriptors that are scarce.
    pub(crate) fn prune(&self, cx: &Context<'_>) {
        let Some(nodes) = self.nodes.to_prune() else {
            return;
        };
        let notifier = cx.notifier();
        let asked = match self.nodes.kernel_prunes() {
            true => notifier.prune(&nodes.into_iter().map(NodeId).collect::<Vec<_>>()),
            false => nodes.into_iter().try_for_each(|node| {
                let named = self.nodes.named(node);
                named.map_or(Ok(()), |(parent, name)| {
                    notifier.invalidate_entry(NodeId(parent), &name)
                })
            }),
        };
        if let Err(error) = asked {
            tracing::debug!("StackFS: the kernel keeps what it does not use: {error}");
        }
    }

    /// What was just made. Where there is no descriptor for it, it goes again: the kernel takes it for not made.
    fn made(&self, dir: BorrowedFd<'_>, name: &CStr, kind: AtFlags) -> Result<Entry, Errno> {
        match self.nodes.lookup_at(dir, name) {
            Ok(found) => Ok(self.entry(&found)),
            Err(error) => {
                if error == Errno::NFILE {
                    unmake(dir, name, kind);
                }
                Err(error)
            }
        }
    }

    pub(crate) fn do_mknod(&self, cx: &Context<'_>, op: &Mknod<'_>) -> Result<Entry, Errno> {
        let dir = self.nodes.directory(op.parent.0)?;
        let name = checked(op.name)?;
        let (major, minor) = decode_device(op.rdev);
        let kind = FileType::from_raw_mode(op.mode);
        let mode = Mode::from_raw_mode(op.mode & 0o7777);
        {
            set_umask(op.umask)?;
            let _acting = self.identity.own_as(caller(cx), op.mode)?;
            rustix::fs::mknodat(&dir, name, kind, mode, rustix::fs::makedev(major, minor))?;
        }
        self.made(dir.as_fd(), name, AtFlags::empty())
    }

    pub(crate) fn do_mkdir(&self, cx: &Context<'_>, op: &Mkdir<'_>) -> Result<Entry, Errno> {
        let dir = self.nodes.directory(op.parent.0)?;
        let name = checked(op.name)?;
        {
            set_umask(op.umask)?;
            let _acting = self.identity.own_as(caller(cx), op.mode)?;
            rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(op.mode & 0o7777))?;
        }
        self.made(dir.as_fd(), name, AtFlags::REMOVEDIR)
    }

    pub(crate) fn do_symlink(&self, cx: &Context<'_>, op: &Symlink<'_>) -> Result<Entry, Errno> {
        let dir = self.nodes.directory(op.parent.0)?;
        let name = checked(op.name)?;
        {
            let _acting = self.identity.own_as(caller(cx), 0)?;
            rustix::fs::symlinkat(op.target, &dir, name)?;
        }
        self.made(dir.as_fd(), name, AtFlags::empty())
    }

    pub(crate) fn do_link(&self, op: &Link<'_>) -> Result<Entry, Errno> {
        let dir = self.nodes.directory(op.new_parent.0)?;
        let name = checked(op.new_name)?;
        let object = self.nodes.object(op.node.0)?;
        self.identity.without_excess()?;
        let old = ProcFd::name(object.as_fd());
        let proc = self.nodes.proc();
        let link = |old| rustix::fs::linkat(proc.dir(), old, &dir, name, AtFlags::SYMLINK_FOLLOW);
        match link(old) {
            // The node may be known by another mount than the one that the caller found it through.
            Err(Errno::XDEV) => {
                let object = self.nodes.beside(object.as_fd(), dir.as_fd())?;
                link(ProcFd::name(object.as_fd()))?;
            }
            linked => linked?,
        }
        self.made(dir.as_fd(), name, AtFlags::empty())
    }

    pub(crate) fn do_unlink(&self, cx: &Context<'_>, op: &Unlink<'_>) -> Result<(), Errno> {
        self.nodes.ask_through(cx.notifier());
        self.remove(op.parent.0, op.name, AtFlags::empty())
    }

    pub(crate) fn do_rmdir(&self, cx: &Context<'_>, op: &Rmdir<'_>) -> Result<(), Errno> {
        self.nodes.ask_through(cx.notifier());
        self.remove(op.parent.0, op.name, AtFlags::REMOVEDIR)
    }

    /// Holds what is about to go, unless that would keep it from going.
    pub(crate) fn doom(
        &self,
        parent: u64,
        dir: BorrowedFd<'_>,
        name: &CStr,
        surely: bool,
    ) -> Option<Doomed> {
        let any = self.beneath.any().renames_held;
        match any && self.traits(parent, dir).renames_held {
            true => None,
            false => self.nodes.doom(dir, name, surely),
        }
    }

    fn remove(&self, parent: u64, name: &CStr, flags: AtFlags) -> Result<(), Errno> {
        let dir = self.nodes.directory(parent)?;
        let name = checked(name)?;
        // A directory has one name. Where others change SOURCE, it may be another's by then.
        let surely = self.settings.exclusive && flags.contains(AtFlags::REMOVEDIR);
        let doomed = self.doom(parent, dir.as_fd(), name, surely);
        rustix::fs::unlinkat(&dir, name, flags)?;
        self.nodes.removed(doomed, self.settings.exclusive);
        Ok(())
    }

    /// Something has this name now, and with it another time of change.
    fn moved(&self, cx: &Context<'_>, dir: BorrowedFd<'_>, name: &CStr) {
        if !self.settings.attr_timeout.is_zero()
            && let Some(node) = self.nodes.node_at(dir, name)
        {
            cx.has_changed(NodeId(node));
        }
    }

    /// A request has changed a directory, or failed after it made a name and removed it again.
    pub(crate) fn names_changed(&self, directory: NodeId) {
        self.name_changes.count(directory.0);
    }

    pub(crate) fn do_rename(&self, cx: &Context<'_>, op: &Rename<'_>) -> Result<(), Errno> {
        self.nodes.ask_through(cx.notifier());
        let from = self.nodes.directory(op.parent.0)?;
        let to = self.nodes.directory(op.new_parent.0)?;
        let (name, new_name) = (checked(op.name)?, checked(op.new_name)?);
        let flags = RenameFlags::from_bits(op.flags.bits()).ok_or(Errno::INVAL)?;
        let replaces = !flags.intersects(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE);
        let doomed = replaces
            .then(|| self.doom(op.new_parent.0, to.as_fd(), new_name, false))
            .flatten();
        {
            // A whiteout is a new object and belongs to the caller.
            let whiteout = flags.contains(RenameFlags::WHITEOUT);
            let _acting = whiteout
                .then(|| self.identity.own_as(caller(cx), 0))
                .transpose()?;
            self.identity.without_excess()?;
            rustix::fs::renameat_with(&from, name, &to, new_name, flags)?;
        }
        self.nodes.removed(doomed, self.settings.exclusive);
        self.moved(cx, to.as_fd(), new_name);
        if flags.contains(RenameFlags::EXCHANGE) {
            self.moved(cx, from.as_fd(), name);
        }
        Ok(())
    }

    pub(crate) fn do_create(
        &self,
        cx: &Context<'_>,
        op: &bickford::ops::Create<'_>,
        register: Register<'_>,
    ) -> Result<Created, Errno> {
        let dir = self.nodes.directory(op.parent.0)?;
        let name = checked(op.name)?;
        let flags = lower_flags(op.flags, self.write_back());
        let mode = Mode::from_raw_mode(op.mode & 0o7777);
        let exclusive = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = {
            set_umask(op.umask)?;
            let _acting = self.identity.own_as(caller(cx), op.mode)?;
            match rustix::fs::openat(&dir, name, flags | exclusive, mode) {
                // The name appeared below; the kernel has checked no right to open it. It asks
                // again for a name that is stale, and then opens what is there.
                Err(Errno::EXIST) if op.flags & OFlags::EXCL.bits() == 0 => Err(Errno::STALE),
                opened => opened.map_err(as_seen_by_callers),
            }?
        };
        let created = self.created(fd, flags, op.flags, register);
        created.inspect_err(|_| unmake(dir.as_fd(), name, AtFlags::empty()))
    }

    pub(crate) fn do_tmpfile(
        &self,
        cx: &Context<'_>,
        op: &Tmpfile,
        register: Register<'_>,
    ) -> Result<Created, Errno> {
        let dir = self.nodes.directory(op.parent.0)?;
        let exclusive = OFlags::from_bits_retain(op.flags) & OFlags::EXCL;
        let flags = lower_flags(op.flags, self.write_back());
        let how = flags | exclusive | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(op.mode & 0o7777);
        let fd = {
            set_umask(op.umask)?;
            let _acting = self.identity.own_as(caller(cx), op.mode)?;
            rustix::fs::openat(&dir, c".", how, mode).map_err(as_seen_by_callers)?
        };
        let kept = self.nodes.proc().reopen(fd.as_fd(), OFlags::PATH)?;
        self.nodes.ask_through(cx.notifier());
        let created = self.created(fd, flags, op.flags, register)?;
        let node = created.entry.node.0;
        // No name leads back to it, and nothing else keeps it: at once where no handle does, or else for who
        // holds an O_PATH descriptor of it alone.
        if !self.nodes.keep(node, kept) && self.io_mode() == IoMode::Cached {
            self.on_demand_writers.remove(node);
            self.nodes.forget(node, 1);
            return Err(Errno::NFILE);
        }
        Ok(created)
    }

    /// `lower_flags` are those that `fd` was opened with, without the flags of creation.
    fn created(
        &self,
        fd: OwnedFd,
        lower_flags: OFlags,
        flags: u32,
        register: Register<'_>,
    ) -> Result<Created, Errno> {
        let found = self.nodes.enter_opened(fd.as_fd())?;
        let lower = Lower {
            fd,
            flags: lower_flags,
            append_only: Some(found.statx.stx_attributes.contains(StatxAttributes::APPEND)),
        };
        // Before it counts as open: making a mapping invalidates what the kernel has of its times anyway.
        let entry = self.entry(&found);
        match self.opened(found.node, lower, flags, register) {
            Ok(opened) => Ok(Created { entry, opened }),
            Err(error) => {
                self.nodes.forget(found.node, 1);
                Err(error)
            }
        }
    }
}
