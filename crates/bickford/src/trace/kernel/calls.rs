//! How long the threads of a process were in system calls, told by the system calls' tracepoints.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::format::{self, Format};
use super::instance::{self, Instance};
use super::{next_page, ring_buffer, tracefs};
use crate::trace::stamp::monotonic;

const EVENTS: [&str; 2] = ["raw_syscalls/sys_enter", "raw_syscalls/sys_exit"];

/// Steps that are kept of each thread; the oldest go first.
const STEPS_MAX: usize = 1 << 16;
/// Pages that one reading takes of each buffer: more may come without a pause.
const PAGES_MAX: usize = 4_096;
/// Threads of which steps are kept.
const THREADS_MAX: usize = 1_024;

/// Follows the system calls of one process until it is dropped. Of futex(2) nothing is told: there threads
/// wait for one another.
///
/// Meanwhile system calls of all threads of the machine take a little longer: the kernel looks at each.
#[derive(Debug)]
pub struct SystemCalls {
    // Closed before the instance is removed, which is busy while they are open.
    buffers: Vec<File>,
    instance: Instance,
    enter: Format,
    exit: Format,
    page: Vec<u8>,
    threads: HashMap<u32, Thread>,
    /// Nothing is known of earlier times.
    begun_ns: u64,
}

impl SystemCalls {
    /// Begins to follow the threads that the process `pid` has, and those that these start.
    ///
    /// # Errors
    /// When there is no such process, tracefs is not mounted or may not be used, or the kernel has no such
    /// tracepoints.
    pub fn of(pid: u32) -> io::Result<Self> {
        let root = tracefs()?;
        let [enter, exit] = EVENTS.map(|event| Format::read(&root, event));
        let instance = Instance::make(&root)?;
        let buffers = instance.buffers()?;
        instance.follow_threads(|| threads_of(pid))?;
        instance.enable_all(&EVENTS)?;
        Ok(Self {
            buffers,
            instance,
            enter: enter?,
            exit: exit?,
            page: vec![0; rustix::param::page_size()],
            threads: HashMap::new(),
            begun_ns: monotonic(),
        })
    }

    /// Reads what has happened until now.
    ///
    /// # Errors
    /// When a buffer cannot be read.
    pub fn read(&mut self) -> io::Result<()> {
        let (enter, exit, threads) = (&self.enter, &self.exit, &mut self.threads);
        for buffer in &mut self.buffers {
            for _ in 0..PAGES_MAX {
                let Some(page) = next_page(buffer, &mut self.page)? else {
                    break;
                };
                ring_buffer::read_page(page, |at_ns, payload| {
                    if let Some((thread, entered)) = step(enter, exit, payload) {
                        keep(threads, thread, Step { at_ns, entered });
                    }
                });
            }
        }
        for thread in self.threads.values_mut() {
            thread.order();
        }
        Ok(())
    }

    /// Nanoseconds that `thread` spent in system calls from `from_ns` to `to_ns` of the monotonic clock, as far
    /// as [`Self::read`] has read; `None` where that is not known.
    #[must_use]
    pub fn within(&self, thread: u32, from_ns: u64, to_ns: u64) -> Option<u64> {
        if from_ns < self.begun_ns {
            return None;
        }
        self.threads.get(&thread)?.within(from_ns, to_ns)
    }

    /// How many events found no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.instance.overrun()
    }
}

fn threads_of(pid: u32) -> io::Result<Vec<String>> {
    let path = Path::new("/proc").join(pid.to_string()).join("task");
    let entries = fs::read_dir(&path).map_err(|error| instance::context(&error, &path))?;
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    Ok(entries.filter_map(name).collect())
}

/// The thread, and whether it entered a system call; `None` if the event is none of these.
fn step(enter: &Format, exit: &Format, payload: &[u8]) -> Option<(u32, bool)> {
    let event = format::kind(payload)?;
    let (format, entered) = if event == enter.id {
        (enter, true)
    } else if event == exit.id {
        (exit, false)
    } else {
        return None;
    };
    if format.long(payload, "id")? == libc::SYS_futex.cast_unsigned() {
        return None;
    }
    Some((format.word(payload, "common_pid")?, entered))
}

fn keep(threads: &mut HashMap<u32, Thread>, thread: u32, step: Step) {
    if threads.len() >= THREADS_MAX && !threads.contains_key(&thread) {
        return;
    }
    threads.entry(thread).or_default().keep(step);
}

