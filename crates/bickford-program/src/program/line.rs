//! The command line of a program.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use bickford::mount::{OptionError, fsname_of, unknown};
use bickford::transport::TransportChoice;
use bickford::{MountOptions, SessionConfig, Workers, path};
use bickford_layers::LayerSpec;
use clap::{Arg, ArgMatches, FromArgMatches, ValueHint};

use super::{Program, Source};
use crate::carrying::{TransportName, Tuning};
use crate::failure::Failure;
use crate::flags::Flags;
use crate::helper::{HelperCall, HelperError, is_helper};
use crate::layers::check_of_a_daemon;
use crate::lift;
use crate::remount::{REMOUNT, Remount};
use crate::words;

/// What every program has.
#[derive(Debug, Clone, clap::Args)]
// Its name is free for a structure of the program.
#[group(skip)]
pub(super) struct Common {
    #[command(flatten)]
    pub(super) flags: Flags,

    /// How requests come in
    #[arg(long, value_enum)]
    transport: Option<TransportName>,

    /// Most threads that handle requests: in all over /dev/fuse, for each CPU over io_uring (2 to 16)
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// A layer over the file system, such as 'log:file=/tmp/log'; may be given again, the first is outermost
    ///
    /// Which there are, and their options, stands below.
    #[arg(long = "layer", value_name = "NAME[:OPTION=VALUE,...]")]
    pub(super) layers: Vec<LayerSpec>,

    #[command(flatten)]
    tuning: Tuning,
}

impl Common {
    /// Refuses more threads than a program can do with that is `single_threaded`.
    pub(super) fn check_workers(&self, single_threaded: bool) -> Result<(), Failure> {
        match self.workers {
            Some(most) if single_threaded && most.get() > 1 => Err(Failure::new(format!(
                "--workers {most}: this program handles one request after the other, and may have one thread only; \
                 leave the option out"
            ))),
            _ => Ok(()),
        }
    }

    /// How it is served, where the program would have it as `config` says.
    pub(super) fn session_config(&self, mut config: SessionConfig) -> SessionConfig {
        if self.flags.single_thread {
            // Over io_uring there is one for each CPU.
            config = config
                .workers(Workers::SINGLE)
                .transport(TransportChoice::DevFuse);
        }
        if let Some(most) = self.workers {
            config = config.workers(Workers::up_to(most.get()));
        }
        if let Some(transport) = self.transport {
            config = config.transport(transport.choice());
        }
        self.tuning.apply(config)
    }
}

/// A command line that was understood.
pub(super) struct Line<A> {
    pub(super) common: Common,
    pub(super) arguments: A,
    pub(super) matches: ArgMatches,
    source: Option<OsString>,
    pub(super) mountpoint: PathBuf,
}

impl<A: clap::Args> Line<A> {
    pub(super) fn command(program: &Program<A>) -> clap::Command {
        let version = format!(
            "{} (bickford {})",
            program.version,
            env!("CARGO_PKG_VERSION")
        );
        let command = clap::Command::new(program.name.clone())
            .version(version.trim_start().to_owned())
            .no_binary_name(true)
            .args_override_self(true);
        let command = A::augment_args(command).args(&program.flags);
        let command = <Common as clap::Args>::augment_args(
            command.next_help_heading("Options of every file system"),
        );
        // After the flags, whose structures have descriptions of their own.
        let command = command
            .about(program.about.clone())
            .long_about(None::<&str>);
        let command = match &program.source {
            Source::Any => command
                .override_usage(format!("{} [OPTIONS] [SOURCE] <MOUNTPOINT>", program.name))
                .arg(positional(FIRST, "MOUNTPOINT").help(format!(
                    "{PLACE}. Two paths are SOURCE and MOUNTPOINT, as in fstab(5): SOURCE is shown as mounted"
                )))
                .arg(positional(SECOND, "MOUNTPOINT").required(false).hide(true)),
            Source::Path(shown) => command
                .arg(positional(FIRST, shown).help("What it opens"))
                .arg(positional(SECOND, "MOUNTPOINT").help(PLACE)),
            Source::Name(shown) => command
                .arg(
                    positional(FIRST, shown)
                        .value_hint(ValueHint::Other)
                        .help("What it shows"),
                )
                .arg(positional(SECOND, "MOUNTPOINT").help(PLACE)),
        };
        command
            .after_help(program.more_help())
            .after_long_help(program.long_help())
    }

