//! The Linux FUSE kernel ABI: structures, opcodes and flags, without input or output.
//!
//! It describes protocol 7.45 (Linux 6.18). Structures bear the kernel's names without `fuse_`,
//! constants and flags theirs without `FUSE_`; every value is in the byte order of the machine.
//! Structures convert from and to bytes by [`zerocopy`], which checks size and alignment.
//! Names, data, arrays and extensions that follow a structure are not part of it.
//!
//! Source: `include/uapi/linux/fuse.h` of the kernel; fuse(4).
#![forbid(unsafe_code)]

mod attr;
mod device;
mod dir;
mod entry;
mod extension;
mod file;
mod flags;
mod header;
mod init;
mod ioctl;
mod lock;
mod notify;
mod opcode;
mod poll;
mod uring;
mod xattr;

pub use attr::*;
pub use device::*;
pub use dir::*;
pub use entry::*;
pub use extension::*;
pub use file::*;
pub use flags::*;
pub use header::*;
pub use init::*;
pub use ioctl::*;
pub use lock::*;
pub use notify::*;
pub use opcode::*;
pub use poll::*;
pub use uring::*;
pub use xattr::*;
