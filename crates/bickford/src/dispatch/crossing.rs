//! Attributes that cross a change on their way to the kernel.
//!
//! The kernel may take attributes that were read before a change after it, and a link count of after the removal of a name
//! before that removal ([`crate::docs::caching`] says when). Here is known who asks for what and who changes what, so that
//! the kernel is told to refuse what crosses, whatever the file system.
//!
//! The tables have the same size whatever the number of nodes: nodes share places, which costs notifications that were not
//! needed. An answer that takes longer than a second from when it is sent until the kernel has taken it is not thought of.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::NodeId;
use crate::notify::Notifier;
use crate::ops::{Answer, Attr, Touched};

const PLACE_BITS: u32 = 10;
/// How long an answer is under way at most, in milliseconds.
const UNDER_WAY: u64 = 1_000;

/// A thread and when it did something: milliseconds, as many as there is room for, in the upper half. Zero: nobody did.
#[derive(Clone, Copy)]
struct Did(u64);

impl Did {
    fn by(thread: u32, now: u64) -> Self {
        Self(now << 32 | u64::from(thread))
    }

    /// Zero is a thread that this process may not know of: any may be it.
    fn is(self, thread: u32) -> bool {
        self.0 == 0 || (thread != 0 && self.0 as u32 == thread)
    }

    /// The whole time, which was less than 49 days before `now`. Who did it may have looked at the clock a moment later.
    fn at(self, now: u64) -> u64 {
        let done = (self.0 >> 32) as u32;
        let after = done.wrapping_sub(now as u32);
        match u64::from(after) < UNDER_WAY {
            true => now + u64::from(after),
            false => now.saturating_sub((now as u32).wrapping_sub(done).into()),
        }
    }
}

/// Who did something last. Times are milliseconds; zero stands for never.
#[derive(Debug, Default)]
struct Threads {
    last: AtomicU64,
    /// When the latest before it of another thread was.
    other: AtomicU64,
}

impl Threads {
    fn add(&self, thread: u32, now: u64) {
        let before = Did(self.last.swap(Did::by(thread, now).0, Ordering::SeqCst));
        if !before.is(thread) {
            self.other.fetch_max(before.at(now), Ordering::SeqCst);
        }
    }

    /// Whether another thread than this one did it at `since` or later.
    fn race(&self, thread: u32, since: u64, now: u64) -> bool {
        let last = Did(self.last.load(Ordering::SeqCst));
        let other = self.other.load(Ordering::SeqCst);
        (!last.is(thread) && last.at(now) >= since) || (other != 0 && other >= since)
    }
}

/// Since when what is still under way may have been sent.
fn lately(now: u64) -> u64 {
    now.saturating_sub(UNDER_WAY - 1)
}

#[derive(Debug, Default)]
struct Place {
    asked: Threads,
    changed: Threads,
    /// Something was told to have several names.
    linked: AtomicBool,
}

/// Who asks and who changes in one session.
#[derive(Debug)]
pub(crate) struct Crossing {
    notifier: Notifier,
    places: Box<[Place]>,
    /// Listings with attributes, of anything in what they list.
    listed: Threads,
    /// Removals of names that are being made.
    removals: AtomicU32,
    removed: Threads,
    /// Something anywhere was told to have several names.
    linked: AtomicBool,
}

/// What has to be known of a request until it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crosser {
    touched: Touched,
    node: NodeId,
    thread: u32,
    /// When it came, if it asks for attributes.
    since: u64,
}

impl Crosser {
    pub(crate) fn new(node: NodeId, thread: u32) -> Self {
        Self {
            touched: Touched::Nothing,
            node,
            thread,
            since: 0,
        }
    }

    fn is_late(&self, now: u64) -> bool {
        let asks = matches!(self.touched, Touched::Asks | Touched::Lists);
        asks && now.saturating_sub(self.since) >= UNDER_WAY
    }
}

/// What is to become of attributes that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    /// Whoever asked is told, and the kernel asks again.
    NotKept,
    /// The kernel is not to take anything of them.
    Refused,
}

fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

