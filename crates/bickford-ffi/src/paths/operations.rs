//! Each operation over paths as a flat request.

use std::ffi::CStr;
use std::path::Path;

use bickford::ops::{
    Attr, Attributes, Block, Copied, Data, IoctlAnswer, Lock, LockKind, Offset, Opened, Payload,
    PollAnswer, PollHandle, StatfsAnswer, StatxAnswer, Target, Timestamp, Written,
};
use bickford::path::future::FileSystem;
use bickford::path::{
    Allocation, Ioctl, Listing, New, Open, Owner, SetXattr, Statx, Subject, Times,
};
use bickford::{Context, Errno, LockOwner, Negotiation};
use rustix::fs::RenameFlags;

use super::asked::Asked;
use super::{Listed, PathCallbacks};
use crate::abi::*;
use crate::answer::Buffer;
use crate::parameters::{put_data, put_lock, put_name, put_name2};
use crate::setattr::{put_size, put_times, take_number};

/// Longest value of an extended attribute, and list of their names (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const XATTR_MAX: u64 = 65536;

type Answered<A> = Result<A, Errno>;

fn put_new(request: &mut bickford_request, new: New) {
    request.mode = new.mode;
    request.rdev = new.rdev;
    request.umask = new.umask;
}

fn put_open(request: &mut bickford_request, open: Open) {
    request.flags = open.flags;
    request.flags2 = open.open_flags.bits();
}

impl PathCallbacks {
    fn take_lock(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        owner: LockOwner,
        lock: &Lock,
        how: u32,
    ) -> Asked<()> {
        self.ask(cx, BICKFORD_OP_SETLK, file, |request| {
            request.lock_owner = owner.0;
            request.flags2 = how;
            put_lock(request, lock);
        })
    }
}

impl FileSystem for PathCallbacks {
    fn init(&self, negotiation: &mut Negotiation) -> Answered<()> {
        self.callbacks.negotiate(negotiation)
    }

    fn is_prompt(&self) -> bool {
        self.callbacks.prompt
    }

    /// A callback may have opened something, or taken a lock, when it answers: it is told of a signal
    /// (`bickford_deferred_interrupted`), and answers then.
    fn may_cancel(&self, _: bickford::abi::Opcode) -> bool {
        false
    }

    fn destroy(&self) {
        self.executor.end();
        self.callbacks.owner.end();
        self.executor.settle();
        self.callbacks.end();
    }

    async fn getattr(&self, cx: &Context<'_>, subject: Subject<'_>) -> Answered<Attr> {
        let asked: Asked<Attributes> = self.ask(cx, BICKFORD_OP_GETATTR, subject, |_| ());
        Ok(asked.await?.attr)
    }

    async fn readlink(&self, cx: &Context<'_>, path: &Path) -> Answered<Vec<u8>> {
        let asked: Asked<Target> = self.ask(cx, BICKFORD_OP_READLINK, path.into(), |_| ());
        Ok(asked.await?.0)
    }

