//! What every operation and every answer have in common, for layers that treat them alike.

use std::ffi::CStr;

use bickford_abi::OpenOutFlags;
use rustix::io::Errno;

use super::OperationKind;
use crate::ops::{
    Access, Answer, Attr, Attributes, Block, Bmap, Copied, CopyFileRange, Create, Created, Data,
    Directory, Entry, Fallocate, Flush, Fsync, Fsyncdir, Getattr, Getlk, Getxattr, Ioctl,
    IoctlAnswer, Link, Listxattr, Lock, Lookup, Lseek, Mkdir, Mknod, Offset, Open, Opendir, Opened,
    Poll, PollAnswer, Read, Readdir, Readdirplus, Readlink, Release, Releasedir, Removexattr,
    Rename, Rmdir, Setattr, Setlk, Setxattr, Statfs, StatfsAnswer, Statx, StatxAnswer, Symlink,
    Syncfs, Target, Tmpfile, Unlink, Write, Written, XattrAnswer,
};
use crate::{FileHandle, NodeId};

/// An operation's arguments as far as operations have them in common.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct About<'a> {
    /// The operation.
    pub kind: OperationKind,
    /// The inode; for an operation on a name, its directory.
    pub node: NodeId,
    /// The name in the directory `node`.
    pub name: Option<&'a CStr>,
    /// The new name of RENAME and LINK, and its directory.
    pub new_name: Option<(NodeId, &'a CStr)>,
    /// The open file.
    pub handle: Option<FileHandle>,
    /// Where a range begins, in bytes.
    pub offset: Option<u64>,
    /// Length of a range, or the size that is set, in bytes.
    pub length: Option<u64>,
    /// Flags of open(2); for RENAME those of renameat2(2).
    pub flags: Option<u32>,
    /// The extended attribute.
    pub xattr: Option<&'a CStr>,
}

impl About<'_> {
    fn new(kind: OperationKind, node: NodeId) -> Self {
        Self {
            kind,
            node,
            name: None,
            new_name: None,
            handle: None,
            offset: None,
            length: None,
            flags: None,
            xattr: None,
        }
    }
}

/// What an operation is about, for a layer whose method of its own wants what
/// [`super::PostCalls::every`] gets.
#[allow(
    private_bounds,
    reason = "every operation is described, and nothing else"
)]
pub fn about<O: Describe>(operation: &O) -> About<'_> {
    operation.about()
}

/// Operations that can say what they are about.
pub(super) trait Describe: Copy {
    /// The operation.
    const KIND: OperationKind;

    /// What it is about.
    fn about(&self) -> About<'_>;

    /// Takes out the contents that it brings.
    fn conceal(&mut self) {}

    /// Puts back what was taken out.
    fn reveal(&mut self, given: &Self) {
        let _ = given;
    }
}

macro_rules! describe {
    ($($operation:ident $(<$lt:lifetime>)? |$op:ident| $node:expr $(, $field:ident: $value:expr)*;)+) => {
        $(
            impl Describe for $operation $(<$lt>)? {
                const KIND: OperationKind = OperationKind::$operation;

                #[inline]
                fn about(&self) -> About<'_> {
                    let $op = self;
                    About {
                        $($field: $value,)*
                        ..About::new(Self::KIND, $node)
                    }
                }
            }
        )+
    };
}

