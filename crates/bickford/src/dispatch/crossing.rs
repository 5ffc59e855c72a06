//! Attributes that cross a change on their way to the kernel.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use super::Notifier;
use crate::ops::Attr;
use crate::{Context, NodeId};

const PLACE_BITS: u32 = 10;
/// How long an answer takes at most from when it is asked for until the kernel has taken it, in milliseconds.
const UNDER_WAY: u64 = 1_000;

/// A thread and when it asked: milliseconds, as many as there is room for, in the upper half. Zero: nobody did.
#[derive(Clone, Copy)]
struct Asked(u64);

impl Asked {
    fn by(thread: u32, now: u64) -> Self {
        Self(now << 32 | u64::from(thread))
    }

    /// Zero is a thread that this process may not know of: any may be it.
    fn is(self, thread: u32) -> bool {
        self.0 == 0 || (thread != 0 && self.0 as u32 == thread)
    }

    /// The whole time, which was less than 49 days before `now`.
    fn at(self, now: u64) -> u64 {
        let age = (now as u32).wrapping_sub((self.0 >> 32) as u32);
        now.saturating_sub(age.into())
    }
}

/// Who asked last. Times are milliseconds; zero stands for never.
#[derive(Debug, Default)]
struct Askers {
    last: AtomicU64,
    /// When the latest before it of another thread was.
    other: AtomicU64,
}

impl Askers {
    fn add(&self, thread: u32, now: u64) {
        let before = Asked(self.last.swap(Asked::by(thread, now).0, Ordering::SeqCst));
        if !before.is(thread) {
            self.other.fetch_max(before.at(now), Ordering::SeqCst);
        }
    }

    /// Whether another thread than this one may have an answer under way.
    fn race(&self, thread: u32, now: u64) -> bool {
        let last = Asked(self.last.load(Ordering::SeqCst));
        let other = self.other.load(Ordering::SeqCst);
        (!last.is(thread) && is_under_way(last.at(now), now)) || is_under_way(other, now)
    }
}

fn is_under_way(at: u64, now: u64) -> bool {
    at != 0 && now.saturating_sub(at) < UNDER_WAY
}

#[derive(Debug, Default)]
struct Place {
    askers: Askers,
    changed: AtomicU64,
    /// Removals of names that are being made.
    removals: AtomicU32,
    /// When the last one was made that left other names.
    removed: AtomicU64,
    /// Something was told to have several names.
    linked: AtomicBool,
}

/// Keeps the kernel from keeping attributes that crossed a change.
///
/// The kernel may take attributes that were read before a change after it, and a link count of after the removal of a name
/// before that removal ([`crate::docs::caching`] says when). A file system that tells this of what it is asked and what it
/// changes has it refused what crosses: [`Notifier::forget_attributes`] is called where another thread's request may cross.
/// [`crate::path::Adapter`] does so for file systems over paths.
///
/// It has the same size whatever the number of nodes: nodes share places, which costs notifications that were not needed.
/// An answer that takes longer than a second from when it is asked for until the kernel has taken it is not thought of.
#[derive(Debug)]
pub struct Crossing {
    places: Box<[Place]>,
    /// Listings with attributes, of anything in what they list.
    listings: Askers,
}

impl Default for Crossing {
    fn default() -> Self {
        Self {
            places: (0..1 << PLACE_BITS).map(|_| Place::default()).collect(),
            listings: Askers::default(),
        }
    }
}

fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

impl Crossing {
    fn place(&self, node: NodeId) -> Option<&Place> {
        // Ids come in runs, or have tags above: the highest bits of a product have something of each bit.
        let mixed = node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.places
            .get((mixed >> (u64::BITS - PLACE_BITS)) as usize)
    }

    /// A request asks for the attributes of a node (GETATTR, STATX), which are read after this.
    pub fn asks(&self, cx: &Context<'_>, node: NodeId) {
        if let Some(place) = self.place(node) {
            place.askers.add(cx.pid(), now_ms());
        }
    }

    /// A request asks for a listing with attributes (READDIRPLUS), which are read after this.
    pub fn lists(&self, cx: &Context<'_>) {
        self.listings.add(cx.pid(), now_ms());
    }

    /// A LOOKUP has read attributes of a node, which it could not name before. Whether they are to be read again,
    /// because they may have changed just then.
    #[must_use]
    pub fn has_found(&self, cx: &Context<'_>, node: NodeId) -> bool {
        self.finds(node, cx.pid(), now_ms())
    }

    fn finds(&self, node: NodeId, thread: u32, now: u64) -> bool {
        self.place(node).is_none_or(|place| {
            place.askers.add(thread, now);
            is_under_way(place.changed.load(Ordering::SeqCst), now)
        })
    }

    /// A request has changed attributes that the kernel drops without more when it is answered, which is to be done
    /// after this: of a directory in which it made or removed a name, of a file that it renamed, of which it changed an
    /// extended attribute or allocated blocks, to which it wrote what had been written to a mapping, or of which it wrote
    /// back times (`FATTR_CTIME`).
    pub fn has_changed(&self, cx: &Context<'_>, node: NodeId) {
        if self.races(node, cx.pid(), now_ms()) {
            refuse(cx.notifier(), node);
        }
    }

    fn races(&self, node: NodeId, thread: u32, now: u64) -> bool {
        self.place(node).is_none_or(|place| {
            place.changed.store(now, Ordering::SeqCst);
            place.askers.race(thread, now)
        }) || self.listings.race(thread, now)
    }

