//! A program that serves a file system, from its command line to its end.

mod invocation;
mod line;
mod start;

use std::collections::HashSet;
use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use bickford::mount::OptionError;
use bickford::{FileSystem, MountOptions, SessionConfig, Workers, path};
use bickford_layers::Registry;

pub use self::invocation::{Invocation, Mounted};
use self::line::Line;
use crate::apart;
use crate::failure::Failure;
use crate::helper::is_helper;
use crate::remount::REMOUNT;
use crate::status::{self, Status};
use crate::{lift, signals, terminal};

/// What opening a file system comes to; the error is what the user is told, so that it says what failed, on what,
/// and why.
pub type Opened<F> = Result<F, Box<dyn Error + Send + Sync>>;

/// No flags but those that every program has.
#[derive(Debug, Clone, clap::Args)]
pub struct NoArguments {}

/// What the first of two paths on the command line is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// Nothing that the file system needs: `[SOURCE] MOUNTPOINT`.
    Any,
    /// A file or directory, by this name in the help.
    Path(String),
    /// Anything else, such as `HOST:DIRECTORY`.
    Name(String),
}

/// A program that serves one file system, as `mount.fuse3(8)`, mount(8), fstab(5) and people call it. The
/// counterpart of libfuse's `fuse_main`.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use bickford::path::{Adapter, FileSystem, Options};
/// use bickford_program::Program;
///
/// struct Hello;
/// impl FileSystem for Hello {}
///
/// fn main() -> ExitCode {
///     Program::new("hello")
///         .path_options(Options::default())
///         .run(|given| Ok(Adapter::new(Hello, given.path_options)))
/// }
/// ```
///
/// `hello MOUNTPOINT` returns when the mount answers, with status 0, and serves it in the background; or says why
/// there is none, with another status. With `-f` or `-d` it stays in the foreground. `--help` tells of all flags.
/// The background is the program itself run again, and so is what unmounts when a signal comes: what stands in `main`
/// before this happens in each of these processes, and so does what stands after it, in the one that was called when the
/// mount answers: what is to be done at the end of the mount belongs into the file system's `destroy`, or is the drop of
/// what [`Invocation::keep`] has. The file system is opened in the one that serves it.
pub struct Program<A = NoArguments> {
    name: String,
    about: String,
    version: String,
    source: Source,
    mount_options: MountOptions,
    path_options: Option<path::Options>,
    session: SessionConfig,
    registry: Registry,
    modules: Vec<String>,
    flags: Vec<clap::Arg>,
    foreground_only: bool,
    arguments: std::marker::PhantomData<fn() -> A>,
}

impl Program {
    /// Of this name: in messages, in the log, and in /proc/mounts, where the type is `fuse.NAME`. No path is needed
    /// but the mount point; fstab(5) gives another, which is shown as source (`fsname`).
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            about: String::new(),
            version: String::new(),
            source: Source::Any,
            mount_options: MountOptions::new(),
            path_options: None,
            session: SessionConfig::default(),
            registry: Registry::default(),
            modules: Vec::new(),
            flags: Vec::new(),
            foreground_only: false,
            arguments: std::marker::PhantomData,
        }
    }

    /// With flags of its own, which [`Invocation::arguments`] has. They need long names, and may then stand in `-o`
    /// as well, as `NAME=VALUE`; what they are called must be none of the names that `--help` shows already. One that is
    /// called like an option of mount(8), such as `sync`, is that option in `-o`.
    #[must_use]
    pub fn arguments<A: clap::Args>(self) -> Program<A> {
        Program {
            name: self.name,
            about: self.about,
            version: self.version,
            source: self.source,
            mount_options: self.mount_options,
            path_options: self.path_options,
            session: self.session,
            registry: self.registry,
            modules: self.modules,
            flags: self.flags,
            foreground_only: self.foreground_only,
            arguments: std::marker::PhantomData,
        }
    }
}

impl<A: clap::Args> Program<A> {
    /// What it serves, in a line, for `--help`.
    #[must_use]
    pub fn about(mut self, text: impl Into<String>) -> Self {
        self.about = text.into();
        self
    }

