//! The operations: names, sizes and contents are translated, the rest passes.

use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::time::Duration;

use bickford::abi::{InitFlags, OpenOutFlags, WriteFlags};
use bickford::ops::{
    Access, Answer, Attr, Attributes, Create, Created, Data, Directory, Entry, Flush, Forget,
    Fsync, Fsyncdir, Getattr, Getlk, Getxattr, Keep, Link, Listxattr, Lock, Lookup, Mkdir, Mknod,
    Open, Opendir, Opened, Poll, PollAnswer, Read, Readdir, Readdirplus, Readlink, Release,
    Releasedir, Removexattr, Rename, Rmdir, Setattr, Setlk, Setxattr, Statfs, StatfsAnswer, Statx,
    StatxAnswer, Symlink, Syncfs, Target, Tmpfile, Unlink, Write, Written, XattrAnswer,
};
use bickford::{Context, DetachedContext, Errno, FileSystem, Negotiation, NodeId, Reply};

use crate::Crypt;
use crate::file::{File, Inner};
use crate::geometry::plain_size;
use crate::listing::{Wanted, list};
use crate::making::{Made, initialize, make_and_open};
use crate::names::{self, Kind, NAME_MAX, TARGET_MAX};
use crate::queue::{Mode, run};

const O_ACCMODE: u32 = 3;
const O_WRONLY: u32 = 1;
pub(crate) const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;
const O_DIRECT: u32 = 0o40000;
/// That of O_DSYNC, too.
const O_SYNC: u32 = 0o4_010_000;

/// Flags for the file below: whoever writes also reads, at offsets of ours.
fn flags_below(flags: u32) -> u32 {
    let below = flags & !(O_APPEND | O_DIRECT | O_TRUNC);
    match flags & O_ACCMODE {
        0 => below,
        _ => (below & !O_ACCMODE) | O_RDWR,
    }
}

/// A reply for the file system below, of whose answer `attr` are attributes: they go on as they are shown.
fn shown<A: Answer>(
    inner: &Arc<Inner>,
    reply: Reply<A>,
    attr: impl FnOnce(&mut A) -> (NodeId, &mut Attr, &mut Duration) + Send + 'static,
) -> Reply<A> {
    let inner = Arc::clone(inner);
    reply.wrap(move |result: Result<A, Errno>, reply| {
        reply.complete(result.map(|mut answer| {
            let (node, attr, valid) = attr(&mut answer);
            inner.shown(node, attr, valid);
            answer
        }));
    })
}

fn shown_entry(inner: &Arc<Inner>, reply: Reply<Entry>) -> Reply<Entry> {
    shown(inner, reply, |entry| {
        (entry.node, &mut entry.attr, &mut entry.attr_valid)
    })
}

fn shown_of(inner: &Arc<Inner>, node: NodeId, reply: Reply<Attributes>) -> Reply<Attributes> {
    shown(inner, reply, move |answer| {
        (node, &mut answer.attr, &mut answer.valid)
    })
}

impl Crypt {
    /// A name as it is below.
    fn name(&self, name: &CStr) -> Result<CString, Errno> {
        let bytes = name.to_bytes();
        if bytes == b"." || bytes == b".." {
            return Ok(name.to_owned());
        }
        if bytes.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        self.seal(Kind::Name, bytes)
    }

    fn seal(&self, kind: Kind, plain: &[u8]) -> Result<CString, Errno> {
        let sealed = names::seal(&self.inner.keys, kind, plain).map_err(|_| Errno::IO)?;
        CString::new(sealed).map_err(|_| Errno::IO)
    }

    fn file(&self, cx: &Context<'_>, node: NodeId, handle: bickford::FileHandle) -> Option<File> {
        let id = self.inner.id_of(node, handle)?;
        let inner = Arc::clone(&self.inner);
        Some(File::new(inner, cx.detach(), node, handle, id))
    }
}

