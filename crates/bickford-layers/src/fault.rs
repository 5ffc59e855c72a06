//! `fault:op=A|B,errno=E,...`: answers chosen operations with an error, to test applications.
//!
//! | option | meaning |
//! |---|---|
//! | `op=A\|B` | operations, or groups `all`, `data`, `metadata`, `changes`; required |
//! | `errno=E` | the error, such as `EIO`; required |
//! | `path=GLOB` | only on paths that match: `/dir/**`, or without a slash the name: `*.db` |
//! | `probability=P` | of those, each with this probability, from 0 to 1; 1 by default |
//! | `after=N` | not the first N of those that match |
//! | `count=N` | at most N times |
//! | `seed=N` | the same order of requests gets the same faults; 0 by default |
//! | `when=before` or `when=after` | instead of the operation (the default), or when it is done |
//!
//! The layer can be put on many times, once for each rule. A fault that could not be injected is
//! reported at the end, and in the report before: nothing matched, fewer requests came than
//! `after` says, or a path was not known. RELEASE and RELEASEDIR are refused, and left out of
//! groups: their answers reach nobody. What the kernel answers from its caches does not come here.
//! Rules about READ or WRITE turn kernel pass-through off, rules about OPEN the zero-message open;
//! with rules about FLUSH the kernel flushes at each close(2). A mount that goes into the background
//! is asked once for the attributes of its root and for STATFS, which count.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bickford::Errno;
use bickford::layer::{
    About, Call, Done, Interest, Layer, Needs, OperationKind, OperationSet, Outcome, PostCalls,
    PreCalls,
};
use bickford::ops::{Directory, Forget, Readdirplus};
use globset::{GlobBuilder, GlobMatcher};

use crate::names::{NAMING, Names};
use crate::registry::{Built, Entry, Reporter, stack};
use crate::spec::{Options, parse_operations};
use crate::{LayerError, errno};

/// How the layer is asked for.
pub const ENTRY: Entry = Entry {
    name: "fault",
    about: "answers chosen operations with an error",
    options: &[
        ("op=A|B", "operations, or all, data, metadata, changes"),
        ("errno=E", "the error, such as EIO"),
        (
            "path=GLOB",
            "only paths that match; without a slash, names [any]",
        ),
        ("probability=P", "of those, each with this probability [1]"),
        ("after=N", "not the first N of those that match [0]"),
        ("count=N", "at most N times [no bound]"),
        (
            "seed=N",
            "the same order of requests gets the same faults [0]",
        ),
        (
            "when=before|after",
            "instead of the operation or when it is done [before]",
        ),
    ],
    constructor: construct,
};

/// Their answers reach nobody.
const UNHEARD: OperationSet = OperationSet::ENDS;

#[derive(Debug)]
struct Pattern {
    text: String,
    glob: GlobMatcher,
    /// Whether it is held against the last name alone.
    of_name: bool,
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            text: text.to_owned(),
            glob: glob.compile_matcher(),
            of_name: !text.contains('/'),
        })
    }

    fn matches(&self, path: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let name = path.rsplit(|byte| *byte == b'/').next();
        let against = if self.of_name {
            name.unwrap_or(path)
        } else {
            path
        };
        self.glob.is_match(std::ffi::OsStr::from_bytes(against))
    }
}

/// A rule, and what came of it.
struct Rule {
    operations: OperationSet,
    errno: Errno,
    pattern: Option<Pattern>,
    probability: f64,
    after: u64,
    count: u64,
    before: bool,
    random: Mutex<Progress>,
    unknown_paths: AtomicU64,
}

struct Progress {
    random: fastrand::Rng,
    matched: u64,
    injected: u64,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operations: Vec<_> = self.operations.iter().map(OperationKind::name).collect();
        let when = if self.before { "instead of" } else { "after" };
        write!(
            f,
            "{} {when} {}",
            errno::name(self.errno),
            operations.join("|")
        )?;
        if let Some(pattern) = &self.pattern {
            write!(f, " on {}", pattern.text)?;
        }
        if self.probability < 1.0 {
            write!(f, " with probability {}", self.probability)?;
        }
        if self.after > 0 {
            write!(f, " after {}", self.after)?;
        }
        if self.count < u64::MAX {
            write!(f, " at most {} times", self.count)?;
        }
        Ok(())
    }
}

impl Rule {
    /// Whether a request that matches is to fail. One number is drawn for each, so that the order
    /// of requests alone decides.
    fn decide(&self) -> bool {
        let mut progress = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        progress.matched += 1;
        let drawn = progress.random.f64() < self.probability;
        let due = progress.matched > self.after && progress.injected < self.count;
        if drawn && due {
            progress.injected += 1;
        }
        drawn && due
    }

    /// How many requests matched, and how many faults were injected.
    fn progress(&self) -> (u64, u64) {
        let progress = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        (progress.matched, progress.injected)
    }