    /// What `--version` shows after the name: `env!("CARGO_PKG_VERSION")`.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// It needs a file or directory, called so in the help, before the mount point. [`Invocation::source`] is its
    /// absolute path, and so is what /proc/mounts shows.
    #[must_use]
    pub fn source_path(mut self, shown: impl Into<String>) -> Self {
        self.source = Source::Path(shown.into());
        self
    }

    /// It needs something else before the mount point, such as `HOST:DIRECTORY`, called so in the help.
    #[must_use]
    pub fn source_name(mut self, shown: impl Into<String>) -> Self {
        self.source = Source::Name(shown.into());
        self
    }

    /// Mount options that hold where the command line says nothing else.
    #[must_use]
    pub fn mount_options(mut self, options: MountOptions) -> Self {
        self.mount_options = options;
        self
    }

    /// It is a file system over paths: `-o` has the options of [`path::Options`] as well, and these hold where it does
    /// not say otherwise.
    #[must_use]
    pub fn path_options(mut self, options: path::Options) -> Self {
        self.path_options = Some(options);
        self
    }

    /// How it is served where the command line says nothing else; one with [`Workers::SINGLE`]
    /// gets no more threads from there.
    #[must_use]
    pub fn session_config(mut self, config: SessionConfig) -> Self {
        self.session = config;
        self
    }

