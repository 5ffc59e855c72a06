//! Open files by handle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Subject;
use crate::{Errno, FileHandle, Result};

/// What a file system keeps of each open file, by the handle that opening answers with. As many as
/// are open; handles begin at 1 and are not used again.
#[derive(Debug)]
pub struct Handles<T> {
    open: Mutex<Open<T>>,
}

#[derive(Debug)]
struct Open<T> {
    last: u64,
    files: HashMap<FileHandle, Arc<T>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self {
            open: Mutex::new(Open {
                last: 0,
                files: HashMap::new(),
            }),
        }
    }
}

impl<T> Handles<T> {
    fn open(&self) -> MutexGuard<'_, Open<T>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new handle, which stands for `file` until it is removed.
    pub fn insert(&self, file: T) -> FileHandle {
        let file = Arc::new(file);
        let mut open = self.open();
        open.last += 1;
        let handle = FileHandle(open.last);
        open.files.insert(handle, file);
        handle
    }

    /// What the operation's handle stands for; `None` where it comes by path alone.
    ///
    /// # Errors
    /// EBADF for a handle that is not open.
    pub fn get(&self, subject: Subject<'_>) -> Result<Option<Arc<T>>> {
        match subject.handle() {
            Some(handle) if handle.0 != 0 => {
                let file = self.open().files.get(&handle).cloned();
                file.map(Some).ok_or(Errno::BADF)
            }
            _ => Ok(None),
        }
    }

    /// Ends an open file, whose handle stands for nothing any more. It is dropped by the last who
    /// holds it, without a lock.
    pub fn remove(&self, subject: Subject<'_>) -> Option<Arc<T>> {
        let handle = subject.handle()?;
        self.open().files.remove(&handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_stand_for_what_is_open() {
        let handles = Handles::default();
        let (one, two) = (handles.insert("one"), handles.insert("two"));
        assert_ne!(one, two);
        let of = |handle| Subject::new(None, Some(handle));
        assert_eq!(handles.get(of(one)).unwrap().as_deref(), Some(&"one"));
        assert_eq!(handles.get(of(two)).unwrap().as_deref(), Some(&"two"));
        assert_eq!(handles.get(of(FileHandle(0))), Ok(None));
        assert_eq!(handles.get("/path".into()), Ok(None));
        assert_eq!(handles.remove(of(one)).as_deref(), Some(&"one"));
        assert_eq!(handles.remove(of(one)), None);
        assert_eq!(handles.get(of(one)), Err(Errno::BADF));
        assert_ne!(handles.insert("three"), one);
    }
}
