//! Files whose contents are made when they are read, as below /proc and /sys.
//!
//! Their file systems ask who opens, reads and writes them, whatever the mode says: the addresses of a process are
//! told to whom may trace it, and a process goes into another cgroup for whom both belong to. So whoever calls
//! opens, reads and writes them with its own rights, which are those of its user and group alone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bickford::ops::{Data, FileRange, Read, Target};
use bickford::{Context, NodeId};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::Inner;
use crate::create::caller;
use crate::credentials::Acting;
use crate::io::Need;
use crate::leases::{AT_ONCE, LEASE_PATIENCE};
use crate::magic::{Traits, magic};

/// More than any of these files makes at once.
const READ_MAX: usize = 1 << 20;

impl Inner {
    /// What the file system of an open object does.
    pub(crate) fn traits(&self, node: u64, fd: BorrowedFd<'_>) -> Traits {
        match self.nodes.on_source(node) {
            true => self.beneath.source,
            false => magic(fd).map(Traits::of_magic).unwrap_or_default(),
        }
    }

    /// Whether the file system of an open object makes contents when they are read.
    pub(crate) fn is_computed(&self, node: u64, fd: BorrowedFd<'_>) -> bool {
        self.traits(node, fd).computed
    }

    /// Acts for the caller where `computed`.
    pub(crate) fn as_caller_if(
        &self,
        computed: bool,
        cx: &Context<'_>,
    ) -> Result<Option<Acting<'_>>, Errno> {
        let acting = computed.then(|| self.identity.become_caller(caller(cx)));
        acting.transpose()
    }

    /// Opens the lower file of a node that the kernel lets the caller open. EWOULDBLOCK while a lease is in the
    /// way.
    pub(crate) fn open_for(
        &self,
        cx: &Context<'_>,
        node: u64,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        if self.nodes.on_source(node) && !self.beneath.source.computed {
            return self.nodes.open(node, flags | AT_ONCE);
        }
        let object = self.nodes.object(node)?;
        if !self.is_computed(node, object.as_fd()) {
            return self.nodes.open(node, flags | AT_ONCE);
        }
        let _acting = self.as_caller_if(true, cx)?;
        // Some have nothing to read until something happens (/proc/kmsg, trace_pipe).
        let patience = match flags.intersects(OFlags::RWMODE) {
            true => OFlags::empty(),
            false => AT_ONCE,
        };
        self.nodes.proc().reopen(object.as_fd(), flags | patience)
    }

    /// How long EWOULDBLOCK to a READ is no answer, where that has an end.
    pub(crate) fn patience(&self, op: &Read) -> Option<Duration> {
        let file = self.files.get(op.handle.0);
        if !file.is_ok_and(|file| file.computed) {
            return Some(LEASE_PATIENCE);
        }
        let at_once = OFlags::from_bits_retain(op.flags).contains(OFlags::NONBLOCK);
        at_once.then_some(Duration::ZERO)
    }

    /// Opens a file that the kernel has opened without asking. EPERM for a computed one that is to be written:
    /// what its cache holds may be anybody's.
    pub(crate) fn open_unasked(
        &self,
        node: u64,
        flags: OFlags,
        need: Need,
    ) -> Result<OwnedFd, Errno> {
        let fd = self.nodes.open(node, flags)?;
        match need == Need::Write && self.is_computed(node, fd.as_fd()) {
            true => Err(Errno::PERM),
            false => Ok(fd),
        }
    }

    pub(crate) fn do_read(&self, cx: &Context<'_>, op: &Read) -> Result<Data, Errno> {
        let (file, computed) = self.file_or_computed(op.node, op.handle, Need::Read, AT_ONCE)?;
        match computed {
            true => self.read_computed(cx, op, &file),
            false => Ok(Data::File(FileRange {
                file,
                offset: op.offset,
                length: op.size as usize,
            })),
        }
    }

    /// At once: what answers a range of a file reads it as this process.
    fn read_computed(
        &self,
        cx: &Context<'_>,
        op: &Read,
        file: &Arc<OwnedFd>,
    ) -> Result<Data, Errno> {
        let mut bytes = vec![0; (op.size as usize).min(READ_MAX)];
        let _acting = self.as_caller_if(true, cx)?;
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(file, rest, op.offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        bytes.truncate(done);
        Ok(Data::Bytes(bytes))
    }

    pub(crate) fn do_readlink(&self, cx: &Context<'_>, node: NodeId) -> Result<Target, Errno> {
        let fd = self.nodes.object(node.0)?;
        let _acting = self.as_caller_if(self.is_computed(node.0, fd.as_fd()), cx)?;
        let target = rustix::fs::readlinkat(&fd, c"", Vec::new())?;
        Ok(Target(target.into_bytes()))
    }
}