#[derive(Clone, Copy, Debug)]
struct Step {
    at_ns: u64,
    /// Else it left.
    entered: bool,
}

#[derive(Debug, Default)]
struct Thread {
    steps: VecDeque<Step>,
    /// Steps before were dropped.
    known_from_ns: u64,
}

impl Thread {
    fn keep(&mut self, step: Step) {
        if self.steps.len() >= STEPS_MAX
            && let Some(oldest) = self.steps.pop_front()
        {
            self.known_from_ns = self.known_from_ns.max(oldest.at_ns + 1);
        }
        self.steps.push_back(step);
    }

    /// Each processor has a buffer of its own, and they are read in turn.
    fn order(&mut self) {
        self.steps.make_contiguous().sort_by_key(|step| step.at_ns);
    }

    fn within(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        if from_ns < self.known_from_ns {
            return None;
        }
        let first = self.steps.partition_point(|step| step.at_ns < from_ns);
        let mut sum = 0;
        let mut since = None;
        for step in self.steps.range(first..) {
            match since {
                None if step.at_ns >= to_ns => break,
                // Of a call that it was in, the end was lost.
                _ if step.entered => since = Some(step.at_ns),
                // Of a call that began before.
                None => {}
                Some(entered) => {
                    sum += step.at_ns.min(to_ns).saturating_sub(entered);
                    since = None;
                }
            }
        }
        // It is in there still.
        Some(sum + since.map_or(0, |entered| to_ns.saturating_sub(entered)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(steps: &[(u64, bool)]) -> Thread {
        let mut thread = Thread::default();
        for &(at_ns, entered) in steps {
            thread.keep(Step { at_ns, entered });
        }
        thread.order();
        thread
    }

    #[test]
    fn only_what_lies_within_counts() {
        // The other processor's buffer is read later.
        let thread = thread(&[
            (10, true),
            (20, false),
            (50, true),
            (80, false),
            (30, true),
            (34, false),
        ]);
        assert_eq!(thread.within(25, 60), Some(4 + 10));
        assert_eq!(thread.within(25, 45), Some(4));
        assert_eq!(thread.within(0, 100), Some(10 + 4 + 30));
        // A call that began before is not the handler's.
        assert_eq!(thread.within(12, 25), Some(0));
        assert_eq!(thread.within(90, 95), Some(0));
    }

    #[test]
    fn a_call_that_goes_on_counts_until_the_end() {
        assert_eq!(thread(&[(10, true)]).within(5, 25), Some(15));
    }

    #[test]
    fn a_call_whose_end_was_lost_does_not_count() {
        let thread = thread(&[(10, true), (20, true), (23, false)]);
        assert_eq!(thread.within(5, 100), Some(3));
    }

    #[test]
    fn what_was_dropped_is_not_known() {
        let steps: Vec<(u64, bool)> = (0..STEPS_MAX as u64 + 4).map(|n| (n, n % 2 == 0)).collect();
        let thread = thread(&steps);
        assert_eq!(thread.steps.len(), STEPS_MAX);
        assert_eq!(thread.within(3, 9), None);
        assert_eq!(thread.within(4, 9), Some(3));
    }

    #[test]
    fn threads_that_wait_for_one_another_are_not_told() {
        let format = |id: u16| {
            Format::parse(&format!(
                "ID: {id}\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
                 \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;"
            ))
        };
        let payload = |kind: u16, call: libc::c_long| {
            let mut bytes = kind.to_ne_bytes().to_vec();
            bytes.extend([0, 0]);
            bytes.extend(5_u32.to_ne_bytes());
            bytes.extend(call.to_ne_bytes());
            bytes
        };
        let (enter, exit) = (format(8), format(9));
        let told = |kind, call| step(&enter, &exit, &payload(kind, call));
        assert_eq!(told(8, libc::SYS_openat), Some((5, true)));
        assert_eq!(told(9, libc::SYS_openat), Some((5, false)));
        assert_eq!(told(8, libc::SYS_futex), None);
        assert_eq!(told(7, libc::SYS_openat), None);
        let whole = payload(8, libc::SYS_openat);
        let cut = (0..whole.len()).filter_map(|length| step(&enter, &exit, &whole[..length]));
        assert_eq!(cut.count(), 0);
    }
}
