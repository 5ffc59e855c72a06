//! What was going on when a deadline passed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows its FUSE connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Lines of a log that are shown.
const TAIL_LINES: usize = 40;

/// The control directory of a connection, with fusectl mounted when it was not.
pub(crate) fn connection_directory(minor: u32) -> PathBuf {
    let directory = Path::new(CONNECTIONS).join(minor.to_string());
    if !directory.exists() && fs::read_dir(CONNECTIONS).is_ok_and(|mut list| list.next().is_none())
    {
        // Failing is no reason to stop: what is missing then shows in the diagnosis.
        let _ = std::process::Command::new("mount")
            .args(["-t", "fusectl", "none", CONNECTIONS])
            .output();
    }
    directory
}

/// The last lines of a log file.
pub(crate) fn tail(log: &Path) -> String {
    let contents = fs::read(log).unwrap_or_default();
    let contents = String::from_utf8_lossy(&contents);
    let lines: Vec<&str> = contents.lines().collect();
    let skipped = lines.len().saturating_sub(TAIL_LINES);
    lines.get(skipped..).unwrap_or_default().join("\n")
}

/// Requests waiting on a connection, as the kernel counts them.
pub(crate) fn waiting(minor: u32) -> String {
    match fs::read_to_string(connection_directory(minor).join("waiting")) {
        Ok(count) => format!("connection {minor}: {} requests waiting\n", count.trim()),
        Err(error) => format!("connection {minor}: waiting: {error}\n"),
    }
}

/// Name, state, system call and kernel stack of every thread of a process and its descendants.
pub(crate) fn stacks(pid: u32) -> String {
    let mut report = String::new();
    for process in descendants(pid) {
        let tasks = PathBuf::from(format!("/proc/{process}/task"));
        for task in numeric_entries(&tasks) {
            let directory = tasks.join(task.to_string());
            let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
            let _ = writeln!(
                report,
                "process {process} thread {task} {} wchan {} syscall {}",
                read("comm").trim(),
                read("wchan").trim(),
                read("syscall").trim(),
            );
            for line in read("stack").lines() {
                let _ = writeln!(report, "    {line}");
            }
        }
    }
    report
}

/// A process and everything it started that still has it as an ancestor.
fn descendants(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = numeric_entries(Path::new("/proc"))
        .into_iter()
        .filter_map(|process| Some((process, parent(process)?)))
        .collect();
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&ancestor) = family.get(next) {
        let children = parents.iter().filter(|(_, parent)| *parent == ancestor);
        family.extend(children.map(|(process, _)| *process));
        next += 1;
    }
    family
}

/// The parent of a process: the second field after the name in parentheses, see proc_pid_stat(5).
fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

fn numeric_entries(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stacks_name_this_process_and_its_child() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let report = stacks(std::process::id());
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(report.contains(&format!("process {} ", std::process::id())));
        assert!(
            report.contains(&format!("process {} ", child.id())),
            "{report}"
        );
    }

    #[test]
    fn the_tail_is_the_end() {
        let directory = tempfile::tempdir().expect("directory");
        let log = directory.path().join("log");
        let lines: Vec<String> = (0..100).map(|line| line.to_string()).collect();
        fs::write(&log, lines.join("\n")).expect("log");
        let tail = tail(&log);
        assert!(tail.starts_with("60\n") && tail.ends_with("99"), "{tail}");
    }
}
