//! The option text of a mount: what the library adds to mount.fuse3(8).

use std::str::FromStr;

use bickford::mount::{MountOptions, split_options};
use bickford::transport::{TransportChoice, Yielding};
use bickford::{SessionConfig, Workers};
use bickford_stackfs::{IoMode, Lower, Preset, Settings};

use crate::abi::bickford_config;
use crate::guard::Failure;

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
    pub(crate) allow_idmap: bool,
    /// Zero where no backing files are wanted.
    pub(crate) max_stack_depth: u32,
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

impl Options {
    /// For a file system of callbacks: `transport`, `prompt`, `no_yielding`, `allow_idmap`, `max_stack_depth` and the
    /// options of mount.fuse3(8).
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        Self::read(text, false)
    }

    /// For StackFS: also `preset`, `io`, `lower`, `no_xattr` and `no_permission_checks`.
    pub(crate) fn for_stackfs(text: &str) -> Result<Self, Failure> {
        let mut options = Self::read(text, true)?;
        if options.mount.subtype.is_none() {
            options.mount.subtype = Some("bickford".into());
        }
        Ok(options)
    }

    fn read(text: &str, stackfs: bool) -> Result<Self, Failure> {
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
        };
        for option in split_options(text) {
            match option.split_once('=') {
                Some(("transport", name)) => options.transport = Some(transport(name)?),
                Some(("max_stack_depth", depth)) if !stackfs => {
                    options.max_stack_depth = self::max_stack_depth(depth)?;
                }
                Some(("preset", name)) if stackfs => {
                    options.preset = Preset::from_str(name).map_err(Failure::argument)?;
                }
                Some(("io", name)) if stackfs => {
                    options.io = Some(IoMode::from_str(name).map_err(Failure::argument)?);
                }
                Some(("lower", name)) if stackfs => options.lower = Some(lower(name)?),
                None if option == "prompt" => options.prompt = true,
                None if option == "no_yielding" => options.no_yielding = true,
                None if option == "allow_idmap" => options.allow_idmap = true,
                None if stackfs && option == "no_xattr" => options.no_xattr = true,
                None if stackfs && option == "no_permission_checks" => {
                    options.no_permission_checks = true;
                }
                _ => options.mount.set(&option).map_err(Failure::argument)?,
            }
        }
        Ok(options)
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
    fn a_number_of_workers_is_fixed() {
        let config = bickford_config {
            workers: 3,
            ..bickford_config::default()
        };
        let workers = Options::parse("").unwrap().session(&config).workers;
        assert_eq!((workers.max, workers.max_idle), (3, 3));
    }
}
