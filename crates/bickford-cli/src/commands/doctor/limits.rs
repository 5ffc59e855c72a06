//! Limits of this process and of the system that a FUSE server meets.

use std::{fs, io};

use rustix::fs::{Access, AtFlags, CWD};
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use super::{Finding, Status, capable, setting};

/// Below this many descriptors a server of many open files meets the limit early.
const FEW_DESCRIPTORS: u64 = 4096;

pub(super) fn look() -> Vec<Finding> {
    let mut findings = vec![descriptors(), locked_memory(), pipes()];
    findings.extend(request_size());
    findings.push(unwritten());
    findings.push(low_latency());
    findings.push(yielding());
    findings.push(library());
    findings
}

/// How much of a write-back cache may be dirty; set in `max_bytes` of the mount's backing device (since
/// Linux 6.2), which those of other devices stand for here.
fn unwritten() -> Finding {
    const NAME: &str = "unwritten data";
    let Some(share) = bickford::session::write_back_share() else {
        return Finding::works(NAME, "no memory limit of a cgroup: the kernel's own limit");
    };
    let limited = "memory is limited by a cgroup";
    let Err(error) = max_bytes_can_be_set() else {
        let text = format!("{limited}: {share} bytes of a write-back cache at most");
        return Finding::works(NAME, text);
    };
    let text = format!(
        "{limited}, and a write-back cache cannot be kept to {share} bytes of it: \
         /sys/class/bdi/*/max_bytes: {error}{}",
        match error.kind() {
            io::ErrorKind::NotFound => "; Linux 6.2 or later has it",
            _ => "",
        }
    );
    Finding::new(NAME, Status::Limited, text).advise(
        "writing is slow where unwritten data fill the limit: mount as root with /sys writable, without a \
         write-back cache (--preset base), or with a higher limit",
    )
}

fn max_bytes_can_be_set() -> io::Result<()> {
    let device = fs::read_dir("/sys/class/bdi")?
        .next()
        .ok_or(io::ErrorKind::NotFound)??;
    let file = device.path().join("max_bytes");
    rustix::fs::accessat(CWD, &file, Access::WRITE_OK, AtFlags::EACCESS)?;
    Ok(())
}

fn low_latency() -> Finding {
    const NAME: &str = "low latency";
    let wanted = bickford::LowLatency::default();
    match wanted.probe() {
        Ok(()) => Finding::works(
            NAME,
            format!("{} can be held: mount --low-latency", wanted.device),
        ),
        Err(error) => Finding::new(NAME, Status::Missing, error.to_string()),
    }
}

fn yielding() -> Finding {
    const NAME: &str = "threads that yield";
    match bickford::transport::yielding_obstacle() {
        None => Finding::works(
            NAME,
            "callers stay on their CPU where requests go over io_uring".to_owned(),
        ),
        Some(obstacle) => Finding::new(NAME, Status::Limited, obstacle),
    }
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

fn descriptors() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let text = format!(
        "{} of at most {}",
        shown(limit.current),
        shown(limit.maximum)
    );
    if limit.maximum.is_some_and(|most| most < FEW_DESCRIPTORS) {
        Finding::new("open files", Status::Limited, text)
            .advise("raise the hard limit: ulimit -Hn, LimitNOFILE= of the service")
    } else {
        Finding::works("open files", text)
    }
}

fn locked_memory() -> Finding {
    let limit = getrlimit(Resource::Memlock);
    Finding::works("locked memory", format!("{} bytes", shown(limit.current)))
}

fn pipes() -> Finding {
    const NAME: &str = "pipes for splice";
    // A page takes a slot of a pipe, and the header another one.
    const WHOLE_REQUEST: u32 = 2 * bickford::filesystem::MAX_WRITE;
    if capable(CapabilitySet::SYS_RESOURCE) {
        return Finding::works(NAME, "any size (CAP_SYS_RESOURCE)");
    }
    let most = setting("/proc/sys/fs/pipe-max-size").unwrap_or_else(|| "unknown".to_owned());
    let text = format!("up to {most} bytes");
    if most.parse::<u32>().is_ok_and(|most| most < WHOLE_REQUEST) {
        let advice = format!(
            "answers of more than {} KiB are copied over /dev/fuse; root changes it: \
             sysctl fs.pipe-max-size={WHOLE_REQUEST}",
            bickford::filesystem::MAX_WRITE / 2048
        );
        return Finding::new(NAME, Status::Limited, text).advise(advice);
    }
    Finding::works(NAME, text)
}

/// What this library bounds by itself.
fn library() -> Finding {
    let server = bickford::dispatch::ServerConfig::default();
    let text = format!(
        "{} requests in flight, {} notifications queued with {} MiB, {} KiB a request, {} threads by default",
        server.max_in_flight,
        bickford::notify::QUEUE_MAX,
        bickford::notify::QUEUE_BYTES_MAX >> 20,
        bickford::filesystem::MAX_WRITE / 1024,
        bickford::Workers::default().max,
    );
    Finding::works("bounds of a session", text)
}

/// Documentation/admin-guide/sysctl/fs.rst: since 6.13.
fn request_size() -> Option<Finding> {
    let pages = setting("/proc/sys/fs/fuse/max_pages_limit")?
        .parse::<u64>()
        .ok()?;
    let bytes = pages.saturating_mul(rustix::param::page_size() as u64);
    Some(Finding::works(
        "request size",
        format!("up to {} KiB (fs.fuse.max_pages_limit)", bytes / 1024),
    ))
}
