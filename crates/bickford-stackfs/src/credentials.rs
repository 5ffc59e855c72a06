//! Acting for the caller.
//!
//! Permissions are the kernel's to check (`FUSE_POSIX_ACL` implies `default_permissions`), with
//! the caller's groups and capabilities, which we could not know as well; a mount of root alone may
//! do without. What is left for us is
//! what the lower file system derives from the calling thread: the owner and group of new
//! objects, the umask (which default ACLs override), and whether a write drops set-user-id bits.

use std::cell::Cell;
use std::marker::PhantomData;

use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::io_mode::Powers;
use crate::sys;

/// On whose behalf a request is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// What this process is and may do, read once.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    uid: u32,
    gid: u32,
    /// Those that can be given up and taken back.
    groups: Vec<Gid>,
    capabilities: CapabilitySets,
}

/// Ends what it stands for when dropped. Must stay on its thread.
pub(crate) struct Acting<'a> {
    identity: &'a Identity,
    ids: bool,
    /// Whether the effective ids and the groups are the caller's, too.
    effective: bool,
    capabilities: bool,
    thread: PhantomData<*const ()>,
}

thread_local! {
    /// The umask of this thread once it has one of its own.
    static UMASK: Cell<Option<u32>> = const { Cell::new(None) };
    /// Whether this thread has put `CAP_FSETID` aside, or the thread that started it had; not known
    /// before it is asked for.
    static FSETID_ASIDE: Cell<Option<bool>> = const { Cell::new(None) };
}

/// What serving takes of `own`: `CAP_SYS_RESOURCE` would let every caller exceed quotas and use blocks that are
/// reserved for root.
fn for_serving(mut own: CapabilitySets) -> CapabilitySets {
    own.effective.remove(CapabilitySet::SYS_RESOURCE);
    own
}

/// The first time of each thread, puts aside what it never needs.
fn fsetid_is_aside() -> Result<bool, Errno> {
    if let Some(known) = FSETID_ASIDE.get() {
        return Ok(known);
    }
    let all = rustix::thread::capabilities(None)?;
    let own = for_serving(all);
    if own != all {
        rustix::thread::set_capabilities(None, own)?;
    }
    let aside = !own.effective.contains(CapabilitySet::FSETID);
    FSETID_ASIDE.set(Some(aside));
    Ok(aside)
}

/// The groups of this thread; none where they could not be taken back. A user namespace may refuse to set any, and
/// has no number for some: they look like the one that stands for all such.
fn groups() -> Result<Vec<Gid>, Errno> {
    let groups = rustix::process::getgroups()?;
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let all_have_numbers =
        read("/proc/self/gid_map")
            .split_whitespace()
            .eq(["0", "0", "4294967295"]);
    let unnamed = read("/proc/sys/kernel/overflowgid");
    let unnamed = Gid::from_raw(unnamed.trim().parse().unwrap_or(65534));
    match (all_have_numbers || !groups.contains(&unnamed)) && set_thread_groups(&groups).is_ok() {
        true => Ok(groups),
        false => Ok(Vec::new()),
    }
}

