//! Open files. A handle is a number; handle 0 stands for the node's own descriptor.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use fuser::{BackingId, Errno, FileHandle, FopenFlags, INodeNo, ReplyCreate, ReplyData, ReplyOpen};
use rustix::fs::{self, Mode, OFlags};

use crate::{GENERATION, PassThrough, attributes};

struct OpenFile {
    fd: OwnedFd,
    /// Held for as long as the file is open: all opens of an inode must use the same one.
    _backing: Option<Arc<BackingId>>,
}

#[derive(Default)]
pub(crate) struct Files {
    last: AtomicU64,
    open: RwLock<HashMap<u64, Arc<OpenFile>>>,
    backing: Mutex<HashMap<u64, Weak<BackingId>>>,
}

impl Files {
    /// A handle that was never given.
    pub(crate) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn keep(&self, fd: OwnedFd, backing: Option<Arc<BackingId>>) -> FileHandle {
        let number = self.number();
        let file = Arc::new(OpenFile {
            fd,
            _backing: backing,
        });
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, file);
        FileHandle(number)
    }

    pub(crate) fn release(&self, handle: FileHandle) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let file = open.remove(&handle.0);
        drop(open);
        drop(file);
    }

    fn backing(
        &self,
        ino: u64,
        register: impl FnOnce() -> io::Result<BackingId>,
    ) -> io::Result<Arc<BackingId>> {
        let mut backing = self.backing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = backing.get(&ino).and_then(Weak::upgrade) {
            return Ok(id);
        }
        let id = Arc::new(register()?);
        backing.insert(ino, Arc::downgrade(&id));
        Ok(id)
    }
}

impl PassThrough {
    fn open_flags(&self) -> FopenFlags {
        let cache = if self.options.direct {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else if self.options.passthrough {
            FopenFlags::empty()
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        };
        cache | FopenFlags::FOPEN_NOFLUSH
    }

    pub(crate) fn with_file<T>(
        &self,
        ino: INodeNo,
        handle: FileHandle,
        use_it: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        if handle.0 == 0 {
            return Ok(use_it(self.lower.node(ino.0)?.data()?)?);
        }
        let open = self
            .files
            .open
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let file = open.get(&handle.0).cloned();
        drop(open);
        let file = file.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        Ok(use_it(file.fd.as_fd())?)
    }

    pub(crate) fn open_file(&self, ino: INodeNo, flags: i32, reply: ReplyOpen) {
        if self.options.zero_open {
            return reply.error(Errno::ENOSYS);
        }
        let opened = (|| {
            let fd = self
                .lower
                .node(ino.0)?
                .reopen(self.options.lower_flags(flags))?;
            let backing = match self.options.passthrough {
                true => Some(self.files.backing(ino.0, || reply.open_backing(&fd))?),
                false => None,
            };
            io::Result::Ok((fd, backing))
        })();
        match opened {
            Ok((fd, Some(backing))) => {
                let handle = self.files.keep(fd, Some(Arc::clone(&backing)));
                reply.opened_passthrough(handle, self.open_flags(), &backing);
            }
            Ok((fd, None)) => reply.opened(self.files.keep(fd, None), self.open_flags()),
            Err(error) => reply.error(error.into()),
        }
    }

    pub(crate) fn create_file(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = (|| {
            let directory = self.lower.node(parent.0)?;
            let flags = OFlags::from_bits_retain(self.options.lower_flags(flags).cast_unsigned());
            let flags = flags | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let fd = fs::openat(&directory.path, name, flags, Mode::from_raw_mode(mode))?;
            let stat = self.lower.lookup(parent.0, name)?;
            let backing = match self.options.passthrough {
                true => Some(
                    self.files
                        .backing(stat.st_ino, || reply.open_backing(&fd))?,
                ),
                false => None,
            };
            io::Result::Ok((fd, stat, backing))
        })();
        let flags = self.open_flags();
        match made {
            Ok((fd, stat, Some(backing))) => {
                let handle = self.files.keep(fd, Some(Arc::clone(&backing)));
                let attr = attributes(&stat);
                reply.created_passthrough(
                    &self.timeout,
                    &attr,
                    GENERATION,
                    handle,
                    flags,
                    &backing,
                );
            }
            Ok((fd, stat, None)) => {
                let handle = self.files.keep(fd, None);
                reply.created(&self.timeout, &attributes(&stat), GENERATION, handle, flags);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    pub(crate) fn read_file(
        &self,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        reply: ReplyData,
    ) {
        let mut buffer = Vec::with_capacity(size as usize);
        let read = self.with_file(ino, handle, |fd| {
            rustix::io::pread(fd, rustix::buffer::spare_capacity(&mut buffer), offset)
        });
        match read {
            Ok(_) => reply.data(&buffer),
            Err(error) => reply.error(error.into()),
        }
    }
}
