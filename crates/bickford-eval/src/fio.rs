//! Rows 1 to 36 of FAST'17: jobs for fio and what it answers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::measure::{OpLatency, Work};

/// fio tells times in whole milliseconds.
const TICK_S: f64 = 0.001;
/// A tick that is less of a run's time than this is less than what rounds scatter by.
const COARSE: f64 = 0.01;

/// How a job goes through its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Access {
    SeqRead,
    RandRead,
    SeqWrite,
    RandWrite,
}

/// One of rows 1 to 36.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FioSpec {
    /// How files are gone through.
    pub access: Access,
    /// Threads.
    pub threads: u64,
    /// 1: all threads use one file; otherwise each thread has its own.
    pub files: u64,
    /// I/O size in KiB.
    pub io_kib: u64,
    /// Bytes of all files together.
    pub bytes: u64,
}

impl FioSpec {
    /// The paper's name of the workload.
    #[must_use]
    pub fn name(&self) -> String {
        let access = match self.access {
            Access::SeqRead => "seq-rd",
            Access::RandRead => "rnd-rd",
            Access::SeqWrite => "seq-wr",
            Access::RandWrite => "rnd-wr",
        };
        format!("{access}-{}th-{}f", self.threads, self.files)
    }

    /// True where the files are only read, so that they serve the next round too.
    #[must_use]
    pub fn reads(&self) -> bool {
        matches!(self.access, Access::SeqRead | Access::RandRead)
    }

    /// True where the files must exist before the run.
    #[must_use]
    pub fn needs_files(&self) -> bool {
        self.access != Access::SeqWrite
    }

    /// Size of one file in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.bytes / self.files.max(1)
    }

    /// The files under `dir`.
    #[must_use]
    pub fn paths(&self, dir: &Path) -> Vec<PathBuf> {
        (0..self.files)
            .map(|n| dir.join(format!("data.{n}")))
            .collect()
    }

    /// Operations of one thread. Sequential jobs go through the whole file; random ones do the same
    /// total in every thread count: an eighth of the file in 4 KiB pieces, half of it in 32 KiB ones,
    /// all of it in larger ones.
    #[must_use]
    pub fn operations(&self) -> u64 {
        let io = self.io_kib << 10;
        if matches!(self.access, Access::SeqRead | Access::SeqWrite) {
            return self.file_bytes() / io;
        }
        let share = match self.io_kib {
            0..=4 => 8,
            5..=32 => 2,
            _ => 1,
        };
        (self.bytes / io / share / self.threads.max(1)).max(1)
    }

    /// The arguments of fio for files under `dir`.
    #[must_use]
    pub fn arguments(&self, dir: &Path) -> Vec<OsString> {
        let mode = match self.access {
            Access::SeqRead => "read",
            Access::RandRead => "randread",
            Access::SeqWrite => "write",
            Access::RandWrite => "randwrite",
        };
        let mut arguments: Vec<OsString> = [
            format!("--name={}", self.name()),
            format!("--rw={mode}"),
            format!("--bs={}k", self.io_kib),
            format!("--size={}", self.file_bytes()),
            format!("--numjobs={}", self.threads),
            format!("--number_ios={}", self.operations()),
        ]
        .into_iter()
        .chain(
            // Caches are dropped before the run, by us: fio's own invalidation would only cost. No
            // posix_fadvise(2): Filebench gives none, and it would tell the mount's file how it is read but
            // not the lower one. A write counts as done when it is on the device (end_fsync), as in a
            // job 15 times the memory.
            [
                "--ioengine=psync",
                "--thread",
                "--group_reporting",
                "--output-format=json",
                "--eta=never",
                "--invalidate=0",
                "--fadvise_hint=0",
                "--fallocate=none",
                "--randrepeat=1",
                "--norandommap=1",
                "--allow_file_create=1",
                "--end_fsync=1",
            ]
            .map(String::from),
        )
        .map(OsString::from)
        .collect();
        if self.files == 1 {
            // With `filename_format` the threads of fio would share one position in the file, and all of
            // them together do what one should.
            let path = dir.join("data.0");
            let escaped = path
                .to_string_lossy()
                .replace('\\', "\\\\")
                .replace(':', "\\:");
            arguments.push(format!("--filename={escaped}").into());
        } else {
            let mut directory = OsString::from("--directory=");
            directory.push(dir);
            arguments.push(directory);
            arguments.push("--filename_format=data.$jobnum".into());
        }
        arguments
    }
}

/// Reads what fio printed with `--output-format=json --group_reporting` for `spec`.
///
/// # Errors
/// What is missing in the answer, fio's own error number, or that it did not do all of the work.
pub fn answer(spec: &FioSpec, output: &str) -> Result<Work, String> {
    let work = parse(output)?;
    let wanted = spec.operations() * spec.threads;
    if work.operations == wanted {
        return Ok(work);
    }
    Err(format!(
        "fio did {} of {wanted} operations",
        work.operations
    ))
}

/// The part of a run's time that fio's own does not tell, where it matters; else 0.
#[must_use]
pub fn coarseness(work: &Work) -> f64 {
    let part = TICK_S / work.elapsed_s.max(TICK_S);
    if part > COARSE { part } else { 0.0 }
}