impl Crossing {
    pub(crate) fn new(notifier: Notifier) -> Self {
        Self {
            notifier,
            places: (0..1 << PLACE_BITS).map(|_| Place::default()).collect(),
            listed: Threads::default(),
            removals: AtomicU32::new(0),
            removed: Threads::default(),
            linked: AtomicBool::new(false),
        }
    }

    fn place(&self, node: NodeId) -> Option<&Place> {
        // Ids come in runs, or have tags above: the highest bits of a product have something of each bit.
        let mixed = node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.places
            .get((mixed >> (u64::BITS - PLACE_BITS)) as usize)
    }

    /// A request goes to the file system.
    pub(crate) fn begins(&self, crosser: &mut Crosser, touched: Touched) {
        self.begins_at(crosser, touched, now_ms);
    }

    fn begins_at(&self, crosser: &mut Crosser, touched: Touched, now: impl Fn() -> u64) {
        crosser.touched = touched;
        match touched {
            Touched::Asks | Touched::Finds | Touched::Lists => {
                crosser.since = now();
                self.asks(crosser, crosser.since);
            }
            Touched::Changes { removes: true, .. } => {
                self.removals.fetch_add(1, Ordering::SeqCst);
            }
            Touched::Nothing | Touched::Changes { .. } => {}
        }
    }

    fn asks(&self, crosser: &Crosser, now: u64) {
        match crosser.touched {
            Touched::Asks => {
                if let Some(place) = self.place(crosser.node) {
                    place.asked.add(crosser.thread, now);
                }
            }
            Touched::Lists => self.listed.add(crosser.thread, now),
            Touched::Nothing | Touched::Finds | Touched::Changes { .. } => {}
        }
    }

    /// A request was successful, and is about to be answered with this.
    pub(crate) fn succeeds(&self, crosser: &Crosser, answer: &mut impl Answer) {
        let now = match crosser.touched {
            Touched::Nothing => 0,
            _ => now_ms(),
        };
        self.changes_what_it_names(crosser, now);
        let is_late = self.asks_late(crosser, now);
        let losing = crosser.touched == Touched::Lists
            && self.linked.load(Ordering::Relaxed)
            && self.is_losing(crosser.thread, now);
        let mut refused = Vec::new();
        answer.tells(crosser.node, losing || is_late, &mut |node, attr, valid| {
            let fate = self.fate(crosser, node, attr, now);
            if fate != Fate::Kept {
                *valid = Duration::ZERO;
            }
            if fate == Fate::Refused {
                refused.push(node);
            }
        });
        match refused.as_slice() {
            [] => {}
            &[node] if crosser.touched == Touched::Asks => self.refuse(node),
            unheld => self.notifier.forget_attributes_unheld(unheld),
        }
    }

    /// Whether it took so long that those who changed something meanwhile may not have thought of it any more. Those who
    /// do so from now on will.
    fn asks_late(&self, crosser: &Crosser, now: u64) -> bool {
        let is_late = crosser.is_late(now);
        if is_late {
            self.asks(crosser, now);
        }
        is_late
    }

    fn changes_what_it_names(&self, crosser: &Crosser, now: u64) {
        let Touched::Changes { nodes, removes } = crosser.touched else {
            return;
        };
        if removes {
            self.removed.add(crosser.thread, now);
        }
        let [first, second] = nodes;
        self.changes(first, crosser.thread, now);
        if second != first && second.0 != 0 {
            self.changes(second, crosser.thread, now);
        }
    }

