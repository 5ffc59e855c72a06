//! The option text of a mount: what the library adds to mount.fuse3(8).

use std::str::FromStr;

use bickford::abi::InitFlags;
use bickford::layer::nearest;
use bickford::mount::{MountOptions, OptionError, split_options};
use bickford::path;
use bickford::transport::{TransportChoice, Yielding};
use bickford::{SessionConfig, Workers};
use bickford_stackfs::{Arguments, IoMode, Lower, Preset};

use crate::abi::bickford_config;
use crate::guard::Failure;
use crate::tuning::Tuning;

/// An option text, taken apart.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) mount: MountOptions,
    transport: Option<TransportChoice>,
    pub(crate) prompt: bool,
    no_yielding: bool,
    /// But for `allow_idmap` of StackFS alone.
    pub(crate) stackfs: Arguments,
    /// Zero where no backing files are wanted.
    pub(crate) max_stack_depth: u32,
    pub(crate) tuning: Tuning,
    /// How a file system over paths is shown.
    pub(crate) paths: path::Options,
    /// Whether requests over paths keep their threads until they are answered.
    pub(crate) at_once: bool,
    /// Of a program that cannot be run again.
    pub(crate) foreground_only: bool,
    /// Whether the caller serves, in place of threads.
    pub(crate) driven: bool,
}

fn transport(name: &str) -> Result<TransportChoice, Failure> {
    match name {
        "auto" => Ok(TransportChoice::Auto),
        "dev" => Ok(TransportChoice::DevFuse),
        "uring" => Ok(TransportChoice::IoUring),
        _ => Err(Failure::argument(format!(
            "transport=\"{name}\" is none of auto, dev or uring"
        ))),
    }
}

fn max_stack_depth(depth: &str) -> Result<u32, Failure> {
    match depth {
        "1" => Ok(1),
        "2" => Ok(2),
        _ => Err(Failure::argument(format!(
            "max_stack_depth=\"{depth}\" is neither 1 nor 2"
        ))),
    }
}

/// What is to be mounted, and with it which options there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nodes,
    Paths,
    StackFs,
}

impl Kind {
    /// The names of options that are not those of mount.fuse3(8).
    fn names(self) -> Vec<&'static str> {
        let mut names = vec!["transport", "prompt", "no_yielding", "allow_idmap"];
        match self {
            Self::StackFs => {
                names.extend(["preset", "io", "lower", "no_xattr", "no_permission_checks"])
            }
            Self::Nodes | Self::Paths => {
                names.extend(["max_stack_depth", "driven"]);
                names.extend(Tuning::NAMES);
            }
        }
        if self == Self::Paths {
            names.push("at_once");
            names.extend(path::Options::known_names());
        }
        names
    }
}

