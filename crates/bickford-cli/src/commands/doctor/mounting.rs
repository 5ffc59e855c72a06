//! Can this user mount, and how.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bickford::mount::{FUSE_CONF, FuseConfig, find_fusermount, probe_device};
use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, fsopen};
use rustix::thread::CapabilitySet;

use super::{Finding, Status, capable_here};

pub(super) fn look() -> Vec<Finding> {
    let helper = fusermount();
    let usable = helper.status == Status::Works;
    vec![device(), way(usable), helper, config(), connections()]
}

fn device() -> Finding {
    const NAME: &str = "/dev/fuse";
    match probe_device() {
        Ok(()) => Finding::works(NAME, "can be opened"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Finding::new(NAME, Status::Needed, error.to_string())
                .advise("chmod 666 /dev/fuse, which is what udev's rules give it; who may mount is decided elsewhere")
        }
        Err(error) => Finding::new(NAME, Status::Needed, error.to_string())
            .advise("modprobe fuse; in a container: give it the device /dev/fuse"),
    }
}

fn way(helper: bool) -> Finding {
    const NAME: &str = "mounting";
    match (may_mount(), helper) {
        (true, _) => Finding::works(NAME, "directly, by system call"),
        // fusermount3 gets no more either.
        (false, _) if capable_here(CapabilitySet::SYS_ADMIN) => Finding::new(
            NAME,
            Status::Needed,
            "CAP_SYS_ADMIN does not hold for this mount namespace: it belongs to another user namespace, or a \
             system call filter is in the way",
        )
        .advise("take a mount namespace, too: unshare -m"),
        (false, true) => Finding::works(NAME, "through fusermount3"),
        (false, false) => Finding::new(
            NAME,
            Status::Needed,
            "neither CAP_SYS_ADMIN nor a fusermount3 that may mount",
        )
        .advise("run as root, or install the fuse3 package"),
    }
}

fn may_mount() -> bool {
    match fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(_) => true,
        Err(Errno::PERM) => false,
        // Before Linux 5.2, or without FUSE, which is told elsewhere.
        Err(_) => capable_here(CapabilitySet::SYS_ADMIN),
    }
}

fn fusermount() -> Finding {
    const NAME: &str = "fusermount3";
    const SET_USER_ID: u32 = 0o4000;
    let Some(path) = find_fusermount() else {
        return Finding::new(NAME, Status::Missing, "not found: only root can mount")
            .advise("install the fuse3 package");
    };
    match path.metadata() {
        Ok(metadata) if metadata.mode() & SET_USER_ID != 0 && metadata.uid() == 0 => {
            Finding::works(NAME, path.display().to_string())
        }
        Ok(_) => Finding::new(
            NAME,
            Status::Missing,
            format!(
                "{} is not set-user-id root: only root can mount",
                path.display()
            ),
        )
        .advise(format!("chown root {0} && chmod u+s {0}", path.display())),
        Err(error) => Finding::new(
            NAME,
            Status::Missing,
            format!("{}: {error}", path.display()),
        ),
    }
}

fn config() -> Finding {
    match FuseConfig::load() {
        Err(error) => Finding::new(FUSE_CONF, Status::Limited, error.to_string()),
        Ok(config) => {
            let mounts = format!("users may have {} mounts", config.mount_max);
            if config.user_allow_other {
                Finding::works(
                    FUSE_CONF,
                    format!("users may let others in (user_allow_other); {mounts}"),
                )
            } else {
                Finding::new(
                    FUSE_CONF,
                    Status::Limited,
                    format!("only root may let others in (allow_other, allow_root); {mounts}"),
                )
                .advise(format!("echo user_allow_other >> {FUSE_CONF}"))
            }
        }
    }
}

fn connections() -> Finding {
    const NAME: &str = "fusectl";
    const PLACE: &str = "/sys/fs/fuse/connections";
    // statfs(2): FUSE_CTL_SUPER_MAGIC of linux/magic.h.
    const MAGIC: i64 = 0x6573_5543;
    match rustix::fs::statfs(Path::new(PLACE)) {
        #[allow(
            clippy::unnecessary_cast,
            reason = "the type differs between architectures"
        )]
        Ok(found) if found.f_type as i64 == MAGIC => {
            Finding::works(NAME, format!("{PLACE}: hanging mounts can be aborted"))
        }
        _ => Finding::new(
            NAME,
            Status::Limited,
            format!("not mounted on {PLACE}: only root can abort a hanging mount"),
        )
        .advise(format!("mount -t fusectl none {PLACE}")),
    }
}
