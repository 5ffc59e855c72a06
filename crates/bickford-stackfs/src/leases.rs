//! Opens that a lease holds up, and reads of what is not there yet.
//!
//! Whoever has a lease of a lower file (`F_SETLEASE` of fcntl(2); Samba takes them) is given time to
//! put it down before another opens it, up to `/proc/sys/fs/lease-break-time`. An open of ours does not
//! wait for that where requests are served, and is tried again ([`Retries`]). The same goes for computed files that
//! have nothing to read until something happens, as long as their reader waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bickford::ops::Answer;
use bickford::{Context, Interrupt, Reply};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::retry::Retries;
use crate::{Inner, StackFs};

/// For an open below: EWOULDBLOCK where a lease is in the way, whose holder is told. It stays with the
/// descriptor; of a regular file that means nothing.
pub(crate) const AT_ONCE: OFlags = OFlags::NONBLOCK;

/// Longer than the kernel lets anybody keep a lease: it is something else then.
pub(crate) const LEASE_PATIENCE: Duration = Duration::from_secs(300);

/// Answers a request if it can be answered now, or gives it up with the error; whether it is answered.
type Attempt = Box<dyn FnMut(&Inner, Option<Errno>) -> bool + Send>;

pub(crate) struct Waiting {
    attempt: Attempt,
    interrupt: Arc<Interrupt>,
    /// None: as long as it takes.
    until: Option<Instant>,
}

/// See the module.
pub(crate) type Leased = Retries<Waiting>;

/// Answers the request, or gives it back where that cannot be.
fn try_again(inner: &Inner, mut waiting: Waiting, ended: bool) -> Option<Waiting> {
    let give_up = if ended || waiting.interrupt.is_raised() {
        Some(Errno::INTR)
    } else {
        waiting
            .until
            .is_some_and(|until| Instant::now() > until)
            .then_some(Errno::AGAIN)
    };
    let answered = (waiting.attempt)(inner, give_up);
    (!answered).then_some(waiting)
}

impl StackFs {
    /// Answers with what `attempt` comes to; while that is EWOULDBLOCK, because of a lease, not yet.
    pub(crate) fn patiently<A: Answer>(
        &self,
        cx: &Context<'_>,
        reply: Reply<A>,
        attempt: impl Fn(&Inner, &Context<'_>, &Reply<A>) -> Result<A, Errno> + Send + 'static,
    ) {
        self.patiently_for(|_| Some(LEASE_PATIENCE), cx, reply, attempt);
    }

    /// The same, for so long at most as `patience` says then, or as long as it takes.
    pub(crate) fn patiently_for<A: Answer>(
        &self,
        patience: impl FnOnce(&Inner) -> Option<Duration>,
        cx: &Context<'_>,
        reply: Reply<A>,
        attempt: impl Fn(&Inner, &Context<'_>, &Reply<A>) -> Result<A, Errno> + Send + 'static,
    ) {
        match attempt(&self.inner, cx, &reply) {
            Err(Errno::AGAIN) if reply.may_wait() && cx.may_wait() => match patience(&self.inner) {
                Some(Duration::ZERO) => reply.error(Errno::AGAIN),
                patience => self.later(patience, cx, reply, attempt),
            },
            result => reply.complete(result),
        }
    }

    #[cold]
    fn later<A: Answer>(
        &self,
        patience: Option<Duration>,
        cx: &Context<'_>,
        reply: Reply<A>,
        attempt: impl Fn(&Inner, &Context<'_>, &Reply<A>) -> Result<A, Errno> + Send + 'static,
    ) {
        let (detached, mut kept) = (cx.detach(), Some(reply));
        let interrupt = cx.interrupt();
        let waiting = Waiting {
            interrupt: Arc::clone(&interrupt),
            until: patience.map(|patience| Instant::now() + patience),
            attempt: Box::new(move |inner, give_up| {
                let Some(reply) = &kept else { return true };
                let result = match give_up {
                    Some(error) => Err(error),
                    None => attempt(inner, &detached.context(), reply),
                };
                if give_up.is_none() && matches!(result, Err(Errno::AGAIN)) {
                    return false;
                }
                if let Some(reply) = kept.take() {
                    reply.complete(result);
                }
                true
            }),
        };
        let inner = Arc::downgrade(&self.inner);
        let all = move |batch: Vec<Waiting>, ended| {
            // The replies that are due keep the session, and that keeps the file system.
            let Some(inner) = inner.upgrade() else {
                return Vec::new();
            };
            let kept = batch.into_iter();
            kept.filter_map(|waiting| try_again(&inner, waiting, ended))
                .collect()
        };
        if let Some(mut refused) = self.inner.leased.push(waiting, &interrupt, all) {
            (refused.attempt)(&self.inner, Some(Errno::AGAIN));
        }
    }
}
