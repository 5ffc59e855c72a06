//! READLINK.

use bickford_abi::InHeader;

use super::{Answer, Data, Encoder, Encoding, Operation, Protocol};
use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// Asks what a symbolic link says (readlink(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Readlink {
    /// The link.
    pub node: NodeId,
}

impl Operation<'_> for Readlink {
    type Answer = Target;

    fn decode(header: &InHeader, _: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        Ok(Self {
            node: NodeId(header.nodeid),
        })
    }

    /// The kernel has a page for it, with a NUL byte at the end.
    fn room(&self) -> usize {
        rustix::param::page_size() - 1
    }
}

/// What a symbolic link says, without a NUL byte: less than a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target(pub Vec<u8>);

impl Answer for Target {
    fn encode(self, _: &Encoding, out: &mut Encoder) {
        out.data(Data::Bytes(self.0));
    }
}
