//! Who takes part, and the commands that mount them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use bickford_eval::host::process;
use bickford_eval::target::ConfigArgument;
use serde::{Deserialize, Serialize};

use crate::rows::{Mode, Row};

/// Who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    Native,
    Ours,
    Peer,
    /// Given with `--with`: shown, not judged.
    Guest,
}

/// One configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Configuration {
    pub(crate) name: String,
    pub(crate) side: Side,
    /// `None` takes part in every row, a guest in all but those of `Direct`.
    pub(crate) mode: Option<Mode>,
    /// Program and arguments; SOURCE and MOUNTPOINT follow. Empty for the native file system. Of a guest,
    /// the shell's command alone, with `{src}` and `{mnt}`.
    pub(crate) command: Vec<String>,
}

impl Configuration {
    fn new(name: &str, side: Side, mode: Option<Mode>, command: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            side,
            mode,
            command: command.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    pub(crate) fn takes_part(&self, row: &Row) -> bool {
        match self.mode {
            None if self.side == Side::Guest => row.modes != [Mode::Direct],
            None => true,
            // `fast` passes through by itself where the kernel can: once is enough.
            Some(Mode::PassThrough) if self.side == Side::Ours => {
                row.modes.contains(&Mode::PassThrough) && !row.modes.contains(&Mode::Usual)
            }
            Some(mode) => row.modes.contains(&mode),
        }
    }

    /// What mounts `source` at `point`; nothing for the native file system.
    pub(crate) fn mount(&self, source: &Path, point: &Path) -> Result<Option<Command>, String> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Ok(None);
        };
        if self.side != Side::Guest {
            let mut command = Command::new(program);
            command.args(arguments).args([source, point]);
            return Ok(Some(command));
        }
        let word = |path: &Path| match path.to_str() {
            Some(text) => Ok(process::quoted(text)),
            None => Err(format!("{}: the name is not UTF-8", path.display())),
        };
        let line = program
            .replace("{src}", &word(source)?)
            .replace("{mnt}", &word(point)?);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &line]);
        Ok(Some(command))
    }
}

/// A `--with`: a name and the command that mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guest {
    name: String,
    command: String,
}

impl FromStr for Guest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Without a command it would be a name that `bickford eval` knows.
        let parsed = match text.contains('=') {
            true => text.parse::<ConfigArgument>()?,
            false => ConfigArgument {
                name: text.to_owned(),
                command: None,
            },
        };
        let ConfigArgument { name, command } = parsed;
        match command {
            Some(command) => Ok(Self { name, command }),
            None => Err(format!(
                "`{name}` has no command; give it: --with {name}='COMMAND {{src}} {{mnt}}'"
            )),
        }
    }
}

/// The configurations of `--with`.
///
/// # Errors
/// A name is one of `all` or was given before.
pub(crate) fn guests(given: &[Guest]) -> Result<Vec<Configuration>, String> {
    let peers: Vec<_> = PEERS.iter().collect();
    let mut taken: Vec<String> = all(Path::new("bickford"), &peers)
        .into_iter()
        .map(|configuration| configuration.name)
        .collect();
    let mut found = Vec::new();
    for guest in given {
        if taken.contains(&guest.name) {
            return Err(format!(
                "--with {}: there is a configuration of this name already; choose another",
                guest.name
            ));
        }
        taken.push(guest.name.clone());
        found.push(Configuration::new(
            &guest.name,
            Side::Guest,
            None,
            &[&guest.command],
        ));
    }
    Ok(found)
}

/// A peer's program, and where it comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// What it takes besides the mode's options; modes that it does not have are left out.
    modes: &'static [Mode],
    build: Build,
}

