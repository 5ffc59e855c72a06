//! Conformance tests of mounted Bickford file systems.
//!
//! The library is the harness: [`Mount`] runs the `bickford` command over a fresh directory and
//! proves which [`Combination`] of preset, transport, I/O mode and lower mode is in force;
//! [`Watchdog`] turns a hang into a failure with a cause; [`Scratch`] and [`Image`] give lower
//! directories on ext4. The tests lie in `tests/`, one file for each kind of proof.
//!
//! Every test body is a function of a directory. It runs on the native directory first: what the
//! lower file system does there is what the mount must do.
//!
//! | variable | meaning |
//! |---|---|
//! | `BICKFORD_BIN` | the command to test; otherwise the one beside the test in the target directory |
//! | `BICKFORD_COMBINATIONS` | `default`, `all`, names separated by commas (`opt-dev-1`), or `native`: none, so that bodies run on the native directory alone, while tests of one combination mount it |
//! | `BICKFORD_LENGTH` | `default`, or `full`: 1,000,000 files, 1,000 cycles, 5 seeds of 100,000 operations |
//! | `BICKFORD_SCRATCH` | a directory on ext4 for lower directories; otherwise one is found |

#![allow(clippy::panic, reason = "a test harness fails by panicking")]

mod combination;
mod diagnosis;
mod machine;
mod mount;
mod program;
mod scratch;
mod start_line;
mod sys;
mod tree;
mod watchdog;

pub use combination::{Combination, Io, Preset, Transport, passes_through};
pub use machine::{
    OpenDevice, fuse_mounts, maps_shared, ordinary_user, require_root, tells_birth, tells_holes,
};
pub use mount::{Mount, MountBuilder, StartError, command_path};
pub use program::{Finished, exit_code, run, run_ok};
pub use scratch::{Image, Scratch};
pub use start_line::StartLine;
pub use sys::{FileHandle, LockKind, SharedMap, close, locked_by, record_lock, write_by_ring};
pub use tree::{describe, same_tree};
pub use watchdog::{Watchdog, wait_for};

use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// How long one body may take on one mount before it counts as hanging.
pub const BODY_DEADLINE: Duration = Duration::from_secs(300);

/// Writes to standard error where the output of tests that pass is captured, too.
pub fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether the full lengths are asked for (`BICKFORD_LENGTH=full`) rather than those that `make test`
/// has time for.
///
/// # Panics
/// When something else than a length is asked for.
#[must_use]
pub fn full_length() -> bool {
    match std::env::var("BICKFORD_LENGTH").as_deref() {
        Err(_) | Ok("" | "default") => false,
        Ok("full") => true,
        Ok(other) => panic!("BICKFORD_LENGTH={other}: say default or full"),
    }
}

/// Runs `body` on a native directory and then on a mount of each selected combination.
///
/// # Panics
/// When the body panics, a mount cannot be made or taken down, or another combination than the one
/// asked for is in force.
pub fn on_every_combination(test: &str, deadline: Duration, body: impl Fn(&Path)) {
    require_root();
    let scratch = Scratch::new(test);
    eprintln!("== {test} on the native directory");
    let watchdog = Watchdog::start(test, deadline);
    body(&scratch.directory("native"));
    drop(watchdog);
    for combination in Combination::selected() {
        eprintln!("== {test} on {combination}");
        let source = scratch.directory(&format!("lower-{combination}"));
        let mount = Mount::over(&source, &combination)
            .deadline(deadline)
            .must_start();
        body(mount.path());
        mount.finish();
    }
}
