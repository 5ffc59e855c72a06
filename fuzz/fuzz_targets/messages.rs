//! A session that gets any messages: `cargo +nightly fuzz run messages`.
//!
//! The input is a run of messages, each preceded by its length in two bytes.
#![no_main]

use bickford::ops::{Attr, Data, Entry, Lookup, Read, Write, Written};
use bickford::transport::memory::Kernel;
use bickford::{Blocking, Context, Errno, NodeId};
use libfuzzer_sys::fuzz_target;

struct Curious;

impl bickford::filesystem::blocking::FileSystem for Curious {
    fn lookup(&self, cx: &Context<'_>, _: Lookup<'_>) -> Result<Entry, Errno> {
        let _ = (cx.extensions().groups(), cx.extensions().security_contexts());
        let attr = Attr::file(2, 0o644, 0);
        Ok(Entry { node: NodeId(2), attr, ..Entry::default() })
    }

    fn read(&self, _: &Context<'_>, op: Read) -> Result<Data, Errno> {
        Ok(vec![0; op.size.min(1 << 16) as usize].into())
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>) -> Result<Written, Errno> {
        Ok(Written(op.data.bytes().map_or(0, |bytes| bytes.len() as u32)))
    }
}

fuzz_target!(|input: &[u8]| {
    let mut kernel = Kernel::new(Blocking(Curious));
    let _ = kernel.init();
    let mut rest = input;
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(tail.len());
        let (message, tail) = tail.split_at(length);
        kernel.send_raw(message);
        kernel.drain();
        rest = tail;
    }
});
