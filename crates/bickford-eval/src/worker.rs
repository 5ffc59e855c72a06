//! The part that touches the file system under test, in a process of its own: it can be limited,
//! accounted, and killed when the file system hangs.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, BufReader, BufWriter, IntoInnerError, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::engine::{self, Backend, Block, pattern};
use crate::measure::{OpLatency, Work, histogram};
use crate::rows::{Kind, Phase};
use crate::sys::close;
use crate::wml::{self, Workload};

/// glibc gives a stream a buffer of the file's block size, 4 KiB on ext4.
const STDIO_BUFFER: usize = 4096;
/// Bonnie's block.
const BLOCK: usize = 16 << 10;

/// The engine's own cost is measured on at least this part of the papers' work: less would be over
/// before all its threads run.
const NULL_SCALE: f64 = 0.05;

/// What the worker is told to do, as JSON on its standard input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Job {
    /// Makes the files of a row.
    Prepare {
        /// The row's kind.
        kind: Kind,
        /// Where.
        directory: PathBuf,
    },
    /// Asks a mount for its root, which is answered once it serves.
    Reach {
        /// Where.
        directory: PathBuf,
    },
    /// Reads the file of a row of a single file, so that caches hold of it what they can.
    Warm {
        /// Where.
        directory: PathBuf,
    },
    /// Runs a row.
    Run {
        /// The row's kind.
        kind: Kind,
        /// Where.
        directory: PathBuf,
    },
    /// Runs a workload in WML without a file system: the engine's own cost.
    Null {
        /// The row's kind.
        kind: Kind,
    },
}

/// What the worker prints.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Done(Work),
    Failed(String),
}

/// Does `job`, given as JSON, and prints the answer as JSON.
pub(crate) fn answer(job: &str) -> String {
    let job: Result<Job, String> = serde_json::from_str(job).map_err(|e| format!("the job: {e}"));
    let answer = match job.and_then(|job| perform(&job)) {
        Ok(work) => Answer::Done(work),
        Err(error) => Answer::Failed(error),
    };
    serde_json::to_string(&answer).unwrap_or_else(|e| format!("{{\"failed\":\"{e}\"}}"))
}

/// The name of the file that rows of a single file use.
pub(crate) fn single_file(directory: &Path) -> PathBuf {
    directory.join("file")
}

pub(crate) fn perform(job: &Job) -> Result<Work, String> {
    match job {
        Job::Prepare { kind, directory } => prepare(kind, directory).map(|()| Work::default()),
        Job::Reach { directory } => {
            let reached = fs::metadata(directory).map(|_| Work::default());
            reached.map_err(|e| format!("stat {}: {e}", directory.display()))
        }
        Job::Warm { directory } => {
            let path = single_file(directory);
            let read = read_blocks(&path).map(|_| Work::default());
            read.map_err(|e| format!("read {} beforehand: {e}", path.display()))
        }
        Job::Null { kind } => {
            let Kind::Wml { text, scale } = kind else {
                return Err("not a workload in WML".into());
            };
            let large = Kind::Wml {
                text: text.clone(),
                scale: scale.max(NULL_SCALE),
            };
            engine::run(&workload(&large)?, Path::new("/nonexistent"), Backend::Null)
        }
        Job::Run { kind, directory } => match kind {
            Kind::Wml { .. } => engine::run(&workload(kind)?, directory, Backend::Posix),
            Kind::Bonnie { phase, bytes } => {
                let path = single_file(directory);
                bonnie(*phase, &path, *bytes).map_err(|e| format!("{}: {e}", path.display()))
            }
            Kind::BufferWrite {
                buffer,
                bytes,
                times,
            } => {
                let path = single_file(directory);
                buffer_write(&path, *buffer, *bytes, *times)
                    .map_err(|e| format!("{}: {e}", path.display()))
            }
            Kind::Fio(_) | Kind::Postmark { .. } | Kind::Copy { .. } => {
                Err("this row is run by a program of its own".into())
            }
        },
    }
}

fn workload(kind: &Kind) -> Result<Workload, String> {
    let Kind::Wml { text, scale } = kind else {
        return Err("not a workload in WML".into());
    };
    wml::scaled(text, *scale).map_err(|e| e.to_string())
}

fn prepare(kind: &Kind, directory: &Path) -> Result<(), String> {
    let fill = |path: &Path, bytes: u64| {
        fill(path, bytes).map_err(|e| format!("write {} bytes to {}: {e}", bytes, path.display()))
    };
    match kind {
        Kind::Wml { .. } => engine::prepare(&workload(kind)?, directory),
        Kind::Fio(spec) if spec.needs_files() => spec
            .paths(directory)
            .iter()
            .try_for_each(|p| fill(p, spec.file_bytes())),
        Kind::Bonnie { phase, bytes } if phase.reads() => fill(&single_file(directory), *bytes),
        Kind::Copy { bytes } => fill(&single_file(directory), *bytes),
        Kind::Fio(_) | Kind::Bonnie { .. } | Kind::BufferWrite { .. } | Kind::Postmark { .. } => {
            Ok(())
        }
    }
}

pub(crate) fn fill(path: &Path, bytes: u64) -> io::Result<()> {
    engine::fill(path, bytes, &pattern(1 << 20))?.sync_all()
}

fn work(bytes: u64, operations: u64, begun: Instant) -> Work {
    Work {
        operations,
        bytes,
        files: 0,
        elapsed_s: begun.elapsed().as_secs_f64(),
        ..Work::default()
    }
}

