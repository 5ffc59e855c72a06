//! The commands of ioctl(2) that mean something on files of every file system.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bickford::abi::IoctlFlags;
use bickford::ops::{Ioctl, IoctlAnswer, Keep, Kept};
use bickford::{Context, Reply};
use rustix::io::Errno;

use crate::Inner;
use crate::invalidation::{answer_after_invalidation, forget_attributes_now};
use crate::io::Need;
use crate::sys;

const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_VERSION: u32 = 0x8008_7601;
const GET_XATTR: u32 = 0x801c_581f;
const SET_XATTR: u32 = 0x401c_5820;
/// `FS_IMMUTABLE_FL` and `FS_APPEND_FL`, of [`SET_FLAGS`].
const PROTECTING_FLAGS: u32 = 0x10 | 0x20;
/// `FS_XFLAG_IMMUTABLE` and `FS_XFLAG_APPEND`, of [`SET_XATTR`].
const PROTECTING_XFLAGS: u32 = 0x8 | 0x10;
/// The largest argument of the commands above: `struct fsxattr`.
const ARGUMENT_BYTES: usize = 28;

impl Inner {
    pub(crate) fn do_ioctl(&self, cx: &Context<'_>, op: &Ioctl<'_>) -> Result<IoctlAnswer, Errno> {
        if !matches!(
            op.command,
            GET_FLAGS | SET_FLAGS | GET_VERSION | GET_XATTR | SET_XATTR
        ) {
            return Err(Errno::NOTTY);
        }
        let fd: Arc<OwnedFd> = match op.flags.contains(IoctlFlags::DIR) {
            true => self.dir(op.node, op.handle)?,
            false => self.file(op.node, op.handle, Need::Read)?,
        };
        let mut argument = [0; ARGUMENT_BYTES];
        argument
            .get_mut(..op.input.len())
            .ok_or(Errno::INVAL)?
            .copy_from_slice(op.input);
        // The kernel checks who may change flags where it knows of them; where it does not, the
        // lower file system shall, for the caller and not for us. One that does not tell the caller does.
        self.identity.with_fsetid()?;
        let for_caller = changes(op) && cx.uid() != 0 && cx.has_ids();
        let acting = self.as_caller_if(for_caller, cx)?;
        let result = sys::ioctl_buffer(fd.as_fd(), op.command, &mut argument)?;
        drop(acting);
        if protects(op) {
            // A descriptor from before may go on writing, but is not for those who open the file from now on.
            self.on_demand_writers.remove(op.node.0);
            self.backings.renew(op.node.0);
        }
        let mut output = Vec::new();
        if changes(op) {
            // The kernel does not know that the command changes the time of last change.
            forget_attributes_now(cx, op.node, "its flags have changed");
        } else {
            let length = (op.output_size as usize).min(ARGUMENT_BYTES);
            output.extend_from_slice(argument.get(..length).unwrap_or_default());
        }
        Ok(IoctlAnswer { result, output })
    }
}

/// Makes a file immutable or append-only when the kernel has written back what it caches of it: afterwards the
/// lower file system would refuse that.
pub(crate) fn protect_after_data(
    inner: &Arc<Inner>,
    cx: &Context<'_>,
    op: &Ioctl<'_>,
    reply: Reply<IoctlAnswer>,
) {
    let (inner, detached, kept) = (Arc::clone(inner), cx.detach(), op.keep(true));
    answer_after_invalidation(cx, op.node, 0, reply, move |told| {
        told.map_err(|_| Errno::AGAIN)?;
        inner.do_ioctl(&detached.context(), &kept.operation())
    });
}

fn changes(op: &Ioctl<'_>) -> bool {
    matches!(op.command, SET_FLAGS | SET_XATTR)
}

/// Whether the file is made immutable or append-only. Both commands begin with a word of flags.
pub(crate) fn protects(op: &Ioctl<'_>) -> bool {
    let protecting = match op.command {
        SET_FLAGS => PROTECTING_FLAGS,
        SET_XATTR => PROTECTING_XFLAGS,
        _ => return false,
    };
    let flags = op.input.first_chunk().copied().map(u32::from_ne_bytes);
    flags.is_some_and(|flags| flags & protecting != 0)
}
