//! FORGET and BATCH_FORGET: the kernel drops references to inodes. Never answered.

use bickford_abi::{BatchForgetIn, ForgetIn, ForgetOne, InHeader, Opcode};

use crate::NodeId;
use crate::decode::{Cursor, Malformed};

/// The kernel gives back `count` lookups of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget {
    /// The inode.
    pub node: NodeId,
    /// By how much its lookup count falls.
    pub count: u64,
}

/// Hands the forgets of one request over, in groups, without allocating.
pub(crate) fn decode(
    opcode: Opcode,
    header: &InHeader,
    body: &mut Cursor<'_>,
    mut sink: impl FnMut(&[Forget]),
) -> Result<(), Malformed> {
    const GROUP: usize = 64;
    if opcode == Opcode::Forget {
        let input: ForgetIn = body.read()?;
        sink(&[Forget {
            node: NodeId(header.nodeid),
            count: input.nlookup,
        }]);
        return Ok(());
    }
    let input: BatchForgetIn = body.read()?;
    let count = input.count as usize;
    let bytes = body.rest();
    if bytes.len() / size_of::<ForgetOne>() < count {
        return Err(Malformed::Length {
            said: u64::from(input.count),
            held: bytes.len() as u64,
        });
    }
    let mut cursor = Cursor::new(bytes);
    let mut left = count;
    while left > 0 {
        let mut group = [Forget {
            node: NodeId(0),
            count: 0,
        }; GROUP];
        let filled = left.min(GROUP);
        for slot in group.iter_mut().take(filled) {
            let one: ForgetOne = cursor.read()?;
            *slot = Forget {
                node: NodeId(one.nodeid),
                count: one.nlookup,
            };
        }
        sink(group.get(..filled).unwrap_or_default());
        left -= filled;
    }
    Ok(())
}
