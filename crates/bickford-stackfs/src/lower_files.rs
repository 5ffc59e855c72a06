//! Descriptors of open lower files: one for all opens of an inode with the same flags.
//!
//! Nothing that goes through a handle depends on the position of the lower descriptor, so that a
//! file which is open ten thousand times, as mappings keep it, needs one descriptor. A file that
//! somebody else keeps open, and that can be opened again, needs none where they are scarce.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::descriptors::Share;
use crate::sharded::Sharded;

/// An inode and the flags that its file was opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) node: u64,
    pub(crate) flags: OFlags,
}

struct Shared {
    fd: Arc<OwnedFd>,
    opens: usize,
}

/// See the module.
pub(crate) struct LowerFiles {
    files: Sharded<HashMap<Key, Shared>>,
    room: Share,
}

impl LowerFiles {
    /// Takes descriptors of `room`, a quarter of it for what could do without.
    pub(crate) fn new(room: Share) -> Self {
        Self {
            files: Sharded::default(),
            room,
        }
    }

    /// Whether opens that can do without a descriptor are to do so.
    pub(crate) fn are_scarce(&self) -> bool {
        self.room.taken() >= self.room.limit() / 4 || self.room.is_scarce()
    }

    /// The descriptor to use for one more open: another open's, or else `fd`. ENFILE at the limit.
    pub(crate) fn open(&self, key: Key, fd: Arc<OwnedFd>) -> Result<Arc<OwnedFd>, Errno> {
        let mut files = self.files.of(key.node);
        if let Some(shared) = files.get_mut(&key) {
            shared.opens += 1;
            let shared = Arc::clone(&shared.fd);
            // `fd` is closed after the lock: closing can take the lower file system a while.
            drop(files);
            return Ok(shared);
        }
        if !self.room.take() {
            drop(files);
            return Err(Errno::NFILE);
        }
        let shared = Shared {
            fd: Arc::clone(&fd),
            opens: 1,
        };
        files.insert(key, shared);
        Ok(fd)
    }

    /// A descriptor of the inode, if one that is open for reading or writing is at hand.
    pub(crate) fn any(&self, node: u64) -> Option<Arc<OwnedFd>> {
        if self.room.taken() == 0 {
            return None;
        }
        let files = self.files.of(node);
        let mut found = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR].into_iter();
        found.find_map(|flags| Some(Arc::clone(&files.get(&Key { node, flags })?.fd)))
    }

    /// One open less.
    pub(crate) fn close(&self, key: Key) {
        let mut files = self.files.of(key.node);
        let Some(shared) = files.get_mut(&key) else {
            return;
        };
        shared.opens = shared.opens.saturating_sub(1);
        if shared.opens == 0 {
            let closed = files.remove(&key);
            drop(files);
            drop(closed);
            self.room.give();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Key = Key {
        node: 1,
        flags: OFlags::RDONLY,
    };
    const WRITE: Key = Key {
        node: 1,
        flags: OFlags::RDWR,
    };

    fn file() -> Arc<OwnedFd> {
        Arc::new(tempfile::tempfile().unwrap().into())
    }

    #[test]
    fn opens_with_the_same_flags_share_a_descriptor_until_the_last_close() {
        let files = LowerFiles::new(Share::alone(2));
        let first = files.open(READ, file()).unwrap();
        for _ in 0..1000 {
            assert!(Arc::ptr_eq(&files.open(READ, file()).unwrap(), &first));
        }
        let write = files.open(WRITE, file()).unwrap();
        assert!(!Arc::ptr_eq(&write, &first));
        assert!(Arc::ptr_eq(&files.any(1).unwrap(), &first));
        assert!(files.any(2).is_none());
        for _ in 0..1000 {
            files.close(READ);
        }
        assert!(Arc::ptr_eq(&files.open(READ, file()).unwrap(), &first));
        files.close(READ);
        files.close(READ);
        assert_eq!(Arc::strong_count(&first), 1, "given up");
        assert!(!Arc::ptr_eq(&files.open(READ, file()).unwrap(), &first));
    }

    #[test]
    fn descriptors_are_bounded_and_opens_are_not() {
        let files = LowerFiles::new(Share::alone(1));
        files.open(READ, file()).unwrap();
        assert_eq!(files.open(WRITE, file()).unwrap_err(), Errno::NFILE);
        assert!(files.open(READ, file()).is_ok());
        files.close(READ);
        files.close(READ);
        assert!(files.open(WRITE, file()).is_ok());
    }

    #[test]
    fn they_are_scarce_from_a_quarter_of_the_limit_on() {
        let files = LowerFiles::new(Share::alone(8));
        files.open(READ, file()).unwrap();
        assert!(!files.are_scarce());
        files.open(WRITE, file()).unwrap();
        assert!(files.are_scarce());
        files.close(READ);
        assert!(!files.are_scarce());
    }
}
