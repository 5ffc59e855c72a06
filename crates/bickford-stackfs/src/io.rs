//! Open files: open, read, write and what else is done through a handle.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use bickford::abi::{OpenOutFlags, WriteFlags};
use bickford::ops::{
    Attr, Copied, CopyFileRange, Fallocate, Lseek, Offset, Open, Opened, Release, Timestamp, Write,
    Written,
};
use bickford::{Context, FileHandle, NodeId, Reply};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::Inner;
use crate::append::{append_to, is_marked_append_only, write_back};
use crate::backing::{File, Register, Way};
use crate::descriptors::Permit;
use crate::invalidation::{answer_after_invalidation, forget_attributes};
use crate::io_mode::IoMode;
use crate::leases::AT_ONCE;
use crate::leaving::Left;
use crate::locks::Claims;
use crate::lower_files::{Description, Key};
use crate::magic::Traits;
use crate::mapped::Changed;
use crate::sys;

/// An open file.
pub(crate) struct OpenFile {
    /// Shared with other opens of the inode. None where the kernel has the file open, and descriptors are
    /// scarce.
    pub(crate) lower: Option<Arc<Description>>,
    /// How many failures of `lower` need not be told any more.
    pub(crate) failures_seen: AtomicU64,
    /// What the lower file was opened with.
    pub(crate) lower_flags: OFlags,
    /// Whether `lower` is counted in [`crate::lower_files::LowerFiles`].
    shared: bool,
    /// This open's alone, of a computed file or from the first flock(2) on: such locks belong to the description.
    flock: OnceLock<(Arc<OwnedFd>, Permit)>,
    pub(crate) node: u64,
    /// Whether the caller may write, so that the page cache may hold what the lower has not.
    writable: bool,
    /// Whether [`crate::backing::Backings`] counts this open.
    counted: bool,
    /// Whether [`crate::mapped::Mapped`] does.
    mappable: bool,
    /// Its contents are made when they are read, whatever its size says.
    pub(crate) computed: bool,
    /// Closing it below may tell what became of writes.
    pub(crate) reports: bool,
    /// What record locks were taken through this handle.
    pub(crate) claims: Claims,
    /// Whether it may be about to go, with its locks: says so until these are gone, so it is dropped after them.
    pub(crate) left: Mutex<Option<Left>>,
}

impl OpenFile {
    fn new(node: u64, flags: u32, lower_flags: OFlags, way: Option<Way>) -> Self {
        let both = OFlags::from_bits_retain(flags) & OFlags::RWMODE == OFlags::RDWR;
        Self {
            lower: None,
            failures_seen: AtomicU64::new(0),
            lower_flags,
            shared: false,
            flock: OnceLock::new(),
            node,
            writable: is_writable(flags),
            counted: way.is_some(),
            mappable: both && matches!(way, Some(Way::Kernel(_))),
            computed: false,
            reports: false,
            claims: Claims::default(),
            left: Mutex::default(),
        }
    }

    /// Whether it has, or had, locks that go with it.
    pub(crate) fn holds_locks(&self) -> bool {
        self.flock.get().is_some() || self.claims.any()
    }

    fn shares(&mut self, lower: &Arc<Description>) {
        self.failures_seen = AtomicU64::new(lower.failed());
        self.lower = Some(Arc::clone(lower));
    }

    fn key(&self) -> Key {
        Key {
            node: self.node,
            flags: self.lower_flags,
        }
    }
}

/// A lower file that was just opened.
pub(crate) struct Lower {
    pub(crate) fd: OwnedFd,
    /// What it was opened with.
    pub(crate) flags: OFlags,
    /// Whether it is marked append-only (chattr(1)), where that is known.
    pub(crate) append_only: Option<bool>,
}

/// The lower side of the flags of open(2).
///
/// Creation flags go with the operations that create. `O_DIRECT` asks to bypass a cache, which is
/// the kernel's; here it would only demand aligned buffers. `O_APPEND` comes with each write.
pub(crate) fn lower_flags(flags: u32, write_back: bool) -> OFlags {
    let flags = OFlags::from_bits_retain(flags);
    let kept = flags & (OFlags::RWMODE | OFlags::SYNC | OFlags::DSYNC | OFlags::NOATIME);
    // A partial page that is written back is read first.
    if write_back && kept & OFlags::RWMODE == OFlags::WRONLY {
        return kept.difference(OFlags::RWMODE) | OFlags::RDWR;
    }
    kept
}

fn is_writable(flags: u32) -> bool {
    OFlags::from_bits_retain(flags) & OFlags::RWMODE != OFlags::RDONLY
}

