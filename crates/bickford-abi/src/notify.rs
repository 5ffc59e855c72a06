//! Notifications, sent to the kernel unasked.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! notify_codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $minor:literal;)*) => {
        /// What a notification says. It stands in `error` of an [`OutHeader`](crate::OutHeader)
        /// whose `unique` is 0.
        ///
        /// Kernel: `enum fuse_notify_code`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(i32)]
        pub enum NotifyCode {
            $($(#[$doc])* $variant = $number,)*
        }

        impl NotifyCode {
            /// Every code, by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The code of a number; `None` if this crate knows none.
            #[must_use]
            pub const fn from_i32(number: i32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The kernel's name without `FUSE_NOTIFY_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// First minor version of the protocol that takes it.
            #[must_use]
            pub const fn minimum_minor(self) -> u32 {
                match self {
                    $(Self::$variant => $minor,)*
                }
            }
        }
    };
}

notify_codes! {
    /// A polled file became ready: [`NotifyPollWakeupOut`].
    Poll = 1, "POLL", 11;
    /// Forget cached attributes and data: [`NotifyInvalInodeOut`].
    InvalInode = 2, "INVAL_INODE", 12;
    /// Forget a cached name: [`NotifyInvalEntryOut`].
    InvalEntry = 3, "INVAL_ENTRY", 12;
    /// Put data into the page cache: [`NotifyStoreOut`].
    Store = 4, "STORE", 15;
    /// Ask for data of the page cache: [`NotifyRetrieveOut`].
    Retrieve = 5, "RETRIEVE", 15;
    /// A name was deleted: [`NotifyDeleteOut`].
    Delete = 6, "DELETE", 18;
    /// Send the requests that were read but not answered again; carries nothing.
    Resend = 7, "RESEND", 40;
    /// Look every cached name up again at its next use; carries nothing.
    IncEpoch = 8, "INC_EPOCH", 44;
    /// Drop unused nodes from the cache: [`NotifyPruneOut`].
    Prune = 9, "PRUNE", 45;
}

/// [`NotifyCode::Poll`]: a polled file became ready.
///
/// Kernel: `struct fuse_notify_poll_wakeup_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NotifyPollWakeupOut {
    /// Kernel's handle from [`PollIn`](crate::PollIn).
    pub kh: u64,
}

/// [`NotifyCode::InvalInode`]: forget cached attributes and data.
///
/// Kernel: `struct fuse_notify_inval_inode_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NotifyInvalInodeOut {
    /// Node id.
    pub ino: u64,
    /// First byte; negative leaves the data alone.
    pub off: i64,
    /// Bytes; 0 or less goes to the end of the file.
    pub len: i64,
}

/// [`NotifyCode::InvalEntry`]: forget a cached name; name and NUL follow.
///
/// Kernel: `struct fuse_notify_inval_entry_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NotifyInvalEntryOut {
    /// Node id of the parent.
    pub parent: u64,
    /// Bytes of name, without the NUL.
    pub namelen: u32,
    /// [`ExpireFlags`](crate::ExpireFlags).
    pub flags: u32,
}

/// [`NotifyCode::Delete`]: a name was deleted; name and NUL follow.
///
/// Kernel: `struct fuse_notify_delete_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NotifyDeleteOut {
    /// Node id of the parent.
    pub parent: u64,
    /// Node id that the name must still denote.
    pub child: u64,
    /// Bytes of name, without the NUL.
    pub namelen: u32,
    /// Unused.
    pub padding: u32,
}

/// [`NotifyCode::Store`]: put data into the page cache; the data follow.
///
/// Kernel: `struct fuse_notify_store_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NotifyStoreOut {
    /// Node id.
    pub nodeid: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes that follow.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

/// [`NotifyCode::Retrieve`]: ask for data of the page cache, answered by a `NOTIFY_REPLY` request.
///
/// Kernel: `struct fuse_notify_retrieve_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NotifyRetrieveOut {
    /// Chosen by the server; the `unique` of the `NOTIFY_REPLY`.
    pub notify_unique: u64,
    /// Node id.
    pub nodeid: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes wanted.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

/// Input of `NOTIFY_REPLY`, shaped like [`WriteIn`](crate::WriteIn); the data follow.
///
/// Kernel: `struct fuse_notify_retrieve_in`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NotifyRetrieveIn {
    /// Unused.
    pub dummy1: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes that follow.
    pub size: u32,
    /// Unused.
    pub dummy2: u32,
    /// Unused.
    pub dummy3: u64,
    /// Unused.
    pub dummy4: u64,
}

/// [`NotifyCode::Prune`]: drop unused nodes from the cache; `count` node ids (u64) follow.
///
/// Kernel: `struct fuse_notify_prune_out`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NotifyPruneOut {
    /// Number of node ids.
    pub count: u32,
    /// Unused.
    pub padding: u32,
    /// Reserved, zero.
    pub spare: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_codes_agree() {
        for (position, code) in NotifyCode::ALL.iter().enumerate() {
            assert_eq!(*code as usize, position + 1);
            assert_eq!(NotifyCode::from_i32(*code as i32), Some(*code));
        }
        assert_eq!(NotifyCode::from_i32(0), None);
        assert_eq!(NotifyCode::from_i32(-1), None);
        assert_eq!(NotifyCode::from_i32(10), None);
    }
}
