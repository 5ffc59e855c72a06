//! The page: one file, no network.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::analysis::Analysis;
use super::{date, plots, sections};
use crate::host::cgroup::LEAST;
use crate::host::device::Choice;
use crate::limits::CACHES_STAY_WARM;
use crate::results::{Outcome, Results};
use crate::stats::{Class, ROUNDS_FOR_95, interval_name};

const STYLE: &str = include_str!("style.css");

/// The whole report.
pub(super) fn page(results: &Results, analysis: &Analysis<'_>) -> Result<String, String> {
    let settings = &results.settings;
    let title = format!(
        "To FUSE or not to FUSE: {} on {}",
        settings.suite, settings.device
    );
    let figures = sections::figures(analysis)?;
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p.lead {
                    (settings.machine.cpu) ", " (settings.machine.cpus) " CPUs, "
                    (settings.machine.memory_bytes >> 20) " MB, " (settings.machine.kernel) ". "
                    (size(results)) " "
                    (settings.rounds) " counted " (if settings.rounds == 1 { "round" } else { "rounds" }) ", begun " (date(settings.started)) " UTC."
                }
                (summary(analysis, settings.rounds as usize))
                (sections::verdicts(analysis))
                (sections::table(analysis))
                (figures)
                (sections::resources(analysis))
                (sections::explanations(analysis))
                (method(results))
            }
        }
    };
    Ok(markup.into_string())
}

/// The size of the work against the papers'.
pub(super) fn size(results: &Results) -> String {
    let scale = results.settings.scale;
    let part = |of: f64| {
        if of > 1.0 {
            format!("1/{} of", plots::label(of))
        } else {
            format!("{} times", super::figure(1.0 / of))
        }
    };
    match results.settings.suite.as_str() {
        "quick" => format!(
            "FAST'17's rows of data at {} their size and those of files at {} theirs; SAC'10 at {} its size, and its PostMark at {} its own.",
            part(crate::rows::QUICK_DATA / scale),
            part(crate::rows::QUICK_FILES / scale),
            part(crate::rows::QUICK_SAC10 / scale),
            part(crate::rows::QUICK_POSTMARK / scale)
        ),
        "own" => format!("Own workloads at {} their size.", part(1.0 / scale)),
        _ => format!("The paper's work at {} its size.", part(1.0 / scale)),
    }
}

fn summary(analysis: &Analysis<'_>, rounds: usize) -> Markup {
    html! {
        section {
            h2 { "In short" }
            div.cards {
                @for config in analysis.compared() {
                    @let (counts, without) = analysis.counts(config);
                    @let total: usize = counts.iter().sum::<usize>() + without;
                    div.card {
                        h3 { (config) }
                        div.bar {
                            @for (class, count) in Class::ALL.iter().zip(counts).filter(|(_, n)| *n > 0) {
                                span class=(class) style=(format!("flex:{count}")) { (count) }
                            }
                            @if without > 0 { span.none style=(format!("flex:{without}")) { (without) } }
                        }
                        p {
                            (counts.first().copied().unwrap_or(0)) " of " (total)
                            " rows less than 5% slower than the native file system, or faster"
                            @if without > 0 { "; " (without) " without a result" }
                            "."
                        }
                    }
                }
            }
            (legend(rounds))
        }
    }
}

/// What the colours mean.
fn legend(rounds: usize) -> Markup {
    html! {
        p.legend {
            span.green { "green" } " under 5% slower, or faster "
            span.yellow { "yellow" } " 5 to 25% "
            span.orange { "orange" } " 25 to 50% "
            span.red { "red" } " over 50% "
            span.none { "none" } " no result "
            "— " b { "?" } " uncertain: the " (interval_name(rounds)) " reaches another class, native has fewer rounds, or fewer than three were counted"
        }
    }
}

/// What a run finds of the one before it.
fn freshness(results: &Results) -> &'static str {
    let mut notes = results.notes.iter();
    let warm = notes.any(|note| note.contains(CACHES_STAY_WARM));
    match &results.settings.device {
        Choice::Directory(_) if warm => {
            "The lower file system is a directory in use, neither made anew nor mounted again, and caches stay warm."
        }
        Choice::Directory(_) => {
            "The lower file system is a directory in use, neither made anew nor mounted again; before each run the caches are dropped."
        }
        Choice::Disk | Choice::Ram => {
            "Before each run the lower file system is mounted again (made anew where the row writes) and the caches are dropped."
        }
    }
}