impl Identity {
    pub(crate) fn current() -> Result<Self, Errno> {
        Ok(Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups()?,
            capabilities: for_serving(rustix::thread::capabilities(None)?),
        })
    }

    fn has(&self, wanted: CapabilitySet) -> bool {
        self.capabilities.effective.contains(wanted)
    }

    pub(crate) fn powers(&self) -> Powers {
        Powers {
            register: self.has(CapabilitySet::SYS_ADMIN),
            override_modes: self.has(CapabilitySet::DAC_OVERRIDE),
        }
    }

    /// Owns new objects like `caller` does, with our own power over directories. `mode` is the one
    /// that the new object is to have. EPERM when this process cannot take that identity.
    pub(crate) fn own_as(&self, caller: Caller, mode: u32) -> Result<Acting<'_>, Errno> {
        // The bit stays for a group that the maker is not in.
        if Mode::from_raw_mode(mode).contains(Mode::SGID) {
            self.with_fsetid()?;
        }
        let acting = self.assume(caller)?;
        if acting.capabilities {
            self.all_capabilities()?;
        }
        Ok(acting)
    }

    /// Becomes `caller` for the lower file system, without capabilities unless it is root: those too that go
    /// with no user id. The effective ids are the caller's, too, which some file systems ask for (cgroup), and
    /// no group is ours.
    pub(crate) fn become_caller(&self, caller: Caller) -> Result<Acting<'_>, Errno> {
        let mut acting = self.assume(caller)?;
        if caller.uid == 0 {
            return Ok(acting);
        }
        if acting.ids {
            acting.effective = true;
            self.set_groups(&[])?;
            set_thread_res_gid(None, Gid::from_raw(caller.gid), None)?;
            set_thread_res_uid(None, Uid::from_raw(caller.uid), None)?;
        }
        if !self.capabilities.effective.is_empty() {
            acting.capabilities = true;
            let mut none = self.capabilities;
            none.effective = CapabilitySet::empty();
            rustix::thread::set_capabilities(None, none)?;
        }
        Ok(acting)
    }

    /// As far as this process may, is in group `group` if it is one of `groups`, of which the first counts for files.
    pub(crate) fn as_in_groups(&self, groups: &[u32], group: u32) -> Result<Acting<'_>, Errno> {
        let mut acting = self.as_itself();
        if !self.has(CapabilitySet::SETGID) {
            return Ok(acting);
        }
        acting.ids = true;
        let is_in = groups.contains(&group);
        if !is_in && self.groups.contains(&Gid::from_raw(group)) {
            acting.effective = true;
            self.set_groups(&[])?;
        }
        let counts = if is_in {
            Some(group)
        } else {
            groups.first().copied()
        };
        // Refused where a user namespace has no number for the group.
        let _ = counts.map(sys::set_fsgid);
        Ok(acting)
    }

    pub(crate) fn as_itself(&self) -> Acting<'_> {
        Acting {
            identity: self,
            ids: false,
            effective: false,
            capabilities: false,
            thread: PhantomData,
        }
    }

    fn assume(&self, caller: Caller) -> Result<Acting<'_>, Errno> {
        let mut acting = self.as_itself();
        let may_switch = self.has(CapabilitySet::SETUID | CapabilitySet::SETGID);
        if !may_switch {
            // The group of an ordinary user's process may be any of the user's groups.
            return if caller.uid == self.uid {
                Ok(acting)
            } else {
                Err(Errno::PERM)
            };
        }
        if (caller.uid, caller.gid) == (self.uid, self.gid) {
            return Ok(acting);
        }
        acting.ids = true;
        // Root's file-system user id comes and goes with the file-system capabilities.
        acting.capabilities = (caller.uid == 0) != (self.uid == 0);
        sys::set_fsgid(caller.gid)?;
        sys::set_fsuid(caller.uid)?;
        Ok(acting)
    }

    /// Lets the lower file system drop set-user-id and set-group-id bits as it does for a caller
    /// without `CAP_FSETID`.
    ///
    /// It lasts until [`Self::with_fsetid`]: each change copies and frees the thread's credentials,
    /// and most of what comes next does not depend on this one. What may, asks for it.
    fn without_fsetid(&self) -> Result<(), Errno> {
        if !fsetid_is_aside()? && self.has(CapabilitySet::FSETID) {
            let mut fewer = self.capabilities;
            fewer.effective.remove(CapabilitySet::FSETID);
            rustix::thread::set_capabilities(None, fewer)?;
            FSETID_ASIDE.set(Some(true));
        }
        Ok(())
    }

    /// For changes that ask for nothing else: see [`for_serving`].
    pub(crate) fn without_excess(&self) -> Result<(), Errno> {
        fsetid_is_aside().map(drop)
    }

    /// Has the lower file system leave set-user-id and set-group-id bits alone, as far as this
    /// process may.
    pub(crate) fn with_fsetid(&self) -> Result<(), Errno> {
        match fsetid_is_aside()? {
            true => self.all_capabilities(),
            false => Ok(()),
        }
    }

    fn all_capabilities(&self) -> Result<(), Errno> {
        rustix::thread::set_capabilities(None, self.capabilities)?;
        FSETID_ASIDE.set(Some(false));
        Ok(())
    }

    fn takes_effect(&self) -> Result<(), Errno> {
        set_thread_res_uid(None, Uid::from_raw(self.uid), None)?;
        self.all_capabilities()?;
        set_thread_res_gid(None, Gid::from_raw(self.gid), None)?;
        self.set_groups(&self.groups)
    }

    /// Where there are none to give up, setting may be refused, see [`groups`].
    fn set_groups(&self, groups: &[Gid]) -> Result<(), Errno> {
        match self.groups.is_empty() {
            true => Ok(()),
            false => set_thread_groups(groups),
        }
    }

    /// [`Self::without_fsetid`] where the bits are to go, or else [`Self::with_fsetid`].
    pub(crate) fn dropping_set_id(&self, drop: bool) -> Result<(), Errno> {
        match drop {
            true => self.without_fsetid(),
            false => self.with_fsetid(),
        }
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        let mut restored = true;
        if self.effective {
            // The user first: the saved id may be taken without the capabilities, which the others want.
            restored &= self.identity.takes_effect().is_ok();
        }
        if self.ids {
            restored &= sys::set_fsuid(self.identity.uid).is_ok();
            restored &= sys::set_fsgid(self.identity.gid).is_ok();
        }
        if self.capabilities {
            restored &= self.identity.all_capabilities().is_ok();
        }
        if !restored {
            // Going on would serve the next caller with the rights of this one.
            tracing::error!("StackFS: cannot take this thread's own identity back; ending");
            std::process::abort();
        }
    }
}

