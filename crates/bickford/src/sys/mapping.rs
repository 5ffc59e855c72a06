//! Anonymous memory whose unused pages can be given back.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

/// Of madvise(2), from Linux 6.1 on.
const MADV_COLLAPSE: libc::c_int = 25;

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

    /// One whose byte number `at` has an address that is a multiple of `alignment`. All three are multiples of a page,
    /// and `alignment` is a power of two.
    pub(crate) fn aligned(length: usize, at: usize, alignment: usize) -> io::Result<Self> {
        let mut mapping = Self::new(length + alignment)?;
        let address = mapping.start.as_ptr() as usize + at;
        let before = address.next_multiple_of(alignment) - address;
        mapping.keep(before, length)?;
        Ok(mapping)
    }

    /// Unmaps all but `length` bytes from `from` on.
    fn keep(&mut self, from: usize, length: usize) -> io::Result<()> {
        let end = from + length;
        if end < self.length {
            // SAFETY: the end of the mapping, which nobody has seen yet.
            unsafe { munmap(self.start.as_ptr().add(end).cast(), self.length - end)? };
            self.length = end;
        }
        if from > 0 {
            // SAFETY: the beginning of the mapping, which nobody has seen yet; what follows it is not empty.
            unsafe {
                munmap(self.start.as_ptr().cast(), from)?;
                self.start = self.start.add(from);
            }
            self.length -= from;
        }
        Ok(())
    }

    /// Keeps the kernel from using huge pages of its own accord.
    pub(crate) fn use_small_pages(&self) {
        // SAFETY: the mapping; its contents stay.
        let result = unsafe { madvise(self.start().cast(), self.length, Advice::LinuxNoHugepage) };
        if let Err(error) = result {
            // A kernel without huge pages says EINVAL.
            tracing::debug!("madvise: {error}");
        }
    }

    /// Puts what begins at `from`, a multiple of a page, into huge pages now.
    ///
    /// # Errors
    /// What madvise(2) says of `MADV_COLLAPSE`: ENOMEM where there are none, EAGAIN and EBUSY where pages were in use.
    pub(crate) fn use_huge_pages(&self, from: usize) -> io::Result<()> {
        let length = self.length.saturating_sub(from);
        // SAFETY: inside the mapping, or empty; its contents stay, for whoever uses them meanwhile, too.
        unsafe {
            let at = self.start().add(self.length - length).cast();
            madvise(at, length, Advice::LinuxHugepage)?;
            if libc::madvise(at, length, MADV_COLLAPSE) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
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
    fn a_byte_lies_where_it_is_wanted() {
        let page = page_size();
        for pages in 1..4 {
            let alignment = 16 * page;
            let mapping = Mapping::aligned(5 * page, pages * page, alignment).unwrap();
            let slice = mapping.as_slice();
            assert_eq!((slice.as_ptr() as usize + pages * page) % alignment, 0);
            assert_eq!(slice.len(), 5 * page);
            assert!(slice.iter().all(|byte| *byte == 0));
        }
    }

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
