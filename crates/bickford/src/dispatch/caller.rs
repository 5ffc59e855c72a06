//! What the machine knows of who asks, beside what a request tells.

use std::os::unix::fs::MetadataExt;
use std::str::SplitAsciiWhitespace;
use std::{fs, iter};

use super::Context;

/// See proc_pid_status(5).
struct Status(String);

impl Status {
    /// That of the thread that calls. `None` where it cannot be asked, or is known to act for somebody else just now.
    fn of(cx: &Context<'_>) -> Option<Self> {
        // A thread of another pid namespace has the number 0, which is nobody's. Names of programs may be any bytes.
        let status = fs::read(format!("/proc/{}/status", cx.pid())).ok()?;
        let status = Self(String::from_utf8_lossy(&status).into_owned());
        let uid: u32 = status.words("Uid:")?.nth(3)?.parse().ok()?;
        (uid == cx.uid() || !cx.has_ids()).then_some(status)
    }

    fn words(&self, name: &str) -> Option<SplitAsciiWhitespace<'_>> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::split_ascii_whitespace)
    }

    fn groups(&self) -> Option<Vec<u32>> {
        let first = self.words("Gid:")?.nth(3)?;
        let all = iter::once(first).chain(self.words("Groups:")?);
        all.map(|group| group.parse().ok()).collect()
    }

    fn capabilities(&self) -> Option<u64> {
        u64::from_str_radix(self.words("CapEff:")?.next()?, 16).ok()
    }
}

impl Context<'_> {
    /// The groups of the calling thread, for a file system that checks permissions itself: the one for permissions (`fsgid`),
    /// then the supplementary ones, of which one may be the same. The kernel does not tell them with a request; they are read from
    /// /proc each time this is called, before the request is answered. `None` where they cannot be known: the thread is in another
    /// pid namespace or has ended, or it acts for somebody else just now, as a server of NFS does; then [`Context::gid`] is
    /// all there is.
    #[must_use]
    pub fn groups(&self) -> Option<Vec<u32>> {
        Status::of(self)?.groups()
    }

    /// Whether the calling thread has all of these effective capabilities in the user namespace of this process, a bit for each
    /// as in capabilities(7): bit 0 is `CAP_CHOWN`. Read, or not known, as [`Context::groups`] are. Where this process may
    /// not see the thread's namespace, that of user 0 is taken to be the same.
    #[must_use]
    pub fn is_capable(&self, capabilities: u64) -> Option<bool> {
        let lacks = capabilities & !self.capabilities()?;
        Some(lacks == 0 && self.shares_namespace().unwrap_or(self.uid() == 0))
    }

    fn shares_namespace(&self) -> Option<bool> {
        let of = |who: &str| {
            let namespace = fs::metadata(format!("/proc/{who}/ns/user")).ok()?;
            Some((namespace.dev(), namespace.ino()))
        };
        Some(of(&self.pid().to_string())? == of("self")?)
    }

    /// The effective capabilities of the calling thread in its own user namespace, bits as for [`Context::is_capable`], which
    /// is what to ask for permission: in a namespace of one's own, as unshare(1) makes it for anybody, one has all, over what
    /// belongs to the users and groups that it maps. Read, or not known, as [`Context::groups`] are.
    #[must_use]
    pub fn capabilities(&self) -> Option<u64> {
        Status::of(self)?.capabilities()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::sync::{Arc, Mutex};

    use bickford_abi::{GetattrIn, INVALID_UIDGID, InHeader, Opcode};
    use rustix::process::{Gid, getegid, geteuid, getgroups};
    use rustix::thread::{gettid, set_name, set_thread_groups};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::Blocking;
    use crate::filesystem::blocking::FileSystem;
    use crate::ops::{Attributes, Getattr};
    use crate::transport::memory::Kernel;

    const CHOWN: u64 = 1;

    /// Groups, capabilities, and whether `CHOWN` counts here.
    type Known = Option<(Vec<u32>, (u64, bool))>;

    #[derive(Clone, Default)]
    struct Asks(Arc<Mutex<Known>>);

    impl FileSystem for Asks {
        fn getattr(&self, cx: &Context<'_>, _: Getattr) -> crate::Result<Attributes> {
            let capabilities = cx.capabilities().zip(cx.is_capable(CHOWN));
            *self.0.lock().unwrap() = cx.groups().zip(capabilities);
            Err(crate::Errno::NOSYS)
        }
    }

    fn known_of(uid: u32, pid: u32) -> Known {
        let asks = Asks::default();
        let mut kernel = Kernel::new(Blocking(asks.clone()));
        kernel.init().unwrap();
        let header = InHeader {
            opcode: Opcode::Getattr as u32,
            unique: 4,
            nodeid: 1,
            uid,
            pid,
            ..InHeader::default()
        };
        kernel.send_with(header, GetattrIn::default().as_bytes());
        kernel.answer(4).unwrap();
        asks.0.lock().unwrap().take()
    }

    /// Of a thread that root has given other groups than the process has.
    fn check() {
        let (own, uid) = (gettid().as_raw_nonzero().get() as u32, geteuid().as_raw());
        set_name(c"n\xFFme").unwrap();
        let _ = set_thread_groups(&[4711, 12].map(Gid::from_raw));
        let groups = [getegid()].into_iter().chain(getgroups().unwrap());
        let wanted: Vec<u32> = groups.map(Gid::as_raw).collect();
        let (groups, (capabilities, counts)) = known_of(uid, own).unwrap();
        assert_eq!(groups, wanted);
        assert_eq!(uid == 0, capabilities & CHOWN != 0);
        assert_eq!(uid == 0, counts);
        // As for an id-mapped mount.
        assert!(known_of(INVALID_UIDGID, own).is_some());
        assert_eq!(known_of(uid + 1, own), None, "it acts for somebody else");
        assert_eq!(known_of(uid, 0), None, "it is in another pid namespace");
    }

    #[test]
    fn groups_and_capabilities_are_those_of_the_thread() {
        std::thread::spawn(check).join().unwrap();
    }

    #[test]
    fn capabilities_in_a_namespace_of_ones_own_do_not_count() {
        let mut child = Command::new("unshare")
            .args(["--user", "--map-root-user", "sh", "-c", "echo; read end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = child.stdout.as_mut().unwrap().read_exact(&mut [0]);
        let known = begun.map(|()| known_of(geteuid().as_raw(), child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        let Ok(known) = known else {
            crate::watchdog::say(format_args!("SKIPPED: no user namespace may be made"));
            return;
        };
        let (_, (capabilities, counts)) = known.unwrap();
        assert!(capabilities & CHOWN != 0 && !counts);
    }
}