/// Changes the size of an open file in its turn.
fn resize(file: File, size: u64, then: impl FnOnce(Result<(), Errno>) + Send + 'static) {
    let queues = file.inner.queues.clone();
    queues.enter(file.node, Mode::Write, move |turn| {
        let changed = file.clone();
        file.length_below(move |length| {
            let (inner, node, handle) = (Arc::clone(&changed.inner), changed.node, changed.handle);
            let then: Box<dyn FnOnce(Result<(), Errno>) + Send> = Box::new(move |result| {
                if result.is_ok() && size == 0 {
                    inner.found_empty(node, handle);
                }
                drop(turn);
                then(result);
            });
            let length = match length {
                Ok(length) => length,
                Err(errno) => return then(Err(errno)),
            };
            match size.cmp(&plain_size(length)) {
                // An empty file is made whole where it is damaged.
                Ordering::Equal if size == 0 => changed.shrink(size, then),
                Ordering::Less => changed.shrink(size, then),
                Ordering::Greater => changed.change(size, Vec::new(), then),
                // truncate(2) to the same size changes the times, too.
                Ordering::Equal => changed.resize_below(length, then),
            }
        });
    });
}

impl Crypt {
    /// Opens a file for an operation that comes without an open one.
    fn with_opened(
        &self,
        cx: &Context<'_>,
        node: NodeId,
        then: impl FnOnce(Result<(File, Opened), Errno>) + Send + 'static,
    ) {
        let inner = Arc::clone(&self.inner);
        let detached = cx.detach();
        let reply = Reply::intercept(move |result: Result<Opened, Errno>| {
            let opened = match result {
                Ok(opened) => opened,
                Err(errno) => return then(Err(errno)),
            };
            let below = Arc::clone(&inner);
            let context = detached.clone();
            let identified = move |id| match id {
                Ok(id) => {
                    let file = File::new(inner, detached, node, opened.handle, id);
                    then(Ok((file, opened)));
                }
                Err(errno) => {
                    inner.release(&detached, node, opened, O_RDWR);
                    then(Err(errno));
                }
            };
            below.identify(&context, node, opened.handle, false, identified);
        });
        self.inner.lower.0.open(cx, Open::new(node, O_RDWR), reply);
    }

    /// A reply for the file system below that makes a file: it gets its header before `reply` is answered.
    fn beginning(&self, cx: &Context<'_>, made: Made, reply: Reply<Created>) -> Reply<Created> {
        let inner = Arc::clone(&self.inner);
        let detached = cx.detach();
        reply.wrap(move |result: Result<Created, Errno>, reply| match result {
            Ok(created) => {
                let then = move |result| reply.complete(result);
                initialize(&inner, &detached, created, made, then);
            }
            Err(errno) => reply.error(errno),
        })
    }

    /// The part of SETATTR that does not concern the size.
    fn set_rest(inner: &Arc<Inner>, cx: &DetachedContext, rest: Setattr, reply: Reply<Attributes>) {
        let nothing = rest.mode.is_none()
            && rest.uid.is_none()
            && rest.gid.is_none()
            && rest.accessed.is_none()
            && rest.modified.is_none()
            && rest.changed.is_none()
            && !rest.kill_suidgid;
        let below = shown_of(inner, rest.node, reply);
        let cx = cx.context();
        if nothing {
            let op = Getattr::new(rest.node, rest.handle);
            return inner.lower.0.getattr(&cx, op, below);
        }
        inner.lower.0.setattr(&cx, rest, below);
    }
}

macro_rules! pass {
    ($($method:ident($operation:ty) -> $answer:ty;)+) => {
        $(
            fn $method(&self, cx: &Context<'_>, op: $operation, reply: Reply<$answer>) {
                self.inner.lower.0.$method(cx, op, reply);
            }
        )+
    };
}

/// Encrypts names of an operation, or answers with the error.
macro_rules! sealed {
    ($self:ident, $reply:ident, $op:ident, $($name:ident),+) => {
        $(
            let $name = match $self.name($op.$name) {
                Ok(name) => name,
                Err(errno) => return $reply.error(errno),
            };
        )+
        let mut $op = $op;
        $($op.$name = &$name;)+
    };
}

