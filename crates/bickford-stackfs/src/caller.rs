//! What the caller of a request may do, where the kernel has not judged it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::str::SplitAsciiWhitespace;

use bickford::Context;
use rustix::thread::CapabilitySet;

/// More than a status or a map of ids in proc(5) takes.
const PROC_BYTES_MAX: u64 = 64 << 10;

/// Whether set-id bits stay when the caller writes. Not where it acts for somebody else: overlayfs writes for
/// anybody with the rights of who mounted it. Without the caller's ids that cannot be told.
pub(crate) fn keeps_set_id(cx: &Context<'_>) -> bool {
    cx.has_ids() && effective(cx).is_some_and(|own| grants(cx, own, CapabilitySet::FSETID))
}

/// The groups of the caller, the one that counts for files first; that one alone where the others cannot be known.
pub(crate) fn groups(cx: &Context<'_>) -> Vec<u32> {
    known_groups(cx).unwrap_or_else(|| vec![cx.gid()])
}

fn known_groups(cx: &Context<'_>) -> Option<Vec<u32>> {
    let status = status(cx)?;
    let first = status.words("Gid:")?.nth(3)?.parse().ok()?;
    let others = status.words("Groups:")?;
    let others: Result<Vec<u32>, _> = others.map(str::parse).collect();
    Some([vec![first], others.ok()?].concat())
}

/// Whether the caller has `wanted` in the user namespace of this process.
pub(crate) fn is_capable(cx: &Context<'_>, wanted: CapabilitySet) -> bool {
    effective(cx).map_or(cx.uid() == 0, |own| grants(cx, own, wanted))
}

/// Whether the caller may change the mode of what belongs to `owner`: `inode_owner_or_capable` of the
/// kernel.
pub(crate) fn may_change_mode(cx: &Context<'_>, owner: u32) -> bool {
    let fowner = CapabilitySet::FOWNER;
    cx.uid() == owner
        || effective(cx).map_or(cx.uid() == 0, |own| {
            grants(cx, own, fowner) || own.contains(fowner) && maps(cx, owner)
        })
}

/// Whether `own`, the capabilities of the caller, have `wanted` in the user namespace of this process.
fn grants(cx: &Context<'_>, own: CapabilitySet, wanted: CapabilitySet) -> bool {
    own.contains(wanted) && shares_namespace(cx).unwrap_or(cx.uid() == 0)
}

/// See proc_pid_status(5).
struct Status(String);

impl Status {
    fn words(&self, name: &str) -> Option<SplitAsciiWhitespace<'_>> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::split_ascii_whitespace)
    }
}

/// That of the calling thread. None where it cannot be asked, or is known to act for somebody else just now, as a server
/// of NFS does.
fn status(cx: &Context<'_>) -> Option<Status> {
    let status = Status(read(cx, "status")?);
    let uid: u32 = status.words("Uid:")?.nth(3)?.parse().ok()?;
    (uid == cx.uid() || !cx.has_ids()).then_some(status)
}

fn effective(cx: &Context<'_>) -> Option<CapabilitySet> {
    let bits = u64::from_str_radix(status(cx)?.words("CapEff:")?.next()?, 16).ok()?;
    Some(CapabilitySet::from_bits_retain(bits))
}

fn shares_namespace(cx: &Context<'_>) -> Option<bool> {
    let of = |who: &str| {
        let namespace = fs::metadata(format!("/proc/{who}/ns/user")).ok()?;
        Some((namespace.dev(), namespace.ino()))
    };
    Some(of(&cx.pid().to_string())? == of("self")?)
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
    read(cx, "uid_map").is_some_and(|map| map.lines().any(among))
}

fn read(cx: &Context<'_>, name: &str) -> Option<String> {
    if cx.pid() == 0 {
        return None;
    }
    let file = fs::File::open(format!("/proc/{}/{name}", cx.pid())).ok()?;
    let mut text = String::new();
    file.take(PROC_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}