    /// The layers that `--layer` knows; by default those of [`bickford_layers`].
    #[must_use]
    pub fn layers(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// The names of crates whose modules `--log` knows, besides Bickford's and that of this program's name.
    #[must_use]
    pub fn log_modules(mut self, names: &[&str]) -> Self {
        self.modules
            .extend(names.iter().map(|name| (*name).to_owned()));
        self
    }

    /// A flag besides those of [`Program::arguments`], for what is known only at run time; [`Invocation::matches`] has
    /// it. The same holds for its name.
    #[must_use]
    pub fn flag(mut self, flag: clap::Arg) -> Self {
        self.flags.push(flag);
        self
    }

    /// It cannot be run again with its command line, as one that an interpreter reads from standard input: without `-f`
    /// it is refused.
    #[must_use]
    pub fn foreground_only(mut self) -> Self {
        self.foreground_only = true;
        self
    }

    /// The command line, for man pages, completions, and tests (`debug_assert`).
    #[must_use]
    pub fn command(&self) -> clap::Command {
        Line::<A>::command(self)
    }

    /// Does what the command line asks for, and answers with the status for `main`.
    ///
    /// `open` is called in the process that serves, before anything is mounted; its error is what the user is told.
    /// The current directory is still that of the caller, and so are terminal and standard input, so that it may ask for
    /// a password; a process in the background leaves both when it has returned, and the directory for `/` once the mount
    /// answers. What it starts, such as ssh(1), stays with the caller's terminal, and ends with ^C or a hangup there, unless it
    /// calls setsid(2). The log is this one's: no subscriber of tracing is set before. Where a panic unwinds out of it, nothing
    /// is mounted.
    ///
    /// SIGINT, SIGTERM and SIGHUP unmount, and SIGUSR1 logs statistics; where there is a handler for one of the last two when
    /// `open` has returned, that one stays instead.
    ///
    /// The status is 0 when the mount answers, or in the foreground has ended; called as `mount.TYPE`, 1 where the
    /// command line is wrong and 32 where it cannot be mounted, as mount(8) has it; otherwise 2 and 1.
    pub fn run<F, O>(self, open: O) -> ExitCode
    where
        F: FileSystem,
        O: FnOnce(&mut Invocation<A>) -> Opened<F>,
    {
        self.run_as(std::env::args_os().collect(), open).into()
    }

    /// The same for a command line that is not the process's own, as where an interpreter runs the program: `words`
    /// begins with the program's name. The background runs the process's own command line again, which has to come to the
    /// same words.
    pub fn run_as<F, O>(self, words: Vec<OsString>, open: O) -> Status
    where
        F: FileSystem,
        O: FnOnce(&mut Invocation<A>) -> Opened<F>,
    {
        terminal::set_name(&self.name);
        if let Err(failure) = signals::outlive_readers() {
            return status::fail(&failure, Status::FAILURE);
        }
        if let Some(status) = apart::unmount_if_asked() {
            return status;
        }
        let helper = is_helper(words.first());
        let call = match line::form(words.clone()) {
            Ok(call) => call,
            Err(error) => return status::fail(&Failure::from(error), status::USAGE),
        };
        let arguments = match call.version {
            true => vec![OsString::from("--version")],
            false => call.arguments,
        };
        if let Err(failure) = check_flags(&Line::<A>::command(&self)) {
            return status::fail(&failure, Status::FAILURE);
        }
        let line = match Line::parse(&self, arguments) {
            Ok(line) => line,
            Err(error) => return status::say(&error, helper),
        };
        let done = |()| Status::SUCCESS;
        let result = match (call.fake, line.is_remount()) {
            (true, _) => line.check(&self).map(done),
            (false, true) => line.remount(&self, words).map(done),
            (false, false) => line.serve(self, open),
        };
        status::finish(result, helper)
    }

    fn is_single_threaded(&self) -> bool {
        self.session.workers == Workers::SINGLE
    }

    fn modules(&self) -> Vec<String> {
        let own = self.name.replace('-', "_");
        self.modules.iter().cloned().chain([own]).collect()
    }

    /// What is said of a mount option.
    fn of_option(&self, error: &OptionError) -> Failure {
        Failure::of_option(error, &format!("{} --help", self.name))
    }

    /// What may stand in `-o`.
    fn option_names(&self, command: &clap::Command) -> Vec<String> {
        let mut names = MountOptions::known_names()
            .chain([REMOUNT])
            .map(str::to_owned)
            .collect::<Vec<_>>();
        if self.path_options.is_some() {
            names.extend(path::Options::known_names().map(str::to_owned));
        }
        names.extend(lift::own_flags(command).map(str::to_owned));
        names
    }

    fn more_help(&self) -> String {
        let Some(_) = self.path_options else {
            return String::new();
        };
        let names = path::Options::known_names().collect::<Vec<_>>();
        format!("-o has these of fuse(8) as well: {}.", names.join(", "))
    }

    fn long_help(&self) -> String {
        let layers = format!("Layers, with their options:\n{}", self.registry.help());
        match self.more_help() {
            text if text.is_empty() => layers,
            text => format!("{text}\n\n{layers}"),
        }
    }
}

/// Refuses flags of the program that could not be told from others: where assertions are off, the parser takes one of
/// them.
fn check_flags(command: &clap::Command) -> Result<(), Failure> {
    let refused = |name: &str, why: &str| {
        Err(Failure::new(format!(
            "the flag '{name}' of this program {why}; call it otherwise"
        )))
    };
    let mut seen = HashSet::from(["help", "version"]);
    let mut ids = HashSet::new();
    let mut shorts = HashSet::from(['h', 'V']);
    for flag in command.get_arguments() {
        let (id, long) = (flag.get_id().as_str(), flag.get_long());
        if !ids.insert(id) || long.is_some_and(|long| !seen.insert(long)) {
            return refused(id, "has the name of another");
        }
        if let Some(short) = flag.get_short().filter(|short| !shorts.insert(*short)) {
            return refused(id, &format!("has the letter -{short} of another"));
        }
        let is_of_words = |long: &str| {
            let mut letters = long.chars();
            letters
                .next()
                .is_some_and(|first| first.is_ascii_alphanumeric())
                && letters.all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
        };
        if long.is_some_and(|long| !is_of_words(long)) {
            return refused(id, "has other signs than letters, digits, '-', '_' and '.'");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_cannot_be_told_apart_are_refused() {
        let told = |flag: clap::Arg| {
            let program = Program::new("it").flag(flag);
            check_flags(&program.command())
                .err()
                .map(|it| it.to_string())
        };
        let flag = |name: &'static str| clap::Arg::new(name).long(name);
        assert_eq!(told(flag("depth").short('n')), None);
        assert_eq!(told(flag("cache.files")), None);
        for name in ["log", "options", "help", "version", "workers"] {
            let told = told(flag(name)).unwrap();
            assert!(told.contains(name) && told.contains("another"), "{told}");
        }
        for short in ['f', 'h'] {
            assert!(told(flag("depth").short(short)).unwrap().contains(short));
        }
        for name in ["", "-x", ".x", "two words", "a=b", "\u{e9}"] {
            assert!(told(flag(name)).unwrap().contains("signs"), "{name}");
        }
    }
}
