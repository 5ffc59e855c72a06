//! `readonly`: refuses every change with EROFS, whoever asks.
//!
//! Opening for writing is refused as on a file system that is mounted read-only; so are changes of
//! attributes, names and extended attributes, and ioctls that set something. Reading changes no
//! time of access unless the file system below does so itself. No options but `switches=FILE`.
//! access(2) calls files writable all the same where the kernel checks permissions itself (`default_permissions`, as
//! `bickford mount` has it): it does not ask then. Who depends on that mounts with `-o ro` besides.
//!
//! Zero-message open is turned off: with it, opening for writing would succeed and only the write
//! back would fail. Kernel pass-through stays on.

use bickford::Errno;
use bickford::abi::IoctlFlags;
use bickford::layer::{
    About, Call, Interest, Layer, Needs, OperationKind, OperationSet, PostCalls, PreCalls, Step,
};
use bickford::ops::{Access, Ioctl, IoctlAnswer, Open, Opened};

use crate::registry::{Entry, stack};

/// How the layer is asked for.
pub const ENTRY: Entry = Entry {
    name: "readonly",
    about: "refuses every change with EROFS",
    options: &[],
    constructor: |options, below| stack(options, ReadOnly, below, String::new(), None),
};

/// The layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOnly;

const O_ACCMODE: u32 = 3;
const O_TRUNC: u32 = 0o1000;
const W_OK: u32 = 2;

/// The direction bit of an ioctl command whose argument the file system reads (`_IOC_WRITE`).
const IOC_WRITE: u32 = 1 << 30;
/// Commands that only ask: FS_IOC_GETFLAGS, FS_IOC32_GETFLAGS, FS_IOC_GETVERSION,
/// FS_IOC32_GETVERSION, FS_IOC_FSGETXATTR, FS_IOC_GETFSLABEL, FS_IOC_FIEMAP.
const ASKING: [u32; 7] = [
    0x8008_6601,
    0x8004_6601,
    0x8008_7601,
    0x8004_7601,
    0x801c_581f,
    0x8100_9431,
    0xc020_660b,
];

const REFUSED: OperationSet = OperationSet::CHANGES;
const EXAMINED: OperationSet = OperationSet::of(&[
    OperationKind::Open,
    OperationKind::Access,
    OperationKind::Ioctl,
]);

impl PreCalls for ReadOnly {
    fn every(&self, _: &Call<'_>, about: &About<'_>) -> Option<Errno> {
        REFUSED.contains(about.kind).then_some(Errno::ROFS)
    }

    fn open<'a>(&self, _: &Call<'a>, op: &mut Open) -> Step<Opened> {
        if op.flags & O_ACCMODE != 0 || op.flags & O_TRUNC != 0 {
            return Step::Answer(Err(Errno::ROFS));
        }
        Step::Continue
    }

    fn access<'a>(&self, _: &Call<'a>, op: &mut Access) -> Step<()> {
        if op.mask & W_OK != 0 {
            return Step::Answer(Err(Errno::ROFS));
        }
        Step::Continue
    }

    fn ioctl<'a>(&self, _: &Call<'a>, op: &mut Ioctl<'a>) -> Step<IoctlAnswer> {
        let restricted = !op.flags.contains(IoctlFlags::UNRESTRICTED);
        match op.command {
            command if restricted && ASKING.contains(&command) => Step::Continue,
            command if command & IOC_WRITE != 0 => Step::Answer(Err(Errno::ROFS)),
            _ => Step::Answer(Err(Errno::NOTTY)),
        }
    }
}

impl PostCalls for ReadOnly {}

impl Layer for ReadOnly {
    fn name(&self) -> &str {
        "readonly"
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn interest(&self) -> Interest {
        Interest {
            pre: REFUSED.with(EXAMINED),
            ..Interest::default()
        }
    }

    fn needs(&self) -> Needs {
        Needs {
            opens: true,
            because: "opening for writing must be refused".to_owned(),
            ..Needs::default()
        }
    }
}
