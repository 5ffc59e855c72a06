//! The flags that every program has.

use std::path::PathBuf;

use bickford::mount::split_options;

use crate::failure::Failure;
use crate::logging::Log;

/// Those of mount.fuse3(8), and of the log.
#[derive(Debug, Clone, clap::Args)]
// Its name is free for a structure of the program.
#[group(skip)]
pub struct Flags {
    /// Stay in the foreground; log to standard error
    #[arg(short = 'f', long)]
    pub foreground: bool,

    /// As -f, with --log=debug unless --log is given
    #[arg(short = 'd', long)]
    pub debug: bool,

    /// Serve with one thread
    #[arg(short = 's', long, conflicts_with = "workers")]
    pub single_thread: bool,

    /// Mount options: the kernel's of mount.fuse3(8), and those of mount(8); NAME=VALUE also for the long flags here
    ///
    /// fsname, subtype, allow_other, allow_root, default_permissions, max_read, auto_unmount, blkdev, blksize, ro, and the
    /// flags common to all file systems; root_kind where no directory is passed through. A comma in a value is written as '\,'. With remount those flags
    /// are changed on the mount that is there, and nothing else is.
    #[arg(short = 'o', value_name = "OPT[,OPT]", action = clap::ArgAction::Append)]
    pub options: Vec<String>,

    /// Log counts and latencies by request when the mount ends; SIGUSR1 logs them at any time
    #[arg(long)]
    pub stats: bool,

    /// What to log: LEVEL or MODULE=LEVEL, separated by commas
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,

    /// Append the log to a file; without it a daemon logs to syslog
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub log_file: Option<PathBuf>,

    /// Ignore mount options that are not known
    #[arg(long, hide = true)]
    pub sloppy: bool,
}

impl Flags {
    /// Whether it is served by the process that was called.
    #[must_use]
    pub fn in_foreground(&self) -> bool {
        self.foreground || self.debug
    }

    /// The options of all `-o`, one by one.
    pub fn split_options(&self) -> impl Iterator<Item = String> {
        self.options.iter().flat_map(|text| split_options(text))
    }

    /// Starts the log. `modules` as for [`Log::start`].
    ///
    /// # Errors
    /// As there.
    pub fn start_log(&self, modules: &[&str], daemon: bool) -> Result<Log, Failure> {
        let default = if self.debug { "debug" } else { "info" };
        let filter = self.log.as_deref().unwrap_or(default);
        Log::start(filter, modules, self.log_file.as_deref(), daemon)
    }
}
