//! What the tests need as processes of their own.
//!
//! `churn DIRECTORY INDEX ROUNDS`: creates, links, renames and removes names in a directory that
//! others use at the same time, and leaves `kept-INDEX`.
//!
//! `append FILE INDEX LINES`: appends lines to a file that others append to at the same time.
//!
//! `try-lock KIND FILE`: tries to lock a file without waiting and prints what came of it; KIND is
//! `flock` or `record`, or either with `-shared`.
//!
//! `hold-lock KIND FILE START LENGTH [MORE LENGTH]`: takes a record lock, `read` or `write`, says so, and waits
//! for a line; then takes one for writing from MORE on, too, prints what came of it, and waits for another. Where
//! that is refused it gives up the first.
//!
//! `map-fill FILE OFFSET LENGTH BYTE`: fills a part of a file through a shared map and syncs it.
//!
//! `direct-read FILE OFFSET`: reads 4 KiB past the page cache and prints their runs of equal bytes.
//!
//! `load DIRECTORY`: writes and reads until an error arrives, which it prints. A line on standard
//! output tells that the first round is done.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;

use bickford_conformance::{LockKind, SharedMap, exit_code, record_lock};
use rustix::fs::{FlockOperation, OFlags};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["churn", directory, index, rounds] => rounds
            .parse()
            .map_err(io::Error::other)
            .and_then(|rounds| churn(Path::new(directory), index, rounds)),
        ["append", file, index, lines] => lines
            .parse()
            .map_err(io::Error::other)
            .and_then(|lines| append(Path::new(file), index, lines)),
        ["try-lock", kind, file] => try_lock(kind, Path::new(file)),
        ["hold-lock", kind, file, start, length, more @ ..] => {
            numbers([start, length]).and_then(|range| hold_lock(kind, Path::new(file), range, more))
        }
        ["map-fill", file, offset, length, byte] => numbers([offset, length, byte])
            .and_then(|[offset, length, byte]| map_fill(Path::new(file), offset, length, byte)),
        ["direct-read", file, offset] => {
            numbers([offset]).and_then(|[offset]| direct_read(Path::new(file), offset))
        }
        ["load", directory] => load(Path::new(directory)),
        _ => {
            eprintln!(
                "usage: conformance-worker churn DIRECTORY INDEX ROUNDS | append FILE INDEX LINES \
                 | try-lock KIND FILE | hold-lock KIND FILE START LENGTH [MORE LENGTH] \
                 | map-fill FILE OFFSET LENGTH BYTE | direct-read FILE OFFSET | load DIRECTORY"
            );
            return ExitCode::from(2);
        }
    };
    exit_code(result)
}

fn churn(directory: &Path, index: &str, rounds: u32) -> io::Result<()> {
    let name = |kind: &str, round: u32| directory.join(format!("{kind}-{index}-{round}"));
    for round in 0..rounds {
        let (first, second, link) = (name("a", round), name("b", round), name("l", round));
        let contents = format!("{index} {round}");
        fs::write(&first, &contents)?;
        fs::hard_link(&first, &link)?;
        fs::rename(&first, &second)?;
        if fs::read_to_string(&link)? != contents || fs::read_to_string(&second)? != contents {
            return Err(io::Error::other(format!("round {round}: other contents")));
        }
        // Others come and go meanwhile: every name that stays must be listed.
        let listed = fs::read_dir(directory)?
            .filter_map(Result::ok)
            .filter(|entry| entry.path() == second || entry.path() == link)
            .count();
        if listed != 2 {
            return Err(io::Error::other(format!(
                "round {round}: {listed} of 2 names listed"
            )));
        }
        fs::remove_file(&link)?;
        if round + 1 == rounds {
            fs::rename(&second, directory.join(format!("kept-{index}")))?;
        } else {
            fs::remove_file(&second)?;
        }
    }
    Ok(())
}

fn append(path: &Path, index: &str, lines: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    for line in 0..lines {
        // One write each: an append of another must not come between.
        file.write_all(format!("writer {index} line {line:04}\n").as_bytes())?;
    }
    Ok(())
}

fn try_lock(kind: &str, path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let operation = if kind.ends_with("-shared") {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let locked = match kind.trim_end_matches("-shared") {
        "flock" => rustix::fs::flock(&file, operation),
        "record" => rustix::fs::fcntl_lock(&file, operation),
        _ => return Err(io::Error::other(format!("no lock of kind {kind}"))),
    };
    match locked {
        Ok(()) => println!("locked"),
        Err(error) => println!("{error:?}"),
    }
    Ok(())
}

fn hold_lock(kind: &str, path: &Path, range: [usize; 2], more: &[&str]) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let lock = |kind, [start, length]: [usize; 2]| {
        let number = |number| i64::try_from(number).map_err(io::Error::other);
        record_lock(&file, kind, number(start)?, number(length)?)
    };
    let kind = match kind {
        "read" => LockKind::Read,
        "write" => LockKind::Write,
        _ => return Err(io::Error::other(format!("no lock for {kind}"))),
    };
    lock(kind, range)?;
    println!("held");
    io::stdin().read_line(&mut String::new())?;
    if let [start, length] = more {
        let more = numbers([start, length])?;
        match lock(LockKind::Write, more) {
            Ok(()) => println!("held"),
            Err(error) => {
                lock(LockKind::Unlock, range)?;
                println!("{error}");
            }
        }
        io::stdin().read_line(&mut String::new())?;
    }
    Ok(())
}

fn numbers<const COUNT: usize>(words: [&&str; COUNT]) -> io::Result<[usize; COUNT]> {
    let mut numbers = [0; COUNT];
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = word.parse().map_err(io::Error::other)?;
    }
    Ok(numbers)
}

fn map_fill(path: &Path, offset: usize, length: usize, byte: usize) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let map = SharedMap::new(&file, offset + length)?;
    map.fill(
        offset,
        length,
        u8::try_from(byte).map_err(io::Error::other)?,
    );
    map.sync()
}

fn direct_read(path: &Path, offset: usize) -> io::Result<()> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let mut memory = vec![0; 8192];
    let start = memory.as_ptr().align_offset(4096);
    let block = memory.get_mut(start..start + 4096).unwrap_or_default();
    let length = file.read_at(block, offset as u64)?;
    let runs = block
        .get(..length)
        .unwrap_or_default()
        .chunk_by(|one, next| one == next);
    for run in runs {
        println!("{} times {:?}", run.len(), run.first());
    }
    Ok(())
}

fn load(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!("load-{}", std::process::id()));
    let block = vec![7_u8; 64 << 10];
    let mut back = Vec::new();
    let device = fs::metadata(directory)?.dev();
    for round in 0_u64.. {
        let mut file = File::create(&path)?;
        // Between two calls the dead mount may be taken away, and the directory below answers.
        if file.metadata()?.dev() != device {
            fs::remove_file(&path)?;
            return Err(io::Error::other("the mount is gone"));
        }
        for _ in 0..8 {
            file.write_all(&block)?;
        }
        file.sync_all()?;
        back.clear();
        File::open(&path)?.read_to_end(&mut back)?;
        if back.len() != 8 * block.len() {
            return Err(io::Error::other(format!("read {} bytes back", back.len())));
        }
        fs::remove_file(&path)?;
        if round == 0 {
            println!("started");
            io::stdout().flush()?;
        }
    }
    Ok(())
}