describe! {
    Lookup<'_> |op| op.parent, name: Some(op.name);
    Getattr |op| op.node, handle: op.handle;
    Setattr |op| op.node, handle: op.handle, length: op.size;
    Readlink |op| op.node;
    Symlink<'_> |op| op.parent, name: Some(op.name);
    Mknod<'_> |op| op.parent, name: Some(op.name);
    Mkdir<'_> |op| op.parent, name: Some(op.name);
    Unlink<'_> |op| op.parent, name: Some(op.name);
    Rmdir<'_> |op| op.parent, name: Some(op.name);
    Rename<'_> |op| op.parent, name: Some(op.name), new_name: Some((op.new_parent, op.new_name)), flags: Some(op.flags.bits());
    Link<'_> |op| op.node, new_name: Some((op.new_parent, op.new_name));
    Open |op| op.node, flags: Some(op.flags);
    Read |op| op.node, handle: Some(op.handle), offset: Some(op.offset), length: Some(u64::from(op.size)), flags: Some(op.flags);
    Statfs |op| op.node;
    Release |op| op.node, handle: Some(op.handle), flags: Some(op.flags);
    Fsync |op| op.node, handle: Some(op.handle);
    Setxattr<'_> |op| op.node, xattr: Some(op.name), length: Some(op.value.len() as u64);
    Getxattr<'_> |op| op.node, xattr: Some(op.name), length: Some(u64::from(op.size));
    Listxattr |op| op.node, length: Some(u64::from(op.size));
    Removexattr<'_> |op| op.node, xattr: Some(op.name);
    Flush |op| op.node, handle: Some(op.handle);
    Opendir |op| op.node, flags: Some(op.flags);
    Readdir |op| op.node, handle: Some(op.handle), offset: Some(op.offset), length: Some(u64::from(op.size));
    Readdirplus |op| op.node, handle: Some(op.handle), offset: Some(op.offset), length: Some(u64::from(op.size));
    Releasedir |op| op.node, handle: Some(op.handle);
    Fsyncdir |op| op.node, handle: Some(op.handle);
    Getlk |op| op.node, handle: Some(op.handle), offset: Some(op.lock.start);
    Setlk |op| op.node, handle: Some(op.handle), offset: Some(op.lock.start);
    Access |op| op.node;
    Create<'_> |op| op.parent, name: Some(op.name), flags: Some(op.flags);
    Bmap |op| op.node, offset: Some(op.block);
    Ioctl<'_> |op| op.node, handle: Some(op.handle);
    Poll |op| op.node, handle: Some(op.handle);
    Fallocate |op| op.node, handle: Some(op.handle), offset: Some(op.offset), length: Some(op.length);
    Lseek |op| op.node, handle: Some(op.handle), offset: Some(op.offset);
    CopyFileRange |op| op.node_in, handle: Some(op.handle_in), offset: Some(op.offset_in), length: Some(op.length);
    Syncfs |op| op.node;
    Tmpfile |op| op.parent, flags: Some(op.flags);
    Statx |op| op.node, handle: op.handle;
}

impl Describe for Write<'_> {
    const KIND: OperationKind = OperationKind::Write;

    #[inline]
    fn about(&self) -> About<'_> {
        About {
            handle: Some(self.handle),
            offset: Some(self.offset),
            length: Some(self.data.len() as u64),
            flags: Some(self.flags),
            ..About::new(Self::KIND, self.node)
        }
    }

    fn conceal(&mut self) {
        self.data = self.data.hidden();
    }

    fn reveal(&mut self, given: &Self) {
        self.data = given.data;
    }
}

/// A result as far as results have something in common.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// The error, if it is one.
    pub errno: Option<Errno>,
    /// The entry that was found or made; may be negative.
    pub entry: Option<Entry>,
    /// The attributes of an inode.
    pub attr: Option<Attr>,
    /// The file or directory that was opened.
    pub opened: Option<Opened>,
    /// Bytes that were read, written or listed.
    pub bytes: u64,
}

/// Nodes whose lookup count an answer raises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Nodes {
    None,
    One(NodeId),
    Many(Vec<NodeId>),
}

impl Nodes {
    fn into_vec(self) -> Vec<NodeId> {
        match self {
            Self::None => Vec::new(),
            Self::One(node) => vec![node],
            Self::Many(nodes) => nodes,
        }
    }

    /// Those that `told` does not have, each as often as it lacks.
    pub(super) fn without(self, told: Self) -> Vec<NodeId> {
        let mut told = told.into_vec();
        let mut untold = self.into_vec();
        untold.retain(|node| {
            let at = told.iter().position(|other| other == node);
            at.map(|at| told.swap_remove(at)).is_none()
        });
        untold
    }
}

/// Answers that can say what they hold.
pub(super) trait Observe: Answer {
    /// What is common.
    fn outcome(&self) -> Outcome {
        Outcome::default()
    }

    /// The handle of what was opened.
    fn handle(&self) -> Option<FileHandle> {
        None
    }

    /// The nodes whose lookup count it raises, each as often as it does.
    #[inline]
    fn nodes(&self) -> Nodes {
        Nodes::None
    }

    /// Takes back what spares the kernel FLUSH; asked of answers to [`super::needs::SPARING`].
    fn ask_for_flushes(result: &mut Result<Self, Errno>) {
        let _ = result;
    }

