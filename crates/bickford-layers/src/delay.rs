//! `delay:OPERATION=DISTRIBUTION,...`: holds answers back.
//!
//! The operation is done at once; its answer waits, on a timer, so that no worker is kept busy. A
//! caller that gets a signal has its answer at once. The key is an operation (`read`), or a group
//! (`all`, `data`, `metadata`, `changes`); a single operation wins over a group. Distributions:
//! `5ms`, `1ms..10ms`, `exp(5ms)`, `normal(5ms/1ms)`. With `seed=N` the same order of requests
//! gets the same delays.
//!
//! At most 65,536 answers wait at once, over io_uring about 450 of callers on each CPU; those beyond go
//! on without a delay and are counted in the report. Delays of READ or WRITE turn kernel pass-through
//! off, those of OPEN, OPENDIR and their releases the zero-message open; with those of FLUSH the kernel
//! flushes at each close(2).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bickford::layer::{
    Done, Interest, Layer, Needs, OperationKind, OperationSet, Outcome, PostCalls, PreCalls, Resume,
};
use bickford::{Errno, Negotiation};

use crate::LayerError;
use crate::distribution::Distribution;
use crate::registry::{Built, Entry, stack};
use crate::spec::Options;
use crate::timer::Timer;

/// How the layer is asked for.
pub const ENTRY: Entry = Entry {
    name: "delay",
    about: "holds answers back by a distribution",
    options: &[
        (
            "OPERATION=DISTRIBUTION",
            "5ms, 1ms..10ms, exp(5ms), normal(5ms/1ms)",
        ),
        (
            "seed=N",
            "makes delays the same for the same order of requests",
        ),
    ],
    constructor: construct,
};

#[derive(Debug)]
struct Delay {
    delays: HashMap<OperationKind, Distribution>,
    random: Mutex<fastrand::Rng>,
    timer: Arc<Timer>,
}

fn construct(
    options: &mut Options<'_>,
    below: Box<dyn bickford::FileSystem>,
) -> Result<Built, LayerError> {
    let seed = options.number("seed")?.unwrap_or(0);
    let mut given = options.by_operation()?;
    if given.is_empty() {
        return Err(options.error("OPERATION=DISTRIBUTION is missing, such as read=5ms"));
    }
    given.sort_by_key(|(set, _, _)| std::cmp::Reverse(set.iter().count()));
    let mut delays = HashMap::new();
    let mut about = Vec::new();
    for (set, key, value) in given {
        let distribution = Distribution::parse(value)
            .map_err(|expected| options.error(format_args!("{key}={value}: {expected}")))?;
        about.push(format!("{key} {distribution}"));
        delays.extend(set.iter().map(|kind| (kind, distribution)));
    }
    let timer = Arc::new(Timer::default());
    let layer = Delay {
        delays,
        random: Mutex::new(fastrand::Rng::with_seed(seed)),
        timer: Arc::clone(&timer),
    };
    stack(options, layer, below, about.join(", "), Some(timer))
}

impl Delay {
    fn operations(&self) -> OperationSet {
        self.delays.keys().copied().collect()
    }
}

impl PreCalls for Delay {}
impl PostCalls for Delay {}

impl Layer for Delay {
    fn name(&self) -> &str {
        "delay"
    }

    fn interest(&self) -> Interest {
        Interest {
            defer: self.operations(),
            ..Interest::default()
        }
    }

    fn needs(&self) -> Needs {
        let operations = self.operations();
        Needs {
            data: operations.intersects(OperationSet::DATA),
            opens: operations.intersects(OperationSet::OPENS),
            flushes: operations.contains(OperationKind::Flush),
            because: "these operations are to be delayed".to_owned(),
            ..Needs::default()
        }
    }

    fn init(&self, _: &mut Negotiation) -> Result<(), Errno> {
        self.timer.start("delay")
    }

    fn destroy(&self) {
        self.timer.end();
    }

    fn defer(&self, done: &Done, _: &Outcome, resume: Resume) {
        let Some(distribution) = self.delays.get(&done.kind()) else {
            return resume.now();
        };
        let duration = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            distribution.sample(&mut random)
        };
        if duration.is_zero() {
            return resume.now();
        }
        self.timer.hold(duration, done.interrupt(), resume);
    }
}