impl Options {
    /// For a file system of callbacks: `transport`, `prompt`, `no_yielding`, `allow_idmap`, `max_stack_depth`, `driven`, those of
    /// [`Tuning`] and the options of mount.fuse3(8).
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        Self::read(text, Kind::Nodes)
    }

    /// For callbacks over paths: also `at_once` and those of fuse(8).
    pub(crate) fn for_paths(text: &str) -> Result<Self, Failure> {
        Self::read(text, Kind::Paths)
    }

    /// For StackFS: not `max_stack_depth` and those of [`Tuning`], which it settles itself, nor `driven`, but `preset`, `io`, `lower`,
    /// `no_xattr` and `no_permission_checks`.
    pub(crate) fn for_stackfs(text: &str) -> Result<Self, Failure> {
        Self::read(text, Kind::StackFs)
    }

    fn read(text: &str, kind: Kind) -> Result<Self, Failure> {
        let mut options = Self {
            mount: MountOptions::new(),
            transport: None,
            prompt: false,
            no_yielding: false,
            stackfs: Arguments::default(),
            max_stack_depth: 0,
            tuning: Tuning::default(),
            paths: path::Options::default(),
            at_once: false,
            foreground_only: false,
            driven: false,
        };
        for option in split_options(text) {
            if options.set_own(&option, kind)? {
                continue;
            }
            options.mount.set(&option).map_err(|error| {
                let name = option.split('=').next().unwrap_or_default();
                match nearest(name, kind.names()) {
                    Some(near) if matches!(error, OptionError::Unknown { .. }) => {
                        Failure::argument(format!(
                            "option '{name}' is not known; did you mean '{near}'?"
                        ))
                    }
                    _ => Failure::argument(error),
                }
            })?;
        }
        Ok(options)
    }

    /// Takes an option that is not one of mount.fuse3(8); false where it is.
    fn set_own(&mut self, option: &str, kind: Kind) -> Result<bool, Failure> {
        let stackfs = kind == Kind::StackFs;
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            ("transport", Some(name)) => self.transport = Some(transport(name)?),
            ("foreground_only", None) => self.foreground_only = true,
            ("prompt", None) => self.prompt = true,
            ("no_yielding", None) => self.no_yielding = true,
            ("allow_idmap", None) => self.stackfs.allow_idmap = true,
            ("max_stack_depth", Some(depth)) if !stackfs => {
                self.max_stack_depth = max_stack_depth(depth)?;
            }
            ("driven", None) if !stackfs => self.driven = true,
            ("preset", Some(name)) if stackfs => {
                self.stackfs.preset = Some(Preset::from_str(name).map_err(Failure::argument)?);
            }
            ("io", Some(name)) if stackfs => {
                self.stackfs.io = Some(IoMode::from_str(name).map_err(Failure::argument)?);
            }
            ("lower", Some(name)) if stackfs => {
                self.stackfs.lower = Some(Lower::from_str(name).map_err(Failure::argument)?);
            }
            ("no_xattr", None) if stackfs => self.stackfs.no_xattr = true,
            ("no_permission_checks", None) if stackfs => self.stackfs.no_permission_checks = true,
            ("at_once", None) if kind == Kind::Paths => self.at_once = true,
            (name, Some(value)) if !stackfs && self.tuning.set(name, value)? => {}
            (name, _)
                if kind == Kind::Paths && path::Options::known_names().any(|it| it == name) =>
            {
                self.paths.set(option).map_err(Failure::argument)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// With these flags of a command line, which come first.
    pub(crate) fn with_stackfs(mut self, chosen: Arguments) -> Self {
        self.stackfs = chosen.or(&self.stackfs);
        self
    }

    /// A configuration with what of these is told to the kernel.
    pub(crate) fn adjusted(&self, mut config: bickford_config) -> bickford_config {
        if self.stackfs.allow_idmap {
            config.want |= InitFlags::ALLOW_IDMAP.bits();
        }
        config
    }

    /// How a session is served.
    pub(crate) fn session(&self, config: &bickford_config) -> SessionConfig {
        let mut session = self.stackfs.session_config().limits(self.tuning.limits);
        if let Ok(workers @ 1..) = usize::try_from(config.workers) {
            let max = workers.min(1024);
            session = session.workers(Workers { max, max_idle: max });
        }
        if let Some(transport) = self.transport {
            session = session.transport(transport);
        }
        session.yielding(match self.no_yielding {
            true => Yielding::Off,
            false => Yielding::Auto,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_both_kinds_are_read() {
        let text = "ro,preset=opt,io=direct,transport=uring,lower=watch,no_xattr,allow_idmap,prompt,fsname=x";
        let options = Options::for_stackfs(text).unwrap();
        assert_eq!(options.mount.fsname.as_deref(), Some("x"));
        assert!(options.prompt && Options::parse("prompt").unwrap().prompt);
        assert!(!Options::parse("ro").unwrap().prompt);
        let settings = options.stackfs.settings();
        assert!(settings.io == IoMode::Direct && settings.watch);
        assert!(!settings.xattr && settings.permission_checks && settings.allow_idmap);
        assert!(
            !Options::for_stackfs("")
                .unwrap()
                .stackfs
                .settings()
                .allow_idmap
        );
        let session = options.session(&bickford_config::default());
        assert_eq!(session.transport, TransportChoice::IoUring);
        assert_eq!(session.workers, Workers::default());
        assert_eq!(session.yielding, Yielding::Auto);
        let options = Options::parse("no_yielding").unwrap();
        let session = options.session(&bickford_config::default());
        assert_eq!(session.yielding, Yielding::Off);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for depth in ["", "0", "3", "x"] {
            assert!(Options::parse(&format!("max_stack_depth={depth}")).is_err());
        }
        assert_eq!(
            Options::parse("max_stack_depth=2").unwrap().max_stack_depth,
            2
        );
        assert!(
            Options::for_stackfs("max_stack_depth=1").is_err(),
            "StackFS sees to it"
        );
        assert!(Options::parse("driven").unwrap().driven);
        assert!(Options::for_stackfs("driven").is_err(), "it has threads");
        for text in ["preset=quick", "io=some", "transport=tcp", "lower=upper"] {
            assert!(Options::for_stackfs(text).is_err(), "{text}");
        }
        assert!(
            Options::parse("preset=opt").is_err(),
            "only StackFS has presets"
        );
    }

    #[test]
    fn what_is_nearly_known_is_told() {
        let message = |failure: Failure| failure.to_string();
        let near = |text| message(Options::parse(text).unwrap_err());
        assert!(near("max_backgroun=3").contains("'max_background'"));
        assert!(near("alow_other").contains("'allow_other'"));
        let paths = |text| message(Options::for_paths(text).unwrap_err());
        assert!(paths("entry_timout=3").contains("'entry_timeout'"));
        let stackfs = |text| message(Options::for_stackfs(text).unwrap_err());
        assert!(stackfs("presett=opt").contains("'preset'"));
        assert!(stackfs("max_background=3").contains("'max_background'"));
    }

    #[test]
    fn a_number_of_workers_is_fixed() {
        let served = |workers| {
            let config = bickford_config {
                workers,
                ..bickford_config::default()
            };
            Options::parse("").unwrap().session(&config).workers
        };
        assert_eq!((served(3).max, served(3).max_idle), (3, 3));
        assert_eq!(served(1), Workers::SINGLE);
    }
}
