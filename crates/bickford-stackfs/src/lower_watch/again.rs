//! Changes that wait to be told once more.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bickford::NodeId;
use bickford::abi::Opcode;
use bickford::dispatch::InFlightRequest;

/// How long an answer takes at most from when the request is no longer in flight until the kernel has
/// it in its caches.
pub(super) const SETTLE: Duration = Duration::from_millis(20);
/// How often requests in flight are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(5);
/// What waits at most.
const MAX: usize = 65_536;

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Told {
    /// A name in a directory.
    Name(NodeId, CString),
    /// What is cached of an inode, with or without its data.
    Inode(NodeId, bool),
}

/// By the time of a look, everything in flight had begun after a moment.
struct Look {
    at: Instant,
    begun_after: Instant,
}

/// Each change once, however often it was told the first time.
#[derive(Default)]
pub(super) struct Again {
    last: HashMap<Arc<Told>, Instant>,
    order: VecDeque<(Instant, Arc<Told>)>,
    /// Those of the last [`SETTLE`], and one before.
    looks: VecDeque<Look>,
}

impl Again {
    /// A change was told at `now`; `None` when no more can wait.
    pub(super) fn add(&mut self, told: Told, now: Instant) -> Option<()> {
        if let Some(last) = self.last.get_mut(&told) {
            *last = now;
            return Some(());
        }
        if self.last.len() >= MAX {
            return None;
        }
        let told = Arc::new(told);
        self.last.insert(Arc::clone(&told), now);
        self.order.push_back((now, told));
        Some(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether it is time for [`Self::look`].
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let last = self.looks.back();
        !self.is_empty() && last.is_none_or(|look| now.duration_since(look.at) >= LOOK)
    }

    /// Notes what is in flight at `now`.
    pub(super) fn look(&mut self, now: Instant, in_flight: &[InFlightRequest]) {
        let racing = in_flight.iter().filter(|request| races(request.opcode));
        let oldest = racing.map(|request| request.age).max().unwrap_or_default();
        let begun_after = now.checked_sub(oldest).unwrap_or(now);
        self.looks.push_back(Look {
            at: now,
            begun_after,
        });
        while let Some(second) = self.looks.get(1)
            && now.duration_since(second.at) >= SETTLE
        {
            self.looks.pop_front();
        }
    }

    /// What no request can have raced with that was not answered [`SETTLE`] ago.
    pub(super) fn next(&mut self, now: Instant) -> Option<Told> {
        let look = self.looks.front()?;
        if now.duration_since(look.at) < SETTLE {
            return None;
        }
        let settled = look.begun_after;
        while let Some((since, _)) = self.order.front()
            && *since < settled
        {
            let (_, told) = self.order.pop_front()?;
            match self.last.get(&told) {
                Some(&last) if last >= settled => self.order.push_back((last, told)),
                _ => {
                    self.last.remove(&told);
                    return Some(Arc::unwrap_or_clone(told));
                }
            }
        }
        None
    }
}

/// Whether the answer to a request brings names or attributes into the kernel's caches. Others may wait
/// for a lock, a lease, or a disk, as long as they like.
fn races(opcode: Opcode) -> bool {
    !matches!(
        opcode,
        Opcode::Getlk
            | Opcode::Setlk
            | Opcode::Setlkw
            | Opcode::Poll
            | Opcode::Open
            | Opcode::Read
            | Opcode::Write
            | Opcode::Flush
            | Opcode::Release
            | Opcode::Fsync
            | Opcode::Releasedir
            | Opcode::Fsyncdir
            | Opcode::Syncfs
            | Opcode::Fallocate
            | Opcode::CopyFileRange
            | Opcode::CopyFileRange64
            | Opcode::Lseek
            | Opcode::Ioctl
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Told = Told::Inode(NodeId(7), false);

    /// Looks until [`SETTLE`] has gone by after `from`, with nothing in flight.
    fn settle(again: &mut Again, from: Instant) -> Instant {
        let end = from + SETTLE * 2;
        let mut now = from;
        while now < end {
            now += LOOK;
            again.look(now, &[]);
        }
        now
    }

    #[test]
    fn a_change_is_told_again_once_and_later_than_it_was_told_last() {
        let mut again = Again::default();
        let start = Instant::now();
        again.add(NAME, start).unwrap();
        assert!(again.is_due(start));
        again.look(start + LOOK, &[]);
        assert_eq!(again.next(start + LOOK), None, "too early");
        assert!(!again.is_due(start + LOOK));
        let changed = settle(&mut again, start);
        again.add(NAME, changed).unwrap();
        assert_eq!(again.next(changed), None, "it has just changed");
        let settled = settle(&mut again, changed);
        assert_eq!(again.next(settled), Some(NAME));
        assert_eq!(again.next(settled), None);
        assert!(again.is_empty() && !again.is_due(settled + SETTLE));
        assert!(again.looks.len() <= 6, "{}", again.looks.len());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut again = Again::default();
        let now = Instant::now();
        for number in 0..MAX as u64 {
            again.add(Told::Inode(NodeId(number), false), now).unwrap();
        }
        assert_eq!(again.add(Told::Name(NodeId(1), c"x".into()), now), None);
        assert_eq!(again.add(Told::Inode(NodeId(1), false), now), Some(()));
        again.clear();
        assert!(again.is_empty());
    }

    #[test]
    fn requests_that_wait_by_nature_hold_nothing_up() {
        assert!(races(Opcode::Lookup) && races(Opcode::Readdirplus) && races(Opcode::Getattr));
        assert!(!races(Opcode::Setlkw) && !races(Opcode::Fsync) && !races(Opcode::Open));
    }
}
