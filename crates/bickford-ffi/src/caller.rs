//! Who asks, beside what a request tells.

use bickford::Context;

use crate::abi::{BICKFORD_ERROR_SYSTEM, bickford_reply};
use crate::deferred;
use crate::guard::{Failure, guarded};

/// Writes the groups of the caller, as far as there is room, and answers how many they are.
///
/// # Safety
/// `out` has room for `room` numbers.
unsafe fn put_groups(cx: &Context<'_>, out: *mut u32, room: u64) -> Result<i32, Failure> {
    let groups = cx.groups().ok_or_else(|| {
        Failure::new(
            BICKFORD_ERROR_SYSTEM,
            format!(
                "the groups of the caller {} are not known: it is in another pid namespace, has ended, or acts for somebody \
                 else; go by the gid of the request",
                cx.pid()
            ),
        )
    })?;
    let fit = usize::try_from(room).map_or(groups.len(), |room| room.min(groups.len()));
    if fit > 0 && out.is_null() {
        return Err(Failure::argument("groups is NULL though there is room"));
    }
    if fit > 0 {
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { out.copy_from_nonoverlapping(groups.as_ptr(), fit) };
    }
    i32::try_from(groups.len()).map_err(Failure::argument)
}

/// The groups of the caller of a request, for a file system that checks permissions itself: the one for permissions, then the
/// supplementary ones, of which one may be the same. Returns how many they are, which may be more than `room`: no more are written.
/// They are read from /proc at each call. Where they cannot be known, it is `BICKFORD_ERROR_SYSTEM`: the caller is in another pid
/// namespace or has ended, or acts for somebody else just now, as a server of NFS does.
///
/// # Safety
/// `reply` came to the callback that runs; `groups` points to `room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_reply_groups(
    reply: *mut bickford_reply,
    groups: *mut u32,
    room: u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        unsafe { put_groups(deferred::context_in_call(reply)?, groups, room) }
    })
}

/// As `bickford_reply_groups`, for a deferred reply that was not completed.
///
/// # Safety
/// `groups` points to `room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_deferred_groups(handle: u64, groups: *mut u32, room: u64) -> i32 {
    guarded(|| {
        let context = deferred::context(handle)?;
        // SAFETY: the caller's promise.
        unsafe { put_groups(&context.context(), groups, room) }
    })
}
