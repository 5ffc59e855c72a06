//! Notifications as bytes.

use std::ffi::CStr;

use bickford_abi::{self as abi, ExpireFlags, NotifyCode};
use zerocopy::IntoBytes;

use super::{Message, NotifyError};
use crate::NodeId;

/// The longest name that any kernel takes, in bytes (`FUSE_NAME_MAX` of Linux 6.18). Older ones, and those
/// whose requests have one page at most, take 1,024.
pub const NAME_MAX: usize = 4095;

/// Nodes of one message. The kernel takes more, but not as many as there may be.
const PRUNE_MAX: usize = 4096;

pub(super) fn inode(node: NodeId, offset: i64, length: i64) -> Vec<u8> {
    let out = abi::NotifyInvalInodeOut {
        ino: node.0,
        off: offset,
        len: length,
    };
    out.as_bytes().to_vec()
}

pub(super) fn entry(
    parent: NodeId,
    name: &CStr,
    flags: ExpireFlags,
) -> Result<Vec<u8>, NotifyError> {
    let out = abi::NotifyInvalEntryOut {
        parent: parent.0,
        namelen: length_of(name)?,
        flags: flags.bits(),
    };
    Ok(named(out.as_bytes(), name))
}

pub(super) fn removed(parent: NodeId, child: NodeId, name: &CStr) -> Result<Vec<u8>, NotifyError> {
    let out = abi::NotifyDeleteOut {
        parent: parent.0,
        child: child.0,
        namelen: length_of(name)?,
        padding: 0,
    };
    Ok(named(out.as_bytes(), name))
}

pub(super) fn stored(node: NodeId, offset: u64, data: &[u8]) -> Vec<u8> {
    let out = abi::NotifyStoreOut {
        nodeid: node.0,
        offset,
        size: u32::try_from(data.len()).unwrap_or(u32::MAX),
        padding: 0,
    };
    [out.as_bytes(), data].concat()
}

fn pruned(nodes: &[NodeId]) -> impl Iterator<Item = Vec<u8>> {
    nodes.chunks(PRUNE_MAX).map(|nodes| {
        let out = abi::NotifyPruneOut {
            count: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            ..abi::NotifyPruneOut::default()
        };
        let mut bytes = out.as_bytes().to_vec();
        bytes.extend(nodes.iter().flat_map(|node| node.0.to_ne_bytes()));
        bytes
    })
}

/// What asks the kernel to forget inodes.
pub(super) fn prunes(nodes: &[NodeId]) -> impl Iterator<Item = Message> {
    pruned(nodes).map(|bytes| Message {
        code: NotifyCode::Prune,
        bytes,
        done: None,
    })
}

fn named(fixed: &[u8], name: &CStr) -> Vec<u8> {
    [fixed, name.to_bytes_with_nul()].concat()
}

/// The length of a name that a file may have.
fn length_of(name: &CStr) -> Result<u32, NotifyError> {
    let bytes = name.to_bytes();
    if bytes.is_empty() || bytes.len() > NAME_MAX || bytes.contains(&b'/') {
        return Err(NotifyError::Name);
    }
    u32::try_from(bytes.len()).map_err(|_| NotifyError::Name)
}