    /// Takes out the contents that it brings.
    fn conceal(&mut self) -> Option<Data> {
        None
    }

    /// Puts back what was taken out.
    fn reveal(&mut self, data: Data) {
        let _ = data;
    }
}

/// What is common in a result, for a layer whose method of its own wants what
/// [`super::PostCalls::every`] gets.
#[allow(private_bounds, reason = "every answer is observed, and nothing else")]
pub fn outcome<A: Observe>(result: &Result<A, Errno>) -> Outcome {
    match result {
        Ok(answer) => answer.outcome(),
        Err(errno) => Outcome {
            errno: Some(*errno),
            ..Outcome::default()
        },
    }
}

macro_rules! observe {
    ($($answer:ty $(, |$this:ident| $field:ident: $value:expr)?;)+) => {
        $(
            impl Observe for $answer {
                #[inline]
                fn outcome(&self) -> Outcome {
                    $(let $this = self;)?
                    Outcome {
                        $($field: $value,)?
                        ..Outcome::default()
                    }
                }
            }
        )+
    };
}

impl Observe for () {
    fn ask_for_flushes(result: &mut Result<Self, Errno>) {
        if *result == Err(Errno::NOSYS) {
            *result = Ok(());
        }
    }
}

observe! {
    Attributes, |this| attr: Some(this.attr);
    StatxAnswer, |this| attr: Some(this.attr);
    Target, |this| bytes: this.0.len() as u64;
    Written, |this| bytes: u64::from(this.0);
    Copied, |this| bytes: this.0;
    StatfsAnswer;
    XattrAnswer, |this| bytes: match this {
        XattrAnswer::Length(_) => 0,
        XattrAnswer::Value(value) => value.len() as u64,
    };
    Lock;
    Block;
    IoctlAnswer, |this| bytes: this.output.len() as u64;
    PollAnswer;
    Offset;
}

fn counted(entry: &Entry) -> Option<NodeId> {
    (!entry.is_negative()).then_some(entry.node)
}

impl Observe for Entry {
    #[inline]
    fn outcome(&self) -> Outcome {
        Outcome {
            entry: Some(*self),
            attr: counted(self).map(|_| self.attr),
            ..Outcome::default()
        }
    }

    #[inline]
    fn nodes(&self) -> Nodes {
        counted(self).map_or(Nodes::None, Nodes::One)
    }
}

impl Observe for Opened {
    #[inline]
    fn outcome(&self) -> Outcome {
        Outcome {
            opened: Some(*self),
            ..Outcome::default()
        }
    }

    fn handle(&self) -> Option<FileHandle> {
        Some(self.handle)
    }

    fn ask_for_flushes(result: &mut Result<Self, Errno>) {
        if let Ok(opened) = result {
            opened.flags -= OpenOutFlags::NOFLUSH;
        }
    }
}

impl Observe for Created {
    fn handle(&self) -> Option<FileHandle> {
        Some(self.opened.handle)
    }

    fn ask_for_flushes(result: &mut Result<Self, Errno>) {
        if let Ok(created) = result {
            created.opened.flags -= OpenOutFlags::NOFLUSH;
        }
    }

    #[inline]
    fn outcome(&self) -> Outcome {
        Outcome {
            opened: Some(self.opened),
            ..self.entry.outcome()
        }
    }

    #[inline]
    fn nodes(&self) -> Nodes {
        self.entry.nodes()
    }
}

impl Observe for Directory {
    #[inline]
    fn outcome(&self) -> Outcome {
        Outcome {
            bytes: self.as_bytes().len() as u64,
            ..Outcome::default()
        }
    }

    #[inline]
    fn nodes(&self) -> Nodes {
        if !self.is_plus() {
            return Nodes::None;
        }
        let names = self.iter();
        let others = names.filter(|(name, _)| name.name != b"." && name.name != b"..");
        Nodes::Many(others.filter_map(|(_, entry)| counted(&entry?)).collect())
    }
}

impl Observe for Data {
    #[inline]
    fn outcome(&self) -> Outcome {
        Outcome {
            bytes: self.present() as u64,
            ..Outcome::default()
        }
    }

    fn conceal(&mut self) -> Option<Data> {
        Some(std::mem::take(self))
    }

    fn reveal(&mut self, data: Data) {
        *self = data;
    }
}
