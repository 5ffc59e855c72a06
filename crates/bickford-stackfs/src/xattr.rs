//! Extended attributes, among them POSIX ACLs.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bickford::ops::{Getxattr, Listxattr, Removexattr, Setxattr, XattrAnswer};
use bickford::{Context, NodeId, Reply};
use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::Inner;
use crate::caller::is_capable;
use crate::invalidation::{answer_after_invalidation, warn_of_stale_attributes};
use crate::node::ProcFd;

/// The kernel's `XATTR_SIZE_MAX` and `XATTR_LIST_MAX`.
const XATTR_BYTES_MAX: usize = 64 << 10;

const CAPABILITY: &CStr = c"security.capability";
const ACCESS_ACL: &CStr = c"system.posix_acl_access";

/// Where the lower file system has no ACLs, nobody has one; the kernel takes any other error as
/// "no permission".
fn lower_error(name: &CStr, error: Errno) -> Errno {
    let acl = name.to_bytes().starts_with(b"system.posix_acl_");
    if acl && error == Errno::OPNOTSUPP {
        Errno::NODATA
    } else {
        error
    }
}

/// Whether the lower file system alone says who may read and set it: ACLs of NFS and CIFS, attributes of NTFS.
/// Of other names the kernel has asked what it would ask below; of ACLs it asks who owns the file.
fn is_for_lower(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(b"system.") && !name.starts_with(b"system.posix_acl_")
}

/// Reads what is `size` bytes at most, or only asks for its length when that is zero: rustix answers a
/// read into no bytes with no bytes, whatever there is.
fn fetch(
    size: u32,
    length: impl FnOnce() -> Result<usize, Errno>,
    read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> Result<XattrAnswer, Errno> {
    if size == 0 {
        let length = length()?;
        return Ok(XattrAnswer::Length(
            u32::try_from(length).unwrap_or(u32::MAX),
        ));
    }
    let mut value = vec![0; (size as usize).min(XATTR_BYTES_MAX)];
    let length = read(&mut value)?;
    value.truncate(length);
    Ok(XattrAnswer::Value(value))
}

impl Inner {
    /// A path to the inode itself, even a symbolic link, valid while the descriptor lives.
    fn path_of(&self, node: NodeId) -> Result<(Arc<OwnedFd>, String), Errno> {
        let fd = self.nodes.object(node.0)?;
        let path = ProcFd::path(fd.as_fd());
        Ok((fd, path))
    }

    /// ENOSYS has the kernel refuse further ones by itself, with EOPNOTSUPP.
    fn served(&self) -> Result<(), Errno> {
        match self.settings.xattr {
            true => Ok(()),
            false => Err(Errno::NOSYS),
        }
    }

    pub(crate) fn do_getxattr(
        &self,
        cx: &Context<'_>,
        op: &Getxattr<'_>,
    ) -> Result<XattrAnswer, Errno> {
        self.served()?;
        let become_caller = || self.as_caller_if(is_for_lower(op.name), cx);
        // The kernel asks for security.capability at the first write to a file, which is open then.
        let answer = if let Some(fd) = self.lower_files.any(op.node.0) {
            let _acting = become_caller()?;
            fetch(
                op.size,
                || rustix::fs::fgetxattr_query(&fd, op.name),
                |buffer| rustix::fs::fgetxattr(&fd, op.name, buffer),
            )
        } else {
            let (_fd, path) = self.path_of(op.node)?;
            let _acting = become_caller()?;
            fetch(
                op.size,
                || rustix::fs::getxattr_query(path.as_str(), op.name),
                |buffer| rustix::fs::getxattr(path.as_str(), op.name, buffer),
            )
        };
        answer.map_err(|error| lower_error(op.name, error))
    }

    pub(crate) fn do_setxattr(&self, cx: &Context<'_>, op: &Setxattr<'_>, reply: Reply<()>) {
        if op.name == CAPABILITY && self.may_be_dirty(op.node) {
            return self.set_after_data(cx, op, reply);
        }
        reply.complete(self.set(cx, op));
    }

    /// The lower file system takes the attribute away with each write, and so with one that is written back
    /// later; for a change of the owner or of times the kernel writes back first by itself.
    fn set_after_data(&self, cx: &Context<'_>, op: &Setxattr<'_>, reply: Reply<()>) {
        let place = self.served().and_then(|()| self.path_of(op.node));
        let (fd, path) = match place {
            Ok(place) => place,
            Err(error) => return reply.error(error),
        };
        let (name, value) = (op.name.to_owned(), op.value.to_vec());
        let flags = XattrFlags::from_bits(op.flags).ok_or(Errno::INVAL);
        let (node, notifier) = (op.node, cx.notifier().clone());
        answer_after_invalidation(cx, node, 0, reply, move |told| {
            told.map_err(|_| Errno::AGAIN)?;
            let _valid = fd;
            rustix::fs::setxattr(path.as_str(), name, &value, flags?)?;
            // Somebody may have asked for them since.
            if let Err(error) = notifier.forget_attributes(node) {
                warn_of_stale_attributes(node, "a capability was set", error);
            }
            Ok(())
        });
    }

    fn set(&self, cx: &Context<'_>, op: &Setxattr<'_>) -> Result<(), Errno> {
        self.served()?;
        self.identity.with_fsetid()?;
        let (fd, path) = self.path_of(op.node)?;
        let flags = XattrFlags::from_bits(op.flags).ok_or(Errno::INVAL)?;
        let acting = self.as_caller_if(is_for_lower(op.name), cx)?;
        rustix::fs::setxattr(path.as_str(), op.name, op.value, flags)?;
        drop(acting);
        // The kernel says so of default ACLs, too, which are no part of the mode.
        if op.kill_sgid && op.name == ACCESS_ACL {
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
            if mode.contains(Mode::SGID) {
                self.set_mode(fd.as_fd(), (mode - Mode::SGID).as_raw_mode())?;
            }
        }
        Ok(())
    }

    pub(crate) fn do_listxattr(
        &self,
        cx: &Context<'_>,
        op: &Listxattr,
    ) -> Result<XattrAnswer, Errno> {
        self.served()?;
        let (_fd, path) = self.path_of(op.node)?;
        let mut names = vec![0; XATTR_BYTES_MAX];
        let length = rustix::fs::listxattr(path.as_str(), &mut names[..])?;
        names.truncate(length);
        let is_trusted = |name: &[u8]| name.starts_with(b"trusted.");
        let all = || names.split_inclusive(|&byte| byte == 0);
        // Only the privileged see them, and that is what we are to the lower.
        if !all().any(is_trusted) || is_capable(cx, CapabilitySet::SYS_ADMIN) {
            return XattrAnswer::fit(names, op.size);
        }
        let shown = all().filter(|name| !is_trusted(name));
        XattrAnswer::fit(shown.flatten().copied().collect(), op.size)
    }

    pub(crate) fn do_removexattr(
        &self,
        cx: &Context<'_>,
        op: &Removexattr<'_>,
    ) -> Result<(), Errno> {
        self.served()?;
        self.identity.with_fsetid()?;
        let (_fd, path) = self.path_of(op.node)?;
        let _acting = self.as_caller_if(is_for_lower(op.name), cx)?;
        rustix::fs::removexattr(path.as_str(), op.name)
    }
}