fn bonnie(phase: Phase, path: &Path, bytes: u64) -> io::Result<Work> {
    let begun = Instant::now();
    match phase {
        Phase::PutChar => {
            let mut stream = BufWriter::with_capacity(STDIO_BUFFER, File::create(path)?);
            for n in 0..bytes {
                stream.write_all(black_box(&[n as u8]))?;
            }
            close(stream.into_inner().map_err(IntoInnerError::into_error)?)?;
            Ok(work(bytes, bytes, begun))
        }
        Phase::WriteBlock => {
            let block = pattern(BLOCK);
            let mut file = File::create(path)?;
            let blocks = bytes / BLOCK as u64;
            for _ in 0..blocks {
                file.write_all(&block)?;
            }
            close(file)?;
            Ok(work(blocks * BLOCK as u64, blocks, begun))
        }
        Phase::GetCharWarm | Phase::GetCharCold => {
            let mut stream = BufReader::with_capacity(STDIO_BUFFER, File::open(path)?);
            let mut byte = [0];
            let mut count = 0;
            while stream.read(&mut byte)? == 1 {
                black_box(byte);
                count += 1;
            }
            close(stream.into_inner())?;
            Ok(work(count, count, begun))
        }
        Phase::ReadBlockWarm | Phase::ReadBlockCold => {
            let count = read_blocks(path)?;
            Ok(work(count, count / BLOCK as u64, begun))
        }
    }
}

fn read_blocks(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut block = Block::new(BLOCK);
    let mut total = 0;
    loop {
        let count = file.read(&mut block)?;
        if count == 0 {
            return close(file).map(|()| total);
        }
        total += black_box(count) as u64;
    }
}

fn buffer_write(path: &Path, buffer: u64, bytes: u64, times: u64) -> io::Result<Work> {
    let block = pattern(buffer as usize);
    let mut latency = histogram().map_err(io::Error::other)?;
    let mut elapsed_s = 0.0;
    for _ in 0..times {
        // Removing the file is not part of the experiment.
        if path.exists() {
            fs::remove_file(path)?;
        }
        let begun = Instant::now();
        let mut file = File::create(path)?;
        for _ in 0..bytes / buffer {
            let one = Instant::now();
            file.write_all(&block)?;
            latency.saturating_record(one.elapsed().as_nanos().max(1) as u64);
        }
        close(file)?;
        elapsed_s += begun.elapsed().as_secs_f64();
    }
    Ok(Work {
        operations: latency.len(),
        bytes: bytes * times,
        files: times,
        elapsed_s,
        latencies: vec![OpLatency::of("write", &latency)],
        ..Work::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(kind: Kind, directory: &Path) -> Result<Work, String> {
        perform(&Job::Prepare {
            kind: kind.clone(),
            directory: directory.to_owned(),
        })?;
        perform(&Job::Run {
            kind,
            directory: directory.to_owned(),
        })
    }

    #[test]
    fn every_phase_moves_every_byte() {
        for (phase, _) in Phase::ALL {
            let directory = tempfile::tempdir().unwrap();
            let bytes = 1 << 20;
            let work = run(Kind::Bonnie { phase, bytes }, directory.path()).unwrap();
            assert_eq!(work.bytes, bytes, "{phase:?}");
            assert_eq!(
                fs::metadata(single_file(directory.path())).unwrap().len(),
                bytes
            );
        }
    }

    /// What this thread has read by system calls; `None` where the kernel does not count it.
    fn bytes_read() -> Option<u64> {
        let counts = fs::read_to_string("/proc/thread-self/io").ok()?;
        let line = counts.lines().find_map(|l| l.strip_prefix("rchar: "))?;
        line.parse().ok()
    }

    #[test]
    fn a_warm_phase_reads_the_file_once_and_what_warms_it_is_a_job_of_its_own() {
        let (directory, bytes) = (tempfile::tempdir().unwrap(), 1 << 20);
        let place = || directory.path().to_owned();
        for phase in [Phase::GetCharWarm, Phase::ReadBlockWarm] {
            let kind = Kind::Bonnie { phase, bytes };
            perform(&Job::Prepare {
                kind: kind.clone(),
                directory: place(),
            })
            .unwrap();
            let warm = Job::Warm { directory: place() };
            let run = Job::Run {
                kind,
                directory: place(),
            };
            for job in [warm, run] {
                let Some(before) = bytes_read() else {
                    crate::terminal::warn("skipped: no /proc/thread-self/io");
                    return;
                };
                perform(&job).unwrap();
                let read = bytes_read().unwrap() - before;
                assert!((bytes..bytes * 3 / 2).contains(&read), "{job:?}: {read}");
            }
        }
    }

    #[test]
    fn figure_2_writes_the_file_as_often_as_asked() {
        let directory = tempfile::tempdir().unwrap();
        let kind = Kind::BufferWrite {
            buffer: 4096,
            bytes: 64 << 10,
            times: 3,
        };
        let work = run(kind, directory.path()).unwrap();
        assert_eq!(
            (work.operations, work.bytes, work.latencies[0].count),
            (48, 3 << 16, 48)
        );
    }

    #[test]
    fn a_bad_job_and_a_bad_directory_are_answered_not_panicked() {
        assert!(answer("nonsense").contains("failed"));
        let kind = Kind::Bonnie {
            phase: Phase::PutChar,
            bytes: 10,
        };
        let directory = || "/nonexistent".into();
        let run = Job::Run {
            kind,
            directory: directory(),
        };
        let error = perform(&run).unwrap_err();
        assert!(error.contains("/nonexistent/file"), "{error}");
        let reach = Job::Reach {
            directory: directory(),
        };
        let error = perform(&reach).unwrap_err();
        assert!(error.starts_with("stat /nonexistent: "), "{error}");
    }
}
