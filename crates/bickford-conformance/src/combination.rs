//! What a mount is made of, and which of it a run covers.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::command_path;
use crate::machine::ENABLE_URING;

/// A named configuration of StackFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// One thread, 4 KiB requests, no write-back cache.
    Base,
    /// Write-back cache, 128 KiB requests, many threads.
    Opt,
    /// The best the kernel offers.
    Fast,
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The preset's choice.
    Auto,
    /// Reads and writes on `/dev/fuse`.
    Dev,
    /// io_uring commands on `/dev/fuse`.
    Uring,
}

/// Who reads and writes file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// The kernel, on the lower file.
    Passthrough,
    /// The page cache of the mount.
    Cached,
    /// The daemon, at every call.
    Direct,
    /// The page cache of the mount; each open and close is a request.
    Plain,
}

/// One way to mount. What is `None` is left to the preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    /// The preset.
    pub preset: Preset,
    /// The transport.
    pub transport: Transport,
    /// Worker threads of `/dev/fuse`.
    pub workers: Option<u32>,
    /// The I/O mode.
    pub io: Option<Io>,
    /// Whether the lower directory is watched for the changes of others.
    pub watch: bool,
}

impl Preset {
    /// As the flag and the start line name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Opt => "opt",
            Self::Fast => "fast",
        }
    }
}

impl Transport {
    fn flag(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Dev => "dev",
            Self::Uring => "uring",
        }
    }

    /// As the start line of the daemon names it.
    fn name_in_force(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::Dev => Some("dev_fuse"),
            Self::Uring => Some("io_uring"),
        }
    }
}

impl Io {
    fn name(self) -> &'static str {
        match self {
            Self::Passthrough => "passthrough",
            Self::Cached => "cached",
            Self::Direct => "direct",
            Self::Plain => "plain",
        }
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}-{}",
            self.preset.name(),
            self.transport.flag()
        )?;
        if let Some(workers) = self.workers {
            write!(formatter, "-{workers}")?;
        }
        if let Some(io) = self.io {
            write!(formatter, "-{}", io.name())?;
        }
        if self.watch {
            write!(formatter, "-watch")?;
        }
        Ok(())
    }
}

