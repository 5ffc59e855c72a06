//! A process that knows what its files are: nobody else changes them, though others make, change and look at files in the
//! same directories.
//!
//! `own DIRECTORY INDEX STEPS SEED [WITHOUT]`: takes so many random steps, each a system call or a few, with names that
//! begin with `pINDEX-`, and checks what it is told against what must be so. WITHOUT is `mmap` where files cannot be
//! mapped shared.
//!
//! `ask DIRECTORY`: asks for attributes of whatever is there, lists and reads it, until standard input ends.

#![allow(unreachable_pub, reason = "the modules of a program are its own")]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that is wrong may panic"
)]

mod checks;
mod data;
mod model;
mod names;

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bickford_conformance::exit_code;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};

use model::{Owner, SHARED};

/// Directories below each other that an asker goes down at most.
const DEPTH: usize = 3;
/// So many steps about the inode are shown that one that fails is about.
const SHOWN: usize = 12;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["own", directory, index, steps, seed, without @ ..] => {
            own(Path::new(directory), [index, steps, seed], without)
        }
        ["ask", directory] => {
            ask(Path::new(directory));
            Ok(())
        }
        _ => {
            eprintln!(
                "usage: conformance-owner own DIRECTORY INDEX STEPS SEED [mmap] | ask DIRECTORY"
            );
            return ExitCode::from(2);
        }
    };
    exit_code(result)
}

fn own(directory: &Path, numbers: [&str; 3], without: &[&str]) -> io::Result<()> {
    let parse = |number: &str| number.parse::<u64>().map_err(io::Error::other);
    let [index, steps, seed] = numbers;
    let (index, steps, seed) = (parse(index)?, parse(steps)?, parse(seed)?);
    // Modes are to be what was asked for.
    rustix::process::umask(Mode::empty());
    for number in 0..SHARED {
        match fs::create_dir(directory.join(format!("d{number}"))) {
            // Another process has made it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
    }
    let mut owner = Owner::new(directory, index, seed, !without.contains(&"mmap"));
    let mut run = || {
        (0..steps).try_for_each(|_| owner.step())?;
        owner.check_all()
    };
    let result = run();
    result.map_err(|error| {
        let about = owner.log_about_last(SHOWN).join("\n  ");
        io::Error::other(format!("process {index}, seed {seed}: {error}\n  {about}"))
    })
}

fn ask(directory: &Path) {
    static ENDS: AtomicBool = AtomicBool::new(false);
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        ENDS.store(true, Ordering::Relaxed);
    });
    let mut rng = fastrand::Rng::new();
    while !ENDS.load(Ordering::Relaxed) {
        let mut at = Some(directory.join(format!("d{}", rng.u64(..SHARED))));
        for _ in 0..DEPTH {
            at = at.and_then(|at| ask_below(&at, &mut rng));
        }
    }
}

/// Asks about what is in a directory, much of which may be gone meanwhile, and answers one in it.
fn ask_below(directory: &Path, rng: &mut fastrand::Rng) -> Option<PathBuf> {
    let mut below = None;
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        match rng.u8(..8) {
            0..4 => {
                let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
                let _ = rustix::fs::statx(CWD, &path, flags, StatxFlags::BASIC_STATS);
            }
            4..6 => {
                let _ = fs::symlink_metadata(&path);
            }
            6 => read_all(&path),
            _ => {}
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below = Some(path);
        }
    }
    below
}

fn read_all(path: &Path) {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    if let Ok(mut file) = opened {
        let _ = file.read_to_end(&mut Vec::new());
    }
}