fn parse(output: &str) -> Result<Work, String> {
    // fio prints warnings before the document.
    let start = output
        .find('{')
        .ok_or_else(|| "fio printed no JSON".to_owned())?;
    let document: Value = serde_json::from_str(output.get(start..).unwrap_or_default())
        .map_err(|e| format!("fio's answer is not JSON: {e}"))?;
    let job = document
        .pointer("/jobs/0")
        .ok_or("fio's answer has no job")?;
    if let Some(error) = job.get("error").and_then(Value::as_i64)
        && error != 0
    {
        return Err(format!(
            "fio ended with error {error}: {}",
            std::io::Error::from_raw_os_error(error as i32)
        ));
    }
    let number = |v: &Value, path: &str| v.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    let mut work = Work::default();
    for (name, side) in [("read", job.get("read")), ("write", job.get("write"))] {
        let Some(side) = side else { continue };
        let count = number(side, "/total_ios") as u64;
        if count == 0 {
            continue;
        }
        work.operations += count;
        work.bytes += number(side, "/io_bytes") as u64;
        work.elapsed_s = work.elapsed_s.max(number(side, "/runtime") / 1000.0);
        let at =
            |percentile: &str| number(side, &format!("/clat_ns/percentile/{percentile}")) / 1000.0;
        work.latencies.push(OpLatency {
            op: name.to_owned(),
            count,
            mean_us: number(side, "/clat_ns/mean") / 1000.0,
            p50_us: at("50.000000"),
            p95_us: at("95.000000"),
            p99_us: at("99.000000"),
            p999_us: at("99.900000"),
            max_us: number(side, "/clat_ns/max") / 1000.0,
        });
    }
    if work.operations == 0 {
        return Err("fio did no operation".to_owned());
    }
    Ok(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(access: Access, threads: u64, io_kib: u64) -> FioSpec {
        FioSpec {
            access,
            threads,
            files: 1,
            io_kib,
            bytes: 1 << 30,
        }
    }

    #[test]
    fn random_jobs_do_the_same_total_in_any_thread_count() {
        let one = spec(Access::RandRead, 1, 4);
        let many = spec(Access::RandRead, 32, 4);
        assert_eq!(one.operations(), many.operations() * 32);
        assert_eq!(spec(Access::SeqRead, 32, 4).operations(), (1 << 30) / 4096);
    }

    #[test]
    fn each_thread_has_its_own_file_only_where_the_row_says_so() {
        let text = |s: &FioSpec| {
            let all = s.arguments(Path::new("/x"));
            all.iter()
                .map(|a| a.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(text(&spec(Access::SeqRead, 32, 4)).contains("--filename=/x/data.0"));
        let own = FioSpec {
            files: 32,
            ..spec(Access::SeqWrite, 32, 4)
        };
        assert!(
            text(&own).contains("--filename_format=data.$jobnum --size=")
                || text(&own).contains("data.$jobnum")
        );
        assert_eq!(own.file_bytes(), 32 << 20);
    }

    #[test]
    fn reads_an_answer() {
        let answer = r#"fio: a warning
{"jobs":[{"error":0,"read":{"total_ios":2000,"io_bytes":8192000,"runtime":40,
"clat_ns":{"mean":39000.0,"max":543881,"percentile":{"50.000000":37632,"99.000000":95744}}},
"write":{"total_ios":0}}]}"#;
        let work = parse(answer).unwrap();
        assert_eq!((work.operations, work.bytes), (2000, 8_192_000));
        assert!((work.elapsed_s - 0.04).abs() < 1e-9);
        assert_eq!(work.latencies.len(), 1);
        assert!((work.latencies[0].p99_us - 95.744).abs() < 1e-9);
    }

    #[test]
    fn a_millisecond_matters_in_a_short_run_only() {
        let of = |elapsed_s| {
            coarseness(&Work {
                elapsed_s,
                ..Work::default()
            })
        };
        assert_eq!([of(0.0), of(0.001), of(0.02)], [1.0, 1.0, 0.05]);
        assert_eq!([of(0.12), of(60.0)], [0.0; 2]);
    }

    #[test]
    fn work_that_was_not_done_is_no_result() {
        let output = r#"{"jobs":[{"error":0,"read":{"total_ios":262144,"runtime":40}}]}"#;
        assert!(answer(&spec(Access::SeqRead, 1, 4), output).is_ok());
        let error = answer(&spec(Access::SeqRead, 32, 4), output).unwrap_err();
        assert_eq!(error, "fio did 262144 of 8388608 operations");
    }

    #[test]
    fn tells_what_is_wrong_with_an_answer() {
        assert!(parse("no").unwrap_err().contains("no JSON"));
        assert!(parse("{\"jobs\":[]}").unwrap_err().contains("no job"));
        assert!(
            parse(r#"{"jobs":[{"error":28}]}"#)
                .unwrap_err()
                .contains("No space left")
        );
        assert!(
            parse(r#"{"jobs":[{"error":0,"read":{"total_ios":0}}]}"#)
                .unwrap_err()
                .contains("no operation")
        );
    }
}