    /// A name of a node is about to be removed (UNLINK, and RENAME over another). The name of a directory, which has but
    /// one, need not be told.
    #[must_use = "the name is removed while this is there"]
    pub fn removes(&self, node: NodeId) -> Removal<'_> {
        let place = self.place(node);
        if let Some(place) = place {
            place.removals.fetch_add(1, Ordering::SeqCst);
        }
        Removal(place)
    }

    /// These attributes of a node, which were just read, are about to be the answer to a request. Whether the kernel is to
    /// keep them: false where a name of the node is being removed, and then it has been told not to.
    #[must_use]
    pub fn may_be_kept(&self, notifier: &Notifier, node: NodeId, attr: &Attr) -> bool {
        self.keeps(node, attr, now_ms) || {
            refuse(notifier, node);
            false
        }
    }

    fn keeps(&self, node: NodeId, attr: &Attr, now: impl FnOnce() -> u64) -> bool {
        self.place(node).is_none_or(|place| {
            if attr.links > 1 && !attr.is_directory() && !place.linked.load(Ordering::Relaxed) {
                place.linked.store(true, Ordering::Relaxed);
            }
            // In this order, for one that ends meanwhile is told by the second.
            let none = place.removals.load(Ordering::SeqCst) == 0;
            let removed = place.removed.load(Ordering::SeqCst);
            none && (removed == 0 || !is_under_way(removed, now()))
        })
    }
}

/// A session that has ended has nothing left to refuse.
fn refuse(notifier: &Notifier, node: NodeId) {
    let _ = notifier.forget_attributes(node);
}

/// A name that is being removed as long as this is there.
#[derive(Debug)]
pub struct Removal<'a>(Option<&'a Place>);

impl Removal<'_> {
    /// The name is gone, and the request is to be answered. Whether the node has others, where that is known.
    pub fn is_made(&self, has_others: Option<bool>) {
        self.made(has_others, now_ms());
    }

    fn made(&self, has_others: Option<bool>, now: u64) {
        if let Some(place) = self.0
            && has_others.unwrap_or_else(|| place.linked.load(Ordering::Relaxed))
        {
            place.removed.fetch_max(now, Ordering::SeqCst);
        }
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.removals.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(7);

    fn told(links: u32) -> Attr {
        Attr {
            mode: 0o100_644,
            links,
            ..Attr::default()
        }
    }

    #[test]
    fn only_what_another_thread_has_asked_for_lately_races() {
        let askers = Askers::default();
        assert!(!askers.race(7, 5_000), "nobody asked");
        askers.add(7, 5_000);
        askers.add(7, 5_001);
        assert!(!askers.race(7, 5_002), "who changes has its answers");
        assert!(askers.race(8, 5_002));
        assert!(!askers.race(8, 5_001 + UNDER_WAY), "long ago");
        askers.add(8, 5_003);
        assert!(askers.race(8, 5_004), "the one before it");
        assert!(!askers.race(8, 5_001 + UNDER_WAY));
        assert!(askers.race(7, 5_001 + UNDER_WAY), "the last one");
    }

    #[test]
    fn threads_of_elsewhere_race_with_all() {
        let askers = Askers::default();
        askers.add(0, 9_000);
        assert!(askers.race(0, 9_001) && askers.race(7, 9_001));
    }

    #[test]
    fn the_time_may_outgrow_its_room() {
        let askers = Askers::default();
        let end = (1 << 32) - 1;
        askers.add(7, end);
        assert!(askers.race(8, end + 2));
        assert!(!askers.race(8, end + 2 + UNDER_WAY));
        askers.add(8, end + 3);
        askers.add(9, end + 5_000);
        askers.add(8, end + 5_001);
        assert!(askers.race(8, end + 5_002), "the one before it");
    }

    #[test]
    fn who_finds_what_was_just_changed_looks_again() {
        let crossing = Crossing::default();
        assert!(!crossing.finds(NODE, 7, 5_000));
        assert!(crossing.races(NODE, 8, 5_001), "it was found by another");
        assert!(crossing.finds(NODE, 9, 5_002) && crossing.finds(NODE, 8, 5_003));
        assert!(!crossing.finds(NODE, 9, 5_001 + UNDER_WAY));
    }

    #[test]
    fn a_listing_may_have_anything() {
        let crossing = Crossing::default();
        crossing.listings.add(7, 5_000);
        assert!(!crossing.races(NODE, 7, 5_001) && crossing.races(NODE, 8, 5_001));
    }

    #[test]
    fn what_loses_a_name_is_not_kept_until_that_is_told() {
        let crossing = Crossing::default();
        let keeps = |now| crossing.keeps(NODE, &told(1), || now);
        assert!(keeps(5_000));
        let [first, second] = [crossing.removes(NODE), crossing.removes(NODE)];
        assert!(!keeps(5_000) && !keeps(500_000));
        first.made(Some(true), 500_000);
        drop(first);
        assert!(!keeps(500_000 + UNDER_WAY), "the second");
        second.made(Some(false), 500_001);
        drop(second);
        assert!(!keeps(500_001) && keeps(500_000 + UNDER_WAY));
    }

    #[test]
    fn others_are_left_where_there_were_others_or_it_is_said() {
        let crossing = Crossing::default();
        let removed = |has_others| {
            let removal = crossing.removes(NODE);
            removal.made(has_others, 5_000);
            drop(removal);
            !crossing.keeps(NODE, &told(1), || 5_001)
        };
        assert!(!removed(None) && !removed(Some(false)));
        assert!(crossing.keeps(NODE, &told(2), || 5_002));
        assert!(!removed(Some(false)) && removed(None));
    }

    #[test]
    fn a_removal_that_fails_leaves_nothing() {
        let crossing = Crossing::default();
        drop(crossing.removes(NODE));
        assert!(crossing.keeps(NODE, &told(2), || 5_000));
    }
}
