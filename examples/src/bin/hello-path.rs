//! One file that says hello, over paths: `hello-path MOUNTPOINT`, then `cat MOUNTPOINT/hello`.

use std::process::ExitCode;

use bickford::ops::{Attr, Data};
use bickford::path::{self, Adapter, Listing, Options, Subject};
use bickford::{Context, Errno, Result};
use bickford_program::Program;

const TEXT: &[u8] = b"Hello, world!\n";

// ANCHOR: filesystem
struct Hello;

impl path::FileSystem for Hello {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        match subject.path()?.to_str() {
            Some("/") => Ok(Attr::directory(1, 0o755)),
            Some("/hello") => Ok(Attr::file(2, 0o644, TEXT.len() as u64)),
            _ => Err(Errno::NOENT),
        }
    }

    fn readdir(&self, _: &Context<'_>, _: Subject<'_>, listing: &mut Listing) -> Result<()> {
        listing.add("hello", 0o100_000);
        Ok(())
    }

    fn read(&self, _: &Context<'_>, _: Subject<'_>, offset: u64, size: u32) -> Result<Data> {
        Ok(Data::part(TEXT, offset, size))
    }
}
// ANCHOR_END: filesystem

// ANCHOR: main
fn main() -> ExitCode {
    Program::new("hello-path")
        .about("One file that says hello, over paths")
        .path_options(Options::default())
        .run(|given| Ok(Adapter::new(Hello, given.path_options)))
}
// ANCHOR_END: main