impl FileSystem for Crypt {
    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        negotiation.withhold(
            InitFlags::PASSTHROUGH
                | InitFlags::NO_OPEN_SUPPORT
                | InitFlags::ATOMIC_O_TRUNC
                | InitFlags::EXPORT_SUPPORT,
        );
        for mode in Crypt::needs().turned_off() {
            tracing::info!(layer = "crypt", "{mode}");
        }
        self.inner.lower.0.init(negotiation)?;
        negotiation.set_splice_writes(false);
        Ok(())
    }

    fn destroy(&self) {
        self.inner.lower.0.destroy();
    }

    fn forget(&self, forgets: &[Forget]) {
        self.inner.lower.0.forget(forgets);
    }

    pass! {
        fsync(Fsync) -> ();
        setxattr(Setxattr<'_>) -> ();
        getxattr(Getxattr<'_>) -> XattrAnswer;
        listxattr(Listxattr) -> XattrAnswer;
        removexattr(Removexattr<'_>) -> ();
        flush(Flush) -> ();
        opendir(Opendir) -> Opened;
        releasedir(Releasedir) -> ();
        fsyncdir(Fsyncdir) -> ();
        getlk(Getlk) -> Lock;
        setlk(Setlk) -> ();
        access(Access) -> ();
        poll(Poll) -> PollAnswer;
        syncfs(Syncfs) -> ();
    }

    fn lookup(&self, cx: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        sealed!(self, reply, op, name);
        let below = shown_entry(&self.inner, reply);
        self.inner.lower.0.lookup(cx, op, below);
    }

    fn mkdir(&self, cx: &Context<'_>, op: Mkdir<'_>, reply: Reply<Entry>) {
        sealed!(self, reply, op, name);
        self.inner.lower.0.mkdir(cx, op, reply);
    }

    fn unlink(&self, cx: &Context<'_>, op: Unlink<'_>, reply: Reply<()>) {
        sealed!(self, reply, op, name);
        self.inner.lower.0.unlink(cx, op, reply);
    }

    fn rmdir(&self, cx: &Context<'_>, op: Rmdir<'_>, reply: Reply<()>) {
        sealed!(self, reply, op, name);
        self.inner.lower.0.rmdir(cx, op, reply);
    }

    fn rename(&self, cx: &Context<'_>, op: Rename<'_>, reply: Reply<()>) {
        sealed!(self, reply, op, name, new_name);
        self.inner.lower.0.rename(cx, op, reply);
    }

    fn link(&self, cx: &Context<'_>, op: Link<'_>, reply: Reply<Entry>) {
        sealed!(self, reply, op, new_name);
        let below = shown_entry(&self.inner, reply);
        self.inner.lower.0.link(cx, op, below);
    }

    fn symlink(&self, cx: &Context<'_>, op: Symlink<'_>, reply: Reply<Entry>) {
        sealed!(self, reply, op, name);
        if op.target.count_bytes() > TARGET_MAX {
            return reply.error(Errno::NAMETOOLONG);
        }
        let target = match self.seal(Kind::Target, op.target.to_bytes()) {
            Ok(target) => target,
            Err(errno) => return reply.error(errno),
        };
        op.target = &target;
        let below = shown_entry(&self.inner, reply);
        self.inner.lower.0.symlink(cx, op, below);
    }

    fn readlink(&self, cx: &Context<'_>, op: Readlink, reply: Reply<Target>) {
        let inner = Arc::clone(&self.inner);
        let below = reply.wrap(move |result: Result<Target, Errno>, reply| {
            reply.complete(result.and_then(|Target(text)| {
                let target = names::open(&inner.keys, Kind::Target, &text);
                target.map(Target).map_err(|_| Errno::IO)
            }));
        });
        self.inner.lower.0.readlink(cx, op, below);
    }

    fn getattr(&self, cx: &Context<'_>, op: Getattr, reply: Reply<Attributes>) {
        let below = shown_of(&self.inner, op.node, reply);
        // The kernel says by which open file it asks when it is to read.
        let opened = op.handle.and_then(|handle| self.file(cx, op.node, handle));
        let below = match opened {
            None => below,
            Some(file) => below.wrap(|result: Result<Attributes, Errno>, reply| match result {
                Ok(answer) => file.verified(answer, |answer| reply.complete(answer)),
                Err(errno) => reply.error(errno),
            }),
        };
        self.inner.lower.0.getattr(cx, op, below);
    }

    fn statx(&self, cx: &Context<'_>, op: Statx, reply: Reply<StatxAnswer>) {
        let below = shown(&self.inner, reply, move |answer| {
            (op.node, &mut answer.attr, &mut answer.valid)
        });
        self.inner.lower.0.statx(cx, op, below);
    }

    fn statfs(&self, cx: &Context<'_>, op: Statfs, reply: Reply<StatfsAnswer>) {
        let below = reply.wrap(|result: Result<StatfsAnswer, Errno>, reply| {
            reply.complete(result.map(|mut answer| {
                answer.name_max = answer.name_max.min(NAME_MAX as u32);
                answer
            }));
        });
        self.inner.lower.0.statfs(cx, op, below);
    }

    fn setattr(&self, cx: &Context<'_>, mut op: Setattr, reply: Reply<Attributes>) {
        let Some(size) = op.size.take() else {
            let below = shown_of(&self.inner, op.node, reply);
            return self.inner.lower.0.setattr(cx, op, below);
        };
        if size > crate::SIZE_MAX {
            return reply.error(Errno::FBIG);
        }
        let inner = Arc::clone(&self.inner);
        // When it is used the size was changed.
        let context = cx.detach().uninterrupted();
        let finish = move |result: Result<(), Errno>| match result {
            Ok(()) => Self::set_rest(&inner, &context, op, reply),
            Err(errno) => reply.error(errno),
        };
        let mut flags = WriteFlags::empty();
        flags.set(WriteFlags::KILL_SUIDGID, op.kill_suidgid);
        if let Some(mut file) = op.handle.and_then(|handle| self.file(cx, op.node, handle)) {
            file.flags = flags;
            return resize(file, size, finish);
        }
        self.with_opened(cx, op.node, move |opened| match opened {
            Err(errno) => finish(Err(errno)),
            Ok((mut file, opened)) => {
                file.flags = flags;
                let (inner, context) = (Arc::clone(&file.inner), file.cx.clone());
                resize(file, size, move |result| {
                    inner.release(&context, op.node, opened, O_RDWR);
                    finish(result);
                });
            }
        });
    }

    fn open(&self, cx: &Context<'_>, mut op: Open, reply: Reply<Opened>) {
        let to_read = op.flags & O_ACCMODE != O_WRONLY;
        op.flags = flags_below(op.flags);
        let inner = Arc::clone(&self.inner);
        let detached = cx.detach();
        let below = reply.wrap(move |result: Result<Opened, Errno>, reply| {
            let mut opened = match result {
                Ok(opened) => opened,
                Err(errno) => return reply.error(errno),
            };
            opened.flags -= OpenOutFlags::PASSTHROUGH;
            opened.backing_id = 0;
            let (context, after) = (detached.clone(), Arc::clone(&inner));
            inner.identify(
                &context,
                op.node,
                opened.handle,
                to_read,
                move |id| match id {
                    Ok(id) => {
                        after.remember(op.node, opened.handle, id);
                        reply.ok(opened);
                    }
                    Err(errno) => {
                        after.release(&detached, op.node, opened, op.flags);
                        reply.error(errno);
                    }
                },
            );
        });
        self.inner.lower.0.open(cx, op, below);
    }

    fn create(&self, cx: &Context<'_>, op: Create<'_>, reply: Reply<Created>) {
        sealed!(self, reply, op, name);
        op.flags = flags_below(op.flags | O_RDWR);
        let made = Made {
            place: Some((op.parent, op.name.to_owned())),
            flags: op.flags,
        };
        let below = self.beginning(cx, made, reply);
        self.inner.lower.0.create(cx, op, below);
    }

    fn tmpfile(&self, cx: &Context<'_>, mut op: Tmpfile, reply: Reply<Created>) {
        op.flags = flags_below(op.flags | O_RDWR);
        let made = Made {
            place: None,
            flags: op.flags,
        };
        let below = self.beginning(cx, made, reply);
        self.inner.lower.0.tmpfile(cx, op, below);
    }

    fn mknod(&self, cx: &Context<'_>, op: Mknod<'_>, reply: Reply<Entry>) {
        sealed!(self, reply, op, name);
        if op.mode & 0o170_000 != 0o100_000 && op.mode & 0o170_000 != 0 {
            return self.inner.lower.0.mknod(cx, op, reply);
        }
        let flags = O_CREAT | O_EXCL | O_RDWR;
        let create = Create::new(op.parent, op.name, op.mode, op.umask, flags);
        let made = Made {
            place: Some((op.parent, op.name.to_owned())),
            flags,
        };
        let inner = Arc::clone(&self.inner);
        let detached = cx.detach();
        let opened = reply.wrap(move |result: Result<Created, Errno>, reply| {
            reply.complete(result.map(|created| {
                inner.forget_handle(created.entry.node, created.opened.handle);
                inner.release(&detached, created.entry.node, created.opened, flags);
                created.entry
            }));
        });
        let (inner, detached, kept) = (Arc::clone(&self.inner), cx.detach(), op.keep(false));
        let below = self.beginning(cx, made, opened).wrap(move |result, reply| {
            match result {
                // The kernel makes files so where there is no other way.
                Err(Errno::NOSYS) => make_and_open(&inner, detached, kept, reply),
                result => reply.complete(result),
            }
        });
        self.inner.lower.0.create(cx, create, below);
    }

    fn release(&self, cx: &Context<'_>, op: Release, reply: Reply<()>) {
        self.inner.forget_handle(op.node, op.handle);
        self.inner.lower.0.release(cx, op, reply);
    }

    fn read(&self, cx: &Context<'_>, op: Read, reply: Reply<Data>) {
        let Some(file) = self.file(cx, op.node, op.handle) else {
            return reply.error(Errno::BADF);
        };
        self.inner.queues.enter(op.node, Mode::Read, move |turn| {
            file.read(op.offset, op.size, move |result| {
                drop(turn);
                reply.complete(result);
            });
        });
    }

    fn write(&self, cx: &Context<'_>, op: Write<'_>, reply: Reply<Written>) {
        let Some(mut file) = self.file(cx, op.node, op.handle) else {
            return reply.error(Errno::BADF);
        };
        file.flags = op.write_flags & (WriteFlags::KILL_SUIDGID | WriteFlags::CACHE);
        file.sync = op.flags & O_SYNC;
        let data = match op.data.bytes() {
            Ok(data) => data.into_owned(),
            Err(error) => return reply.error(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        };
        let (offset, length) = (op.offset, data.len());
        if length == 0 {
            return reply.ok(Written(0));
        }
        // The kernel's offset is the size that it knows: others may have appended since. With its write-back cache it
        // alone knows where the file ends.
        let writes_back = cx.protocol().flags.contains(InitFlags::WRITEBACK_CACHE)
            || op.write_flags.contains(WriteFlags::CACHE);
        let append = op.flags & O_APPEND != 0 && !writes_back;
        self.inner.queues.enter(op.node, Mode::Write, move |turn| {
            let then = move |result: Result<(), Errno>| {
                drop(turn);
                let length = u32::try_from(length).unwrap_or(u32::MAX);
                reply.complete(result.map(|()| Written(length)));
            };
            match append {
                true => file.append(data, Box::new(then)),
                false => file.change(offset, data, Box::new(then)),
            }
        });
    }

    fn readdir(&self, cx: &Context<'_>, op: Readdir, reply: Reply<Directory>) {
        self.list(cx, Wanted::Plain(op), reply);
    }

    fn readdirplus(&self, cx: &Context<'_>, op: Readdirplus, reply: Reply<Directory>) {
        self.list(cx, Wanted::Plus(op), reply);
    }
}

impl Crypt {
    fn list(&self, cx: &Context<'_>, wanted: Wanted, reply: Reply<Directory>) {
        let inner = Arc::clone(&self.inner);
        let cx = cx.detach();
        run(move || list(&inner, cx, wanted, reply));
    }
}
