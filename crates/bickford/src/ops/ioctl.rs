//! IOCTL: device-specific commands.

use bickford_abi::{InHeader, IoctlFlags, IoctlIn, IoctlOut};

use super::{Answer, Data, Encoder, Encoding, Operation, Protocol};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, NodeId};

/// A device-specific command on an open file (ioctl(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Ioctl<'a> {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Whether the file is a directory, the caller 32-bit, and so on.
    pub flags: IoctlFlags,
    /// The command.
    pub command: u32,
    /// The third argument of ioctl(2) as the caller passed it.
    pub argument: u64,
    /// What the argument points to, where the command says that it is read.
    pub input: &'a [u8],
    /// How many bytes the caller's buffer takes.
    pub output_size: u32,
}

impl<'a> Operation<'a> for Ioctl<'a> {
    type Answer = IoctlAnswer;

    fn decode(header: &InHeader, body: &mut Cursor<'a>, _: &Protocol) -> Result<Self, Malformed> {
        let input: IoctlIn = body.read()?;
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            flags: IoctlFlags::from_bits_retain(input.flags),
            command: input.cmd,
            argument: input.arg,
            input: body.bytes(input.in_size as usize)?,
            output_size: input.out_size,
        })
    }

    fn room(&self) -> usize {
        size_of::<IoctlOut>().saturating_add(self.output_size as usize)
    }
}

/// What an ioctl answers.
#[derive(Clone, Debug, Default)]
pub struct IoctlAnswer {
    /// What ioctl(2) returns.
    pub result: i32,
    /// What is written to the caller's buffer.
    pub output: Vec<u8>,
}

impl Answer for IoctlAnswer {
    fn encode(self, _: &Encoding, out: &mut Encoder) {
        out.put(&IoctlOut {
            result: self.result,
            flags: 0,
            in_iovs: 0,
            out_iovs: 0,
        });
        out.data(Data::Bytes(self.output));
    }
}