#[derive(Debug, Clone, Copy)]
enum Build {
    Cargo(&'static str),
    /// A program of `peers/libfuse`.
    Make(&'static str),
    Go,
}

use Mode::{AsPeers, Cached, DevFuse, Direct, PassThrough, Paths, Plain, Usual};

pub(crate) const PEERS: &[Peer] = &[
    Peer {
        name: "libfuse",
        modes: &[Plain, Usual, DevFuse, Cached, PassThrough, Direct],
        build: Build::Make("passthrough"),
    },
    Peer {
        name: "libfuse-paths",
        modes: &[Paths],
        build: Build::Make("paths"),
    },
    Peer {
        name: "fuser",
        modes: &[Usual, Cached, PassThrough, Direct],
        build: Build::Cargo("peer-fuser"),
    },
    Peer {
        name: "fuse-backend-rs",
        modes: &[Usual, Cached, Direct],
        build: Build::Cargo("peer-fuse-backend-rs"),
    },
    Peer {
        name: "fuse3",
        modes: &[Usual, Cached, Direct],
        build: Build::Cargo("peer-fuse3"),
    },
    Peer {
        name: "go-fuse",
        modes: &[Usual, Cached, PassThrough, Direct],
        build: Build::Go,
    },
];

/// The directory of `compare`.
pub(crate) fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Where the peers are built: never where Bickford is, whose build takes no notice of them.
fn target() -> PathBuf {
    home().join("peers/target")
}

impl Peer {
    pub(crate) fn program(&self) -> PathBuf {
        match self.build {
            Build::Cargo(package) => target().join("release").join(package),
            Build::Make(_) | Build::Go => target().join(self.name),
        }
    }

    /// Builds the peer. A peer that does not build is left out of the run.
    pub(crate) fn build(&self) -> Result<(), String> {
        let program = self.program();
        let mut command;
        match self.build {
            Build::Cargo(package) => {
                command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                command.args(["build", "--locked", "--release", "--package", package]);
                command.arg("--target-dir").arg(target());
                command.current_dir(home().join("peers"));
            }
            Build::Make(name) => {
                let out = format!("{name}={}", program.display());
                command = Command::new("make");
                command.args(["-s", "-B", &out]).arg(&program);
                command.current_dir(home().join("peers/libfuse"));
            }
            Build::Go => {
                command = Command::new("go");
                command.args(["build", "-o"]).arg(&program).arg(".");
                command.current_dir(home().join("peers/go"));
            }
        }
        let directory = target();
        fs::create_dir_all(&directory).map_err(|e| format!("make {}: {e}", directory.display()))?;
        let tool = command.get_program().to_string_lossy().into_owned();
        let output = command
            .output()
            .map_err(|e| format!("{tool}: {e}; run scripts/prerequisites.sh compare as root"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(bickford_eval::host::process::tail(&said))
    }

    fn configurations(&self) -> impl Iterator<Item = Configuration> {
        self.modes.iter().map(|mode| {
            let (suffix, options) = match mode {
                Mode::Plain => ("-default", None),
                Mode::Usual => ("", Some("best")),
                Mode::DevFuse => ("-dev-fuse", Some("best,dev_fuse")),
                Mode::Cached => ("-cached", Some(self.cached())),
                Mode::PassThrough => ("-passthrough", Some("best,passthrough")),
                Mode::Direct => ("-direct", Some("best,direct")),
                // Only Bickford has it.
                Mode::AsPeers => ("-as-peers", Some("best")),
                // A program of its own, with a name of its own.
                Mode::Paths => ("", Some("best")),
            };
            let program = self.program();
            let mut command = vec![program.to_string_lossy().into_owned()];
            if let Some(options) = options {
                command.extend(["-o".to_owned(), options.to_owned()]);
            }
            Configuration {
                name: format!("{}{suffix}", self.name),
                side: Side::Peer,
                mode: Some(*mode),
                command,
            }
        })
    }

    fn cached(&self) -> &'static str {
        match self.build {
            // Its loopback file system has no zero-message open.
            Build::Go => "best,writeback",
            _ => "best,writeback,zero_open",
        }
    }
}

/// The command of this tree: `BICKFORD_BIN`, or what `make build` leaves.
pub(crate) fn bickford() -> Result<PathBuf, String> {
    let program = match std::env::var_os("BICKFORD_BIN") {
        Some(program) => PathBuf::from(program),
        None => home().join("../../target/release/bickford"),
    };
    fs::canonicalize(&program).map_err(|e| {
        format!(
            "{}: {e}; run `make build` at the top of the tree, or set BICKFORD_BIN",
            program.display()
        )
    })
}

/// The configuration over paths: the example `mirror`, which is built beside the command.
pub(crate) const OVER_PATHS: &str = "bickford-paths";
const FOR_GOOD: &str = "entry_timeout=31536000,attr_timeout=31536000,negative_timeout=31536000,kernel_cache,handles_only";

pub(crate) fn mirror(bickford: &Path) -> PathBuf {
    bickford.with_file_name("mirror")
}

/// All configurations of the peers that are there, and the native file system first.
pub(crate) fn all(bickford: &Path, peers: &[&Peer]) -> Vec<Configuration> {
    let program = bickford.to_string_lossy();
    let ours = |name: &str, mode, preset: &str, io: &str| {
        let command = [&*program, "mount", "-f", "--preset", preset, "--io", io];
        Configuration::new(name, Side::Ours, Some(mode), &command)
    };
    let mut all = vec![
        Configuration::new("native", Side::Native, None, &[]),
        ours("bickford-base", Plain, "base", "plain"),
        ours("bickford-fast", Usual, "fast", "auto"),
        ours("bickford-cached", Cached, "fast", "cached"),
        ours("bickford-passthrough", PassThrough, "fast", "passthrough"),
        ours("bickford-direct", Direct, "fast", "direct"),
    ];
    let mut like = ours("bickford-as-peers", AsPeers, "fast", "auto");
    let left_out = ["--no-xattr", "--no-permission-checks"];
    like.command.extend(left_out.map(str::to_owned));
    all.push(like);
    all.push(Configuration::new(
        OVER_PATHS,
        Side::Ours,
        Some(Paths),
        &[&mirror(bickford).to_string_lossy(), "-f", "-o", FOR_GOOD],
    ));
    all.extend(peers.iter().flat_map(|peer| peer.configurations()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;

    #[test]
    fn a_guest_has_a_name_and_a_command_that_mounts() {
        let parse = str::parse::<Guest>;
        let mine = parse("mine=exec mine -o a=b,c {src} {mnt}").expect("a guest");
        assert_eq!(
            (mine.name.as_str(), mine.command.as_str()),
            ("mine", "exec mine -o a=b,c {src} {mnt}")
        );
        for (text, why) in [
            ("mine", "has no command"),
            // Known to `bickford eval`, not here.
            ("fast", "has no command"),
            ("native", "has no command"),
            ("native=x {src} {mnt}", "takes no command"),
            ("=x {src} {mnt}", "is no name"),
            ("a/b=x {src} {mnt}", "is no name"),
            ("mine=x {src}", "{mnt}"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_is_given_once() {
        let guest = |name: &str| Guest {
            name: name.to_owned(),
            command: "x {src} {mnt}".to_owned(),
        };
        let names = |all: &[Guest]| guests(all).map(|found| found.len());
        assert_eq!(names(&[guest("mine"), guest("other")]), Ok(2));
        for taken in ["bickford-fast", "go-fuse-cached"] {
            assert!(names(&[guest(taken)]).is_err(), "{taken}");
        }
        assert!(names(&[guest("mine"), guest("mine")]).is_err());
    }

    #[test]
    fn a_guest_takes_part_where_no_mode_is_asked_for() {
        let guests = guests(&["mine=x {src} {mnt}".parse().expect("a guest")]).expect("guests");
        let guest = guests.first().expect("one");
        for row in ROWS {
            let expected = !row.id.starts_with("direct-");
            assert_eq!(guest.takes_part(row), expected, "{}", row.id);
        }
    }

    #[test]
    fn a_command_gets_its_paths_as_words_of_the_shell() {
        let guests =
            guests(&["mine=exec x {src} {mnt}".parse().expect("a guest")]).expect("guests");
        let guest = guests.first().expect("one");
        let command = guest.mount(Path::new("/a b"), Path::new("/it's"));
        let command = command.expect("a command").expect("one to run");
        let words: Vec<_> = command.get_args().collect();
        assert_eq!(words, ["-c", r"exec x '/a b' '/it'\''s'"]);
    }

    #[test]
    fn every_row_has_the_native_one_ours_and_a_peer() {
        let peers: Vec<_> = PEERS.iter().collect();
        let all = all(Path::new("/bickford"), &peers);
        for row in ROWS {
            for side in [Side::Native, Side::Ours, Side::Peer] {
                let found = all.iter().any(|c| c.side == side && c.takes_part(row));
                assert!(found, "{} has no {side:?}", row.id);
            }
            let judged = |c: &&Configuration| c.side == Side::Ours && c.mode == Some(row.ours);
            assert!(
                all.iter().filter(judged).any(|c| c.takes_part(row)),
                "{}",
                row.id
            );
        }
    }
}
