//! The option text of a mount: what the library adds to mount.fuse3(8).

use std::str::FromStr;

use bickford::abi::InitFlags;
use bickford::layer::nearest;
use bickford::mount::{MountOptions, OptionError, split_options};
use bickford::path;
use bickford::transport::{TransportChoice, Yielding};
use bickford::{SessionConfig, Workers};
use bickford_stackfs::{IoMode, Lower, Preset, Settings};

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
    preset: Preset,
    io: Option<IoMode>,
    lower: Option<Lower>,
    no_xattr: bool,
    no_permission_checks: bool,
    allow_idmap: bool,
    /// Zero where no backing files are wanted.
    pub(crate) max_stack_depth: u32,
    pub(crate) tuning: Tuning,
    /// How a file system over paths is shown.
    pub(crate) paths: path::Options,
    /// Whether requests over paths keep their threads until they are answered.
    pub(crate) at_once: bool,
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

fn lower(name: &str) -> Result<Lower, Failure> {
    match name {
        "exclusive" => Ok(Lower::Exclusive),
        "watch" => Ok(Lower::Watch),
        _ => Err(Failure::argument(format!(
            "lower=\"{name}\" is neither exclusive nor watch"
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
                names.push("max_stack_depth");
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
    /// For a file system of callbacks: `transport`, `prompt`, `no_yielding`, `allow_idmap`, `max_stack_depth`, those of
    /// [`Tuning`] and the options of mount.fuse3(8).
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        Self::read(text, Kind::Nodes)
    }

    /// For callbacks over paths: also `at_once` and those of fuse(8).
    pub(crate) fn for_paths(text: &str) -> Result<Self, Failure> {
        Self::read(text, Kind::Paths)
    }

    /// For StackFS: not `max_stack_depth` and those of [`Tuning`], which it settles itself, but `preset`, `io`, `lower`,
    /// `no_xattr` and `no_permission_checks`.
    pub(crate) fn for_stackfs(text: &str) -> Result<Self, Failure> {
        let mut options = Self::read(text, Kind::StackFs)?;
        if options.mount.subtype.is_none() {
            options.mount.subtype = Some("bickford".into());
        }
        Ok(options)
    }

    fn read(text: &str, kind: Kind) -> Result<Self, Failure> {
        let mut options = Self {
            mount: MountOptions::new(),
            transport: None,
            prompt: false,
            no_yielding: false,
            preset: Preset::default(),
            io: None,
            lower: None,
            no_xattr: false,
            no_permission_checks: false,
            allow_idmap: false,
            max_stack_depth: 0,
            tuning: Tuning::default(),
            paths: path::Options::default(),
            at_once: false,
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
            ("prompt", None) => self.prompt = true,
            ("no_yielding", None) => self.no_yielding = true,
            ("allow_idmap", None) => self.allow_idmap = true,
            ("max_stack_depth", Some(depth)) if !stackfs => {
                self.max_stack_depth = max_stack_depth(depth)?;
            }
            ("preset", Some(name)) if stackfs => {
                self.preset = Preset::from_str(name).map_err(Failure::argument)?;
            }
            ("io", Some(name)) if stackfs => {
                self.io = Some(IoMode::from_str(name).map_err(Failure::argument)?);
            }
            ("lower", Some(name)) if stackfs => self.lower = Some(lower(name)?),
            ("no_xattr", None) if stackfs => self.no_xattr = true,
            ("no_permission_checks", None) if stackfs => self.no_permission_checks = true,
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

    /// What StackFS is to do.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = self.preset.settings();
        if let Some(io) = self.io {
            settings.io = io;
        }
        settings.xattr = !self.no_xattr;
        settings.permission_checks = !self.no_permission_checks;
        settings.allow_idmap = self.allow_idmap;
        match self.lower {
            Some(lower) => settings.lower(lower),
            None => settings,
        }
    }

    /// A configuration with what of these is told to the kernel.
    pub(crate) fn adjusted(&self, mut config: bickford_config) -> bickford_config {
        if self.allow_idmap {
            config.want |= InitFlags::ALLOW_IDMAP.bits();
        }
        config
    }

    /// How a session is served.
    pub(crate) fn session(&self, config: &bickford_config) -> SessionConfig {
        let workers = match usize::try_from(config.workers) {
            Ok(workers) if workers > 0 => {
                let max = workers.min(1024);
                Workers { max, max_idle: max }
            }
            _ if self.preset.single_threaded() => Workers::SINGLE,
            _ => Workers::default(),
        };
        // The other presets are those of the literature, which had this transport.
        let transport = match self.transport {
            Some(transport) => transport,
            None if self.preset == Preset::Fast => TransportChoice::Auto,
            None => TransportChoice::DevFuse,
        };
        SessionConfig::default()
            .workers(workers)
            .transport(transport)
            .yielding(match self.no_yielding {
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
        let settings = options.settings();
        assert!(settings.io == IoMode::Direct && settings.watch);
        assert!(!settings.xattr && settings.permission_checks && settings.allow_idmap);
        assert!(!Options::for_stackfs("").unwrap().settings().allow_idmap);
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
        let config = bickford_config {
            workers: 3,
            ..bickford_config::default()
        };
        let workers = Options::parse("").unwrap().session(&config).workers;
        assert_eq!((workers.max, workers.max_idle), (3, 3));
    }
}
