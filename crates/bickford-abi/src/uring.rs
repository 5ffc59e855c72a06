//! FUSE over io_uring (since 7.42).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes kept for the request or reply header in [`UringReqHeader`].
pub const URING_IN_OUT_HEADER_SIZE: usize = 128;
/// Bytes kept for the fixed input structure in [`UringReqHeader`].
pub const URING_OP_IN_OUT_SIZE: usize = 128;
/// Ring command: register an entry's buffers and wait for a request.
pub const FUSE_IO_URING_CMD_REGISTER: u32 = 1;
/// Ring command: commit an entry's reply and wait for the next request.
pub const FUSE_IO_URING_CMD_COMMIT_AND_FETCH: u32 = 2;

/// What goes with a request or reply of a ring entry.
///
/// Kernel: `struct fuse_uring_ent_in_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct UringEntInOut {
    /// Reserved, zero.
    pub flags: u64,
    /// Repeated in [`UringCmdReq`] to commit the reply.
    pub commit_id: u64,
    /// Bytes used in the payload buffer.
    pub payload_sz: u32,
    /// Unused.
    pub padding: u32,
    /// Reserved, zero.
    pub reserved: u64,
}

/// Header buffer of a ring entry: the first area given at registration.
///
/// Kernel: `struct fuse_uring_req_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UringReqHeader {
    /// [`InHeader`](crate::InHeader) of the request, then [`OutHeader`](crate::OutHeader) of the
    /// reply.
    pub in_out: [u8; URING_IN_OUT_HEADER_SIZE],
    /// Fixed input structure of the operation.
    pub op_in: [u8; URING_OP_IN_OUT_SIZE],
    /// Commit id and payload size.
    pub ring_ent_in_out: UringEntInOut,
}

/// Command area of the submission entry (which must be 128 bytes long).
///
/// Kernel: `struct fuse_uring_cmd_req`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct UringCmdReq {
    /// Reserved, zero.
    pub flags: u64,
    /// Entry whose reply is committed.
    pub commit_id: u64,
    /// Queue: the number of the CPU.
    pub qid: u16,
    /// Unused.
    pub padding: [u8; 6],
}

impl Default for UringReqHeader {
    fn default() -> Self {
        Self {
            in_out: [0; URING_IN_OUT_HEADER_SIZE],
            op_in: [0; URING_OP_IN_OUT_SIZE],
            ring_ent_in_out: UringEntInOut::default(),
        }
    }
}
