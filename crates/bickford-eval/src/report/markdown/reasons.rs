//! Why rows are not green, and what the figures of each mean.

use std::fmt::Write as _;

use super::{Part, SUMMARY, difference, escape, line, machine, slug};
use crate::report::analysis::{Analysis, Cell, RowAnalysis};
use crate::report::explain::remedies::{OF_SMALL_FILES, REMEDIES};
use crate::stats::Class;

/// The page of one run.
pub(super) fn page(part: &Part<'_>) -> String {
    let mut out = String::new();
    line!(out, "# Why a row is not green: {}\n", escape(&part.title));
    let summary = slug(&part.title);
    line!(
        out,
        "{} All rows, the green ones too, beside the papers: [{SUMMARY}](../{SUMMARY}#{summary}).\n",
        machine(part, "../")
    );
    line!(out, "## How to read it\n\n{}", key(3));
    line!(out, "## The rows");
    rows(&mut out, &part.analysis, 3);
    notes(&mut out, part, 2);
    out
}

/// What the figures of [`rows`] are, and what would help, under headings of this depth.
pub(super) fn key(depth: usize) -> String {
    let mut out = String::from(
        "Of each row and configuration: the difference to native in percent and its class, and where the class is uncertain\n\
         the range that makes it so (more `--rounds` make it surer). Then, as far as they were measured:\n\n\
         | figure | what it is |\n|---|---|\n\
         | `7.03 us an operation (native 1.85); p99 of read 124 (1.46)` | the mean over all operations, and the percentile of the one that natively takes most time, in us; or the seconds of the whole row |\n\
         | `All of the work 0.183 s (native 0.100)` | where the whole row took much more of native's time than its operations: making and closing files, what is written back then, and threads that end later than others |\n\
         | `1.67 requests per operation: 0.335 LOOKUP (33.6), ...` | requests that reach the daemon, each with its mean round trip in us; traced in the round that is not counted. `Hardly any request`: the kernel answers by itself |\n\
         | `Daemon 27.5 us per request (2.12 user, 25.3 kernel)` | the daemon's CPU time; kernel: transport and lower file system. Work that no caller waits for is in it |\n\
         | `Of a round trip of 41.5 at least 14.0 us neither` | neither user space nor kernel of the daemon: queueing, waking up, waiting for the device |\n\
         | `Requests are 67% of the wait` | round trips as a share of what the workload waited for its operations |\n\
         | `24.2 requests at once` | they overlap: read-ahead, write-back, replies that nobody waits for |\n\
         | `FSYNC is 42% of the time, 32 in turn` | the kernel holds a file's lock until FSYNC is answered, so that they follow one another; natively they run side by side |\n\
         | `Most of it: READ (41%), ...` | the requests most of the round trips' time goes to; what would help is in the table below |\n\
         | `Device busy 23% (native 43%)` | where it is busy much less than natively though the row is slower and moves about as many bytes: it waits for requests |\n\
         | `Other programs 56% of the CPUs` | at least so much of their time went to what is neither workload nor daemon: unless it served the row, that tells little |\n\
         | `All CPUs busy`, `CPUs 5.1x`, `device's bytes 1.24x` | CPU time bounds the row; CPU time of the machine and bytes moved by the device, against native |\n\
         | `cached 8 and 52 MB` | page caches at the end: above (the mount's) and below (the lower file system's) |\n\n",
    );
    line!(out, "{} What would help\n", "#".repeat(depth));
    line!(out, "| requests | what would help |\n|---|---|");
    let small = std::iter::once((&OF_SMALL_FILES, " of many small files"));
    for ((requests, advice), of) in REMEDIES.iter().map(|r| (r, "")).chain(small) {
        let requests = requests.join(", ");
        line!(out, "| {requests}{of} | {} |", with_code(advice));
    }
    out
}

/// Options as code: some renderers make one dash of two.
fn with_code(text: &str) -> String {
    let option = |word: &str| {
        let bare = word.trim_end_matches([')', ',', ';']);
        let rest = word.strip_prefix(bare).unwrap_or("");
        match bare.trim_start_matches('(') {
            name if name.starts_with("--") => {
                let open = bare.strip_suffix(name).unwrap_or("");
                format!("{open}`{name}`{rest}")
            }
            _ => word.to_owned(),
        }
    };
    text.split(' ').map(option).collect::<Vec<_>>().join(" ")
}

/// The configurations in which a row is not green, or has no result.
pub(super) fn of<'a, 'b>(row: &'b RowAnalysis<'a>) -> Vec<&'b Cell<'a>> {
    let green = |c: &&Cell<'_>| c.comparison.is_none_or(|d| d.class != Class::Green);
    row.cells.iter().skip(1).filter(green).collect()
}

/// Every row that is not green in some configuration, under a heading of this depth.
pub(super) fn rows(out: &mut String, analysis: &Analysis<'_>, depth: usize) {
    let heading = "#".repeat(depth);
    for row in &analysis.rows {
        let cells = of(row);
        if cells.is_empty() {
            continue;
        }
        line!(out, "\n{heading} {}\n", row.row.id);
        let rate = row.native().unwrap_or_else(|| "no result".into());
        line!(out, "{}; native {rate}.\n", escape(&row.row.name));
        if let Some(error) = row.cells.first().and_then(|c| c.error) {
            line!(out, "- **native, error**: {}", escape(error));
        }
        for cell in cells {
            let sentences: Vec<&str> = cell.explanation.iter().map(|s| s.brief.as_str()).collect();
            let why = if sentences.is_empty() {
                "There is no result to explain.".to_owned()
            } else {
                escape(&sentences.join(" "))
            };
            line!(out, "- **{}, {}**: {why}", cell.config, difference(cell));
        }
    }
}

/// What the run noted of itself.
pub(super) fn notes(out: &mut String, part: &Part<'_>, depth: usize) {
    let notes = &part.run.results.notes;
    if notes.is_empty() {
        return;
    }
    line!(out, "\n{} Notes of the run\n", "#".repeat(depth));
    for note in notes {
        line!(out, "- {}", escape(note));
    }
}
