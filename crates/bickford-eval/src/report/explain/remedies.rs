//! What would make requests cheaper, or needless.

use super::{FEW, Sentence, unit};
use crate::measure::tracepoints::Requests;
use crate::results::Measured;
use crate::rows::{Row, WorkloadClass};

/// Requests, and what helps against them.
pub(in crate::report) type Remedy = (&'static [&'static str], &'static str);

/// Of rows about many small files.
pub(in crate::report) const OF_SMALL_FILES: Remedy = (
    &["READ", "WRITE"],
    "a faster transport (io_uring, threads on the caller's CPU): the data of a small file used once is one request",
);

/// Of all others, and of requests that are about no data.
pub(in crate::report) const REMEDIES: [Remedy; 13] = [
    (
        &["READ"],
        "kernel pass-through, larger read-ahead, keeping the page cache over opens",
    ),
    (
        &["WRITE"],
        "kernel pass-through, a write-back cache, larger requests",
    ),
    (
        &["LOOKUP"],
        "longer entry timeouts, negative entries for names that miss; a new name is always looked up once",
    ),
    (
        &["GETATTR", "STATX"],
        "longer attribute timeouts; with default_permissions each change of a directory makes its mode be asked for again (a mount of root alone can do without: bickford mount --no-permission-checks)",
    ),
    (
        &["GETXATTR"],
        "HANDLE_KILLPRIV_V2, so that security.capability is asked for once a file, not at each write; without extended attributes (bickford mount --no-xattr) it never is",
    ),
    (
        &["OPEN"],
        "zero-message open (OPEN answered with ENOSYS), which excludes kernel pass-through: bickford mount --io=cached",
    ),
    (
        &["OPENDIR"],
        "zero-message opendir (OPENDIR answered with ENOSYS)",
    ),
    (&["FLUSH"], "FOPEN_NOFLUSH, or answering flush with ENOSYS"),
    (
        &["RELEASE"],
        "nobody waits for it, it only costs CPU; with zero-message open, which excludes kernel pass-through, it is not sent",
    ),
    (
        &["RELEASEDIR"],
        "zero-message opendir, with which it is not sent",
    ),
    (
        &["CREATE", "MKNOD", "UNLINK", "MKDIR", "RENAME", "RENAME2"],
        "a faster transport (io_uring, threads on the caller's CPU): this request cannot be avoided",
    ),
    (
        &["FSYNC", "FSYNCDIR"],
        "nothing in user space: it waits for the device, as natively",
    ),
    (
        &["SETATTR"],
        "a write-back cache, which keeps sizes and times in the kernel",
    ),
];

/// What would help, by the requests that take most of the time.
pub(super) fn remedies(row: &Row, measured: &Measured, requests: &Requests) -> Option<Sentence> {
    let (units, _) = unit(row, measured);
    let total = requests.total_s();
    let mut weighed: Vec<(&str, f64)> = requests
        .by_opcode
        .iter()
        .filter(|o| o.count as f64 / units.max(1.0) >= FEW)
        .map(|o| (o.op.as_str(), o.count as f64 * o.mean_us / 1e6))
        .collect();
    weighed.sort_by(|a, b| b.1.total_cmp(&a.1));
    let most = weighed.iter().take(3);
    let most = most.filter(|(_, seconds)| *seconds > 0.1 * total);
    let advised: Vec<(String, &str)> = most
        .filter_map(|(op, seconds)| {
            let share = 100.0 * seconds / total;
            Some((format!("{op} ({share:.0}%)"), remedy(op, row.class)?))
        })
        .collect();
    let full: Vec<String> = advised.iter().map(|(op, a)| format!("{op}: {a}")).collect();
    let brief: Vec<&str> = advised.iter().map(|(op, _)| op.as_str()).collect();
    (!advised.is_empty()).then(|| Sentence {
        full: format!(
            "Most of the requests' time, and what would help: {}.",
            full.join("; ")
        ),
        brief: format!("Most of it: {}.", brief.join(", ")),
    })
}

fn remedy(opcode: &str, class: WorkloadClass) -> Option<&'static str> {
    let of_small_files = (class == WorkloadClass::Metadata).then_some(&OF_SMALL_FILES);
    let mut all = of_small_files.into_iter().chain(&REMEDIES);
    Some(all.find(|(requests, _)| requests.contains(&opcode))?.1)
}
