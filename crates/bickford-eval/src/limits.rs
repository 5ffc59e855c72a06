//! What this machine does not let an evaluation do, and what that does to its result.

use crate::host::cgroup::MemoryLimit;
use crate::host::device::Choice;
use crate::host::{self, virtio};
use crate::measure::cycles::Cycles;
use crate::results::Settings;
use crate::rows::raised_memory;
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
    if let Err(error) = MemoryLimit::new(1 << 30, 0) {
        notes.push(format!(
            "No memory limit ({error}): files fit in the page cache, so data rows show memory more than the device."
        ));
    }
    notes.extend(raised_memory(&settings.rows, settings.scale));
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
