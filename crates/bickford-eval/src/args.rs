//! The command line of `bickford eval`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::host::device::Choice;
use crate::target::ConfigArguments;

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// One row of each kind, small
    Quick,
    /// Figures 2, 3a to 3f, 4 and 5 of SAC'10
    Sac10,
    /// The 45 rows of FAST'17
    Fast17,
}

impl Suite {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Sac10 => "sac10",
            Self::Fast17 => "fast17",
        }
    }
}

/// Options that say what is to be run, which the results of a run already tell.
const OF_A_RUN: [&str; 10] = [
    "suite", "rows", "workload", "config", "device", "dir", "scale", "rounds", "deadline",
    "bickford",
];

/// Measure what a user-space file system costs, against the native one below it.
///
/// Every row runs in every configuration, interleaved; the first round is not counted. Results are kept
/// row by row; Ctrl-C keeps what is done.
#[derive(Debug, Clone, clap::Args)]
pub struct EvalArgs {
    /// What to run
    #[arg(long, value_enum, default_value = "quick")]
    pub suite: Suite,

    /// Run only these rows of the suite (their identifiers, as `f01` or `s4`)
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub rows: Vec<String>,

    /// Run this workload in Filebench's WML instead of the suite's rows; may be repeated
    #[arg(long, value_name = "FILE.f")]
    pub workload: Vec<PathBuf>,

    /// What to compare with the native file system: base, opt, fast, JavaFuse1, JavaFuse2,
    /// JavaFuse-shared, or NAME='COMMAND {src} {mnt}'; may be repeated, or names with commas between
    /// [default: base, opt, fast; for sac10 also JavaFuse where the Java binding is built]
    #[arg(long, value_name = "NAME[=COMMAND]")]
    pub config: Vec<ConfigArguments>,

    /// Where the lower file system lives: `disk` and `ram` are a fresh ext4 on a loop device (root);
    /// a directory is used as it is
    #[arg(long, value_name = "disk|ram|DIR", default_value = "disk")]
    pub device: Choice,

    /// Directory for the loop device's file and the mount points
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,

    /// Size of files, counts and memory against the papers' [default: 1 for quick, else 1/60 for
    /// fast17 and 1 for sac10]
    #[arg(long, value_name = "FACTOR")]
    pub scale: Option<f64>,

    /// Counted rounds; one more runs first and is not counted
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,

    /// Seconds after which a run of a row is ended by force
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub deadline: u64,

    /// Directory for the results [default: bickford-eval-SUITE-DATE], or for the pages of --markdown
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Go on with the results in DIR: on the same machine and kernel, with the same rights, on the same file system, with
    /// the same switch for FUSE over io_uring, the same programs and what else was asked for when they were begun
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "compare", "report"].into_iter().chain(OF_A_RUN))]
    pub resume: Option<PathBuf>,

    /// With --resume: run again what ended with an error; its result stays until there is another
    #[arg(long, requires = "resume")]
    pub retry_failed: bool,

    /// Make the report of the results in DIR again and run nothing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["compare", "out"].into_iter().chain(OF_A_RUN))]
    pub report: Option<PathBuf>,

    /// Print a page in Markdown about the results in these directories, beside the papers', and run
    /// nothing; with --out write `papers.md` and, for each run, a page of reasons in `papers/` there
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["compare", "report", "resume"].into_iter().chain(OF_A_RUN))]
    pub markdown: Vec<PathBuf>,

    /// Show what changed between two runs (directories or `report.json`)
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["out"].into_iter().chain(OF_A_RUN))]
    pub compare: Option<Vec<PathBuf>>,

    /// Check the evaluation itself: whether its programs agree, what the engine takes for itself, and
    /// whether the stages of requests add up to what callers wait; --out keeps the result (root)
    #[arg(long, conflicts_with_all = ["compare", "report", "resume", "markdown", "suite", "rows", "workload", "config", "scale", "deadline", "list"])]
    pub self_check: bool,

    /// List the suite's rows and run nothing
    #[arg(long, conflicts_with_all = ["compare", "report", "resume", "markdown"])]
    pub list: bool,

    /// The bickford command that mounts base, opt and fast [default: this one]
    #[arg(long, value_name = "FILE")]
    pub bickford: Option<PathBuf>,

    /// Do one job, which standard input tells, for another process of this program
    #[arg(long, hide = true)]
    pub worker: bool,
}

/// How the evaluation speaks to its user, and how it starts itself again.
#[derive(Debug, Clone)]
pub struct Ui {
    /// Show a progress bar and messages on standard error.
    pub progress: bool,
    /// Program and leading arguments that lead to [`crate::run`] again.
    pub again: Vec<OsString>,
    /// The program that mounts the presets, unless `--bickford` names one.
    pub bickford: PathBuf,
}

impl Ui {
    /// For a program that comes to [`crate::run`] by the words `subcommand` on its command line
    /// (`["eval"]` for `bickford eval`).
    ///
    /// # Errors
    /// The program's own file is not known.
    pub fn new(subcommand: &[&str]) -> std::io::Result<Self> {
        let program = std::env::current_exe()?;
        let mut again = vec![program.clone().into_os_string()];
        again.extend(subcommand.iter().map(OsString::from));
        let own = program.file_name().is_some_and(|n| n == "bickford");
        let bickford = if own {
            program
        } else {
            PathBuf::from("bickford")
        };
        Ok(Self {
            progress: true,
            again,
            bickford,
        })
    }
}