    /// A request is about to be answered, be it with an error. Once only.
    pub(crate) fn ends(&self, crosser: &Crosser) {
        if let Touched::Changes { removes: true, .. } = crosser.touched {
            self.removals.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A thread's request, which is not answered yet, has changed attributes of a node that the kernel drops, without
    /// more, when it is.
    pub(crate) fn has_changed(&self, node: NodeId, thread: u32) {
        self.changes(node, thread, now_ms());
    }

    fn changes(&self, node: NodeId, thread: u32, now: u64) {
        if self.races(node, thread, now) {
            self.refuse(node);
        }
    }

    fn races(&self, node: NodeId, thread: u32, now: u64) -> bool {
        let since = lately(now);
        self.place(node).is_none_or(|place| {
            place.changed.add(thread, now);
            place.asked.race(thread, since, now) || self.listed.race(thread, since, now)
        })
    }

    /// What is to become of attributes of a node, which were just read.
    fn fate(&self, crosser: &Crosser, node: NodeId, attr: &Attr, now: u64) -> Fate {
        let Some(place) = self.place(node) else {
            return Fate::NotKept;
        };
        let may_lose = !attr.is_directory() && self.has_been_linked(place, attr);
        let was_changed = || place.changed.race(crosser.thread, crosser.since, now);
        let fate = match crosser.touched {
            // Before it was found nobody could tell that it is asked for.
            Touched::Finds => {
                place.asked.add(crosser.thread, now);
                match was_changed() {
                    true => Fate::NotKept,
                    false => Fate::Kept,
                }
            }
            Touched::Asks | Touched::Lists if crosser.is_late(now) && was_changed() => {
                Fate::Refused
            }
            Touched::Asks | Touched::Lists => Fate::Kept,
            // The kernel takes it in any case, and holds the inode until then, as it does while a name of it is removed.
            Touched::Nothing | Touched::Changes { .. } => return Fate::Kept,
        };
        match may_lose && self.is_losing(crosser.thread, now) {
            true => Fate::Refused,
            false => fate,
        }
    }

    fn has_been_linked(&self, place: &Place, attr: &Attr) -> bool {
        place.linked.load(Ordering::Relaxed) || {
            let is_linked = attr.links > 1;
            if is_linked {
                self.linked.store(true, Ordering::Relaxed);
                place.linked.store(true, Ordering::Relaxed);
            }
            is_linked
        }
    }

    /// Whether another thread is removing a name, or has just done so.
    fn is_losing(&self, thread: u32, now: u64) -> bool {
        // In this order, for one that ends meanwhile is told by the second.
        self.removals.load(Ordering::SeqCst) != 0 || self.removed.race(thread, lately(now), now)
    }

    /// A session that has ended has nothing left to refuse.
    fn refuse(&self, node: NodeId) {
        let _ = self.notifier.forget_attributes(node);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const NODE: NodeId = NodeId(7);

    fn told(links: u32) -> Attr {
        Attr {
            mode: 0o100_644,
            links,
            ..Attr::default()
        }
    }

    fn crossing() -> Crossing {
        Crossing::new(Notifier::new(Arc::default(), Arc::default()))
    }

    /// A request by a thread at a time.
    fn begun(crossing: &Crossing, touched: Touched, thread: u32, now: u64) -> Crosser {
        let mut crosser = Crosser::new(NODE, thread);
        crossing.begins_at(&mut crosser, touched, || now);
        crosser
    }

    const REMOVES: Touched = Touched::Changes {
        nodes: [NodeId(1), NodeId(0)],
        removes: true,
    };

    #[test]
    fn only_what_another_thread_has_done_lately_races() {
        let threads = Threads::default();
        let race = |thread, now| threads.race(thread, lately(now), now);
        assert!(!race(7, 5_000), "nobody did");
        threads.add(7, 5_000);
        threads.add(7, 5_001);
        assert!(!race(7, 5_002), "who changes has its answers");
        assert!(race(8, 5_002));
        assert!(!race(8, 5_001 + UNDER_WAY), "long ago");
        threads.add(8, 5_003);
        assert!(race(8, 5_004), "the one before it");
        assert!(!race(8, 5_001 + UNDER_WAY));
        assert!(race(7, 5_001 + UNDER_WAY), "the last one");
    }

    #[test]
    fn threads_of_elsewhere_race_with_all() {
        let threads = Threads::default();
        threads.add(0, 9_000);
        assert!(threads.race(0, 9_000, 9_001) && threads.race(7, 9_000, 9_001));
    }

    #[test]
    fn the_time_may_outgrow_its_room() {
        let threads = Threads::default();
        let race = |thread, now| threads.race(thread, lately(now), now);
        let end = (1 << 32) - 1;
        threads.add(7, end);
        assert!(race(8, end + 2));
        assert!(!race(8, end + 2 + UNDER_WAY));
        assert!(race(8, end - 2), "a moment later");
        threads.add(8, end + 3);
        threads.add(9, end + 5_000);
        threads.add(8, end + 5_001);
        assert!(race(8, end + 5_002), "the one before it");
    }

    #[test]
    fn who_asked_before_a_change_is_refused() {
        let crossing = crossing();
        begun(&crossing, Touched::Asks, 7, 5_000);
        assert!(!crossing.races(NODE, 7, 5_001) && crossing.races(NODE, 8, 5_001));
        assert!(!crossing.races(NodeId(8), 8, 5_001), "another node");
    }

    #[test]
    fn who_finds_what_is_changed_meanwhile_is_refused() {
        let crossing = crossing();
        let found = |finds: Crosser, now| crossing.fate(&finds, NODE, &told(1), now) == Fate::Kept;
        let [first, second, own] = [7, 9, 8].map(|thread| {
            let finds = begun(&crossing, Touched::Finds, thread, 5_000);
            (finds, thread)
        });
        assert!(found(first.0, 5_000));
        assert!(crossing.races(NODE, 8, 5_001), "it was found by another");
        assert!(!found(second.0, 5_002), "it was not found then");
        assert!(found(own.0, 5_002), "a change of its own");
        let later = begun(&crossing, Touched::Finds, 9, 5_002);
        assert!(found(later, 5_003), "it came after the change");
    }

    #[test]
    fn who_is_answered_late_sees_what_was_changed_meanwhile() {
        for touched in [Touched::Asks, Touched::Lists] {
            let crossing = crossing();
            let asks = begun(&crossing, touched, 7, 5_000);
            let later = 5_000 + 2 * UNDER_WAY;
            assert!(!crossing.races(NODE, 8, later), "nobody asked lately");
            assert!(!crossing.asks_late(&asks, 5_000 + UNDER_WAY - 1));
            assert!(crossing.asks_late(&asks, later + 1));
            assert!(crossing.fate(&asks, NODE, &told(1), later + 1) == Fate::Refused);
            assert!(crossing.fate(&asks, NodeId(8), &told(1), later + 1) == Fate::Kept);
            assert!(crossing.races(NODE, 8, later + 2), "it is under way now");
        }
    }

    #[test]
    fn a_listing_may_have_anything() {
        let crossing = crossing();
        begun(&crossing, Touched::Lists, 7, 5_000);
        assert!(!crossing.races(NODE, 7, 5_001) && crossing.races(NODE, 8, 5_001));
    }

    #[test]
    fn what_has_several_names_is_not_kept_while_names_go() {
        let crossing = crossing();
        let asks = begun(&crossing, Touched::Asks, 7, 5_000);
        let keeps = |links, now| match crossing.fate(&asks, NODE, &told(links), now) {
            Fate::Kept => true,
            Fate::Refused => false,
            Fate::NotKept => panic!("it would be taken"),
        };
        let [first, second] = [8, 9].map(|thread| begun(&crossing, REMOVES, thread, 5_000));
        assert!(keeps(1, 5_000), "it has had but one");
        assert!(!keeps(2, 5_000) && !keeps(1, 500_000));
        crossing.changes_what_it_names(&first, 500_000);
        crossing.ends(&first);
        assert!(!keeps(1, 500_000 + UNDER_WAY), "the second");
        crossing.ends(&second);
        assert!(!keeps(1, 500_001) && keeps(1, 500_000 + UNDER_WAY));
        // Its answers have come to it.
        let own = begun(&crossing, REMOVES, 7, 600_000);
        crossing.changes_what_it_names(&own, 600_000);
        crossing.ends(&own);
        assert!(keeps(2, 600_001));
    }

    #[test]
    fn a_removal_that_fails_leaves_nothing() {
        let crossing = crossing();
        let removes = begun(&crossing, REMOVES, 8, 5_000);
        crossing.ends(&removes);
        let asks = begun(&crossing, Touched::Asks, 7, 5_000);
        assert_eq!(crossing.fate(&asks, NODE, &told(2), 5_000), Fate::Kept);
    }
}
