//! Names that READDIR over paths answers.

use std::ptr;

use bickford::path::Listing;

use crate::abi::{bickford_attr, bickford_listed, bickford_reply};
use crate::answers::from_attr;
use crate::deferred::{self, list_in_call};
use crate::guard::{Failure, guarded};
use crate::parameters::bytes;

/// Adds a name as a caller passed it. Answers whether there was room.
///
/// # Safety
/// `name` points to `length` bytes, `listed.attr` is null or points to attributes; both stay so during `'a`.
unsafe fn adding<'a>(
    name: *const u8,
    length: u64,
    listed: bickford_listed,
) -> Result<impl FnOnce(&mut Listing) -> bool + 'a, Failure> {
    // SAFETY: the caller's promises.
    let (name, attr) = unsafe { (bytes(name, length), listed.attr.as_ref()) };
    let name = name.map_err(|_| Failure::argument("name is NULL or too long"))?;
    let attr = attr.map(from_attr);
    let bickford_listed {
        offset, ino, mode, ..
    } = listed;
    Ok(move |listing: &mut Listing| {
        match (attr, offset) {
            (Some(attr), 0) => listing.add_attr(name, attr),
            (None, 0) => listing.add_numbered(name, mode, ino),
            (Some(attr), _) => return listing.add_attr_at(name, attr, offset),
            (None, _) => return listing.add_numbered_at(name, mode, ino, offset),
        }
        true
    })
}

/// A name of a listing in one piece.
fn whole(mode: u32, attr: *const bickford_attr) -> bickford_listed {
    bickford_listed {
        offset: 0,
        ino: 0,
        mode,
        reserved: 0,
        attr,
    }
}

/// A name of a listing in parts.
fn part(mode: u32, offset: u64) -> Result<bickford_listed, Failure> {
    if offset == 0 {
        let reason = "offset is zero, which is where a listing begins";
        return Err(Failure::argument(reason));
    }
    Ok(bickford_listed {
        offset,
        ..whole(mode, ptr::null())
    })
}

/// # Safety
/// `entry` is null or points to a structure.
unsafe fn listed(entry: *const bickford_listed) -> Result<bickford_listed, Failure> {
    // SAFETY: the caller's promise.
    let entry = unsafe { entry.as_ref() };
    let entry = entry.ok_or_else(|| Failure::argument("entry is NULL"))?;
    match entry.reserved {
        0 => Ok(*entry),
        other => Err(Failure::argument(format!(
            "reserved of the entry is {other}; it has to be zero"
        ))),
    }
}

/// Adds a name to what a READDIR over paths answers, in one piece: all names, whatever the offset of the request.
/// The library keeps them until the directory is closed or rewound. `attr` has the attributes where they are known, which saves
/// asking for them as far as the first answer goes (20 to 200 names); without, it is NULL and `mode` tells the type, or is zero. A
/// name that no file can have is left out, with a line in the log; a listing of more than 256 MiB is EOVERFLOW.
///
/// # Safety
/// `reply` came to the callback that runs, and was not deferred; `name` points to `name_length` bytes; `attr` is null or points to
/// attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_reply_list(
    reply: *mut bickford_reply,
    name: *const u8,
    name_length: u64,
    mode: u32,
    attr: *const bickford_attr,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        unsafe { list_in_call(reply, adding(name, name_length, whole(mode, attr))?)? };
        Ok(0)
    })
}

/// Adds a name to what a READDIR over paths answers, in parts: names from the request's offset on; `offset` is where the listing
/// goes on after this one, and not zero. Returns 1 when it was added, 0 when there is no room left: then it has to come with the next request.
///
/// # Safety
/// As for `bickford_reply_list`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_reply_list_at(
    reply: *mut bickford_reply,
    name: *const u8,
    name_length: u64,
    mode: u32,
    offset: u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        let added =
            unsafe { list_in_call(reply, adding(name, name_length, part(mode, offset)?)?)? };
        Ok(i32::from(added))
    })
}

/// Adds a name with all that is known of it to what a READDIR over paths answers: as `bickford_reply_list` where `entry->offset` is
/// zero, else as `bickford_reply_list_at`, with attributes of all names, not of the first answer alone. Where the request's `flags`
/// are not 1, nobody takes attributes. Returns 1 when it was added, 0 when there is no room left.
///
/// # Safety
/// As for `bickford_reply_list`; `entry` points to a structure, the `attr` of which is null or points to attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_reply_list_entry(
    reply: *mut bickford_reply,
    name: *const u8,
    name_length: u64,
    entry: *const bickford_listed,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        let added = unsafe { list_in_call(reply, adding(name, name_length, listed(entry)?)?)? };
        Ok(i32::from(added))
    })
}

/// As `bickford_reply_list`, for a deferred reply that was not completed.
///
/// # Safety
/// `name` points to `name_length` bytes; `attr` is null or points to attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_deferred_list(
    handle: u64,
    name: *const u8,
    name_length: u64,
    mode: u32,
    attr: *const bickford_attr,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        let add = unsafe { adding(name, name_length, whole(mode, attr))? };
        deferred::list(handle, add)?;
        Ok(0)
    })
}

/// As `bickford_reply_list_at`, for a deferred reply that was not completed.
///
/// # Safety
/// `name` points to `name_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_deferred_list_at(
    handle: u64,
    name: *const u8,
    name_length: u64,
    mode: u32,
    offset: u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let add = unsafe { adding(name, name_length, part(mode, offset)?)? };
        Ok(i32::from(deferred::list(handle, add)?))
    })
}

/// As `bickford_reply_list_entry`, for a deferred reply that was not completed.
///
/// # Safety
/// `name` points to `name_length` bytes; `entry` is as for `bickford_reply_list_entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_deferred_list_entry(
    handle: u64,
    name: *const u8,
    name_length: u64,
    entry: *const bickford_listed,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        let add = unsafe { adding(name, name_length, listed(entry)?)? };
        Ok(i32::from(deferred::list(handle, add)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{BICKFORD_ERROR_ARGUMENT, BICKFORD_ERROR_HANDLE};

    #[test]
    fn what_is_reserved_is_zero() {
        let listed = |reserved| {
            let entry = bickford_listed {
                reserved,
                ..whole(0, ptr::null())
            };
            // SAFETY: name and entry live during the call.
            unsafe { bickford_deferred_list_entry(0, b"x".as_ptr(), 1, &raw const entry) }
        };
        // There is no such reply.
        assert_eq!(listed(0), BICKFORD_ERROR_HANDLE);
        assert_eq!(listed(1), BICKFORD_ERROR_ARGUMENT);
    }
}
