//! Attributes: getattr, statx, setattr, access, statfs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bickford::ops::{
    Access, Attr, Attributes, Entry, Getattr, SetTime, Setattr, Statfs, StatfsAnswer, StatxAnswer,
    Timestamp, encode_device,
};
use bickford::{Context, FileHandle, Generation, NodeId};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Statx, StatxFlags, StatxTimestamp, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
};
use rustix::io::Errno;

use crate::Inner;
use crate::caller::{keeps_set_id, may_change_mode};
use crate::io::Need;
use crate::io_mode::IoMode;
use crate::leases::AT_ONCE;
use crate::node::{Found, ProcFd};
use crate::set_id::{has_bits_to_lose, has_set_id, is_for_members_to_keep};

fn timestamp(time: StatxTimestamp) -> Timestamp {
    Timestamp {
        seconds: time.tv_sec,
        nanoseconds: time.tv_nsec,
    }
}

/// Attributes as the kernel wants them.
pub(crate) fn attr(statx: &Statx) -> Attr {
    Attr {
        ino: statx.stx_ino,
        size: statx.stx_size,
        blocks: statx.stx_blocks,
        accessed: timestamp(statx.stx_atime),
        modified: timestamp(statx.stx_mtime),
        changed: timestamp(statx.stx_ctime),
        mode: statx.stx_mode.into(),
        links: statx.stx_nlink,
        uid: statx.stx_uid,
        gid: statx.stx_gid,
        rdev: encode_device(statx.stx_rdev_major, statx.stx_rdev_minor),
        block_size: statx.stx_blksize,
        ..Attr::default()
    }
}

fn set_time(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        Some(SetTime::Now) => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        Some(SetTime::At(time)) => Timespec {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds.into(),
        },
    }
}

/// A descriptor of a node: the open file's own where one is given.
pub(crate) enum Object {
    Opened(Arc<OwnedFd>),
    Path(Arc<OwnedFd>),
}

impl AsFd for Object {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Opened(fd) | Self::Path(fd) => fd.as_fd(),
        }
    }
}

/// Why the kernel would have set-id bits dropped.
enum Occasion {
    Chown,
    /// A write is to come (`file_remove_privs` of the kernel).
    Write,
    /// The kernel does not say who has the file open.
    Either,
}

/// How long things are cached that should be watched and cannot be.
const UNWATCHED: Duration = Duration::from_secs(1);

impl Inner {
    /// An entry for a node that was looked up.
    pub(crate) fn entry(&self, found: &Found) -> Entry {
        let entry_valid = match self.settings.watch && found.elsewhere {
            // Names are told of directories of SOURCE's own mount alone.
            true => self.settings.entry_timeout.min(UNWATCHED),
            false => self.name_timeout(found.node, self.settings.entry_timeout),
        };
        let attr = attr(&found.statx);
        Entry {
            node: NodeId(found.node),
            generation: Generation(found.generation),
            attr_valid: self.attr_timeout(found.node),
            attr,
            entry_valid,
        }
    }

    /// `wanted`, but no more than [`UNWATCHED`] for what should be watched and is not, or not for good.
    pub(crate) fn timeout(&self, node: u64, wanted: Duration) -> Duration {
        let watched =
            || self.is_watched() && !self.overflows.are_final() && self.nodes.on_source(node);
        match self.settings.watch && !watched() {
            true => wanted.min(UNWATCHED),
            false => wanted,
        }
    }

    /// The same for names that have to do with a node: none where they have other spellings, of which the kernel
    /// hears nothing.
    pub(crate) fn name_timeout(&self, node: u64, wanted: Duration) -> Duration {
        match self.beneath.mounts.folds_case && self.nodes.may_fold_case(node) {
            true => Duration::ZERO,
            false => self.timeout(node, wanted),
        }
    }

    /// How long attributes are cached: not at all where a mapping may change them.
    pub(crate) fn attr_timeout(&self, node: u64) -> Duration {
        match self.mapped.contains(node) {
            true => Duration::ZERO,
            false => self.timeout(node, self.settings.attr_timeout),
        }
    }

