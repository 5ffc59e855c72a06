//! What the machine knows of who asks, beside what a request tells.

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

    /// The effective capabilities of the calling thread in its own user namespace, a bit for each as in capabilities(7):
    /// bit 0 is `CAP_CHOWN`. Read, or not known, as [`Context::groups`] are.
    #[must_use]
    pub fn capabilities(&self) -> Option<u64> {
        Status::of(self)?.capabilities()
    }
}

#[cfg(test)]
mod tests {
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

    type Known = Option<(Vec<u32>, u64)>;

    #[derive(Clone, Default)]
    struct Asks(Arc<Mutex<Known>>);

    impl FileSystem for Asks {
        fn getattr(&self, cx: &Context<'_>, _: Getattr) -> crate::Result<Attributes> {
            *self.0.lock().unwrap() = cx.groups().zip(cx.capabilities());
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
        let (groups, capabilities) = known_of(uid, own).unwrap();
        assert_eq!(groups, wanted);
        assert_eq!(uid == 0, capabilities & 1 != 0);
        // As for an id-mapped mount.
        assert!(known_of(INVALID_UIDGID, own).is_some());
        assert_eq!(known_of(uid + 1, own), None, "it acts for somebody else");
        assert_eq!(known_of(uid, 0), None, "it is in another pid namespace");
    }

    #[test]
    fn groups_and_capabilities_are_those_of_the_thread() {
        std::thread::spawn(check).join().unwrap();
    }
}
