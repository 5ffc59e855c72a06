//! Operations that wait for their claims, first come first served.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::io::Errno;

use super::claim::{Resolved, Want};
use super::tree::{EdgeId, Tree};

/// An operation that waits. It is in the queue until it has its claims or gives up.
#[derive(Debug)]
pub(super) struct Waiter {
    want: Want<'static>,
    outcome: Mutex<Option<Result<Resolved, Errno>>>,
    settled: Condvar,
}

impl Waiter {
    pub(super) fn new(want: Want<'static>) -> Arc<Self> {
        Arc::new(Self {
            want,
            outcome: Mutex::default(),
            settled: Condvar::new(),
        })
    }

    fn settle(&self, outcome: Result<Resolved, Errno>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.settled.notify_all();
    }

    /// Whether it has its claims, or an error. The outcome is for [`Waiter::wait`] to take.
    pub(super) fn is_settled(&self) -> bool {
        self.outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    pub(super) fn wait(&self) -> Result<Resolved, Errno> {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = outcome.take() {
                return outcome;
            }
            outcome = self
                .settled
                .wait(outcome)
                .unwrap_or_else(PoisonError::into_inner);
        }
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
    pub(super) fn advance(&mut self, tree: &mut Tree) {
        let mut ahead = Ahead::default();
        let mut blocked = Vec::new();
        self.waiters
            .retain(|waiter| match waiter.want.resolve(tree) {
                Err(errno) => {
                    waiter.settle(Err(errno));
                    false
                }
                Ok(resolved) if resolved.is_free(tree) && ahead.allows(&resolved) => {
                    resolved.take(tree);
                    waiter.settle(Ok(resolved));
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
    }

    /// Takes one out that does not want to wait any longer, unless it has its claims.
    pub(super) fn interrupt(&mut self, waiter: &Arc<Waiter>) -> bool {
        let before = self.waiters.len();
        self.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        let found = self.waiters.len() < before;
        if found {
            waiter.settle(Err(Errno::INTR));
        }
        found
    }
}
