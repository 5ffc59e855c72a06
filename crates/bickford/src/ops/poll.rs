//! POLL: is an open file ready?

use bickford_abi::{InHeader, PollFlags, PollIn, PollOut};

use super::{Answer, Encoder, Encoding, Operation, Protocol};
use crate::decode::{Cursor, Malformed};
use crate::{FileHandle, NodeId};

/// Names a waiter, to be woken by a notification when the file gets ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollHandle(pub u64);

/// Asks for what an open file is ready for (poll(2)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Poll {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub handle: FileHandle,
    /// Whom to wake later, if the caller is going to wait.
    pub waiter: Option<PollHandle>,
    /// Which events are of interest; zero before ABI 7.21.
    pub events: u32,
}

impl Operation<'_> for Poll {
    type Answer = PollAnswer;

    fn decode(header: &InHeader, body: &mut Cursor<'_>, _: &Protocol) -> Result<Self, Malformed> {
        let input: PollIn = body.read()?;
        let waits = PollFlags::from_bits_retain(input.flags).contains(PollFlags::SCHEDULE_NOTIFY);
        Ok(Self {
            node: NodeId(header.nodeid),
            handle: FileHandle(input.fh),
            waiter: waits.then_some(PollHandle(input.kh)),
            events: input.events,
        })
    }
}

/// Events that are ready now (`POLLIN` and so on).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollAnswer(pub u32);

impl Answer for PollAnswer {
    fn encode(self, _: &Encoding, out: &mut Encoder) {
        out.put(&PollOut {
            revents: self.0,
            padding: 0,
        });
    }
}
