//! Anonymous memory whose unused pages can be given back.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

/// A private anonymous mapping; zero where nothing was written.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing in it is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: shared references only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let page = page_size();
        let length = length.next_multiple_of(page).max(page);
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), length, flags, MapFlags::PRIVATE)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    /// For memory that is shared with the kernel; as long as such a pointer is in use, the slices
    /// below are not.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is `length` bytes long, initialised by the kernel, and lives as long
        // as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    /// Gives the memory from `keep` bytes on back to the system; it reads as zero afterwards.
    pub(crate) fn discard_beyond(&mut self, keep: usize) {
        let keep = keep.next_multiple_of(page_size());
        if keep >= self.length {
            return;
        }
        // SAFETY: the range lies inside the mapping, which is borrowed exclusively.
        let result = unsafe {
            madvise(
                self.start.as_ptr().add(keep).cast(),
                self.length - keep,
                Advice::LinuxDontNeed,
            )
        };
        if let Err(error) = result {
            tracing::debug!("madvise: {error}");
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` and nothing refers to it any more.
        let result = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        if let Err(error) = result {
            tracing::debug!("munmap: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_is_given_back_whatever_the_size_of_a_page() {
        let mut mapping = Mapping::new(3 * page_size() - 1).unwrap();
        mapping.as_mut_slice().fill(1);
        mapping.discard_beyond(1000);
        let (kept, given) = mapping.as_slice().split_at(page_size());
        assert!(kept.iter().all(|byte| *byte == 1));
        assert_eq!(given.len(), 2 * page_size());
        assert!(given.iter().all(|byte| *byte == 0));
    }
}
