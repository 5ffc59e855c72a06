//! What can be chosen on a command line.

use bickford::transport::TransportChoice;
use bickford::{SessionConfig, Workers};
use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::io_mode::IoMode;
use crate::presets::{Lower, Preset, Settings};

/// Flags for how a directory is served. What is not given is left to the preset.
#[derive(Clone, Debug, Default, clap::Args)]
// Its name is free for a structure of the program.
#[group(skip)]
pub struct Arguments {
    /// Configuration [default: fast]
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,

    /// How data of open files travel; by default auto for the preset fast, and plain for the others
    #[arg(long, value_enum)]
    pub io: Option<IoMode>,

    /// Who changes SOURCE beside the mount; by default exclusive for the preset fast, while the
    /// others cache for a second
    #[arg(long, value_enum)]
    pub lower: Option<Lower>,

    /// Serve no extended attributes, and so no ACLs and file capabilities
    ///
    /// The first write to each file is then spared a request. As with ext4's noacl, a file that has an
    /// ACL in SOURCE grants its group what the ACL's mask allows.
    #[arg(long)]
    pub no_xattr: bool,

    /// Have the kernel check no permissions, on a mount that root alone uses
    ///
    /// Whatever is made, renamed or removed is then spared a request, with which the kernel would ask
    /// for the directory's mode again. A process of root without capabilities gets what root gets. Not
    /// with allow_other or allow_root.
    #[arg(long)]
    pub no_permission_checks: bool,

    /// Let the mount be id-mapped, as containers with user namespaces of their own do
    ///
    /// With mount_setattr(2) or 'mount --bind -o X-mount.idmap=...'; Linux 6.12 or later. Who calls is then
    /// not known but where something is made: truncate(2), fallocate(2) and copy_file_range(2) drop set-id
    /// bits, root's too, and layers tell no user. Not with allow_root.
    #[arg(long)]
    pub allow_idmap: bool,
}

impl Arguments {
    /// These, and where they say nothing what `others` say.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        Self {
            preset: self.preset.or(others.preset),
            io: self.io.or(others.io),
            lower: self.lower.or(others.lower),
            no_xattr: self.no_xattr || others.no_xattr,
            no_permission_checks: self.no_permission_checks || others.no_permission_checks,
            allow_idmap: self.allow_idmap || others.allow_idmap,
        }
    }

    /// The preset that holds.
    #[must_use]
    pub fn preset(&self) -> Preset {
        self.preset.unwrap_or_default()
    }

    /// What is to be in force.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let mut settings = self.preset().settings();
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

    /// How a session is served where nothing else is asked for.
    #[must_use]
    pub fn session_config(&self) -> SessionConfig {
        let workers = match self.preset().single_threaded() {
            true => Workers::SINGLE,
            false => Workers::default(),
        };
        // The other presets are those of the literature, which had this transport.
        let transport = match self.preset() {
            Preset::Fast => TransportChoice::Auto,
            _ => TransportChoice::DevFuse,
        };
        SessionConfig::default()
            .workers(workers)
            .transport(transport)
    }
}

impl ValueEnum for Preset {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Base, Self::Opt, Self::Fast]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Base => {
                "As a plain file system is written: one thread, 4 KiB requests, no caches beyond one second"
            }
            Self::Opt => "Write-back cache, 128 KiB requests, many threads, splice",
            Self::Fast => "The best this kernel offers, for a SOURCE that nobody else changes",
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

impl ValueEnum for IoMode {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Auto => "The best that this kernel and these privileges allow",
            Self::Passthrough => "The kernel reads and writes the lower file itself",
            Self::Cached => {
                "Through the page cache and the daemon; opening and closing cost no request"
            }
            Self::Direct => "Through the daemon without the page cache",
            Self::Plain => {
                "Through the page cache and the daemon; each open and close is a request"
            }
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

impl ValueEnum for Lower {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Exclusive, Self::Watch]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Exclusive => "Nobody: everything is cached for good",
            Self::Watch => {
                "Others: everything is cached for good, and dropped when fanotify tells of a change"
            }
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail so")]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    fn parse(words: &[&str]) -> Arguments {
        let command = <Arguments as clap::Args>::augment_args(clap::Command::new("it"));
        let command = command.no_binary_name(true);
        command.clone().debug_assert();
        Arguments::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    #[test]
    fn what_is_given_wins_over_the_preset() {
        let chosen = parse(&["--preset=opt", "--io=direct", "--lower=watch", "--no-xattr"]);
        let settings = chosen.settings();
        assert!(settings.io == IoMode::Direct && settings.watch && !settings.xattr);
        assert_eq!(settings.max_request, Preset::Opt.settings().max_request);
        assert!(settings.permission_checks && !settings.allow_idmap);
        assert_eq!(parse(&[]).preset(), Preset::Fast);
    }

    #[test]
    fn what_is_given_wins_over_others() {
        let others = parse(&["--preset=base", "--io=plain", "--allow-idmap"]);
        let chosen = parse(&["--io=cached"]).or(&others);
        assert_eq!(chosen.preset, Some(Preset::Base));
        assert_eq!(chosen.io, Some(IoMode::Cached));
        assert!(chosen.allow_idmap && !chosen.no_permission_checks);
    }

    #[test]
    fn presets_of_the_literature_go_over_the_device() {
        let config = |words: &[&str]| parse(words).session_config();
        assert_eq!(config(&[]).transport, TransportChoice::Auto);
        assert_eq!(
            config(&["--preset=opt"]).transport,
            TransportChoice::DevFuse
        );
        assert_eq!(config(&["--preset=opt"]).workers, Workers::default());
        assert_eq!(config(&["--preset=base"]).workers, Workers::SINGLE);
    }
}
