//! A layer over a file system: `hello-layer MOUNTPOINT` serves the file of `hello-path` in capital
//! letters, and counts who reads it.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use bickford::layer::{Done, Interest, Layer, Layered, Needs, OperationKind, OperationSet};
use bickford::layer::{PostCalls, PreCalls};
use bickford::ops::{Attr, Data, Read};
use bickford::path::{self, Adapter, Listing, Options, Subject};
use bickford::{Context, Errno, Result};
use bickford_program::Program;

// ANCHOR: layer
/// Makes what is read upper case.
#[derive(Debug, Default)]
struct Shout {
    reads: AtomicU64,
}

impl PreCalls for Shout {}

impl PostCalls for Shout {
    fn read(&self, done: &Done, _: &Read, result: &mut Result<Data>) {
        let number = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::info!("read {number}, by user {}", done.uid());
        if let Ok(data) = result {
            *result = match std::mem::take(data).into_bytes() {
                Ok(mut bytes) => {
                    bytes.make_ascii_uppercase();
                    Ok(bytes.into())
                }
                Err(_) => Err(Errno::IO),
            };
        }
    }
}

impl Layer for Shout {
    fn name(&self) -> &str {
        "shout"
    }

    /// Calls that are not named here cost nothing.
    fn interest(&self) -> Interest {
        let post = OperationSet::of(&[OperationKind::Read]);
        Interest {
            post,
            ..Interest::default()
        }
    }

    /// Reads must come here, so that the kernel may not pass them through to a lower file.
    fn needs(&self) -> Needs {
        Needs {
            contents: true,
            ..Needs::default()
        }
    }
}
// ANCHOR_END: layer

struct Hello;

const TEXT: &[u8] = b"Hello, world!\n";

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

// ANCHOR: main
fn main() -> ExitCode {
    Program::new("hello-layer")
        .about("One file that says hello, in capital letters")
        .path_options(Options::default())
        .run(|given| {
            let below = Adapter::new(Hello, given.path_options);
            Ok(Layered::new(Shout::default(), below))
        })
}
// ANCHOR_END: main
