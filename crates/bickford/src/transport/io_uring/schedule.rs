//! What a thread of this process is doing.

use std::fs::read_to_string;

use rustix::process::Pid;

/// A thread as the scheduler sees it: proc_pid_stat(5), proc_pid_schedstat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// It runs, or would if it had a CPU.
    pub(super) runnable: bool,
    /// Nanoseconds that it has run in all.
    pub(super) run: u64,
}

/// `None` where procfs does not tell, or the thread has ended.
pub(super) fn of(thread: Pid) -> Option<Schedule> {
    let directory = format!("/proc/self/task/{}", thread.as_raw_nonzero());
    let stat = read_to_string(format!("{directory}/stat")).ok()?;
    let schedstat = read_to_string(format!("{directory}/schedstat")).ok()?;
    Some(Schedule {
        runnable: is_runnable(&stat)?,
        run: schedstat.split_ascii_whitespace().next()?.parse().ok()?,
    })
}

/// The state follows the name, which may hold anything.
fn is_runnable(stat: &str) -> Option<bool> {
    let (_, after) = stat.rsplit_once(')')?;
    Some(after.trim_ascii_start().starts_with('R'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::gettid;

    #[test]
    fn the_calling_thread_runs() {
        let before = of(gettid()).unwrap();
        assert!(before.runnable);
        assert!(of(gettid()).unwrap().run >= before.run);
    }

    #[test]
    fn a_waiting_thread_does_not() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(gettid()).unwrap();
            wait.recv().unwrap();
        });
        let waiting = receive.recv().unwrap();
        while of(waiting).unwrap().runnable {
            std::thread::yield_now();
        }
        end.send(()).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn a_name_may_look_like_a_state() {
        assert_eq!(is_runnable("7 (a) R b) S 1"), Some(false));
        assert_eq!(is_runnable("7 (S) R 1"), Some(true));
        assert_eq!(is_runnable("nothing"), None);
    }
}
