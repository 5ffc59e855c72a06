//! Bounded reads over the bytes of one request.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use zerocopy::{FromBytes, FromZeros, IntoBytes, KnownLayout};

use crate::ops::Payload;

/// Why the bytes of a request are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The message ends inside a fixed structure.
    #[error("{wanted} bytes wanted, {left} left")]
    Short {
        /// How many bytes the structure takes.
        wanted: usize,
        /// How many bytes there were.
        left: usize,
    },
    /// A name has no terminating NUL byte.
    #[error("a name does not end")]
    UnterminatedName,
    /// A name is empty or has a slash, or is `.` or `..` where that is not allowed.
    #[error("a name is empty, or names another directory")]
    BadName,
    /// A count or length says more than the message holds.
    #[error("a length says {said}, the message holds {held}")]
    Length {
        /// What the message says.
        said: u64,
        /// What the message holds.
        held: u64,
    },
}

/// Reads a request front to back.
///
/// A request comes in two pieces: the fixed structure of its opcode, and what follows (names,
/// data). Over `/dev/fuse` both are one run of bytes, over io_uring they stand apart.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    head: &'a [u8],
    tail: &'a [u8],
    pipe: Option<(BorrowedFd<'a>, usize)>,
}

impl<'a> Cursor<'a> {
    /// Over a request whose fixed structure and remainder are one run of bytes.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        Self {
            head: &[],
            tail: body,
            pipe: None,
        }
    }

    /// Over a request whose fixed structure stands apart from what follows.
    #[must_use]
    pub fn split(head: &'a [u8], tail: &'a [u8]) -> Self {
        Self {
            head,
            tail,
            pipe: None,
        }
    }

    /// The same, with `length` bytes of data that follow waiting in a pipe.
    #[must_use]
    pub fn with_pipe(self, pipe: BorrowedFd<'a>, length: usize) -> Self {
        Self {
            pipe: Some((pipe, length)),
            ..self
        }
    }

    fn front(&mut self) -> &mut &'a [u8] {
        if self.head.is_empty() {
            &mut self.tail
        } else {
            &mut self.head
        }
    }

    /// The next fixed structure.
    ///
    /// # Errors
    /// [`Malformed::Short`] when the message ends inside it.
    pub fn read<T: FromBytes + KnownLayout>(&mut self) -> Result<T, Malformed> {
        let front = self.front();
        match T::read_from_prefix(front) {
            Ok((value, rest)) => {
                *front = rest;
                Ok(value)
            }
            Err(_) => Err(Malformed::Short {
                wanted: size_of::<T>(),
                left: front.len(),
            }),
        }
    }

    /// The next fixed structure, of which an older kernel sends only the first `known` bytes; the
    /// rest is zero.
    ///
    /// # Errors
    /// [`Malformed::Short`] when the message ends before `known` bytes.
    pub fn read_old<T>(&mut self, known: usize) -> Result<T, Malformed>
    where
        T: FromBytes + FromZeros + IntoBytes,
    {
        let front = self.front();
        let known = known.min(size_of::<T>());
        let Some((bytes, rest)) = front.split_at_checked(known) else {
            return Err(Malformed::Short {
                wanted: known,
                left: front.len(),
            });
        };
        *front = rest;
        let mut value = T::new_zeroed();
        for (to, from) in value.as_mut_bytes().iter_mut().zip(bytes) {
            *to = *from;
        }
        Ok(value)
    }

    /// The next NUL-terminated name, whatever its bytes.
    ///
    /// # Errors
    /// [`Malformed::UnterminatedName`] when no NUL byte follows.
    pub fn text(&mut self) -> Result<&'a CStr, Malformed> {
        self.head = &[];
        let name =
            CStr::from_bytes_until_nul(self.tail).map_err(|_| Malformed::UnterminatedName)?;
        self.tail = self.tail.get(name.count_bytes() + 1..).unwrap_or_default();
        Ok(name)
    }

    /// The next name of a directory entry: not empty, no slash.
    ///
    /// # Errors
    /// [`Malformed`] when it is not such a name.
    pub fn name(&mut self) -> Result<&'a CStr, Malformed> {
        let name = self.text()?;
        match name.to_bytes() {
            b"" => Err(Malformed::BadName),
            bytes if bytes.contains(&b'/') => Err(Malformed::BadName),
            _ => Ok(name),
        }
    }

    /// The next name of a directory entry that is to be made or removed: not `.` nor `..` either.
    ///
    /// # Errors
    /// [`Malformed`] when it is not such a name.
    pub fn child_name(&mut self) -> Result<&'a CStr, Malformed> {
        match self.name()? {
            name if matches!(name.to_bytes(), b"." | b"..") => Err(Malformed::BadName),
            name => Ok(name),
        }
    }

    /// The next `length` bytes of data.
    ///
    /// # Errors
    /// [`Malformed::Length`] when there are fewer.
    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        self.head = &[];
        let Some((bytes, rest)) = self.tail.split_at_checked(length) else {
            return Err(Malformed::Length {
                said: length as u64,
                held: self.tail.len() as u64,
            });
        };
        self.tail = rest;
        Ok(bytes)
    }

    /// The next `length` bytes of data, wherever the transport has them.
    ///
    /// # Errors
    /// [`Malformed::Length`] when there are fewer.
    pub fn payload(&mut self, length: usize) -> Result<Payload<'a>, Malformed> {
        match self.pipe {
            Some((pipe, held)) if held == length => Ok(Payload::from_pipe(pipe, length)),
            Some((_, held)) => Err(Malformed::Length {
                said: length as u64,
                held: held as u64,
            }),
            None => self.bytes(length).map(Payload::from_bytes),
        }
    }

    /// Everything that is left after the fixed structure.
    pub fn rest(&mut self) -> &'a [u8] {
        self.head = &[];
        std::mem::take(&mut self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_structure_is_an_error() {
        let mut cursor = Cursor::new(&[1, 2, 3]);
        assert_eq!(
            cursor.read::<u64>(),
            Err(Malformed::Short { wanted: 8, left: 3 })
        );
    }

    #[test]
    fn names_end_where_their_nul_stands() {
        let mut cursor = Cursor::new(b"one\0two\0three");
        assert_eq!(cursor.name().unwrap().to_bytes(), b"one");
        assert_eq!(cursor.name().unwrap().to_bytes(), b"two");
        assert_eq!(cursor.name(), Err(Malformed::UnterminatedName));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for bad in [&b"\0"[..], b"a/b\0", b"/\0"] {
            assert_eq!(Cursor::new(bad).name(), Err(Malformed::BadName));
        }
        assert_eq!(Cursor::new(b"..\0").child_name(), Err(Malformed::BadName));
        assert_eq!(Cursor::new(b"..\0").name().unwrap().to_bytes(), b"..");
    }

    #[test]
    fn what_an_old_kernel_leaves_out_is_zero() {
        let mut cursor = Cursor::new(&[1, 0, 0, 0, 9]);
        assert_eq!(
            cursor.read_old::<u64>(4),
            Ok(u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 0]))
        );
        assert_eq!(cursor.rest(), &[9]);
    }

    #[test]
    fn pieces_apart_read_like_one_run() {
        let head = 7u64.to_ne_bytes();
        let mut cursor = Cursor::split(&head, b"name\0");
        assert_eq!(cursor.read::<u64>(), Ok(7));
        assert_eq!(cursor.name().unwrap().to_bytes(), b"name");
    }
}
