//! Nodes of the directory below.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, Stat};

/// Node ids are inode numbers: one multiplication spreads them.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte) ^ self.0);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20);
    }
}

type Table = HashMap<u64, Arc<Node>, BuildHasherDefault<Spread>>;

const SHARDS: usize = 16;
const ROOT: u64 = 1;

/// A lower inode that the kernel knows. Its descriptor keeps the inode number from being used again.
#[derive(Debug)]
pub struct Node {
    /// Opened with `O_PATH`.
    pub path: OwnedFd,
    /// For requests that come without a handle; opened by the first of them.
    data: OnceLock<OwnedFd>,
    lookups: AtomicU64,
}

impl Node {
    /// The name under which the node can be opened again.
    #[must_use]
    pub fn magic_link(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}", self.path.as_raw_fd())
    }

    /// Opens the lower file again.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn reopen(&self, flags: i32) -> io::Result<OwnedFd> {
        let flags =
            OFlags::from_bits_retain(flags.cast_unsigned()) - OFlags::NOFOLLOW - OFlags::CREATE;
        Ok(fs::open(
            self.magic_link(),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
        )?)
    }

    /// The descriptor for requests without a handle.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn data(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(fd) = self.data.get() {
            return Ok(fd.as_fd());
        }
        let fd = self
            .reopen(libc::O_RDWR)
            .or_else(|_| self.reopen(libc::O_RDONLY))?;
        Ok(self.data.get_or_init(|| fd).as_fd())
    }

    /// The attributes.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn stat(&self) -> io::Result<Stat> {
        Ok(fs::fstat(&self.path)?)
    }
}

/// A name in a listed directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// Inode number.
    pub ino: u64,
    /// Type bits as in a mode, without the permissions.
    pub kind: u32,
}

/// The directory below, and the nodes in use.
#[derive(Debug)]
pub struct Lower {
    shards: [RwLock<Table>; SHARDS],
    device: u64,
    root: Arc<Node>,
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

impl Lower {
    /// Opens `source`.
    ///
    /// # Errors
    /// Those of open(2) and fstat(2).
    pub fn open(source: &Path) -> io::Result<Self> {
        // Every node keeps a descriptor.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let most = rustix::process::Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, most)?;
        rustix::process::umask(Mode::empty());
        let path = fs::open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let device = fs::fstat(&path)?.st_dev;
        let root = Arc::new(Node {
            path,
            data: OnceLock::new(),
            lookups: AtomicU64::new(1),
        });
        Ok(Self {
            shards: std::array::from_fn(|_| RwLock::default()),
            device,
            root,
        })
    }

    fn shard(&self, id: u64) -> &RwLock<Table> {
        let index = usize::try_from(id).unwrap_or(0) % SHARDS;
        self.shards.get(index).unwrap_or(&self.shards[0])
    }

    /// The node `id`.
    ///
    /// # Errors
    /// ESTALE where the kernel has forgotten it.
    pub fn node(&self, id: u64) -> io::Result<Arc<Node>> {
        if id == ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let table = self.shard(id).read().map_err(|_| missing())?;
        table.get(&id).cloned().ok_or_else(missing)
    }

    /// Looks a name up and counts that. The node id is the inode number.
    ///
    /// # Errors
    /// Those of openat(2) and fstat(2); EXDEV for what another file system is mounted on.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> io::Result<Stat> {
        let parent = self.node(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = fs::openat(&parent.path, name, flags, Mode::empty())?;
        let stat = fs::fstat(&path)?;
        if stat.st_dev != self.device {
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
        let shard = self.shard(stat.st_ino);
        {
            let table = shard.read().map_err(|_| missing())?;
            if let Some(node) = table.get(&stat.st_ino) {
                node.lookups.fetch_add(1, Ordering::Relaxed);
                return Ok(stat);
            }
        }
        let mut table = shard.write().map_err(|_| missing())?;
        let node = table.entry(stat.st_ino).or_insert_with(|| {
            Arc::new(Node {
                path,
                data: OnceLock::new(),
                lookups: AtomicU64::new(0),
            })
        });
        node.lookups.fetch_add(1, Ordering::Relaxed);
        Ok(stat)
    }

    /// The kernel drops `count` lookups.
    pub fn forget(&self, id: u64, count: u64) {
        if id == ROOT {
            return;
        }
        let Ok(mut table) = self.shard(id).write() else {
            return;
        };
        let left = table
            .get(&id)
            .map(|node| node.lookups.fetch_sub(count, Ordering::Relaxed) - count);
        if left == Some(0) {
            let gone = table.remove(&id);
            drop(table);
            drop(gone);
        }
    }

    /// All entries of a directory, `.` and `..` too.
    ///
    /// # Errors
    /// Those of open(2) and getdents64(2).
    pub fn list(&self, id: u64) -> io::Result<Vec<Entry>> {
        let directory = self.node(id)?.reopen(libc::O_RDONLY | libc::O_DIRECTORY)?;
        let mut buffer = Vec::with_capacity(64 << 10);
        let mut stream = fs::RawDir::new(directory, buffer.spare_capacity_mut());
        let mut entries = Vec::new();
        while let Some(entry) = stream.next() {
            let entry = entry?;
            entries.push(Entry {
                name: OsString::from_vec(entry.file_name().to_bytes().to_vec()),
                ino: entry.ino(),
                kind: entry.file_type().as_raw_mode(),
            });
        }
        Ok(entries)
    }

    /// Changes mode, owner, size and times, those that are given.
    ///
    /// # Errors
    /// Those of chmod(2), chown(2), truncate(2) and utimensat(2).
    pub fn set(&self, id: u64, change: &Change) -> io::Result<Stat> {
        let node = self.node(id)?;
        if let Some(mode) = change.mode {
            fs::chmod(node.magic_link(), Mode::from_raw_mode(mode & 0o7777))?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let uid = change.uid.map(fs::Uid::from_raw);
            let gid = change.gid.map(fs::Gid::from_raw);
            fs::chownat(&node.path, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = change.size {
            fs::ftruncate(node.data()?, size)?;
        }
        if change.times.iter().any(Option::is_some) {
            let keep = fs::Timespec {
                tv_sec: 0,
                tv_nsec: libc::UTIME_OMIT,
            };
            let times = fs::Timestamps {
                last_access: change.times[0].unwrap_or(keep),
                last_modification: change.times[1].unwrap_or(keep),
            };
            fs::utimensat(CWD, node.magic_link(), &times, AtFlags::empty())?;
        }
        node.stat()
    }
}

/// What is to change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Access and modification.
    pub times: [Option<fs::Timespec>; 2],
}
