//! One file per operation: what the kernel asks, what is answered, and how both look as bytes.

mod attr;
mod data;
mod directory;
mod encode;
mod table;

mod access;
mod bmap;
mod copy_file_range;
mod create;
mod fallocate;
mod flush;
mod forget;
mod fsync;
mod getattr;
mod init;
mod ioctl;
mod kept;
mod link;
mod lock;
mod lookup;
mod lseek;
mod make;
mod open;
mod poll;
mod read;
mod readdir;
mod readlink;
mod release;
mod remove;
mod rename;
mod setattr;
mod statfs;
mod statx;
mod syncfs;
mod write;
mod xattr;

pub use access::Access;
pub use attr::{Attr, Attributes, Entry, Timestamp, decode_device, encode_device};
pub use bmap::{Block, Bmap};
pub use copy_file_range::{Copied, CopyFileRange};
pub use create::{Create, Created, Tmpfile};
pub use data::{Data, FileRange, Payload};
pub use directory::{Directory, DirectoryEntry};
pub use encode::{Encoder, Encoding};
pub use fallocate::Fallocate;
pub use flush::Flush;
pub use forget::Forget;
pub(crate) use forget::decode as decode_forgets;
pub use fsync::{Fsync, Fsyncdir};
pub use getattr::Getattr;
pub use init::Protocol;
pub use ioctl::{Ioctl, IoctlAnswer};
pub use kept::{Keep, Kept, Named, WithBytes};
pub use link::Link;
pub use lock::{Getlk, Lock, LockKind, Setlk};
pub use lookup::Lookup;
pub use lseek::{Lseek, Offset};
pub use make::{Mkdir, Mknod, Symlink};
pub use open::{Open, Opendir, Opened};
pub use poll::{Poll, PollAnswer, PollHandle};
pub use read::Read;
pub use readdir::{Readdir, Readdirplus};
pub use readlink::{Readlink, Target};
pub use release::{Release, Releasedir};
pub use remove::{Rmdir, Unlink};
pub use rename::Rename;
pub use setattr::{SetTime, Setattr};
pub use statfs::{Statfs, StatfsAnswer};
pub use statx::{Statx, StatxAnswer};
pub use syncfs::Syncfs;
pub(crate) use table::for_each_operation;
pub use write::{Write, Written};
pub use xattr::{Getxattr, Listxattr, Removexattr, Setxattr, XattrAnswer};

use std::time::Duration;

use bickford_abi::{InHeader, Opcode};

use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// What the kernel asks of a file system, borrowed from the bytes that it sent.
pub trait Operation<'a>: Sized {
    /// What it is answered with.
    type Answer: Answer;

    /// Reads the operation.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not such an operation.
    fn decode(
        header: &InHeader,
        body: &mut Cursor<'a>,
        protocol: &Protocol,
    ) -> Result<Self, Malformed>;

    /// How many bytes the kernel takes as an answer at most; it refuses a longer one. By default: no
    /// answer of this kind is too long.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// How many bytes are to be written or copied. By default: it moves none.
    fn to_move(&self) -> u64 {
        0
    }

    /// The file whose contents the kernel writes back from its cache by this operation. By default: none.
    fn written_back(&self) -> Option<NodeId> {
        None
    }

    /// What it does with attributes that the kernel may keep. By default: nothing.
    fn touched(&self, _protocol: &Protocol) -> Touched {
        Touched::Nothing
    }
}

/// What an operation does with attributes that the kernel may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// Nothing, or the kernel itself sees to what crosses it.
    Nothing,
    /// It asks for those of its node (GETATTR, STATX).
    Asks,
    /// It asks for those of a node that its answer names (LOOKUP).
    Finds,
    /// It asks for those of anything in a directory (READDIRPLUS).
    Lists,
    /// It changes some so that the kernel drops them, without more, when it is answered.
    Changes {
        /// Of which nodes; zero for none.
        nodes: [NodeId; 2],
        /// Whether a name is removed of something that may have others.
        removes: bool,
    },
}

impl Touched {
    /// A node's attributes are changed, and no name is removed of anything that may have others.
    #[must_use]
    pub fn changes(node: NodeId) -> Self {
        Self::Changes {
            nodes: [node, NodeId(0)],
            removes: false,
        }
    }
}

/// What an operation is answered with when it succeeds.
pub trait Answer: Sized + Send + 'static {
    /// How many bytes were written or copied: no more than there were to move. By default: it moves none.
    fn moved(&self) -> u64 {
        0
    }

    /// Why the kernel would not take this as an answer to `opcode`. It gives the caller EIO then without a
    /// word, and for some answers to everybody who uses the inode from then on; so whoever answers is told.
    /// By default: it takes it.
    fn flaw(&self, _opcode: Opcode) -> Option<&'static str> {
        None
    }

    /// Calls `tell` with each node whose attributes the answer has, these, and for how long they may be kept, which may
    /// be made less where the answer is about one node. `asked` is the node of the request. Of a listing, with nodes that
    /// have several names alone, or with all where one is `losing` a name. By default: it has none.
    fn tells(
        &mut self,
        _asked: NodeId,
        _losing: bool,
        _tell: &mut dyn FnMut(NodeId, &Attr, &mut Duration),
    ) {
    }

    /// Writes the answer as the kernel reads it.
    fn encode(self, encoding: &Encoding, out: &mut Encoder);
}

impl Answer for () {
    fn encode(self, _: &Encoding, _: &mut Encoder) {}
}