    pub(crate) fn object(&self, node: NodeId, handle: Option<FileHandle>) -> Result<Object, Errno> {
        match handle.and_then(|handle| self.files.get(handle.0).ok()) {
            Some(file) => Ok(Object::Opened(self.descriptor(&file)?)),
            None => Ok(Object::Path(self.nodes.object(node.0)?)),
        }
    }

    fn attributes(&self, node: NodeId, object: &Object) -> Result<Attributes, Errno> {
        let statx = self.nodes.attributes_of(object.as_fd())?;
        let attr = attr(&statx);
        Ok(Attributes {
            valid: self.attr_timeout(node.0),
            attr,
        })
    }

    pub(crate) fn do_getattr(&self, op: &Getattr) -> Result<Attributes, Errno> {
        self.attributes(op.node, &self.object(op.node, op.handle)?)
    }

    pub(crate) fn do_statx(&self, op: &bickford::ops::Statx) -> Result<StatxAnswer, Errno> {
        let object = self.object(op.node, op.handle)?;
        let statx = self.nodes.attributes_of(object.as_fd())?;
        let born = statx.stx_mask & StatxFlags::BTIME.bits() != 0;
        let attr = attr(&statx);
        Ok(StatxAnswer {
            valid: self.attr_timeout(op.node.0),
            attr,
            born: born.then(|| timestamp(statx.stx_btime)),
        })
    }

    pub(crate) fn do_setattr(&self, cx: &Context<'_>, op: &Setattr) -> Result<Attributes, Errno> {
        self.identity.with_fsetid()?;
        let object = self.object(op.node, op.handle)?;
        let no_times = op.accessed.is_none() && op.modified.is_none();
        let nothing = op.mode.is_none() && op.size.is_none() && no_times;
        if op.uid.is_some() || op.gid.is_some() || nothing {
            self.set_owner(cx, op, &object)?;
        }
        if let Some(mode) = op.mode {
            self.open_before(op.node, &object, mode);
            self.set_mode(object.as_fd(), mode)?;
        }
        if let Some(size) = op.size {
            self.set_size(cx, op, &object, size)?;
        }
        if !no_times {
            let times = Timestamps {
                last_access: set_time(op.accessed),
                last_modification: set_time(op.modified),
            };
            let set = |times| rustix::fs::utimensat(&object, c"", times, AtFlags::EMPTY_PATH);
            match set(&times) {
                // An append-only file takes no time but the present one. The write-back cache tells the
                // times of its own writes, which the file has from ours, and of what is to be changed now.
                Err(Errno::PERM) if op.changed.is_some() => match op.accessed {
                    None => {}
                    Some(SetTime::Now) => set(&Timestamps {
                        last_modification: times.last_access,
                        ..times
                    })?,
                    Some(SetTime::At(_)) => return Err(Errno::PERM),
                },
                done => done?,
            }
        }
        self.attributes(op.node, &object)
    }

    /// Sets owner and group, which clears set-id bits and the rest of chown(2). Where neither is given it
    /// is chown(path, -1, -1), or has privileges dropped before a write.
    fn set_owner(&self, cx: &Context<'_>, op: &Setattr, object: &Object) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(object)?;
        let gives = op.uid.is_some() || op.gid.is_some();
        if self.settings.permission_checks && has_bits_to_lose(&stat) {
            match self.occasion(op, &stat) {
                Occasion::Write | Occasion::Either if keeps_set_id(cx) => return Ok(()),
                Occasion::Write => {}
                // The kernel has checked who gives the file away, but does not tell who that is.
                Occasion::Chown if gives && !cx.has_ids() => {}
                _ if may_change_mode(cx, stat.st_uid) => {}
                // WRITE says itself what goes.
                Occasion::Either => return Ok(()),
                // The kernel checks no right to the mode, which it leaves to us.
                Occasion::Chown => return Err(Errno::PERM),
            }
        }
        let drops = is_for_members_to_keep(&stat) && !keeps_set_id(cx);
        let acting = self.dropping_set_id(cx, &stat, drops)?;
        let uid = op.uid.map(Uid::from_raw);
        let gid = op.gid.map(Gid::from_raw);
        let done = rustix::fs::chownat(object, c"", uid, gid, AtFlags::EMPTY_PATH);
        drop(acting);
        // For what else is to be set.
        self.identity.with_fsetid()?;
        done
    }

