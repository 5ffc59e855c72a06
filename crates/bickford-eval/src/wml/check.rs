//! What a workload as a whole would not do as it is meant: work without end, or without files.

use std::collections::BTreeSet;

use super::parse::{File, Item};
use super::{Op, Thread, WmlError, Workload};

/// The threads as they are written, each with what it was read as.
fn threads<'a>(
    file: &'a File,
    workload: &'a Workload,
) -> impl Iterator<Item = (&'a Item, &'a Thread)> {
    let processes = file.items.iter().filter(|i| i.kind == "process");
    let items = processes.flat_map(|p| &p.children);
    items.zip(workload.processes.iter().flat_map(|p| &p.threads))
}

/// A thread that keeps the work from ending by itself.
pub(super) fn endless<'a>(file: &'a File, workload: &'a Workload) -> Option<&'a Item> {
    let mut all = threads(file, workload);
    if !workload.quit_first_done {
        return all.find(|(_, t)| !t.ends()).map(|(item, _)| item);
    }
    let (first, thread) = all.next()?;
    (!thread.ends() && !all.any(|(_, t)| t.ends())).then_some(first)
}

/// Refuses what could never find a file of its set, so that its thread would end before it did anything.
pub(super) fn files(file: &File, workload: &Workload) -> Result<(), WmlError> {
    let all = || threads(file, workload).flat_map(|(item, t)| item.children.iter().zip(&t.flowops));
    let created: BTreeSet<usize> = all().filter_map(|(_, f)| f.op.creates()).collect();
    let deleted: BTreeSet<usize> = all().filter_map(|(_, f)| f.op.deletes()).collect();
    for (item, flowop) in all() {
        let (index, makes) = match flowop.op {
            Op::CreateFile { fileset, .. } => (fileset, true),
            Op::OpenFile { fileset, .. }
            | Op::DeleteFile { fileset }
            | Op::StatFile { fileset }
            | Op::Append {
                fileset: Some(fileset),
                ..
            } => (fileset, false),
            _ => continue,
        };
        let Some(set) = workload.filesets.get(index) else {
            continue;
        };
        let (there, name) = (set.existing(), &set.name);
        let expected = if makes && there == set.entries && !deleted.contains(&index) {
            format!(
                "a file of `{name}` that is missing: less `prealloc` in its definition, or a `deletefile`"
            )
        } else if !makes && there == 0 && !created.contains(&index) {
            format!(
                "a file of `{name}` that exists: `prealloc` in its definition, or a `createfile`"
            )
        } else {
            continue;
        };
        return Err(WmlError::new(item.at, expected, "neither"));
    }
    Ok(())
}