    /// Why fewer faults were injected than one would think; `None` when all is well.
    fn shortfall(&self) -> Option<String> {
        let (matched, injected) = self.progress();
        let unknown = self.unknown_paths.load(Ordering::Relaxed);
        let mut reasons = Vec::new();
        if injected == 0 && self.count > 0 {
            reasons.push(match matched {
                0 => "no fault was injected: no request matched".to_owned(),
                matched if matched <= self.after => format!(
                    "no fault was injected: only {matched} requests matched, after={}",
                    self.after
                ),
                matched => format!("no fault was injected: none of {matched} was drawn"),
            });
        }
        if unknown > 0 {
            reasons.push(format!(
                "{unknown} requests were let through: their paths were not known"
            ));
        }
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

impl Reporter for Rule {
    fn report(&self) -> String {
        let (matched, injected) = self.progress();
        let shortfall = self.shortfall();
        let shortfall = shortfall.map_or(String::new(), |reason| format!("; {reason}"));
        format!("{self}: {injected} injected of {matched} that matched{shortfall}")
    }
}

#[derive(Debug)]
struct Fault {
    rule: Arc<Rule>,
    names: Names,
}

fn construct(
    options: &mut Options<'_>,
    below: Box<dyn bickford::FileSystem>,
) -> Result<Built, LayerError> {
    let operations = options
        .read("op", heard)?
        .ok_or_else(|| options.error("op=OPERATION is missing, such as op=read"))?;
    let errno = options
        .read("errno", errno::parse)?
        .ok_or_else(|| options.error("errno=NAME is missing, such as errno=EIO"))?;
    let rule = Arc::new(Rule {
        operations,
        errno,
        pattern: options.read("path", Pattern::parse)?,
        probability: options.read("probability", probability)?.unwrap_or(1.0),
        after: options.number("after")?.unwrap_or(0),
        count: options.number("count")?.unwrap_or(u64::MAX),
        before: options.word("when", ["before", "after"])? == "before",
        random: Mutex::new(Progress {
            random: fastrand::Rng::with_seed(options.number("seed")?.unwrap_or(0)),
            matched: 0,
            injected: 0,
        }),
        unknown_paths: AtomicU64::new(0),
    });
    if errno == Errno::NOSYS {
        tracing::warn!(
            layer = "fault",
            "after ENOSYS the kernel does not ask for most operations again"
        );
    }
    let about = rule.to_string();
    let layer = Fault {
        rule: Arc::clone(&rule),
        names: Names::default(),
    };
    stack(options, layer, below, about, Some(rule))
}

/// Operations, or groups without those whose answers reach nobody.
fn heard(text: &str) -> Result<OperationSet, String> {
    let mut named = text.split('|').filter_map(|name| name.parse().ok());
    if named.any(|kind| UNHEARD.contains(kind)) {
        let reason =
            "the answers of release and releasedir reach nobody; flush is answered to close(2)";
        return Err(reason.to_owned());
    }
    Ok(parse_operations(text)?.without(UNHEARD))
}

fn probability(text: &str) -> Result<f64, String> {
    let probability = text.parse().ok();
    probability
        .filter(|probability| (0.0..=1.0).contains(probability))
        .ok_or_else(|| "a number from 0 to 1 is meant".to_owned())
}

impl Fault {
    fn fault(&self, about: &About<'_>) -> Option<Errno> {
        let rule = &self.rule;
        if !rule.operations.contains(about.kind) {
            return None;
        }
        if let Some(pattern) = &rule.pattern {
            let Some(path) = self.names.path_about(about) else {
                rule.unknown_paths.fetch_add(1, Ordering::Relaxed);
                return None;
            };
            if !pattern.matches(&path) {
                return None;
            }
        }
        rule.decide().then_some(rule.errno)
    }
}

impl PreCalls for Fault {
    fn every(&self, _: &Call<'_>, about: &About<'_>) -> Option<Errno> {
        self.fault(about)
    }
}

impl PostCalls for Fault {
    fn every(&self, _: &Done, about: &About<'_>, outcome: &Outcome) -> Option<Errno> {
        let fault = (!self.rule.before).then(|| self.fault(about)).flatten();
        if fault.is_none() && self.rule.pattern.is_some() {
            self.names.observe(about, outcome);
        }
        fault
    }

    fn readdirplus(&self, _: &Done, op: &Readdirplus, result: &mut Result<Directory, Errno>) {
        let about = bickford::layer::about(op);
        let fault = (!self.rule.before).then(|| self.fault(&about)).flatten();
        match (fault, &result) {
            (Some(errno), _) => *result = Err(errno),
            (None, Ok(listing)) if self.rule.pattern.is_some() => {
                self.names.observe_listing(op.node, listing);
            }
            _ => {}
        }
    }
}

impl Layer for Fault {
    fn name(&self) -> &str {
        "fault"
    }

    fn interest(&self) -> Interest {
        let none = OperationSet::NONE;
        let (pre, post) = if self.rule.before {
            (self.rule.operations, none)
        } else {
            (none, self.rule.operations)
        };
        let named = self.rule.pattern.is_some();
        Interest {
            pre,
            post: post.with(if named { NAMING } else { none }),
            forget: named,
            ..Interest::default()
        }
    }

    fn needs(&self) -> Needs {
        Needs {
            data: self.rule.operations.intersects(OperationSet::DATA),
            opens: self.rule.operations.intersects(OperationSet::OPENS),
            flushes: self.rule.operations.contains(OperationKind::Flush),
            because: "these operations are to fail".to_owned(),
            ..Needs::default()
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        self.names.forget(forgets);
    }

    fn destroy(&self) {
        match self.rule.shortfall() {
            Some(_) => tracing::warn!(layer = "fault", "{}", self.rule.report()),
            None => tracing::info!(layer = "fault", "{}", self.rule.report()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_paths_or_names() {
        for (pattern, path, expected) in [
            ("*.db", "/a/b/x.db", true),
            ("*.db", "/a/b/x.dbx", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/b/c", false),
            ("/a/**", "/a/b/c", true),
            ("**/c", "/a/b/c", true),
        ] {
            let matched = Pattern::parse(pattern).unwrap().matches(path.as_bytes());
            assert_eq!(matched, expected, "{pattern} {path}");
        }
        assert!(Pattern::parse("a[").is_err());
    }
}