/// EINVAL where the file system of a file that nobody uses yet has no direct I/O: the kernel, which opens it so
/// for pass-through, would fail with another error.
fn takes_direct(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT)?;
    rustix::fs::fcntl_setfl(fd, flags)
}

fn last_changed(fd: BorrowedFd<'_>) -> Option<Changed> {
    let stat = rustix::fs::fstat(fd).ok()?;
    let times = Attr::from(&stat);
    let time = |time: Timestamp| (time.seconds, time.nanoseconds);
    Some(Changed {
        changed: time(times.changed),
        modified: time(times.modified),
        blocks: stat.st_blocks,
    })
}

pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Whether a descriptor is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Read,
    Write,
}

impl Inner {
    pub(crate) fn do_open(
        &self,
        cx: &Context<'_>,
        op: &Open,
        register: Register<'_>,
    ) -> Result<Opened, Errno> {
        if self.in_force().io == IoMode::Cached {
            // The kernel opens without asking from now on.
            return Err(Errno::NOSYS);
        }
        let flags = OFlags::from_bits_retain(op.flags);
        if flags & (OFlags::RWMODE | OFlags::DIRECT) == OFlags::RDONLY
            && let Some((id, lower)) = self.backings.read_again(op.node.0)
        {
            let way = Some(Way::Kernel(id));
            let mut file = OpenFile::new(op.node.0, op.flags, OFlags::RDONLY, way);
            file.shares(&lower);
            file.reports = self.may_report(op.node.0, lower.fd.as_fd());
            return self.handle(file, lower.fd.as_fd(), way);
        }
        let mut wanted = lower_flags(op.flags, self.write_back());
        let open = |flags| {
            let fd = self.open_for(cx, op.node.0, flags)?;
            Ok(Lower {
                fd,
                flags,
                append_only: None,
            })
        };
        let mut lower = open(wanted);
        // Who serves may be allowed to write alone: then nothing is read to be written back.
        if matches!(lower, Err(Errno::ACCESS)) && flags & OFlags::RWMODE == OFlags::WRONLY {
            wanted = lower_flags(op.flags, false);
            lower = open(wanted);
        }
        // Only a file's owner may ask for it, and who serves may be another.
        if matches!(lower, Err(Errno::PERM)) && wanted.contains(OFlags::NOATIME) {
            wanted.remove(OFlags::NOATIME);
            lower = open(wanted);
        }
        // A file that is append-only refuses to be opened otherwise.
        if matches!(lower, Err(Errno::PERM)) && flags.contains(OFlags::APPEND) {
            lower = open(wanted | OFlags::APPEND);
        }
        let lower = lower?;
        self.opened(op.node.0, lower, op.flags, register)
    }

    /// Makes a handle of a file that was opened with the caller's `flags`.
    pub(crate) fn opened(
        &self,
        node: u64,
        lower: Lower,
        flags: u32,
        register: Register<'_>,
    ) -> Result<Opened, Errno> {
        if self.in_force().io == IoMode::Cached {
            // Once it opens without asking, the kernel does not say when a file is closed, not even
            // one that was made: a handle would stay for good.
            if is_writable(flags) {
                self.on_demand_writers.insert(node, Arc::new(lower.fd));
            }
            let reports = self.beneath.mounts.reports_on_close;
            return Ok(self.treatment(node, 0, None, false, reports));
        }
        let own = Description::new(Arc::new(lower.fd));
        let Traits {
            computed,
            reports_on_close,
            ..
        } = self.traits(node, own.fd.as_fd());
        let scarce =
            self.lower_files.are_scarce() && !reports_on_close && self.nodes.is_handle(node);
        let pass = self.in_force().io == IoMode::Passthrough && !computed;
        if pass && OFlags::from_bits_retain(flags).contains(OFlags::DIRECT) {
            takes_direct(own.fd.as_fd())?;
        }
        if lower.flags.contains(OFlags::APPEND) {
            // Others may have made it append-only since it was registered.
            self.backings.renew(node);
        }
        let unshared = self.settings.exclusive || self.is_watched();
        let way = pass.then(|| {
            let file = File {
                lower: &own,
                // Others are to find no file open that nobody has open: it keeps space and leases.
                lasting: unshared && !is_writable(flags) && !scarce,
            };
            // The kernel writes below with the credentials of this moment. It asks for set-id bits to be
            // dropped (SETATTR) before, where the writer has no right to keep them.
            self.backings.open(node, &file, &|file| {
                // A mapping of the lower file writes anywhere in it, and the kernel refuses one that is shared
                // and writable only where it knows that the file is append-only.
                let marked = lower.append_only;
                if marked.unwrap_or_else(|| is_marked_append_only(file)) {
                    return Some(Err(Errno::INVAL.into()));
                }
                self.identity.with_fsetid().ok()?;
                register(file)
            })
        });
        let mut file = OpenFile::new(node, flags, lower.flags, way);
        file.computed = computed;
        file.reports = reports_on_close;
        if computed {
            // Opened with the rights of its caller, it serves nobody else.
            let room = Permit::of(&self.open_dirs)?;
            file.flock = OnceLock::from((Arc::clone(&own.fd), room));
            file.shares(&own);
        } else if !(scarce && matches!(way, Some(Way::Kernel(_)))) {
            let kept = self.lower_files.open(file.key(), &own);
            file.shares(&kept.inspect_err(|_| self.uncount(&file))?);
            file.shared = true;
        }
        self.handle(file, own.fd.as_fd(), way)
    }