/// The memory that workload and daemon have.
fn memory(results: &Results) -> String {
    let limits = results.samples.iter().filter_map(|s| match &s.outcome {
        Outcome::Measured(measured) => Some(measured.memory_limit.is_some()),
        Outcome::Failed(_) => None,
    });
    let (with, without): (Vec<bool>, Vec<bool>) = limits.partition(|limited| *limited);
    if with.is_empty() {
        return "There was no memory limit: files fit in the page cache.".to_owned();
    }
    let except = match without.len() {
        0 => String::new(),
        count => format!(" (but for {count} runs that had none)"),
    };
    format!(
        "Workload and daemon share a memory limit{except} that keeps the papers' ratio of data to memory where it is above {} MB, the least programs need.",
        LEAST >> 20
    )
}

fn method(results: &Results) -> Markup {
    let settings = &results.settings;
    html! {
        section {
            h2 { "How it was measured" }
            p {
                "Every row does a fixed amount of work in each configuration in turn. The first round is not counted for "
                "throughput: it is the one whose requests are traced. The figure is the median of the counted rounds; beside it "
                "is the " (interval_name(settings.rounds as usize)) " of the ratio of medians"
                @if (settings.rounds as usize) < ROUNDS_FOR_95 {
                    ", which is narrower than an interval of 95% would be: that takes " (ROUNDS_FOR_95) " rounds"
                }
                ". " (freshness(results)) " " (memory(results)) " "
                "Operations are counted as Filebench counts them: create, write and close are three."
            }
            p {
                "CPU time comes from /proc, device traffic from /sys/block, requests from the kernel's tracepoints "
                "fuse_request_send and fuse_request_end, and cycles from the processor's counters, over all CPUs, where "
                "there are any; else the notes say so."
            }
            @if !results.notes.is_empty() {
                h3 { "Notes of this run" }
                ul { @for note in &results.notes { li { (note) } } }
            }
            h3 { "Configurations" }
            table.plain {
                @for config in &settings.configs {
                    tr { th { (config.name) } td {
                        @match &config.command { Some(command) => code { (command) }, None => "the lower file system itself" }
                    } }
                }
            }
            h3 { "To repeat it" }
            pre { (settings.command) }
            p.small { "bickford-eval " (settings.version) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn the_method_is_that_of_the_run() {
        let mut results = fixture::results(&["f37"], &["base"]);
        fixture::run(&mut results, "f37", "native", &[100.0; 2]);
        let told = |results: &Results| method(results).into_string();
        let fresh = told(&results);
        assert!(fresh.contains("is mounted again (made anew"), "{fresh}");
        assert!(fresh.contains("There was no memory limit"), "{fresh}");
        if let Outcome::Measured(measured) = &mut results.samples[0].outcome {
            measured.memory_limit = Some(1 << 30);
        }
        results.settings.device = Choice::Directory("/srv".into());
        let used = told(&results);
        assert!(
            used.contains("share a memory limit (but for 1 runs"),
            "{used}"
        );
        assert!(
            used.contains("nor mounted again; before each run the caches"),
            "{used}"
        );
        results
            .notes
            .push(format!("Not run as root: {CACHES_STAY_WARM}."));
        let warm = told(&results);
        assert!(
            warm.contains("nor mounted again, and caches stay warm"),
            "{warm}"
        );
        for page in [used, warm] {
            assert!(!page.contains("made anew where"), "{page}");
        }
    }

    #[test]
    fn rows_that_are_far_faster_are_not_within_five_percent() {
        let mut results = fixture::results(&["f37"], &["base"]);
        fixture::run(&mut results, "f37", "native", &[100.0; 3]);
        fixture::run(&mut results, "f37", "base", &[300.0; 3]);
        let page = summary(&Analysis::of(&results), 3).into_string();
        let told = "1 of 1 rows less than 5% slower than the native file system, or faster.";
        assert!(page.contains(told) && !page.contains("within 5%"), "{page}");
    }
}
