//! What the caller of a request may do, where the kernel has not judged it.

use std::fs;

use bickford::Context;
use rustix::thread::CapabilitySet;

/// Whether set-id bits stay when the caller writes. Not where it acts for somebody else: overlayfs writes for
/// anybody with the rights of who mounted it. Without the caller's ids that cannot be told.
pub(crate) fn keeps_set_id(cx: &Context<'_>) -> bool {
    cx.has_ids() && cx.is_capable(CapabilitySet::FSETID.bits()) == Some(true)
}

/// The groups of the caller, the one that counts for files first; that one alone where the others cannot be known.
pub(crate) fn groups(cx: &Context<'_>) -> Vec<u32> {
    cx.groups().unwrap_or_else(|| vec![cx.gid()])
}

/// Whether the caller has `wanted` in the user namespace of this process.
pub(crate) fn is_capable(cx: &Context<'_>, wanted: CapabilitySet) -> bool {
    cx.is_capable(wanted.bits()).unwrap_or(cx.uid() == 0)
}

/// Whether the caller may change the mode of what belongs to `owner`: `inode_owner_or_capable` of the
/// kernel.
pub(crate) fn may_change_mode(cx: &Context<'_>, owner: u32) -> bool {
    let fowner = CapabilitySet::FOWNER;
    let has = |own: u64| own & fowner.bits() != 0;
    cx.uid() == owner
        || is_capable(cx, fowner)
        || cx.capabilities().is_some_and(has) && maps(cx, owner)
}

/// Whether the caller's user namespace knows `owner`: user_namespaces(7).
fn maps(cx: &Context<'_>, owner: u32) -> bool {
    let among = |line: &str| {
        let mut numbers = line.split_ascii_whitespace().skip(1);
        let mut number = || numbers.next()?.parse::<u32>().ok();
        let (Some(first), Some(count)) = (number(), number()) else {
            return false;
        };
        owner.checked_sub(first).is_some_and(|past| past < count)
    };
    let map = fs::read_to_string(format!("/proc/{}/uid_map", cx.pid()));
    map.is_ok_and(|map| map.lines().any(among))
}
