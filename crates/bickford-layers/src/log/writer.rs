//! Writes lines from a thread of its own.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::output::{Output, Rotation};
use crate::files::advice;
use crate::registry::Reporter;

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<String>,
    /// Lines that were dropped since the last one that got in.
    dropped: u64,
    ended: bool,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    limit: usize,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// Takes lines and has them written. The thread is started with the session, not before.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    output: Mutex<Option<Output>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lines that wait; `None` at the end.
    fn take(&self) -> Option<VecDeque<String>> {
        let mut queue = self.queue();
        while queue.lines.is_empty() {
            if queue.ended {
                return None;
            }
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Some(std::mem::take(&mut queue.lines))
    }

    fn run(&self, output: &mut Output) {
        while let Some(lines) = self.take() {
            for line in lines {
                let written = output.write(line.as_bytes(), || self.queue().ended);
                if let Err(error) = written
                    && self.failed.fetch_add(1, Ordering::Relaxed) == 0
                {
                    tracing::error!(layer = "log", "a line was not written: {error}");
                }
                if let Err(error) = output.rotate() {
                    tracing::error!(
                        layer = "log",
                        "the file was not rotated and goes on: {error}"
                    );
                }
            }
        }
    }
}

impl Writer {
    /// Opens the file, or standard error where there is none, for at most `limit` lines that wait.
    pub(super) fn new(
        path: Option<PathBuf>,
        rotation: Rotation,
        limit: usize,
    ) -> Result<Self, String> {
        let output = match path {
            None => Output::StandardError,
            Some(path) => {
                let opened = Output::open(&path, rotation);
                opened.map_err(|error| {
                    format!("file={}: {error}{}", path.display(), advice(&error))
                })?
            }
        };
        let shared = Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            limit,
            dropped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        Ok(Self {
            shared: Arc::new(shared),
            output: Mutex::new(Some(output)),
            thread: Mutex::default(),
        })
    }

    /// Starts the thread.
    pub(super) fn start(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut taken) = output.take() else {
            return Ok(());
        };
        let thread = std::thread::Builder::new()
            .name("bickford-log".to_owned())
            .spawn(move || shared.run(&mut taken))?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Takes a line, or drops it when too many wait. Never waits.
    pub(super) fn put(&self, line: String) {
        let was_empty = {
            let mut queue = self.shared.queue();
            if queue.lines.len() >= self.shared.limit || queue.ended {
                queue.dropped += 1;
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let was_empty = queue.lines.is_empty();
            if queue.dropped > 0 {
                let dropped = std::mem::take(&mut queue.dropped);
                queue.lines.push_back(notice(&line, dropped));
            }
            queue.lines.push_back(line);
            was_empty
        };
        if was_empty {
            self.shared.changed.notify_one();
        }
    }

    /// Writes what waits and ends the thread.
    pub(super) fn end(&self) {
        self.shared.queue().ended = true;
        self.shared.changed.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!(layer = "log", "the thread of the log panicked");
        }
    }
}

/// A line that says that lines are missing here, in the format of `line`.
fn notice(line: &str, dropped: u64) -> String {
    if line.starts_with('{') {
        format!("{{\"dropped\":{dropped}}}\n")
    } else {
        format!("dropped={dropped} lines: too many were waiting\n")
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

impl Reporter for Writer {
    fn report(&self) -> String {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        let failed = self.shared.failed.load(Ordering::Relaxed);
        match (dropped, failed) {
            (0, 0) => String::new(),
            _ => format!("{dropped} lines were dropped, {failed} could not be written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::super::output::numbered;
    use super::*;

    const ROTATION: Rotation = Rotation { size: 20, keep: 2 };

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn full_files_are_rotated_and_no_line_is_torn_or_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let writer = Writer::new(Some(path.clone()), ROTATION, 100).unwrap();
        writer.start().unwrap();
        for number in 0..5 {
            writer.put(format!("line {number} ......\n"));
        }
        writer.end();
        assert_eq!(read(&path), "line 4 ......\n");
        assert_eq!(read(&numbered(&path, 1)), "line 2 ......\nline 3 ......\n");
        assert_eq!(read(&numbered(&path, 2)), "line 0 ......\nline 1 ......\n");
        assert_eq!(writer.report(), "");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_exceeds_the_buffer_is_dropped_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let rotation = Rotation {
            size: 1 << 20,
            keep: 1,
        };
        let writer = Writer::new(Some(path.clone()), rotation, 2).unwrap();
        for number in 0..5 {
            writer.put(format!("{number}\n"));
        }
        writer.start().unwrap();
        while !writer.shared.queue().lines.is_empty() {
            std::thread::yield_now();
        }
        writer.put("5\n".to_owned());
        writer.end();
        let notice = "dropped=3 lines: too many were waiting\n";
        assert_eq!(read(&path), format!("0\n1\n{notice}5\n"));
        assert!(writer.report().starts_with("3 lines were dropped"));
    }

    #[test]
    fn a_directory_that_is_missing_is_said_at_once() {
        let path = PathBuf::from("/nonexistent/directory/log");
        let error = Writer::new(Some(path), ROTATION, 1).unwrap_err();
        assert!(error.contains("/nonexistent/directory/log"), "{error}");
    }
}