    /// An open file counts no longer.
    fn uncount(&self, file: &OpenFile) {
        if file.counted {
            self.backings.close(file.node);
        }
        if file.shared {
            self.lower_files.close(file.key());
        }
    }

    /// Makes a handle of `file`; `fd` is open as it is.
    fn handle(
        &self,
        file: OpenFile,
        fd: BorrowedFd<'_>,
        way: Option<Way>,
    ) -> Result<Opened, Errno> {
        let (node, writable, mappable) = (file.node, file.writable, file.mappable);
        let past_the_cache = self.goes_past_the_cache(&file);
        let reports = file.reports;
        let changed = mappable.then(|| last_changed(fd)).flatten();
        let handle = self.files.insert(file).map_err(|file| {
            self.uncount(&file);
            Errno::NFILE
        })?;
        let others_write = match writable {
            true => self.writers.add(node),
            false => self.writers.any(node),
        };
        if mappable {
            self.mapped.opened(node, changed);
        }
        let mut opened = self.treatment(node, handle, way, others_write, reports);
        if past_the_cache {
            opened.flags |= OpenOutFlags::DIRECT_IO;
            opened.flags -= OpenOutFlags::KEEP_CACHE;
        }
        Ok(opened)
    }

    fn treatment(
        &self,
        node: u64,
        handle: u64,
        way: Option<Way>,
        others_write: bool,
        reports: bool,
    ) -> Opened {
        let mut flags = OpenOutFlags::empty();
        let current = self.settings.exclusive || others_write && self.is_told_of_data();
        // What is written through a mapping of the lower file is not in the mount's page cache.
        if current && !self.mapped.contains(node) {
            flags |= OpenOutFlags::KEEP_CACHE;
        }
        flags.set(OpenOutFlags::NOFLUSH, self.settings.exclusive && !reports);
        let mut backing_id = 0;
        if let Some(Way::Kernel(id)) = way {
            backing_id = id;
            flags |= OpenOutFlags::PASSTHROUGH;
            flags -= OpenOutFlags::KEEP_CACHE;
        } else if self.in_force().io == IoMode::Direct {
            flags |= OpenOutFlags::DIRECT_IO | OpenOutFlags::PARALLEL_DIRECT_WRITES;
            flags -= OpenOutFlags::KEEP_CACHE;
        }
        Opened {
            handle: FileHandle(handle),
            flags,
            backing_id,
        }
    }

    /// A descriptor of an open file. Without a handle, because the kernel did not ask to open it,
    /// one that is opened on demand and kept for the next time.
    pub(crate) fn file(
        &self,
        node: NodeId,
        handle: FileHandle,
        need: Need,
    ) -> Result<Arc<OwnedFd>, Errno> {
        let found = self.file_or_computed(node, handle, need, OFlags::empty());
        found.map(|(fd, _)| fd)
    }

    /// The same, and whether it is computed: to be read and written as the caller. With [`AT_ONCE`] as `patience`,
    /// EWOULDBLOCK while a lease is in the way.
    ///
    /// [`AT_ONCE`]: crate::leases::AT_ONCE
    pub(crate) fn file_or_computed(
        &self,
        node: NodeId,
        handle: FileHandle,
        need: Need,
        patience: OFlags,
    ) -> Result<(Arc<OwnedFd>, bool), Errno> {
        if handle.0 != 0 || self.in_force().io != IoMode::Cached {
            let file = self.files.get(handle.0)?;
            return Ok((self.descriptor(&file)?, file.computed));
        }
        let (kept, flags) = match need {
            Need::Read => (&self.readers, OFlags::RDONLY | patience),
            Need::Write => (&self.on_demand_writers, OFlags::RDWR | patience),
        };
        if let Some(fd) = kept.get(node.0) {
            return Ok((fd, false));
        }
        let opened = match self.open_unasked(node.0, flags, need) {
            Err(Errno::PERM) if need == Need::Write => {
                self.open_unasked(node.0, flags | OFlags::APPEND, need)
            }
            opened => opened,
        };
        let fd = Arc::new(opened?);
        kept.insert(node.0, Arc::clone(&fd));
        Ok((fd, false))
    }