/// Creates with the caller's umask: the lower file system applies it unless a default ACL rules.
pub(crate) fn set_umask(umask: u32) -> Result<(), Errno> {
    let umask = umask & 0o777;
    UMASK.with(|current| {
        if current.get() == Some(umask) {
            return Ok(());
        }
        if current.get().is_none() {
            sys::unshare_fs()?;
        }
        rustix::process::umask(Mode::from_raw_mode(umask));
        current.set(Some(umask));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};

    const NOBODY: Caller = Caller {
        uid: 65534,
        gid: 65533,
    };

    fn as_root(test: impl FnOnce(Identity)) {
        let identity = Identity::current().unwrap();
        if identity.has(CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::FSETID) {
            test(identity);
        } else {
            crate::say(format_args!("left out: what takes capabilities of root"));
            assert!(
                identity
                    .own_as(
                        Caller {
                            uid: identity.uid + 1,
                            gid: 0
                        },
                        0
                    )
                    .is_err()
            );
        }
    }

    #[test]
    fn new_objects_belong_to_the_caller_in_a_directory_closed_to_it() {
        as_root(|identity| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            {
                let _acting = identity.own_as(NOBODY, 0).unwrap();
                std::fs::write(&path, "").unwrap();
            }
            let owner = std::fs::metadata(&path).unwrap();
            assert_eq!((owner.uid(), owner.gid()), (NOBODY.uid, NOBODY.gid));
            std::fs::write(dir.path().join("g"), "").unwrap();
            assert_eq!(
                std::fs::metadata(dir.path().join("g")).unwrap().uid(),
                identity.uid
            );
        });
    }

    const IN_NAMESPACE: &str = "BICKFORD_TEST_IN_NAMESPACE";

    /// Runs a test of this module again in a user namespace with 1000 ids, and with a group that has none there.
    /// `None` where that cannot be.
    fn in_namespace(test: &str) -> Option<bool> {
        let own = rustix::process::getgroups().unwrap();
        set_thread_groups(&[&own[..], &[Gid::from_raw(2000)]].concat()).ok()?;
        let script = format!("read go && exec \"$0\" --exact credentials::tests::{test}");
        let child = std::process::Command::new("unshare")
            .args(["-U", "sh", "-c", &script])
            .arg(std::env::current_exe().unwrap())
            .env(IN_NAMESPACE, "1")
            .stdin(std::process::Stdio::piped())
            .spawn();
        set_thread_groups(&own).unwrap();
        let mut child = child.ok()?;
        let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
        let pid = child.id().to_string();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while space(&pid) == space("self") && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let maps = ["uid_map", "gid_map"];
        let mapped = maps.map(|map| std::fs::write(format!("/proc/{pid}/{map}"), "0 0 1000"));
        if mapped.iter().all(Result::is_ok) {
            std::io::Write::write_all(child.stdin.as_mut()?, b"go\n").ok()?;
        }
        drop(child.stdin.take());
        let passed = child.wait().ok()?.success();
        mapped.iter().all(Result::is_ok).then_some(passed)
    }

    #[test]
    fn groups_without_a_number_in_a_user_namespace_stay() {
        if std::env::var_os(IN_NAMESPACE).is_some() {
            let identity = Identity::current().unwrap();
            let own = effective_ids();
            assert!(own.2.contains(&Gid::from_raw(65534)), "{own:?}");
            let caller = Caller { uid: 500, gid: 500 };
            drop(identity.become_caller(caller).unwrap());
            assert_eq!(effective_ids(), own);
            return;
        }
        as_root(
            |_| match in_namespace("groups_without_a_number_in_a_user_namespace_stay") {
                Some(passed) => assert!(passed),
                None => crate::say(format_args!("left out: a user namespace with ids")),
            },
        );
    }

    /// Of this thread: user, group, groups.
    fn effective_ids() -> (u32, u32, Vec<Gid>) {
        (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
            rustix::process::getgroups().unwrap(),
        )
    }

    #[test]
    fn becoming_the_caller_gives_up_its_power() {
        as_root(|identity| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            {
                let _acting = identity.become_caller(NOBODY).unwrap();
                let now = rustix::thread::capabilities(None).unwrap();
                assert!(now.effective.is_empty(), "{now:?}");
                let error = std::fs::write(&path, "").unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
                assert_eq!(effective_ids(), (NOBODY.uid, NOBODY.gid, Vec::new()));
            }
            std::fs::write(&path, "").unwrap();
            let own = (identity.uid, identity.gid, identity.groups.clone());
            assert_eq!(effective_ids(), own);
            assert_eq!(
                rustix::thread::capabilities(None).unwrap(),
                identity.capabilities
            );
        });
    }

    #[test]
    fn a_write_without_fsetid_drops_the_set_user_id_bit() {
        as_root(|identity| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).unwrap();
            std::fs::write(&path, "1").unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o4755);
            identity.without_fsetid().unwrap();
            std::fs::write(&path, "2").unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).unwrap();
            identity.with_fsetid().unwrap();
            std::fs::write(&path, "3").unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o4755);
        });
    }

    #[test]
    fn the_set_group_id_bit_stays_for_members_whatever_groups_this_process_is_in() {
        const GROUP: u32 = 65_532;
        // Of this thread alone; refused where nothing is tested.
        let _ = set_thread_groups(&[Gid::from_raw(GROUP)]);
        as_root(|identity| {
            assert_eq!(identity.groups, [Gid::from_raw(GROUP)]);
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            std::fs::write(&path, "").unwrap();
            std::os::unix::fs::chown(&path, None, Some(GROUP)).unwrap();
            for (groups, left) in [([NOBODY.gid, GROUP], 0o2767), ([NOBODY.gid, 0], 0o767)] {
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o2767)).unwrap();
                identity.without_fsetid().unwrap();
                let acting = identity.as_in_groups(&groups, GROUP).unwrap();
                std::fs::write(&path, "1").unwrap();
                drop(acting);
                let mode = std::fs::metadata(&path).unwrap().mode() & 0o7777;
                assert_eq!(mode, left, "{groups:?}");
                let own = (identity.uid, identity.gid, identity.groups.clone());
                assert_eq!(effective_ids(), own);
                identity.with_fsetid().unwrap();
            }
        });
    }

    #[test]
    fn no_thread_serves_with_the_power_to_exceed_quotas() {
        let all = CapabilitySets {
            effective: CapabilitySet::all(),
            permitted: CapabilitySet::all(),
            inheritable: CapabilitySet::empty(),
        };
        let serving = for_serving(all);
        assert_eq!(
            serving.effective,
            CapabilitySet::all().difference(CapabilitySet::SYS_RESOURCE)
        );
        assert_eq!(serving.permitted, all.permitted);
        as_root(|identity| {
            // Any that the machine grants.
            let _ = rustix::thread::set_capabilities(None, all);
            identity.without_excess().unwrap();
            for acting in [true, false] {
                if acting {
                    drop(identity.own_as(NOBODY, 0).unwrap());
                }
                let now = rustix::thread::capabilities(None).unwrap().effective;
                assert!(!now.contains(CapabilitySet::SYS_RESOURCE));
            }
        });
    }

    #[test]
    fn a_thread_that_was_started_without_fsetid_takes_it_back() {
        as_root(|identity| {
            identity.without_fsetid().unwrap();
            let now = || rustix::thread::capabilities(None).unwrap();
            std::thread::scope(|scope| {
                let started = scope.spawn(|| {
                    assert!(!now().effective.contains(CapabilitySet::FSETID));
                    identity.with_fsetid().unwrap();
                    now()
                });
                assert_eq!(started.join().unwrap(), identity.capabilities);
            });
        });
    }

    #[test]
    fn acting_for_somebody_ends_with_all_capabilities() {
        as_root(|identity| {
            identity.without_fsetid().unwrap();
            drop(identity.own_as(NOBODY, 0).unwrap());
            assert_eq!(
                rustix::thread::capabilities(None).unwrap(),
                identity.capabilities
            );
            identity.without_fsetid().unwrap();
            drop(identity.become_caller(NOBODY).unwrap());
            assert_eq!(
                rustix::thread::capabilities(None).unwrap(),
                identity.capabilities
            );
        });
    }

    #[test]
    fn a_new_set_group_id_object_keeps_its_bit() {
        as_root(|identity| {
            identity.without_fsetid().unwrap();
            let own = Caller {
                uid: identity.uid,
                gid: identity.gid,
            };
            let _acting = identity.own_as(own, 0o2755).unwrap();
            let now = rustix::thread::capabilities(None).unwrap();
            assert_eq!(now, identity.capabilities);
        });
    }

    #[test]
    fn the_umask_is_the_threads_own() {
        std::thread::spawn(|| {
            let dir = tempfile::tempdir().unwrap();
            for umask in [0o077, 0o002, 0o000] {
                set_umask(umask).unwrap();
                let path = dir.path().join(umask.to_string());
                let mut options = std::fs::OpenOptions::new();
                options
                    .write(true)
                    .create_new(true)
                    .mode(0o666)
                    .open(&path)
                    .unwrap();
                let mode = std::fs::metadata(&path).unwrap().mode() & 0o777;
                assert_eq!(mode, 0o666 & !umask);
            }
        })
        .join()
        .unwrap();
    }
}
