//! A request as it came: header, body, and the extensions behind it.

use std::os::fd::BorrowedFd;

use bickford_abi::{InHeader, Opcode};
use zerocopy::FromBytes;

use super::{Cursor, Extensions, Malformed};

/// One message of the kernel, cut into its parts.
#[derive(Clone, Debug)]
pub struct Incoming<'a> {
    /// The header that every request has.
    pub header: InHeader,
    /// The opcode's own structure, names and data.
    pub body: Cursor<'a>,
    /// What follows the body.
    pub extensions: Extensions<'a>,
    /// Bytes of the whole message.
    pub length: usize,
}

impl<'a> Incoming<'a> {
    /// Cuts a message that is one run of bytes, as `/dev/fuse` gives it.
    ///
    /// # Errors
    /// [`Malformed`] when it is shorter than its header says.
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(message);
        let header: InHeader = cursor.read()?;
        let body = message
            .get(size_of::<InHeader>()..header.len as usize)
            .ok_or(Malformed::Length {
                said: u64::from(header.len),
                held: message.len() as u64,
            })?;
        let (body, extensions) = cut_extensions(&header, body)?;
        Ok(Self {
            header,
            body: Cursor::new(body),
            extensions,
            length: header.len as usize,
        })
    }

    /// Takes a message whose first bytes were read and whose last `piped` bytes wait in a pipe.
    ///
    /// # Errors
    /// [`Malformed`] when the lengths do not add up, or extensions follow the data.
    pub fn parse_piped(
        front: &'a [u8],
        pipe: BorrowedFd<'a>,
        piped: usize,
    ) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(front);
        let header: InHeader = cursor.read()?;
        let held = front.len() + piped;
        if header.len as usize != held || header.total_extlen != 0 {
            return Err(Malformed::Length {
                said: u64::from(header.len),
                held: held as u64,
            });
        }
        let body = cursor.with_pipe(pipe, piped);
        Ok(Self {
            header,
            body,
            extensions: Extensions::default(),
            length: held,
        })
    }

    /// Takes a message whose header, fixed structure and remainder stand apart, as io_uring gives
    /// it.
    ///
    /// # Errors
    /// [`Malformed`] when the extensions are longer than what follows.
    pub fn from_parts(
        header: InHeader,
        fixed: &'a [u8],
        rest: &'a [u8],
    ) -> Result<Self, Malformed> {
        let length = size_of::<InHeader>() + fixed.len() + rest.len();
        let (rest, extensions) = cut_extensions(&header, rest)?;
        Ok(Self {
            header,
            body: Cursor::split(fixed, rest),
            extensions,
            length,
        })
    }
}

/// What a message that is one run of bytes asks for, where that is known.
pub(crate) fn opcode(message: &[u8]) -> Option<Opcode> {
    let (header, _) = InHeader::read_from_prefix(message).ok()?;
    Opcode::from_u32(header.opcode)
}

/// `total_extlen` counts in units of eight bytes.
fn cut_extensions<'a>(
    header: &InHeader,
    body: &'a [u8],
) -> Result<(&'a [u8], Extensions<'a>), Malformed> {
    let length = usize::from(header.total_extlen) * 8;
    let at = body.len().checked_sub(length).ok_or(Malformed::Length {
        said: length as u64,
        held: body.len() as u64,
    })?;
    let (body, extensions) = body.split_at(at);
    Ok((body, Extensions::new(extensions)))
}
