//! Which requests are wanted.

use std::collections::HashMap;
use std::fs;

use bickford::abi::Opcode;
use bickford::trace::kernel::KernelRequest;

/// What the command line asks for.
pub(super) struct Filter {
    pub(super) opcodes: Vec<Opcode>,
    pub(super) slower_than_us: u64,
    pub(super) pid: Option<u32>,
}

impl Filter {
    /// Leaves the wanted ones, given how long each took so far. To be called soon after they were
    /// sent: whose a thread was is known only as long as it lives.
    pub(super) fn keep(
        &self,
        requests: &mut Vec<KernelRequest>,
        lasted_ns: impl Fn(&KernelRequest) -> u64,
    ) {
        let mut callers = HashMap::new();
        requests.retain(|request| {
            let kind = Opcode::from_u32(request.opcode);
            (self.opcodes.is_empty() || kind.is_some_and(|kind| self.opcodes.contains(&kind)))
                && lasted_ns(request) >= self.slower_than_us.saturating_mul(1_000)
                && self.pid.is_none_or(|wanted| {
                    *callers
                        .entry(request.pid)
                        .or_insert_with(|| is_of(request.pid, wanted))
                })
        });
    }
}

/// Whether it is this thread, or one of this process.
fn is_of(thread: u32, wanted: u32) -> bool {
    thread == wanted || process_of(thread) == Some(wanted)
}

fn process_of(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    process.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_of_its_process() {
        let process = std::process::id();
        let thread = std::thread::spawn(|| {
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            thread.cast_unsigned()
        });
        // It may have ended, but not yet be gone.
        let ended = thread.join().unwrap();
        assert!(is_of(ended, ended) && !is_of(ended, 1));
        let this = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .cast_unsigned();
        assert!(is_of(this, this) && is_of(this, process));
        assert!(!is_of(process, this), "a thread is not the process");
    }
}