    fn occasion(&self, op: &Setattr, stat: &Stat) -> Occasion {
        // The write-back cache tells the time of every other change of a file.
        let changes = op.uid.is_some() || op.gid.is_some() || op.changed.is_some();
        if changes || !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Occasion::Chown;
        }
        match self.io_mode() {
            _ if self.write_back() => Occasion::Write,
            IoMode::Cached => Occasion::Either,
            _ if self.writers.any(op.node.0) => Occasion::Write,
            _ => Occasion::Chown,
        }
    }

    /// Opens a file that the kernel opens without asking, and that may be open, while that can be done.
    fn open_before(&self, node: NodeId, object: &Object, mode: u32) {
        let asks = self.io_mode() != IoMode::Cached || self.identity.powers().override_modes;
        let mode = Mode::from_raw_mode(mode);
        if asks || mode.contains(Mode::RUSR | Mode::WUSR) {
            return;
        }
        let is_file = rustix::fs::fstat(object)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
        if is_file {
            for need in [Need::Read, Need::Write] {
                // Refused where it could not be open so either.
                let _ = self.file(node, FileHandle(0), need);
            }
        }
    }

    pub(crate) fn set_mode(&self, object: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let proc = self.nodes.proc();
        rustix::fs::chmodat(proc.dir(), ProcFd::name(object), mode, AtFlags::empty())
    }

    fn set_size(
        &self,
        cx: &Context<'_>,
        op: &Setattr,
        object: &Object,
        size: u64,
    ) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(object)?;
        let drops = op.kill_suidgid || (has_set_id(&stat) && !keeps_set_id(cx));
        let _acting = self.dropping_set_id(cx, &stat, drops)?;
        let kept = match object {
            Object::Opened(fd) => Some(Arc::clone(fd)),
            Object::Path(_) if self.io_mode() == IoMode::Cached => {
                self.on_demand_writers.get(op.node.0)
            }
            Object::Path(_) => None,
        };
        if let Some(fd) = kept {
            match rustix::fs::ftruncate(&fd, size) {
                // Open for reading only: the kernel has checked another right than that one.
                Err(Errno::INVAL | Errno::BADF) => {}
                done => return done,
            }
        }
        let flags = OFlags::WRONLY | AT_ONCE;
        let fd = match object {
            Object::Opened(fd) => self.nodes.proc().reopen(fd.as_fd(), flags)?,
            Object::Path(_) => self.nodes.open(op.node.0, flags)?,
        };
        rustix::fs::ftruncate(&fd, size)
    }

    /// Asked by access(2), and by chdir(2) of directories, where the kernel does not check itself.
    pub(crate) fn do_access(&self, op: &Access) -> Result<(), Errno> {
        if self.settings.permission_checks {
            return Err(Errno::NOSYS);
        }
        let object = self.nodes.object(op.node.0)?;
        #[allow(
            clippy::useless_conversion,
            reason = "an i32 where rustix is over libc"
        )]
        let mask = op.mask.try_into().map_err(|_| Errno::INVAL)?;
        let wanted = rustix::fs::Access::from_bits(mask).ok_or(Errno::INVAL)?;
        rustix::fs::access(ProcFd::path(object.as_fd()), wanted)
    }

    pub(crate) fn do_statfs(&self, op: &Statfs) -> Result<StatfsAnswer, Errno> {
        let object = self.nodes.object(op.node.0)?;
        Ok(StatfsAnswer::from(&rustix::fs::fstatvfs(&object)?))
    }
}