    async fn mknod(&self, cx: &Context<'_>, path: &Path, new: New) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_MKNOD, path.into(), |request| {
            put_new(request, new);
        })
        .await
    }

    async fn mkdir(&self, cx: &Context<'_>, path: &Path, new: New) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_MKDIR, path.into(), |request| {
            put_new(request, new);
        })
        .await
    }

    async fn unlink(&self, cx: &Context<'_>, path: &Path) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_UNLINK, path.into(), |_| ()).await
    }

    async fn rmdir(&self, cx: &Context<'_>, path: &Path) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_RMDIR, path.into(), |_| ()).await
    }

    async fn symlink(&self, cx: &Context<'_>, path: &Path, target: &CStr) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_SYMLINK, path.into(), |request| {
            put_name2(request, target);
        })
        .await
    }

    async fn rename(
        &self,
        cx: &Context<'_>,
        from: &Path,
        to: &Path,
        flags: RenameFlags,
    ) -> Answered<()> {
        self.ask_both(cx, BICKFORD_OP_RENAME, from.into(), Some(to), |request| {
            request.flags = flags.bits();
        })
        .await
    }

    async fn link(&self, cx: &Context<'_>, existing: Subject<'_>, new: &Path) -> Answered<()> {
        self.ask_both(cx, BICKFORD_OP_LINK, existing, Some(new), |_| ())
            .await
    }

    async fn chmod(&self, cx: &Context<'_>, subject: Subject<'_>, mode: u32) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_SETATTR, subject, |request| {
            request.mode = take_number(request, Some(mode), BICKFORD_HAS_MODE);
        })
        .await
    }

    async fn chown(&self, cx: &Context<'_>, subject: Subject<'_>, owner: Owner) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_SETATTR, subject, |request| {
            request.new_uid = take_number(request, owner.uid, BICKFORD_HAS_UID);
            request.new_gid = take_number(request, owner.gid, BICKFORD_HAS_GID);
        })
        .await
    }

    async fn truncate(&self, cx: &Context<'_>, subject: Subject<'_>, size: u64) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_SETATTR, subject, |request| {
            put_size(request, size);
        })
        .await
    }

    async fn utimens(&self, cx: &Context<'_>, subject: Subject<'_>, times: Times) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_SETATTR, subject, |request| {
            put_times(request, times.accessed, times.modified);
        })
        .await
    }

    async fn open(&self, cx: &Context<'_>, path: &Path, open: Open) -> Answered<Opened> {
        self.ask(cx, BICKFORD_OP_OPEN, path.into(), |request| {
            put_open(request, open);
        })
        .await
    }

    async fn create(
        &self,
        cx: &Context<'_>,
        path: &Path,
        new: New,
        open: Open,
    ) -> Answered<Opened> {
        self.ask(cx, BICKFORD_OP_CREATE, path.into(), |request| {
            put_new(request, new);
            put_open(request, open);
        })
        .await
    }

    async fn tmpfile(
        &self,
        cx: &Context<'_>,
        path: &Path,
        new: New,
        open: Open,
    ) -> Answered<Opened> {
        self.ask(cx, BICKFORD_OP_TMPFILE, path.into(), |request| {
            put_new(request, new);
            put_open(request, open);
        })
        .await
    }

    async fn read(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        offset: u64,
        size: u32,
    ) -> Answered<Data> {
        self.ask(cx, BICKFORD_OP_READ, file, |request| {
            request.offset = offset;
            request.size = size.into();
        })
        .await
    }

    async fn write(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        offset: u64,
        data: Payload<'_>,
    ) -> Answered<u32> {
        let asked: Asked<Written> = {
            let data = data
                .bytes()
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            self.ask(cx, BICKFORD_OP_WRITE, file, |request| {
                request.offset = offset;
                request.size = data.len() as u64;
                put_data(request, &data);
            })
        };
        Ok(asked.await?.0)
    }

    async fn statfs(&self, cx: &Context<'_>, path: &Path) -> Answered<StatfsAnswer> {
        self.ask(cx, BICKFORD_OP_STATFS, path.into(), |_| ()).await
    }

    async fn flush(&self, cx: &Context<'_>, file: Subject<'_>, owner: LockOwner) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_FLUSH, file, |request| {
            request.lock_owner = owner.0;
        })
        .await
    }

    async fn release(&self, cx: &Context<'_>, file: Subject<'_>) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_RELEASE, file, |_| ()).await
    }

    async fn fsync(&self, cx: &Context<'_>, file: Subject<'_>, data_only: bool) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_FSYNC, file, |request| {
            request.flags2 = data_only.into();
        })
        .await
    }

    async fn setxattr(
        &self,
        cx: &Context<'_>,
        subject: Subject<'_>,
        xattr: SetXattr<'_>,
    ) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_SETXATTR, subject, |request| {
            put_name(request, xattr.name);
            put_data(request, xattr.value);
            request.size = xattr.value.len() as u64;
            request.flags = xattr.flags;
        })
        .await
    }

    async fn getxattr(
        &self,
        cx: &Context<'_>,
        subject: Subject<'_>,
        name: &CStr,
    ) -> Answered<Vec<u8>> {
        self.ask(cx, BICKFORD_OP_GETXATTR, subject, |request| {
            put_name(request, name);
            request.size = XATTR_MAX;
        })
        .await
    }

    async fn listxattr(&self, cx: &Context<'_>, subject: Subject<'_>) -> Answered<Vec<u8>> {
        self.ask(cx, BICKFORD_OP_LISTXATTR, subject, |request| {
            request.size = XATTR_MAX;
        })
        .await
    }

    async fn removexattr(
        &self,
        cx: &Context<'_>,
        subject: Subject<'_>,
        name: &CStr,
    ) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_REMOVEXATTR, subject, |request| {
            put_name(request, name);
        })
        .await
    }

    async fn opendir(&self, cx: &Context<'_>, path: &Path) -> Answered<Opened> {
        self.ask(cx, BICKFORD_OP_OPENDIR, path.into(), |_| ()).await
    }

    async fn readdir(
        &self,
        cx: &Context<'_>,
        directory: Subject<'_>,
        listing: &mut Listing,
    ) -> Answered<()> {
        let buffer = Buffer::of_names(listing.emptied());
        let (offset, attributes) = (listing.offset(), listing.wants_attributes());
        let asked: Asked<Listed> = self.ask_with(
            cx,
            BICKFORD_OP_READDIR,
            directory,
            |request| {
                request.offset = offset;
                request.flags = attributes.into();
            },
            |_| Ok(buffer),
        );
        *listing = asked.await?.0;
        Ok(())
    }

    async fn releasedir(&self, cx: &Context<'_>, directory: Subject<'_>) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_RELEASEDIR, directory, |_| ())
            .await
    }

    async fn fsyncdir(
        &self,
        cx: &Context<'_>,
        directory: Subject<'_>,
        data_only: bool,
    ) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_FSYNCDIR, directory, |request| {
            request.flags2 = data_only.into();
        })
        .await
    }

    async fn access(&self, cx: &Context<'_>, subject: Subject<'_>, mask: u32) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_ACCESS, subject, |request| {
            request.flags = mask;
        })
        .await
    }

    async fn getlk(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        owner: LockOwner,
        lock: Lock,
    ) -> Answered<Lock> {
        self.ask(cx, BICKFORD_OP_GETLK, file, |request| {
            request.lock_owner = owner.0;
            put_lock(request, &lock);
        })
        .await
    }

    async fn setlk(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        owner: LockOwner,
        lock: Lock,
        wait: bool,
    ) -> Answered<()> {
        self.take_lock(cx, file, owner, &lock, u32::from(wait) << 1)
            .await
    }

    async fn flock(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        owner: LockOwner,
        kind: LockKind,
        wait: bool,
    ) -> Answered<()> {
        let all = Lock {
            start: 0,
            end: i64::MAX.cast_unsigned(),
            kind,
            pid: cx.pid(),
        };
        self.take_lock(cx, file, owner, &all, 1 | u32::from(wait) << 1)
            .await
    }

    async fn bmap(
        &self,
        cx: &Context<'_>,
        path: &Path,
        block_size: u32,
        block: u64,
    ) -> Answered<u64> {
        let asked: Asked<Block> = self.ask(cx, BICKFORD_OP_BMAP, path.into(), |request| {
            request.offset = block;
            request.size = block_size.into();
        });
        Ok(asked.await?.0)
    }

    async fn poll(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        events: u32,
        waiter: Option<PollHandle>,
    ) -> Answered<u32> {
        let asked: Asked<PollAnswer> = self.ask(cx, BICKFORD_OP_POLL, file, |request| {
            request.flags2 = events;
            if let Some(waiter) = waiter {
                request.offset = waiter.0;
                request.present |= BICKFORD_HAS_WAITER;
            }
        });
        Ok(asked.await?.0)
    }

    async fn fallocate(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        range: Allocation,
    ) -> Answered<()> {
        self.ask(cx, BICKFORD_OP_FALLOCATE, file, |request| {
            request.offset = range.offset;
            request.size = range.length;
            request.flags = range.mode;
        })
        .await
    }

    async fn copy_file_range(
        &self,
        cx: &Context<'_>,
        from: Subject<'_>,
        offset: u64,
        to: Subject<'_>,
        to_offset: u64,
        length: u64,
    ) -> Answered<u64> {
        let second = to.path().ok();
        let asked: Asked<Copied> =
            self.ask_both(cx, BICKFORD_OP_COPY_FILE_RANGE, from, second, |request| {
                request.offset = offset;
                request.handle2 = to.handle().map_or(0, |handle| handle.0);
                request.offset2 = to_offset;
                request.size = length;
            });
        Ok(asked.await?.0)
    }

    async fn lseek(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        offset: u64,
        whence: u32,
    ) -> Answered<u64> {
        let asked: Asked<Offset> = self.ask(cx, BICKFORD_OP_LSEEK, file, |request| {
            request.offset = offset;
            request.flags = whence;
        });
        Ok(asked.await?.0)
    }

    async fn statx(
        &self,
        cx: &Context<'_>,
        subject: Subject<'_>,
        statx: Statx,
    ) -> Answered<(Attr, Option<Timestamp>)> {
        let asked: Asked<StatxAnswer> = self.ask(cx, BICKFORD_OP_STATX, subject, |request| {
            request.flags = statx.flags;
            request.flags2 = statx.mask;
        });
        let answer = asked.await?;
        Ok((answer.attr, answer.born))
    }

    async fn syncfs(&self, cx: &Context<'_>) -> Answered<()> {
        let root = Subject::of_path("/".as_ref());
        self.ask(cx, BICKFORD_OP_SYNCFS, root, |_| ()).await
    }

    async fn ioctl(
        &self,
        cx: &Context<'_>,
        file: Subject<'_>,
        ioctl: &Ioctl<'_>,
    ) -> Answered<IoctlAnswer> {
        if !self.callbacks.wants(BICKFORD_OP_IOCTL) {
            return Err(Errno::NOTTY);
        }
        self.ask(cx, BICKFORD_OP_IOCTL, file, |request| {
            request.flags = ioctl.flags.bits();
            request.flags2 = ioctl.command;
            request.offset = ioctl.argument;
            request.size = ioctl.output_size.into();
            put_data(request, ioctl.input);
        })
        .await
    }
}