    /// Of what stands after the program's name.
    pub(super) fn parse(
        program: &Program<A>,
        arguments: Vec<OsString>,
    ) -> Result<Self, clap::Error> {
        let mut matches = matches(&Self::command(program), arguments)?;
        let first = matches.remove_one::<OsString>(FIRST);
        let (source, mountpoint) = match matches.remove_one(SECOND) {
            Some(second) => (first, second),
            None => (None, first.unwrap_or_default()),
        };
        Ok(Self {
            common: Common::from_arg_matches(&matches)?,
            arguments: A::from_arg_matches(&matches)?,
            matches,
            source,
            mountpoint: mountpoint.into(),
        })
    }

    /// The source as the kernel and the file system are to have it.
    pub(super) fn source(&self, program: &Program<A>) -> OsString {
        let given = || self.source.clone();
        let absolute = || std::path::absolute(self.source.as_ref()?).ok();
        match program.source {
            Source::Path(_) => absolute().map(PathBuf::into_os_string).or_else(given),
            Source::Any | Source::Name(_) => given(),
        }
        .unwrap_or_else(|| program.name.clone().into())
    }

    /// What `-o` says besides flags of the command line.
    pub(super) fn options(
        &self,
        program: &Program<A>,
    ) -> Result<(MountOptions, path::Options), Failure> {
        let start = (program.mount_options.clone(), program.path_options);
        let (mut mount, path) = self.apply(program, self.common.flags.split_options(), start)?;
        let source = self.source(program);
        mount
            .fsname
            .get_or_insert_with(|| fsname_of(Path::new(&source)));
        mount.subtype.get_or_insert_with(|| program.name.clone());
        Ok((mount, path.unwrap_or_default()))
    }

    /// What `-o` has of [`path::Options`], for a file system that has them.
    pub(super) fn path_texts(&self, program: &Program<A>) -> Vec<String> {
        let command = Self::command(program);
        let is_of_paths = |option: &String| {
            let name = option.split('=').next().unwrap_or_default();
            program.path_options.is_some()
                && lift::own_flag(option, &command).is_none()
                && path::Options::known_names().any(|known| known == name)
        };
        let options = self.common.flags.split_options();
        options.filter(is_of_paths).collect()
    }

    fn apply(
        &self,
        program: &Program<A>,
        texts: impl IntoIterator<Item = String>,
        start: (MountOptions, Option<path::Options>),
    ) -> Result<(MountOptions, Option<path::Options>), Failure> {
        let command = Self::command(program);
        let (mut mount, mut path) = start;
        for option in texts {
            if lift::own_flag(&option, &command).is_some() {
                continue;
            }
            let mut set = mount.set(&option);
            if let (Err(OptionError::Unknown { .. }), Some(path)) = (&set, &mut path) {
                set = path.set(&option);
            }
            match set {
                Err(OptionError::Unknown { .. }) if self.common.flags.sloppy => {}
                Err(OptionError::Unknown { option, .. }) => {
                    return Err(
                        program.of_option(&unknown(&option, &program.option_names(&command)))
                    );
                }
                other => other.map_err(|error| program.of_option(&error))?,
            }
        }
        Ok((mount, path))
    }

    /// Says what is wrong, without opening or mounting anything.
    pub(super) fn check(&self, program: &Program<A>) -> Result<(), Failure> {
        if self.is_remount() {
            // What there is to check is the mount itself.
            return Ok(());
        }
        self.options(program)?;
        self.common.check_workers(program.is_single_threaded())?;
        match self.common.flags.in_foreground() {
            true => Ok(()),
            false if program.foreground_only => Err(Failure::new(
                "go into the background: this program cannot be run again, as where an interpreter reads it from \
                 standard input; run it from a file, or use -f to stay in the foreground",
            )),
            false => check_of_a_daemon(&self.common.layers, false),
        }
    }

    pub(super) fn is_remount(&self) -> bool {
        let mut options = self.common.flags.split_options();
        options.any(|option| option == REMOUNT)
    }

