//! Listings: `struct fuse_dirent` and `struct fuse_direntplus`, as in `linux/fuse.h`.

use bickford::abi;
use bickford::ops::{Directory, DirectoryEntry};

use crate::abi::{BICKFORD_ERROR_LIMIT, bickford_answer};
use crate::answers;
use crate::guard::{Failure, guarded};
use crate::parameters::bytes;

/// Bytes in front of a name without an entry.
const DIRENT: usize = size_of::<abi::Dirent>();
/// Bytes of an entry in front of that.
const ENTRY: usize = size_of::<abi::EntryOut>();

/// Longest name in bytes: the kernel takes no longer path.
const NAME_MAX: usize = 4095;

/// Adds a name to a listing: `struct fuse_dirent` at the end of the answer's data. `mode` tells
/// the type. Returns 1 when it was added, 0 when there is no room left: then it has to come with
/// the next request, which brings the offset of the last name that was added.
///
/// # Safety
/// `answer` is the answer of a READDIR, with its own buffer; `name` points to `name_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_listing_add(
    answer: *mut bickford_answer,
    name: *const u8,
    name_length: u64,
    ino: u64,
    offset: u64,
    mode: u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (answer, name) = unsafe { (answer.as_mut(), bytes(name, name_length)) };
        add(answer, name, ino, offset, mode, None)
    })
}

/// As `bickford_listing_add` for READDIRPLUS: `entry` is an answer in which the fields of an entry
/// are filled in. Its lookup count rises by one if it was added, except for `.` and `..`.
///
/// # Safety
/// As for `bickford_listing_add`; `entry` is an answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_listing_add_plus(
    answer: *mut bickford_answer,
    name: *const u8,
    name_length: u64,
    offset: u64,
    entry: *const bickford_answer,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (answer, name, entry) =
            unsafe { (answer.as_mut(), bytes(name, name_length), entry.as_ref()) };
        let entry = entry.ok_or_else(|| Failure::argument("entry is NULL"))?;
        let attr = entry.attr;
        add(answer, name, attr.ino, offset, attr.mode, Some(entry))
    })
}

fn add(
    answer: Option<&mut bickford_answer>,
    name: Result<&[u8], bickford::Errno>,
    ino: u64,
    offset: u64,
    mode: u32,
    entry: Option<&bickford_answer>,
) -> Result<i32, Failure> {
    let answer = answer.ok_or_else(|| Failure::argument("answer is NULL"))?;
    let name = name.map_err(|_| Failure::argument("name is NULL or too long"))?;
    // One such name would have the kernel drop all that follow, or refuse the listing.
    if name.is_empty() || name.len() > NAME_MAX || name.iter().any(|byte| b"/\0".contains(byte)) {
        return Err(Failure::argument(format!(
            "no file has the name {:?}: empty, with a slash or NUL byte, or longer than {NAME_MAX} bytes",
            String::from_utf8_lossy(name)
        )));
    }
    let fixed = DIRENT + if entry.is_some() { ENTRY } else { 0 };
    let length = (fixed + name.len()).next_multiple_of(8);
    let dirent = DirectoryEntry {
        name,
        ino,
        offset,
        mode,
    };
    let limit = u32::try_from(length).map_err(Failure::argument)?;
    let mut record = Directory::new(limit, entry.is_some());
    let entry = entry.map(answers::entry).unwrap_or_default();
    if !record.push_entry(&dirent, &entry) {
        return Err(Failure::new(BICKFORD_ERROR_LIMIT, "the name is too long"));
    }
    let end = answer.data_length.saturating_add(length as u64);
    if answer.data.is_null() || end > answer.data_capacity {
        return Ok(0);
    }
    let at = usize::try_from(answer.data_length).map_err(Failure::argument)?;
    // SAFETY: `data` has room for `data_capacity` bytes, says the caller, and the record ends within
    // them; it is memory of its own.
    unsafe {
        answer
            .data
            .add(at)
            .copy_from_nonoverlapping(record.as_bytes().as_ptr(), length)
    };
    answer.data_length = end;
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::BICKFORD_ERROR_ARGUMENT;
    use crate::answer::Buffer;

    #[test]
    fn a_listing_with_entries_survives() {
        let mut buffer = Buffer::with_room(400).unwrap();
        let mut answer = bickford_answer::default();
        buffer.offer(&mut answer);
        let mut entry = bickford_answer {
            node: 7,
            attr_valid: 1_500_000_000,
            ..bickford_answer::default()
        };
        entry.attr.ino = 7;
        entry.attr.mode = 0o100_640;
        entry.attr.accessed.seconds = -5;
        let name = b"seven";
        // SAFETY: the arguments live on the stack; the buffer has the room that the answer says.
        let add = |answer: &mut bickford_answer| unsafe {
            bickford_listing_add_plus(answer, name.as_ptr(), 5, 1, &raw const entry)
        };
        assert_eq!(add(&mut answer), 1);
        assert_eq!(add(&mut answer), 1);
        assert_eq!(add(&mut answer), 0, "only two fit");
        // SAFETY: the answer's data is the buffer.
        let bytes = unsafe { buffer.take(&answer) }.unwrap();
        assert_eq!(bytes.len(), 2 * (ENTRY + DIRENT + 8));
        let listing = Directory::from_bytes(bytes.clone(), 400, true).unwrap();
        assert_eq!(listing.as_bytes(), bytes);
    }

    #[test]
    fn a_name_that_no_file_has_is_refused() {
        let mut buffer = Buffer::with_room(8192).unwrap();
        let mut answer = bickford_answer::default();
        buffer.offer(&mut answer);
        let long = [b'n'; NAME_MAX + 1];
        for name in [b"".as_slice(), b"a/b", b"a\0b", &long] {
            let (start, length) = (name.as_ptr(), name.len() as u64);
            // SAFETY: the arguments live on the stack; the buffer has the room that the answer says.
            let code = unsafe { bickford_listing_add(&raw mut answer, start, length, 7, 1, 0) };
            assert_eq!((code, answer.data_length), (BICKFORD_ERROR_ARGUMENT, 0));
        }
        let (start, length) = (long.as_ptr(), NAME_MAX as u64);
        // SAFETY: as above.
        let code = unsafe { bickford_listing_add(&raw mut answer, start, length, 7, 1, 0) };
        assert_eq!(code, 1);
    }
}