    /// A descriptor of an open file: the one that is kept, or a new one.
    pub(crate) fn descriptor(&self, file: &OpenFile) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(lower) = &file.lower {
            return Ok(Arc::clone(&lower.fd));
        }
        let opened = match self.nodes.open(file.node, file.lower_flags) {
            // Made immutable since: what does not change it is still to work.
            Err(Errno::PERM) => self.nodes.open(file.node, OFlags::RDONLY),
            opened => opened,
        };
        opened.map(Arc::new)
    }

    /// A descriptor that no other open shares, for flock(2).
    pub(crate) fn flock_descriptor(&self, file: &OpenFile) -> Result<Arc<OwnedFd>, Errno> {
        if let Some((fd, _)) = file.flock.get() {
            return Ok(Arc::clone(fd));
        }
        let room = Permit::of(&self.flocks).map_err(|_| Errno::NOLCK)?;
        // A lock on NFS asks for the access that the caller has, others for any.
        let access = file.lower_flags & (OFlags::RWMODE | OFlags::APPEND);
        let ways = [access, OFlags::RDONLY, OFlags::WRONLY];
        let fd = self.descriptor(file)?;
        let own = Arc::new(self.nodes.proc().reopen_to_lock(fd.as_fd(), ways)?);
        Ok(Arc::clone(&file.flock.get_or_init(|| (own, room)).0))
    }

    pub(crate) fn do_write(&self, cx: &Context<'_>, op: &Write<'_>) -> Result<Written, Errno> {
        let (file, computed) =
            self.file_or_computed(op.node, op.handle, Need::Write, OFlags::empty())?;
        let drops = op.write_flags.contains(WriteFlags::KILL_SUIDGID);
        let cached = op.write_flags.contains(WriteFlags::CACHE);
        let append = op.flags & OFlags::APPEND.bits() != 0 && !cached && !self.write_back();
        // Past the cache, and where nobody says who opens a file, the kernel leaves the bits to us, and goes
        // on with the mode that it knows.
        let unknown = match self.in_force().io {
            IoMode::Direct => true,
            IoMode::Cached => !self.write_back(),
            _ => false,
        };
        let (losing, unheard) = self.writing(cx, &file, drops, unknown)?;
        let acting = self.as_caller_if(computed, cx)?;
        let written = match append {
            true => append_to(&file, op.data)?,
            false if cached => {
                write_back(&file, op.data, op.offset)?;
                op.data.len()
            }
            false => op
                .data
                .write_to(&file, Some(op.offset))
                .map_err(|e| errno(&e))?,
        };
        drop((acting, losing));
        unheard.tell(cx, op.node);
        if !cached {
            self.sync_written(op)?;
        }
        Ok(Written(u32::try_from(written).unwrap_or(u32::MAX)))
    }

    /// Whether the kernel reads and writes a file past its cache.
    pub(crate) fn is_direct(&self, file: &OpenFile) -> bool {
        self.in_force().io == IoMode::Direct || self.goes_past_the_cache(file)
    }

    /// The same, while others go through it.
    fn goes_past_the_cache(&self, file: &OpenFile) -> bool {
        // Pages are written back in any order, and whole; what is not written of one is read first.
        let flags = file.lower_flags;
        let partly = flags.contains(OFlags::APPEND) || flags & OFlags::RWMODE == OFlags::WRONLY;
        file.computed || partly && self.write_back()
    }

    pub(crate) fn do_release(&self, cx: &Context<'_>, op: &Release) -> Result<(), Errno> {
        if op.handle.0 == 0 {
            return Ok(());
        }
        let file = self.files.remove(op.handle.0)?;
        if file.writable {
            self.writers.remove(file.node);
        }
        self.uncount(&file);
        self.locks.release_claims(file.node, &file.claims);
        if let Some((fd, _)) = file.flock.get()
            && let Err(error) = rustix::fs::flock(fd, FlockOperation::Unlock)
        {
            // As for record locks, closing alone may come too late.
            tracing::debug!("unlocking: {error}");
        }
        let (node, mappable) = (file.node, file.mappable);
        drop(file);
        self.waiting.wake();
        if self.mapped.closed(node, mappable) {
            self.look_for_mappings(cx, node);
        }
        Ok(())
    }

    /// Whether a mapping of the lower file outlives the last open of `node`: attributes are not to be cached
    /// then. Those that the kernel has are wrong if the file has changed: it cannot tell by itself that a
    /// mapping was written.
    fn look_for_mappings(&self, cx: &Context<'_>, node: u64) {
        // Who opens it meanwhile is told no sooner than the lease is gone.
        let asked = self
            .nodes
            .open(node, OFlags::RDONLY | AT_ONCE)
            .and_then(|fd| {
                let ask = || sys::is_open_for_writing(fd.as_fd());
                let mapped = self.backings.unless_open(node, ask).unwrap_or(Ok(true))?;
                // Last, so that what is mapped no longer is not written after it.
                Ok((mapped, last_changed(fd.as_fd())))
            });
        let (mapped, changed) = asked.unwrap_or((true, None));
        if self.mapped.settle(node, mapped, changed) {
            forget_attributes(
                cx,
                NodeId(node),
                "it may have been written through a mapping",
            );
        }
    }

    pub(crate) fn do_fallocate(&self, cx: &Context<'_>, op: &Fallocate) -> Result<(), Errno> {
        let file = self.file(op.node, op.handle, Need::Write)?;
        let (acting, unheard) = self.as_powerful_as(cx, &file)?;
        let mode = FallocateFlags::from_bits_retain(op.mode);
        rustix::fs::fallocate(&file, mode, op.offset, op.length)?;
        drop(acting);
        unheard.tell(cx, op.node);
        Ok(())
    }

    /// Whether the page cache may hold what the lower file lacks, and can be written back before an answer.
    pub(crate) fn may_be_dirty(&self, node: NodeId) -> bool {
        match self.in_force().io {
            // Nobody could wait for the notification.
            _ if self.is_watched() => false,
            IoMode::Cached => true,
            // What is mapped is the lower file.
            IoMode::Passthrough => false,
            _ => self.writers.any(node.0),
        }
    }

    pub(crate) fn do_lseek(&self, cx: &Context<'_>, op: &Lseek, reply: Reply<Offset>) {
        let file = match self.file(op.node, op.handle, Need::Read) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        if !self.may_be_dirty(op.node) {
            return reply.complete(seek(&file, op.offset, op.whence));
        }
        if !self.in_force().drops_what_is_written {
            // Then the kernel takes all of every file for data, whatever it is.
            return reply.error(Errno::NOSYS);
        }
        // The page cache holds data where the lower file still has holes, written through a mapping without a
        // write-back cache, too, and the kernel asks without writing them back first.
        let (offset, whence) = (op.offset, op.whence);
        let from = i64::try_from(offset).unwrap_or(i64::MAX);
        answer_after_invalidation(cx, op.node, from, reply, move |told| {
            told.map_err(|_| Errno::AGAIN)?;
            seek(&file, offset, whence)
        });
    }

    pub(crate) fn do_copy(&self, cx: &Context<'_>, op: &CopyFileRange) -> Result<Copied, Errno> {
        let from = self.file(op.node_in, op.handle_in, Need::Read)?;
        let to = self.file(op.node_out, op.handle_out, Need::Write)?;
        if op.flags != 0 {
            return Err(Errno::INVAL);
        }
        let (acting, unheard) = self.as_powerful_as(cx, &to)?;
        let (mut offset_in, mut offset_out) = (op.offset_in, op.offset_out);
        // The old answer holds 32 bits; the kernel comes again for the rest.
        let length = usize::try_from(op.length.min(1 << 30)).map_err(|_| Errno::INVAL)?;
        let copied = rustix::fs::copy_file_range(
            &from,
            Some(&mut offset_in),
            &to,
            Some(&mut offset_out),
            length,
        )?;
        drop(acting);
        unheard.tell(cx, op.node_out);
        Ok(Copied(copied as u64))
    }
}

/// Nothing depends on the position of the lower descriptor.
fn seek(file: &OwnedFd, offset: u64, whence: u32) -> Result<Offset, Errno> {
    let signed = i64::try_from(offset).map_err(|_| Errno::NXIO)?;
    let from = match whence.cast_signed() {
        libc::SEEK_DATA => SeekFrom::Data(offset),
        libc::SEEK_HOLE => SeekFrom::Hole(offset),
        libc::SEEK_END => SeekFrom::End(signed),
        _ => return Err(Errno::INVAL),
    };
    rustix::fs::seek(file, from).map(Offset)
}