    /// `words` as for [`Remount`].
    pub(super) fn remount(
        &self,
        program: &Program<A>,
        words: Vec<OsString>,
    ) -> Result<(), Failure> {
        let mut before = words::own();
        before.truncate(match before.len().saturating_sub(words.len()) {
            0 => 0,
            count => count + 1,
        });
        let command = Self::command(program);
        let others = match program.path_options {
            Some(_) => path::Options::known_names().collect::<Vec<_>>(),
            None => Vec::new(),
        };
        let remount = Remount {
            mountpoint: &self.mountpoint,
            words,
            before,
            options: self.common.flags.split_options().collect(),
            command: &command,
            matches: &|words| matches(&command, form(words).ok()?.arguments).ok(),
            settled: &others,
            apply: &|texts, start| Ok(self.apply(program, texts, (start, None))?.0),
            usage: &format!("{} -o remount,FLAGS SOURCE MOUNTPOINT", program.name),
        };
        remount.run()
    }
}

/// The first path, and the second.
const FIRST: &str = "first path";
const SECOND: &str = "second path";

const PLACE: &str = "Where to mount it, or /dev/fd/N for a mounted descriptor passed by the caller";

fn positional(id: &'static str, shown: &str) -> Arg {
    Arg::new(id)
        .value_name(shown.to_owned())
        .required(true)
        .value_parser(clap::value_parser!(OsString))
        .value_hint(ValueHint::AnyPath)
        .help_heading(None::<&str>)
}

/// What a program is called with, the name first: by mount(8) as its helper, or in any other way.
pub(super) fn form(words: Vec<OsString>) -> Result<HelperCall, HelperError> {
    match is_helper(words.first()) {
        true => HelperCall::parse(words.get(1..).unwrap_or_default()),
        false => Ok(HelperCall {
            arguments: words.into_iter().skip(1).collect(),
            ..HelperCall::default()
        }),
    }
}

/// What a command line asks for, the flags in `-o` included.
fn matches(command: &clap::Command, arguments: Vec<OsString>) -> Result<ArgMatches, clap::Error> {
    let first = command.clone().ignore_errors(true);
    let first = first.try_get_matches_from(&arguments)?;
    let texts = first.get_many::<String>("options").into_iter().flatten();
    let lifted = lift::lifted(texts, command);
    let all = lifted.into_iter().chain(arguments);
    command.clone().try_get_matches_from(all)
}

#[cfg(test)]
mod tests {
    use bickford::transport::TransportChoice;

    use super::*;

    /// Called as a structure of the library is.
    #[derive(Debug, Clone, clap::Args)]
    struct Flags {
        #[arg(long, default_value_t = 1)]
        depth: u32,
        #[arg(long = "cache.files")]
        cache: Vec<String>,
        #[command(flatten)]
        more: Tuning,
    }

    #[derive(Debug, Clone, clap::Args)]
    struct Tuning {
        #[command(flatten)]
        common: Common,
    }

    #[derive(Debug, Clone, clap::Args)]
    struct Common {
        #[arg(long)]
        two_words: bool,
    }

    fn program() -> Program<Flags> {
        Program::new("it").version("7.1").arguments::<Flags>()
    }

    fn parse(program: &Program<Flags>, words: &[&str]) -> Result<Line<Flags>, clap::Error> {
        Line::parse(program, words.iter().map(OsString::from).collect())
    }

    #[test]
    fn the_declarations_are_consistent() {
        for program in [
            program(),
            program().source_path("FILE"),
            program().source_name("HOST:DIRECTORY"),
        ] {
            program.command().debug_assert();
        }
        let version = program().command().render_version();
        assert!(version.starts_with("it 7.1 (bickford "), "{version}");
    }

    #[test]
    fn one_path_is_the_mount_point_and_two_stand_anywhere() {
        let line = parse(&program(), &["/mnt"]).unwrap();
        assert_eq!((line.source, line.mountpoint), (None, "/mnt".into()));
        for words in [
            &["here", "-o", "ro", "/mnt", "-f"][..],
            &["--depth", "2", "here", "/mnt"],
            &["here", "/mnt", "--workers=3"],
        ] {
            let line = parse(&program(), words).unwrap();
            let paths = (line.source, line.mountpoint);
            assert_eq!(paths, (Some("here".into()), "/mnt".into()), "{words:?}");
        }
        assert!(parse(&program(), &["a", "b", "c"]).is_err());
        assert!(parse(&program().source_path("FILE"), &["/mnt"]).is_err());
    }

    #[test]
    fn a_path_is_made_absolute_and_a_name_is_not() {
        let here = std::env::current_dir().unwrap().join("x");
        for (program, expected) in [
            (program().source_path("FILE"), here.into_os_string()),
            (program().source_name("NAME"), "x".into()),
            (program(), "x".into()),
        ] {
            let line = parse(&program, &["x", "/mnt"]).unwrap();
            assert_eq!(line.source(&program), expected);
            let (mount, _) = line.options(&program).unwrap();
            assert_eq!(mount.fsname.as_deref(), expected.to_str());
            assert_eq!(mount.subtype.as_deref(), Some("it"));
        }
    }

