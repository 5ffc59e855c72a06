//! What the kernel offers: version, protocol, io_uring, pass-through.

use bickford::abi::{InitFlags, KERNEL_VERSION, MINOR_VERSION};
use bickford::mount::{KernelOffer, probe_kernel};
use rustix::thread::CapabilitySet;

use super::{Finding, Status, as_root, capable, setting};

pub(super) fn look() -> Vec<Finding> {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy().into_owned();
    let mut findings = vec![Finding::works("kernel", release)];
    match probe_kernel() {
        Ok(offer) => findings.extend([
            abi(&offer),
            io_uring(&offer),
            pass_through(&offer),
            features(&offer),
        ]),
        Err(error) => findings.push(Finding::new(
            "FUSE protocol",
            Status::Needed,
            error.to_string(),
        )),
    }
    findings
}

fn abi(offer: &KernelOffer) -> Finding {
    let text = format!(
        "{}.{} (described here: {KERNEL_VERSION}.{MINOR_VERSION}), read-ahead up to {} KiB{}",
        offer.major,
        offer.minor,
        offer.max_readahead / 1024,
        match rustix::process::geteuid().is_root() {
            true => ", which a mount raises",
            false => ", which a mount by root raises",
        }
    );
    Finding::works("FUSE protocol", text)
}

fn io_uring(offer: &KernelOffer) -> Finding {
    const NAME: &str = "FUSE over io_uring";
    const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
    if offer.flags.contains(InitFlags::OVER_IO_URING) {
        return match setting("/proc/sys/kernel/io_uring_disabled").as_deref() {
            Some("2") => Finding::new(NAME, Status::Missing, "io_uring is disabled for all")
                .advise("sysctl kernel.io_uring_disabled=0"),
            Some("1") if !capable(CapabilitySet::SYS_ADMIN) => Finding::new(
                NAME,
                Status::Missing,
                "io_uring is disabled for users without CAP_SYS_ADMIN",
            )
            .advise(
                "sysctl kernel.io_uring_disabled=0, or join the group of kernel.io_uring_group",
            ),
            _ => Finding::works(NAME, "offered"),
        };
    }
    match setting(PARAMETER) {
        Some(value) => Finding::new(NAME, Status::Missing, format!("enable_uring is {value}"))
            .advise(format!(
                "echo Y > {PARAMETER}; for good: fuse.enable_uring=1 on the kernel's command line"
            )),
        None => Finding::new(NAME, Status::Missing, "this kernel does not have it")
            .advise("Linux 6.14 or later"),
    }
}

fn pass_through(offer: &KernelOffer) -> Finding {
    const NAME: &str = "pass-through";
    match (
        offer.flags.contains(InitFlags::PASSTHROUGH),
        capable(CapabilitySet::SYS_ADMIN),
    ) {
        (true, true) => Finding::works(
            NAME,
            "offered: the kernel can read and write backing files itself",
        ),
        (true, false) => Finding::new(
            NAME,
            Status::Missing,
            "offered, but backing files need CAP_SYS_ADMIN",
        )
        .advise(as_root()),
        (false, _) => Finding::new(NAME, Status::Missing, "this kernel does not have it")
            .advise("Linux 6.9 or later with CONFIG_FUSE_PASSTHROUGH"),
    }
}

fn features(offer: &KernelOffer) -> Finding {
    const OPTIONAL: &[(&str, InitFlags)] = &[
        ("write-back cache", InitFlags::WRITEBACK_CACHE),
        ("zero-message open", InitFlags::NO_OPEN_SUPPORT),
        ("cached directories", InitFlags::NO_OPENDIR_SUPPORT),
        ("1 MiB requests", InitFlags::MAX_PAGES),
        ("resend", InitFlags::HAS_RESEND),
        ("expire-only invalidation", InitFlags::HAS_EXPIRE_ONLY),
        ("id-mapped mounts", InitFlags::ALLOW_IDMAP),
        ("request timeout", InitFlags::REQUEST_TIMEOUT),
    ];
    let names = |offered: bool| {
        let chosen = OPTIONAL
            .iter()
            .filter(|(_, flag)| offer.flags.contains(*flag) == offered);
        chosen.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    let (there, missing) = (names(true), names(false));
    let finding = Finding::new(
        "features",
        if missing.is_empty() {
            Status::Works
        } else {
            Status::Limited
        },
        there,
    );
    if missing.is_empty() {
        finding
    } else {
        finding.advise(format!("a later kernel has: {missing}"))
    }
}
