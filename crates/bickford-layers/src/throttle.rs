//! `throttle:read=SIZE,write=SIZE,ops=N`: bounds bandwidth and operations per second of each user.
//!
//! | option | meaning |
//! |---|---|
//! | `read=SIZE`, `write=SIZE` | bytes a second that are read or written |
//! | `ops=N` | operations a second, of any kind but FORGET |
//! | `burst=DURATION` | what may be taken at once, in time at the rate; one second by default |
//! | `per=user` or `per=all` | each user has these bounds (the default), or all users together |
//! | `users=N` | users that are told apart, 1024 by default; those beyond share one bound |
//!
//! Token buckets that may go into debt: the operation is done at once, and its answer is held back
//! until its tokens have come, on a timer, so that no worker is kept busy. So the rate holds on
//! average for callers that wait for their answers, and a caller that gets a signal has its answer
//! at once while its debt stays. At most 65,536 answers are held back at once, over io_uring about 450
//! of callers on each CPU; those beyond go at once, and their debt stays, too. Written pages that the kernel writes back later are charged to the
//! user that the kernel names then, mostly root. Where mounts can be id-mapped the kernel names none but where
//! something is made: all others count as one user.
//!
//! Bounds of bandwidth turn kernel pass-through off, a bound of operations the zero-message open
//! and pass-through.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bickford::layer::{
    Done, Interest, Layer, Needs, OperationKind, OperationSet, Outcome, PostCalls, PreCalls, Resume,
};
use bickford::{Errno, Negotiation};

use crate::LayerError;
use crate::bucket::Bucket;
use crate::registry::{Built, Entry, stack};
use crate::spec::{Options, parse_duration};
use crate::timer::Timer;

/// How the layer is asked for.
pub const ENTRY: Entry = Entry {
    name: "throttle",
    about: "bounds bandwidth and operations per second of each user",
    options: &[
        ("read=SIZE", "bytes a second that are read"),
        ("write=SIZE", "bytes a second that are written"),
        ("ops=N", "operations a second"),
        (
            "burst=DURATION",
            "what may be taken at once, in time at the rate [1s]",
        ),
        ("per=user|all", "whose bounds these are [user]"),
        ("users=N", "users that are told apart [1024]"),
    ],
    constructor: construct,
};

#[derive(Clone, Copy, Debug)]
struct Limits {
    read: Option<u64>,
    write: Option<u64>,
    ops: Option<u64>,
    burst: Duration,
    per_user: bool,
    users: usize,
}

/// The buckets of one user.
#[derive(Clone, Copy, Debug)]
struct Account {
    read: Option<Bucket>,
    write: Option<Bucket>,
    ops: Option<Bucket>,
}

impl Account {
    fn new(limits: &Limits, now: Duration) -> Self {
        let bucket = |rate: Option<u64>| rate.map(|rate| Bucket::new(rate, limits.burst, now));
        Self {
            read: bucket(limits.read),
            write: bucket(limits.write),
            ops: bucket(limits.ops),
        }
    }

    fn take(&mut self, kind: OperationKind, bytes: u64, now: Duration) -> Duration {
        let bandwidth = match kind {
            OperationKind::Read => self.read.as_mut(),
            OperationKind::Write | OperationKind::CopyFileRange => self.write.as_mut(),
            _ => None,
        };
        let bandwidth = bandwidth.map_or(Duration::ZERO, |bucket| bucket.take(bytes, now));
        let ops = self.ops.as_mut();
        ops.map_or(Duration::ZERO, |bucket| bucket.take(1, now))
            .max(bandwidth)
    }

    fn is_idle(&self, now: Duration) -> bool {
        let buckets = [self.read, self.write, self.ops];
        buckets.iter().flatten().all(|bucket| bucket.is_full(now))
    }
}

/// Accounts of users; bounded: users beyond the bound share one.
#[derive(Debug)]
struct Accounts {
    limits: Limits,
    users: HashMap<u32, Account>,
    shared: Account,
}

impl Accounts {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            users: HashMap::new(),
            shared: Account::new(&limits, Duration::ZERO),
        }
    }

    fn take(&mut self, uid: u32, kind: OperationKind, bytes: u64, now: Duration) -> Duration {
        if !self.limits.per_user {
            return self.shared.take(kind, bytes, now);
        }
        if !self.users.contains_key(&uid) && self.users.len() >= self.limits.users {
            self.users.retain(|_, account| !account.is_idle(now));
            if self.users.len() >= self.limits.users {
                return self.shared.take(kind, bytes, now);
            }
        }
        let fresh = || Account::new(&self.limits, now);
        let account = self.users.entry(uid).or_insert_with(fresh);
        account.take(kind, bytes, now)
    }
}

#[derive(Debug)]
struct Throttle {
    accounts: Mutex<Accounts>,
    limits: Limits,
    began: Instant,
    timer: Arc<Timer>,
}

