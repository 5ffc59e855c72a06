//! Attributes that were asked for while they changed.
//!
//! A request that makes or removes a name has the kernel drop the attributes of the directory when it is
//! answered; one that renames, that sets an extended attribute or an ACL, that deallocates, or that writes what was
//! written to a mapping, those of the file. An answer that was read before the change may reach the kernel after that,
//! and the kernel takes it (it compares `attr_version`, which such a change does not raise): size, times and link count
//! would stay as they were for as long as attributes are cached, also for whoever made the change. A notification raises
//! the version, so one is sent before the change is answered wherever another thread may have such an answer under way.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use bickford::{Context, NodeId};
use rustix::time::{ClockId, clock_gettime};

use crate::Inner;
use crate::invalidation::forget_attributes_now;
use crate::node::Found;
use crate::sharded::spread;

/// Nodes that share a place cost a notification too many at worst.
pub(crate) const PLACES: usize = 1024;
/// How long an answer takes at most from when it is asked for until the kernel has taken it, in milliseconds.
pub(crate) const UNDER_WAY: u64 = 1_000;

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

#[derive(Default)]
struct Place {
    last: AtomicU64,
    /// When the latest before it of another thread was, in milliseconds; zero for never.
    other: AtomicU64,
    /// When it was last changed, in milliseconds.
    changed: AtomicU64,
}

impl Place {
    fn asks(&self, thread: u32, now: u64) {
        let before = Asked(self.last.swap(Asked::by(thread, now).0, Ordering::SeqCst));
        if !before.is(thread) {
            self.other.fetch_max(before.at(now), Ordering::SeqCst);
        }
    }

    /// Whether another thread than this one may have an answer under way.
    fn races(&self, thread: u32, now: u64) -> bool {
        let last = Asked(self.last.load(Ordering::SeqCst));
        let other = self.other.load(Ordering::SeqCst);
        let under_way = |at: u64| now.saturating_sub(at) < UNDER_WAY;
        (!last.is(thread) && under_way(last.at(now))) || (other != 0 && under_way(other))
    }
}

/// Who asked for attributes of which node.
pub(crate) struct Racing {
    places: Box<[Place]>,
    /// Listings with attributes (READDIRPLUS): of anything in what they list.
    listings: Place,
}

impl Default for Racing {
    fn default() -> Self {
        Self {
            places: (0..PLACES).map(|_| Place::default()).collect(),
            listings: Place::default(),
        }
    }
}

pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

impl Racing {
    fn place(&self, node: u64) -> Option<&Place> {
        self.places.get(spread(node, PLACES.ilog2()))
    }

    /// A thread asks for attributes of a node, which are read after this.
    pub(crate) fn asks(&self, node: u64, thread: u32) {
        if let Some(place) = self.place(node) {
            place.asks(thread, now_ms());
        }
    }

    /// A thread asks for a listing with attributes, which are read after this.
    pub(crate) fn lists(&self, thread: u32) {
        self.listings.asks(thread, now_ms());
    }

    /// Whether a node that this thread has just changed may have been asked for by another.
    pub(crate) fn races(&self, node: u64, thread: u32) -> bool {
        let now = now_ms();
        let place = self.place(node);
        place.is_none_or(|place| {
            place.changed.store(now, Ordering::SeqCst);
            place.races(thread, now)
        }) || self.listings.races(thread, now)
    }

    /// A thread has read attributes of a node that it did not know before. Whether they may have changed since then,
    /// unheard by whoever changed them.
    fn has_found(&self, node: u64, thread: u32) -> bool {
        self.place(node).is_none_or(|place| {
            let now = now_ms();
            place.asks(thread, now);
            let changed = place.changed.load(Ordering::SeqCst);
            changed != 0 && now.saturating_sub(changed) < UNDER_WAY
        })
    }
}

impl Inner {
    /// A request has changed a directory and is about to be answered.
    pub(crate) fn changed(&self, cx: &Context<'_>, directory: NodeId, changed: bool) {
        // What failed may have made a name, and removed it again.
        self.name_changes.count(directory.0);
        if changed {
            self.forget_raced(cx, directory, "a name in it was changed");
        }
    }

    /// A request has changed attributes that the kernel drops, without more, when it is answered.
    pub(crate) fn forget_raced(&self, cx: &Context<'_>, node: NodeId, why: &str) {
        let are_kept = !self.settings.attr_timeout.is_zero();
        if are_kept && self.racing.races(node.0, cx.pid()) {
            forget_attributes_now(cx, node, why);
        }
    }

    /// What was looked up, as it is where it has changed just now.
    pub(crate) fn as_it_is(&self, cx: &Context<'_>, mut found: Found) -> Found {
        let may_have_changed =
            !self.settings.attr_timeout.is_zero() && self.racing.has_found(found.node, cx.pid());
        if may_have_changed
            && let Ok(object) = self.nodes.object(found.node)
            && let Ok(statx) = self.nodes.attributes_of(object.as_fd())
        {
            found.statx = statx;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_another_thread_has_asked_for_lately_races() {
        let place = Place::default();
        assert!(!place.races(7, 5_000), "nobody asked");
        place.asks(7, 5_000);
        place.asks(7, 5_001);
        assert!(!place.races(7, 5_002), "who changes has its answers");
        assert!(place.races(8, 5_002));
        assert!(!place.races(8, 5_001 + UNDER_WAY), "long ago");
        place.asks(8, 5_003);
        assert!(place.races(8, 5_004), "the one before it");
        assert!(!place.races(8, 5_001 + UNDER_WAY));
        assert!(place.races(7, 5_001 + UNDER_WAY), "the last one");
    }

    #[test]
    fn who_finds_what_was_just_changed_looks_again() {
        let racing = Racing::default();
        assert!(!racing.has_found(1, 7));
        assert!(racing.races(1, 8), "it was found by another");
        assert!(racing.has_found(1, 9) && racing.has_found(1, 8));
    }

    #[test]
    fn threads_of_elsewhere_race_with_all() {
        let place = Place::default();
        place.asks(0, 9_000);
        assert!(place.races(0, 9_001) && place.races(7, 9_001));
    }

    #[test]
    fn the_time_may_outgrow_its_room() {
        let place = Place::default();
        let end = (1 << 32) - 1;
        place.asks(7, end);
        assert!(place.races(8, end + 2));
        assert!(!place.races(8, end + 2 + UNDER_WAY));
        place.asks(8, end + 3);
        place.asks(9, end + 5_000);
        place.asks(8, end + 5_001);
        assert!(place.races(8, end + 5_002), "the one before it");
    }
}
