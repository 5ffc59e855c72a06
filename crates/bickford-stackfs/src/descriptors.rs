//! How many descriptors there are, and who keeps how many of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors left for the program around a session, and for what it has but once.
const RESERVED: usize = 64;
/// The same for its threads, as many as there are by default: the device, and two pipes, each.
const THREADS: usize = 32 * 5;

/// What so many leave for a file system; where there are few, fewer threads take them.
fn left_of(limit: usize) -> usize {
    limit.saturating_sub(RESERVED + THREADS.min(limit / 16))
}

/// Raises the number of descriptors that this process may have open to what it may raise it to, `ulimit -Hn`,
/// see `getrlimit(2)`, and says how many they are now; `None` is no limit. For a program that serves a
/// directory and does nothing else, before [`Builder::build`](crate::Builder::build), which leaves the limits
/// of the process alone. Programs that are started from then on have the limit, too.
///
/// # Errors
/// When the system refuses, which Linux does not.
pub fn raise_descriptor_limit() -> std::io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        setrlimit(Resource::Nofile, raised)?;
    }
    Ok(limit.maximum)
}

/// What `ulimit -n` leaves for a file system.
pub(crate) fn descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(1 << 20);
    left_of(limit.min(1 << 20))
}

/// What the caller is told where this process has no descriptor left, which is no limit of the caller's.
pub(crate) fn as_seen_by_callers(error: Errno) -> Errno {
    match error {
        Errno::MFILE => Errno::NFILE,
        error => error,
    }
}

/// Counts up to a limit.
#[derive(Debug)]
struct Count {
    taken: AtomicUsize,
    limit: AtomicUsize,
}

impl Count {
    fn up_to(limit: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
        }
    }

    fn take(&self) -> bool {
        let taken = self.taken.fetch_add(1, Ordering::AcqRel) < self.limit.load(Ordering::Relaxed);
        if !taken {
            self.give();
        }
        taken
    }

    fn give(&self) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    fn is_filled(&self, eighths: usize) -> bool {
        self.taken() >= self.limit.load(Ordering::Relaxed) / 8 * eighths
    }
}

/// All descriptors that those who keep some may keep together.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Count>);

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Count::up_to(limit)))
    }

    pub(crate) fn limit(&self) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// So many fewer from now on.
    pub(crate) fn reduce(&self, by: usize) {
        self.0
            .limit
            .store(self.limit().saturating_sub(by), Ordering::Relaxed);
    }

    /// For one kind of descriptors, `limit` at most.
    pub(crate) fn share(&self, limit: usize) -> Share {
        Share {
            all: self.clone(),
            own: Count::up_to(limit),
        }
    }
}

/// What one kind of descriptors takes of a [`Budget`].
#[derive(Debug)]
pub(crate) struct Share {
    all: Budget,
    own: Count,
}

impl Share {
    /// Room for one more; false where there is none.
    pub(crate) fn take(&self) -> bool {
        if !self.own.take() {
            return false;
        }
        let taken = self.all.0.take();
        if !taken {
            self.own.give();
        }
        taken
    }

    /// One less.
    pub(crate) fn give(&self) {
        self.own.give();
        self.all.0.give();
    }

    pub(crate) fn taken(&self) -> usize {
        self.own.taken()
    }

    pub(crate) fn limit(&self) -> usize {
        self.own.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.own.limit.store(limit, Ordering::Relaxed);
    }

    /// Whether a quarter of the room or less is left of this kind, or an eighth of all.
    pub(crate) fn is_scarce(&self) -> bool {
        self.taken() > 0 && (self.own.is_filled(6) || self.all.0.is_filled(7))
    }

    /// Whether half of the room or less is left of this kind, or an eighth of all.
    pub(crate) fn is_half_taken(&self) -> bool {
        self.taken() > 0 && (self.own.is_filled(4) || self.all.0.is_filled(7))
    }

    #[cfg(test)]
    pub(crate) fn alone(limit: usize) -> Self {
        Budget::new(limit).share(limit)
    }
}

/// Room for one descriptor, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Share>);

impl Permit {
    /// ENFILE where there is no room.
    pub(crate) fn of(share: &Arc<Share>) -> Result<Self, Errno> {
        let taken = share.take().then(|| Self(Arc::clone(share)));
        taken.ok_or(Errno::NFILE)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_bounded_each_and_together() {
        let all = Budget::new(10);
        let (one, two) = (all.share(8), Arc::new(all.share(8)));
        let took = (0..20).filter(|_| one.take()).count();
        assert_eq!(took, 8);
        assert!(one.is_scarce() && !two.is_scarce());
        let permits: Vec<_> = (0..20).map_while(|_| Permit::of(&two).ok()).collect();
        assert_eq!(permits.len(), 2);
        assert!(two.is_scarce(), "of all there are few");
        one.give();
        let third = Permit::of(&two);
        assert!(third.is_ok() && !one.take());
        drop(permits);
        assert_eq!((one.taken(), two.taken()), (7, 1));
        all.reduce(3);
        assert!(!one.take());
    }

    #[test]
    fn a_limit_of_this_process_is_none_of_the_callers() {
        assert_eq!(as_seen_by_callers(Errno::MFILE), Errno::NFILE);
        assert_eq!(as_seen_by_callers(Errno::NOENT), Errno::NOENT);
    }

    #[test]
    fn the_threads_of_a_session_have_descriptors_left() {
        for (limit, left) in [(50, 0), (256, 176), (1 << 20, (1 << 20) - 224)] {
            assert_eq!(left_of(limit), left);
        }
    }

    #[test]
    fn the_limit_is_raised_as_far_as_it_goes() {
        let most = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise_descriptor_limit().unwrap(), most);
        assert_eq!(getrlimit(Resource::Nofile).current, most);
        let limit = most.map_or(1 << 20, |most| most as usize).min(1 << 20);
        assert_eq!(descriptor_limit(), left_of(limit));
    }
}
