//! What this machine does not let an evaluation do, and what that does to its result.

use crate::host::cgroup::{self, MemoryLimit};
use crate::host::device::Choice;
use crate::host::{self, virtio};
use crate::measure::cycles::Cycles;
use crate::results::Settings;
use crate::rows::{Kind, Row, WorkloadClass};
use crate::stats::ROUNDS_FOR_SPREAD;

/// Notes of what keeps files in the page cache from one run to the next say this.
pub(crate) const CACHES_STAY_WARM: &str = "caches stay warm";

/// A sentence for each.
pub(crate) fn of_this_machine(settings: &Settings) -> Vec<String> {
    let mut notes = Vec::new();
    if (settings.rounds as usize) < ROUNDS_FOR_SPREAD {
        notes.push(
            "Fewer than three rounds were counted: the spread is not known, and no class is certain."
                .to_owned(),
        );
    }
    match MemoryLimit::probe() {
        Ok(limit) => notes.extend(limit.told.clone()),
        Err(error) => notes.push(format!(
            "No memory limit ({error}): files fit in the page cache, so data rows show memory more than the device."
        )),
    }
    notes.extend(raised_memory(&settings.rows, settings.scale));
    let growing = settings.rows.iter().filter(|row| row.kind.grows_by_time());
    notes.extend(growing.map(|row| {
        format!(
            "{}: how much it appends until its time is over (`run SECONDS`) is not known beforehand, and may be more than the device has room for.",
            row.name
        )
    }));
    if let Err(reason) = Cycles::start() {
        notes.push(format!("Cycles per operation are not measured: {reason}."));
    }
    if host::enable_uring().as_deref() == Some("N") {
        notes.push(
            "FUSE over io_uring is off (enable_uring of the module fuse is N): what would use it goes over /dev/fuse, \
             where each request takes longer."
                .to_owned(),
        );
    }
    if let Some(usable) = settings.usable_cpus {
        let cpus = settings.machine.cpus;
        notes.push(format!(
            "Only {usable} of the machine's {cpus} CPUs may be used (affinity or a quota of CPU time)."
        ));
    }
    if virtio::reports_free_pages() {
        notes.push(
            "This virtual machine gives freed memory back to its host (free page reporting of its balloon). To use \
             such memory again takes the kernel longer than to use memory that was not given back yet, so that \
             rounds which fill caches scatter."
                .to_owned(),
        );
    }
    if !host::is_root() {
        notes.push(format!(
            "Not run as root: {CACHES_STAY_WARM}, requests are not counted, and configurations that need root fail."
        ));
    }
    if matches!(settings.device, Choice::Directory(_)) {
        notes.push(
            "The lower file system is a directory in use, not made fresh: its age and its other users are part of the result."
                .to_owned(),
        );
    }
    notes
}

/// What to say of rows whose share of the papers' memory is less than programs need, if there are any.
fn raised_memory(rows: &[Row], scale: f64) -> Option<String> {
    // Files without data need none.
    let memory = rows.iter().map(|row| row.memory);
    let least = memory.filter(|bytes| *bytes > 0).min()?;
    if least >= cgroup::LEAST {
        return None;
    }
    let ratio = format!(
        " From --scale {:.3} on the ratio is the papers'.",
        scale * cgroup::LEAST as f64 / least as f64 + 0.0005
    );
    if rows.iter().all(|row| row.class == WorkloadClass::Own) {
        return Some(format!(
            "As in FAST'17 workload and daemon have a fifteenth of the size of the files as memory, but no less than {} MB, which programs need: \
             caches hold more of these files, or all.{ratio}",
            cgroup::LEAST >> 20
        ));
    }
    let mut note = format!(
        "At this scale the papers' memory is below the {} MB that programs need, which rows have instead: caches hold a larger part of the files than in the papers.",
        cgroup::LEAST >> 20
    );
    let data = rows.iter().filter_map(|row| match &row.kind {
        Kind::Fio(spec) if row.memory < cgroup::LEAST => {
            let bytes = spec.bytes as f64;
            Some((bytes / row.memory as f64, bytes / cgroup::LEAST as f64))
        }
        _ => None,
    });
    if let Some((papers, here)) = data.min_by(|a, b| a.1.total_cmp(&b.1)) {
        note.push_str(&format!(
            " Files of data rows are {here:.1} times the memory and not {papers:.1} times."
        ));
    }
    Some(note + &ratio)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::fast17;

    #[test]
    fn rows_say_that_their_memory_is_not_the_papers_share() {
        assert_eq!(raised_memory(&fast17(0.016), 0.016), None);
        let note = raised_memory(&fast17(0.008), 0.008).unwrap();
        assert!(note.contains("7.7 times the memory and not 15.0"), "{note}");
        assert!(note.contains("From --scale 0.016 on"), "{note}");
    }

    #[test]
    fn the_memory_of_own_workloads_is_told_without_rows_of_the_papers() {
        let mut rows = fast17(0.008);
        for row in &mut rows {
            row.class = WorkloadClass::Own;
        }
        let note = raised_memory(&rows, 0.008).unwrap();
        assert!(
            note.contains("a fifteenth of the size of the files"),
            "{note}"
        );
        assert!(!note.contains("data rows"), "{note}");
    }

    #[test]
    fn files_without_data_have_no_ratio() {
        let mut rows = fast17(0.008);
        for row in &mut rows {
            row.class = WorkloadClass::Own;
        }
        rows[0].memory = 0;
        let note = raised_memory(&rows, 0.008).unwrap();
        assert!(note.contains("From --scale 0.016 on"), "{note}");
        for row in &mut rows {
            row.memory = 0;
        }
        assert_eq!(raised_memory(&rows, 0.008), None);
    }
}
