//! Names that READDIR over paths answers.

use bickford::path::Listing;

use crate::abi::{bickford_attr, bickford_reply};
use crate::answers::from_attr;
use crate::deferred::{self, list_in_call};
use crate::guard::{Failure, guarded};
use crate::parameters::bytes;

/// A name, as a caller passed it.
///
/// # Safety
/// `name` points to `length` bytes, `attr` is null or points to attributes; both stay so during `'a`.
unsafe fn adding<'a>(
    name: *const u8,
    length: u64,
    mode: u32,
    attr: *const bickford_attr,
) -> Result<impl FnOnce(&mut Listing) + 'a, Failure> {
    // SAFETY: the caller's promises.
    let (name, attr) = unsafe { (self::name(name, length)?, attr.as_ref()) };
    Ok(move |listing: &mut Listing| match attr {
        Some(attr) => listing.add_attr(name, from_attr(attr)),
        None => listing.add(name, mode),
    })
}

/// # Safety
/// `name` points to `length` bytes that stay as they are during `'a`.
unsafe fn name<'a>(name: *const u8, length: u64) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's promise.
    unsafe { bytes(name, length) }.map_err(|_| Failure::argument("name is NULL or too long"))
}

/// Adds a name to what a READDIR over paths answers, in one piece: all names, whatever the offset of the request.
/// The library keeps them until the directory is closed or rewound. `attr` has the attributes where they are known, which saves
/// asking for them; without, it is NULL and `mode` tells the type, or is zero. A name that no file can have is left out,
/// with a line in the log; a listing of more than 256 MiB is EOVERFLOW.
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
        unsafe { list_in_call(reply, adding(name, name_length, mode, attr)?)? };
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
        let added = unsafe {
            let name = self::name(name, name_length)?;
            list_in_call(reply, |listing| listing.add_at(name, mode, offset))?
        };
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
        deferred::list(handle, unsafe { adding(name, name_length, mode, attr)? })?;
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
        let name = unsafe { self::name(name, name_length)? };
        let added = deferred::list(handle, |listing| listing.add_at(name, mode, offset))?;
        Ok(i32::from(added))
    })
}