fn construct(
    options: &mut Options<'_>,
    below: Box<dyn bickford::FileSystem>,
) -> Result<Built, LayerError> {
    let limits = Limits {
        read: options.size("read")?,
        write: options.size("write")?,
        ops: options.number("ops")?,
        burst: options
            .read("burst", parse_duration)?
            .unwrap_or(Duration::from_secs(1)),
        per_user: options.word("per", ["user", "all"])? == "user",
        users: options
            .number("users")?
            .map_or(1024, |users| usize::try_from(users).unwrap_or(usize::MAX)),
    };
    let rates = [
        ("read", limits.read),
        ("write", limits.write),
        ("ops", limits.ops),
    ];
    let given: Vec<_> = rates
        .iter()
        .filter_map(|(name, rate)| Some((name, (*rate)?)))
        .collect();
    if given.is_empty() {
        return Err(options.error("a bound is missing: read=SIZE, write=SIZE or ops=N"));
    }
    if let Some((name, _)) = given.iter().find(|(_, rate)| *rate == 0) {
        return Err(options.error(format_args!("{name}=0 would let nothing through")));
    }
    let rates: Vec<_> = given
        .iter()
        .map(|(name, rate)| format!("{name} {rate}/s"))
        .collect();
    let whose = if limits.per_user {
        "each user"
    } else {
        "all users"
    };
    let about = format!("{} for {whose}, burst {:?}", rates.join(", "), limits.burst);
    let timer = Arc::new(Timer::default());
    let layer = Throttle {
        accounts: Mutex::new(Accounts::new(limits)),
        limits,
        began: Instant::now(),
        timer: Arc::clone(&timer),
    };
    stack(options, layer, below, about, Some(timer))
}

impl PreCalls for Throttle {}
impl PostCalls for Throttle {}

impl Layer for Throttle {
    fn name(&self) -> &str {
        "throttle"
    }

    fn interest(&self) -> Interest {
        let mut kinds = Vec::new();
        if self.limits.read.is_some() {
            kinds.push(OperationKind::Read);
        }
        if self.limits.write.is_some() {
            kinds.extend([OperationKind::Write, OperationKind::CopyFileRange]);
        }
        let defer = match self.limits.ops {
            Some(_) => OperationSet::ALL,
            None => OperationSet::of(&kinds),
        };
        Interest {
            defer,
            ..Interest::default()
        }
    }

    fn needs(&self) -> Needs {
        Needs {
            data: true,
            opens: self.limits.ops.is_some(),
            because: "what is read, written or opened must be counted".to_owned(),
            ..Needs::default()
        }
    }

    fn init(&self, _: &mut Negotiation) -> Result<(), Errno> {
        self.timer.start("throttle")
    }

    fn destroy(&self) {
        self.timer.end();
    }

    fn defer(&self, done: &Done, outcome: &Outcome, resume: Resume) {
        let wait = {
            let now = self.began.elapsed();
            let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
            accounts.take(done.uid(), done.kind(), outcome.bytes, now)
        };
        if wait.is_zero() {
            return resume.now();
        }
        self.timer.hold(wait, done.interrupt(), resume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        read: Some(1000),
        write: None,
        ops: Some(10),
        burst: Duration::from_secs(1),
        per_user: true,
        users: 2,
    };

    #[test]
    fn users_do_not_pay_for_each_other() {
        let mut accounts = Accounts::new(LIMITS);
        let now = Duration::ZERO;
        let second = Duration::from_secs(1);
        assert_eq!(accounts.take(1, OperationKind::Read, 2000, now), second);
        assert_eq!(accounts.take(2, OperationKind::Read, 1000, now), now);
        assert_eq!(accounts.take(2, OperationKind::Write, 9000, now), now);
        for _ in 0..8 {
            assert_eq!(accounts.take(2, OperationKind::Getattr, 0, now), now);
        }
        assert!(accounts.take(2, OperationKind::Getattr, 0, now) > now);
    }

    #[test]
    fn the_table_of_users_is_bounded() {
        let mut accounts = Accounts::new(LIMITS);
        for uid in 0..100 {
            accounts.take(uid, OperationKind::Read, 500, Duration::ZERO);
        }
        assert_eq!(accounts.users.len(), 2);
        let wait = accounts.take(100, OperationKind::Read, 0, Duration::ZERO);
        assert!(wait > Duration::from_secs(40), "98 users share: {wait:?}");
        let later = Duration::from_secs(3600);
        accounts.take(200, OperationKind::Read, 500, later);
        assert!(accounts.users.contains_key(&200), "idle users make room");
    }

    #[test]
    fn together_means_together() {
        let mut accounts = Accounts::new(Limits {
            per_user: false,
            ..LIMITS
        });
        accounts.take(1, OperationKind::Read, 1000, Duration::ZERO);
        let wait = accounts.take(2, OperationKind::Read, 1000, Duration::ZERO);
        assert_eq!(wait, Duration::from_secs(1));
    }
}