    #[test]
    fn the_command_line_wins_over_options_and_those_over_the_program() {
        let program = program()
            .mount_options(MountOptions::new().default_permissions(true).fsname("own"))
            .path_options(path::Options {
                use_ino: true,
                ..path::Options::default()
            });
        let words = ["-o", "depth=5,umask=077,allow_other", "--depth=6", "/mnt"];
        let line = parse(&program, &words).unwrap();
        assert_eq!(line.arguments.depth, 6);
        let (mount, path) = line.options(&program).unwrap();
        assert!(mount.default_permissions && path.use_ino);
        assert_eq!(mount.fsname.as_deref(), Some("own"));
        assert_eq!(path.umask, Some(0o077));
        assert_eq!(
            parse(&program, &["-odepth=5", "/m"])
                .unwrap()
                .arguments
                .depth,
            5
        );
    }

    #[test]
    fn names_may_have_dots_and_flags_be_repeated() {
        let words = [
            "-o",
            "cache.files=a,ro,cache.files=b",
            "--cache.files=c",
            "/mnt",
        ];
        let line = parse(&program(), &words).unwrap();
        line.check(&program()).unwrap();
        assert_eq!(line.arguments.cache, ["a", "b", "c"]);
    }

    #[test]
    fn options_that_are_not_known_are_refused_with_the_nearest() {
        let told = |option: &str| {
            let line = parse(&program(), &["-o", option, "/mnt"]).unwrap();
            line.check(&program()).unwrap_err().to_string()
        };
        assert!(
            told("dept=3").contains("'depth'? 'it --help'"),
            "{}",
            told("dept=3")
        );
        assert!(told("umask=0").contains("'umask' is not known"));
        let words = ["-o", "two_words", "/mnt"];
        let line = parse(&program(), &words).unwrap();
        line.check(&program()).unwrap();
        assert!(line.arguments.more.common.two_words, "'_' stands for '-'");
        let sloppy = parse(&program(), &["--sloppy", "-o", "dept=3", "/mnt"]).unwrap();
        sloppy.check(&program()).unwrap();
    }

    #[test]
    fn what_cannot_be_run_again_stays_in_the_foreground() {
        let check = |words: &[&str]| {
            let program = program().foreground_only();
            parse(&program, words).unwrap().check(&program)
        };
        let told = check(&["/mnt"]).unwrap_err().to_string();
        assert!(told.contains("use -f"), "{told}");
        for words in [&["-sf", "/mnt"][..], &["-o", "debug", "/mnt"]] {
            check(words).unwrap();
        }
    }

    #[test]
    fn one_thread_reads_the_device() {
        let config = |words: &[&str]| {
            let line = parse(&program(), words).unwrap();
            line.common.session_config(SessionConfig::default())
        };
        let single = config(&["-s", "/mnt"]);
        assert_eq!(single.workers, Workers::SINGLE);
        assert_eq!(single.transport, TransportChoice::DevFuse);
        let chosen = config(&["-s", "--transport=uring", "/mnt"]);
        assert_eq!(chosen.transport, TransportChoice::IoUring);
        assert_eq!(config(&["--workers=3", "/mnt"]).workers, Workers::up_to(3));
        assert!(parse(&program(), &["-s", "--workers=3", "/mnt"]).is_err());
    }

    #[test]
    fn a_program_of_one_thread_gets_no_more() {
        let own = SessionConfig::default().workers(Workers::SINGLE);
        let single = program().session_config(own);
        for words in [&["--workers=2", "/mnt"][..], &["-oworkers=2", "/mnt"]] {
            let line = parse(&single, words).unwrap();
            let told = line.check(&single).unwrap_err().to_string();
            assert!(told.contains("--workers 2"), "{told}");
            parse(&program(), words).unwrap().check(&program()).unwrap();
        }
        for words in [&["--workers=1", "/mnt"][..], &["/mnt"], &["-s", "/mnt"]] {
            let line = parse(&single, words).unwrap();
            line.check(&single).unwrap();
            assert_eq!(line.common.session_config(own).workers, Workers::SINGLE);
        }
    }
}
