//! Operations that outlive their request, for post-calls and asynchronous file systems.

use std::ffi::{CStr, CString};

use super::{
    Access, Bmap, CopyFileRange, Create, Fallocate, Flush, Fsync, Fsyncdir, Getattr, Getlk,
    Getxattr, Ioctl, Link, Listxattr, Lookup, Lseek, Mkdir, Mknod, Open, Opendir, Payload, Poll,
    Read, Readdir, Readdirplus, Readlink, Release, Releasedir, Removexattr, Rename, Rmdir, Setattr,
    Setlk, Setxattr, Statfs, Statx, Symlink, Syncfs, Tmpfile, Unlink, Write,
};

/// An operation that can be kept.
pub trait Keep {
    /// The operation with what it borrowed.
    type Kept: Kept;

    /// Keeps it; contents that it brings only with `contents`.
    fn keep(&self, contents: bool) -> Self::Kept;
}

/// An operation that owns what operations borrow.
pub trait Kept: Send + 'static {
    /// The operation.
    type Operation<'k>;

    /// The operation, borrowed again.
    fn operation(&self) -> Self::Operation<'_>;
}

macro_rules! keep_whole {
    ($($operation:ident)+) => {
        $(
            impl Keep for $operation {
                type Kept = Self;

                #[inline]
                fn keep(&self, _: bool) -> Self {
                    *self
                }
            }

            impl Kept for $operation {
                type Operation<'k> = Self;

                #[inline]
                fn operation(&self) -> Self {
                    *self
                }
            }
        )+
    };
}

keep_whole! {
    Getattr Setattr Readlink Open Read Statfs Release Fsync Listxattr Flush Opendir Readdir
    Readdirplus Releasedir Fsyncdir Getlk Setlk Access Bmap Poll Fallocate Lseek CopyFileRange
    Syncfs Tmpfile Statx
}

/// Names up to this length are kept without an allocation. Most are.
const INLINE: usize = 46;

/// A name of its own.
#[derive(Clone, Debug)]
enum Name {
    Inline([u8; INLINE + 1], u8),
    Allocated(CString),
}

impl Name {
    #[inline]
    fn of(name: &CStr) -> Self {
        let bytes = name.to_bytes_with_nul();
        let mut room = [0; INLINE + 1];
        match (room.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(bytes);
                Self::Inline(room, length)
            }
            _ => Self::Allocated(name.to_owned()),
        }
    }

    #[inline]
    fn get(&self) -> &CStr {
        match self {
            Self::Inline(room, length) => room
                .get(..usize::from(*length))
                .and_then(|bytes| CStr::from_bytes_with_nul(bytes).ok())
                .unwrap_or_default(),
            Self::Allocated(name) => name,
        }
    }
}

/// An operation without its names, and the names.
#[derive(Clone, Debug)]
pub struct Named<O, const NAMES: usize> {
    rest: O,
    names: [Name; NAMES],
}

macro_rules! keep_names {
    ($($operation:ident<$count:literal> { $($field:ident),*; $($name:ident),+ })+) => {
        $(
            impl Keep for $operation<'_> {
                type Kept = Named<$operation<'static>, $count>;

                #[inline]
                fn keep(&self, _: bool) -> Self::Kept {
                    Named {
                        rest: $operation { $($field: self.$field,)* $($name: c"",)+ },
                        names: [$(Name::of(self.$name),)+],
                    }
                }
            }

            impl Kept for Named<$operation<'static>, $count> {
                type Operation<'k> = $operation<'k>;

                #[inline]
                fn operation(&self) -> $operation<'_> {
                    let [$($name,)+] = &self.names;
                    $operation { $($field: self.rest.$field,)* $($name: $name.get(),)+ }
                }
            }
        )+
    };
}

keep_names! {
    Lookup<1> { parent; name }
    Symlink<2> { parent; name, target }
    Mknod<1> { parent, mode, rdev, umask; name }
    Mkdir<1> { parent, mode, umask; name }
    Unlink<1> { parent; name }
    Rmdir<1> { parent; name }
    Rename<2> { parent, new_parent, flags; name, new_name }
    Link<1> { node, new_parent; new_name }
    Getxattr<1> { node, size; name }
    Removexattr<1> { node; name }
    Create<1> { parent, mode, umask, flags, open_flags; name }
}

/// An operation without its bytes, and the bytes.
#[derive(Clone, Debug)]
pub struct WithBytes<O> {
    rest: O,
    name: CString,
    bytes: Box<[u8]>,
}

impl Keep for Setxattr<'_> {
    type Kept = WithBytes<Setxattr<'static>>;

    fn keep(&self, _: bool) -> Self::Kept {
        WithBytes {
            rest: Setxattr {
                node: self.node,
                name: c"",
                value: &[],
                flags: self.flags,
                kill_sgid: self.kill_sgid,
            },
            name: self.name.to_owned(),
            bytes: self.value.into(),
        }
    }
}

impl Kept for WithBytes<Setxattr<'static>> {
    type Operation<'k> = Setxattr<'k>;

    fn operation(&self) -> Setxattr<'_> {
        Setxattr {
            name: &self.name,
            value: &self.bytes,
            ..self.rest
        }
    }
}

impl Keep for Ioctl<'_> {
    type Kept = WithBytes<Ioctl<'static>>;

    fn keep(&self, _: bool) -> Self::Kept {
        WithBytes {
            rest: Ioctl {
                node: self.node,
                handle: self.handle,
                flags: self.flags,
                command: self.command,
                argument: self.argument,
                input: &[],
                output_size: self.output_size,
            },
            name: CString::default(),
            bytes: self.input.into(),
        }
    }
}

impl Kept for WithBytes<Ioctl<'static>> {
    type Operation<'k> = Ioctl<'k>;

    fn operation(&self) -> Ioctl<'_> {
        Ioctl {
            input: &self.bytes,
            ..self.rest
        }
    }
}

impl Keep for Write<'_> {
    type Kept = WithBytes<Write<'static>>;

    /// The contents are those of a request that was not handed over in a pipe: a layer that wants
    /// contents rules pipes out.
    fn keep(&self, contents: bool) -> Self::Kept {
        let bytes = contents.then(|| self.data.bytes().ok()).flatten();
        WithBytes {
            rest: Write {
                node: self.node,
                handle: self.handle,
                offset: self.offset,
                data: self.data.hidden(),
                flags: self.flags,
                write_flags: self.write_flags,
                lock_owner: self.lock_owner,
            },
            name: CString::default(),
            bytes: bytes.unwrap_or_default().into(),
        }
    }
}

impl Kept for WithBytes<Write<'static>> {
    type Operation<'k> = Write<'k>;

    fn operation(&self) -> Write<'_> {
        let data = match self.bytes.is_empty() {
            true => self.rest.data,
            false => Payload::from_bytes(&self.bytes),
        };
        Write { data, ..self.rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn names_of_any_length_are_kept() {
        for length in [0, 1, INLINE - 1, INLINE, INLINE + 1, 255, 1024] {
            let name = CString::new("x".repeat(length)).unwrap();
            let kept = Lookup {
                parent: NodeId(7),
                name: &name,
            }
            .keep(false);
            let allocated = matches!(kept.names, [Name::Allocated(_)]);
            assert_eq!(allocated, length > INLINE);
            assert_eq!(kept.operation().name, &*name);
            assert_eq!(kept.operation().parent, NodeId(7));
        }
    }
}