impl Combination {
    /// A preset as it comes.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        Self {
            preset,
            transport: Transport::Auto,
            workers: None,
            io: None,
            watch: false,
        }
    }

    /// A preset over `/dev/fuse` with so many workers.
    #[must_use]
    pub fn dev(preset: Preset, workers: u32) -> Self {
        Self {
            transport: Transport::Dev,
            workers: Some(workers),
            ..Self::preset(preset)
        }
    }

    /// The fast preset with one transport and I/O mode.
    #[must_use]
    pub fn fast(transport: Transport, io: Io) -> Self {
        Self {
            transport,
            io: Some(io),
            ..Self::preset(Preset::Fast)
        }
    }

    /// The preset `opt` over io_uring. One worker and a queue for every CPU exclude each other:
    /// there is no such `base`.
    #[must_use]
    pub fn uring() -> Self {
        Self {
            transport: Transport::Uring,
            ..Self::preset(Preset::Opt)
        }
    }

    /// Those that run what need not run with all, as what is encrypted: each preset over `/dev/fuse`, and
    /// io_uring with the page cache of the mount and without.
    #[must_use]
    pub fn few() -> Vec<Self> {
        let mut set = vec![
            Self::dev(Preset::Base, 1),
            Self::dev(Preset::Opt, 4),
            Self::uring(),
            Self::fast(Transport::Uring, Io::Direct),
        ];
        set.retain(Self::has_kernel);
        set
    }

    /// Every combination that exists.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for preset in [Preset::Base, Preset::Opt] {
            all.extend([1, 4].map(|workers| Self::dev(preset, workers)));
        }
        all.push(Self::uring());
        for transport in [Transport::Dev, Transport::Uring] {
            let modes = [Io::Passthrough, Io::Cached, Io::Direct, Io::Plain];
            all.extend(modes.map(|io| Self::fast(transport, io)));
            all.extend([Io::Plain, Io::Direct].map(|io| Self {
                watch: true,
                ..Self::fast(transport, io)
            }));
        }
        all.retain(Self::has_kernel);
        all
    }

    /// The combinations that `make test` has time for: each transport, each preset, each way of
    /// the data and each lower mode at least once. Where there is no io_uring, `/dev/fuse` takes its place, and where
    /// nothing is passed through, the page cache does.
    #[must_use]
    pub fn default_set() -> Vec<Self> {
        let mut set = vec![
            Self::dev(Preset::Base, 1),
            Self::dev(Preset::Opt, 4),
            Self::fast(Transport::Uring, Io::Passthrough),
            Self::fast(Transport::Uring, Io::Cached),
            Self::fast(Transport::Dev, Io::Direct),
            Self {
                watch: true,
                ..Self::fast(Transport::Uring, Io::Plain)
            },
        ];
        for one in &mut set {
            if let Some(reason) = one.missing() {
                crate::say(format_args!("left out: {one}: {reason}"));
            }
            if !has_uring() {
                one.transport = Transport::Dev;
            }
            if one.io == Some(Io::Passthrough) && !passes_through() {
                one.io = Some(Io::Plain);
            }
        }
        set
    }

    /// Whether this kernel can do it; what it cannot is said, once for each list.
    fn has_kernel(&self) -> bool {
        let missing = self.missing();
        if let Some(reason) = missing {
            crate::say(format_args!("left out: {self}: {reason}"));
        }
        missing.is_none()
    }

    /// What this kernel lacks for it.
    fn missing(&self) -> Option<&'static str> {
        if self.transport == Transport::Uring && !has_uring() {
            Some("no FUSE over io_uring; Linux 6.14 is needed")
        } else if self.io == Some(Io::Passthrough) && !passes_through() {
            Some("the kernel passes nothing through; Linux 6.9 is needed")
        } else {
            None
        }
    }

    /// The combinations of this run, from `BICKFORD_COMBINATIONS`.
    ///
    /// # Panics
    /// When it names a combination that does not exist.
    #[must_use]
    pub fn selected() -> Vec<Self> {
        match std::env::var("BICKFORD_COMBINATIONS").as_deref() {
            Err(_) | Ok("" | "default") => Self::default_set(),
            Ok("native") => Vec::new(),
            Ok("all") => Self::all(),
            Ok(names) => names.split(',').map(Self::named).collect(),
        }
    }

    fn named(name: &str) -> Self {
        let all = Self::all();
        let names: Vec<String> = all.iter().map(Self::to_string).collect();
        match all.into_iter().find(|one| one.to_string() == name) {
            Some(found) => found,
            None => panic!("BICKFORD_COMBINATIONS: no combination {name:?}; there are {names:?}"),
        }
    }

    /// The flags of `bickford mount` that ask for this combination.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let mut flags = vec![format!("--preset={}", self.preset.name())];
        if self.transport != Transport::Auto {
            flags.push(format!("--transport={}", self.transport.flag()));
        }
        if let Some(workers) = self.workers {
            flags.push(format!("--workers={workers}"));
        }
        if let Some(io) = self.io {
            flags.push(format!("--io={}", io.name()));
        }
        if self.watch {
            flags.push("--lower=watch".to_owned());
        }
        flags
    }

    /// Key and value of each thing the start line must say when this combination is in force.
    #[must_use]
    pub fn in_force(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![("preset", self.preset.name().to_owned())];
        if let Some(transport) = self.transport.name_in_force() {
            pairs.push(("transport", transport.to_owned()));
        }
        if let Some(workers) = self.workers {
            pairs.push(("workers", workers.to_string()));
        }
        if let Some(io) = self.io {
            pairs.push(("io", io.name().to_owned()));
        }
        if self.watch {
            pairs.push(("lower", "watch".to_owned()));
        }
        pairs
    }
}

fn has_uring() -> bool {
    Path::new(ENABLE_URING).exists()
}

/// Whether this kernel reads and writes backing files itself, as `bickford doctor` tells.
#[must_use]
pub fn passes_through() -> bool {
    static PASSES: OnceLock<bool> = OnceLock::new();
    *PASSES.get_or_init(|| {
        // Its status tells of more than that.
        let output = Command::new(command_path()).arg("doctor").output();
        let text = String::from_utf8(output.expect("bickford doctor").stdout).expect("UTF-8");
        let line = text.lines().find(|line| line.starts_with("pass-through"));
        line.expect("a line on pass-through").contains(" offered")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        for one in Combination::all() {
            assert_eq!(Combination::named(&one.to_string()), one);
        }
    }

    #[test]
    fn the_default_set_is_a_part_of_all() {
        let all = Combination::all();
        assert!(
            Combination::default_set()
                .iter()
                .all(|one| all.contains(one))
        );
    }

    #[test]
    #[should_panic(expected = "no combination \"best\"")]
    fn an_unknown_name_is_refused() {
        let _ = Combination::named("best");
    }
}
