//! Operations that wait for their claims, first come first served.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use rustix::io::Errno;

use super::claim::{Resolved, Want};
use super::tree::{EdgeId, Tree};

/// An operation that waits. It is in the queue until it has its claims or gives up.
#[derive(Debug)]
pub(super) struct Waiter {
    want: Want<'static>,
    slot: Mutex<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    outcome: Option<Result<Resolved, Errno>>,
    waker: Option<Waker>,
}

impl Waiter {
    pub(super) fn new(want: Want<'static>) -> Arc<Self> {
        Arc::new(Self {
            want,
            slot: Mutex::default(),
        })
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers whom to wake, once no lock is held any more.
    fn settle(&self, outcome: Result<Resolved, Errno>) -> Option<Waker> {
        let mut slot = self.slot();
        slot.outcome = Some(outcome);
        slot.waker.take()
    }

    /// Whether it has its claims, or an error. The outcome is for [`Waiter::poll`] to take.
    pub(super) fn is_settled(&self) -> bool {
        self.slot().outcome.is_some()
    }

    /// Takes the outcome, if there is one.
    pub(super) fn take(&self) -> Option<Result<Resolved, Errno>> {
        self.slot().outcome.take()
    }

    /// Takes the outcome, or has `waker` woken when there is one.
    pub(super) fn poll(&self, waker: &Waker) -> Poll<Result<Resolved, Errno>> {
        let mut slot = self.slot();
        if let Some(outcome) = slot.outcome.take() {
            return Poll::Ready(outcome);
        }
        if !slot
            .waker
            .as_ref()
            .is_some_and(|known| known.will_wake(waker))
        {
            slot.waker = Some(waker.clone());
        }
        Poll::Pending
    }
}

/// Whom to wake, once no lock is held any more.
#[must_use = "who is not woken waits for ever"]
#[derive(Debug, Default)]
pub(super) struct Woken(Vec<Waker>);

impl Woken {
    pub(super) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// Those who wait, in the order in which they came. There are never more than requests in flight.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiters: VecDeque<Arc<Waiter>>,
}

/// What those before in the queue want.
#[derive(Default)]
struct Ahead {
    shared: HashSet<EdgeId>,
    exclusive: HashSet<EdgeId>,
}

impl Ahead {
    fn allows(&self, resolved: &Resolved) -> bool {
        let wanted = |edge: &EdgeId| self.shared.contains(edge) || self.exclusive.contains(edge);
        !resolved
            .shared
            .iter()
            .any(|edge| self.exclusive.contains(edge))
            && !resolved.exclusive.iter().any(wanted)
    }

    fn add(&mut self, resolved: &Resolved) {
        self.shared.extend(&resolved.shared);
        self.exclusive.extend(&resolved.exclusive);
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn push(&mut self, waiter: Arc<Waiter>) {
        self.waiters.push_back(waiter);
    }

    /// Lets go on who can: who waits for nothing that is claimed, or wanted by one before. Paths
    /// are found anew, for they may have changed meanwhile.
    pub(super) fn advance(&mut self, tree: &mut Tree) -> Woken {
        let mut woken = Woken::default();
        let mut ahead = Ahead::default();
        let mut blocked = Vec::new();
        self.waiters
            .retain(|waiter| match waiter.want.resolve(tree) {
                Err(errno) => {
                    woken.0.extend(waiter.settle(Err(errno)));
                    false
                }
                Ok(resolved) if resolved.is_free(tree) && ahead.allows(&resolved) => {
                    resolved.take(tree);
                    woken.0.extend(waiter.settle(Ok(resolved)));
                    false
                }
                Ok(resolved) => {
                    ahead.add(&resolved);
                    blocked.push(resolved);
                    true
                }
            });
        for resolved in blocked {
            resolved.drop_idle(tree);
        }
        woken
    }

    /// Takes one out that does not want to wait any longer, and lets go on who waited for it.
    /// `None` when it has its claims, or an error, already.
    pub(super) fn interrupt(&mut self, tree: &mut Tree, waiter: &Arc<Waiter>) -> Option<Woken> {
        let before = self.waiters.len();
        self.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        if self.waiters.len() == before {
            return None;
        }
        let mut woken = self.advance(tree);
        woken.0.extend(waiter.settle(Err(Errno::INTR)));
        Some(woken)
    }
}
