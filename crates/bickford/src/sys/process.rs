//! How programs are started.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has a program wait for children of its own though this process ignores SIGCHLD, which execve(2) hands on: they would
/// be gone before it waits (sigaction(2)).
pub(crate) fn waits_for_children(command: &mut Command) -> &mut Command {
    if ignores_children() {
        // SAFETY: signal(2) may be called between fork(2) and execve(2) (signal-safety(7)), and nothing else is.
        unsafe { command.pre_exec(reset) };
    }
    command
}

fn reset() -> io::Result<()> {
    // SAFETY: SIGCHLD exists, and its default action runs no code of ours.
    match unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn ignores_children() -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action nothing is changed; there is room for the one in force, and zeros are one, too.
    let now = unsafe {
        libc::sigaction(libc::SIGCHLD, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a program that a shell starts with SIGCHLD ignored: `SigIgn` of proc_pid_status(5), a bit for each signal.
    #[test]
    fn a_program_does_not_ignore_its_children() {
        assert!(!ignores_children(), "by default");
        let mut command = Command::new("grep");
        command.args(["SigIgn", "/proc/self/status"]);
        // SAFETY: as above.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                reset()
            });
        }
        let said = command.output().unwrap().stdout;
        let said = String::from_utf8(said).unwrap();
        let ignored = said.split_whitespace().last().unwrap();
        let ignored = u64::from_str_radix(ignored, 16).unwrap();
        assert_eq!(ignored & 1 << (libc::SIGCHLD - 1), 0, "{said}");
    }
}
