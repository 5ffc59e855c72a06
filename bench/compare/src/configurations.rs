//! Who takes part, and the commands that mount them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::rows::{Mode, Row};

/// Who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    Native,
    Ours,
    Peer,
}

/// One configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Configuration {
    pub(crate) name: String,
    pub(crate) side: Side,
    /// `None` takes part in every row.
    pub(crate) mode: Option<Mode>,
    /// Program and arguments; SOURCE and MOUNTPOINT follow. Empty for the native file system.
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
            None => true,
            // `fast` passes through by itself where the kernel can: once is enough.
            Some(Mode::PassThrough) if self.side == Side::Ours => {
                row.modes.contains(&Mode::PassThrough) && !row.modes.contains(&Mode::Usual)
            }
            Some(mode) => row.modes.contains(&mode),
        }
    }
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
    Make,
    Go,
}

use Mode::{AsPeers, Cached, Direct, PassThrough, Plain, Usual};

pub(crate) const PEERS: &[Peer] = &[
    Peer {
        name: "libfuse",
        modes: &[Plain, Usual, Cached, PassThrough, Direct],
        build: Build::Make,
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

/// The directory of this build.
pub(crate) fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| home().join("target"), PathBuf::from)
}

impl Peer {
    pub(crate) fn program(&self) -> PathBuf {
        match self.build {
            Build::Cargo(package) => target().join("release").join(package),
            Build::Make | Build::Go => target().join("peers").join(self.name),
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
                command.current_dir(home());
            }
            Build::Make => {
                let out = format!("OUT={}", program.display());
                command = Command::new("make");
                command
                    .args(["-s", "-B", &out])
                    .current_dir(home().join("peers/libfuse"));
            }
            Build::Go => {
                command = Command::new("go");
                command.args(["build", "-o"]).arg(&program).arg(".");
                command.current_dir(home().join("peers/go"));
            }
        }
        let directory = target().join("peers");
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
                Mode::Cached => ("-cached", Some(self.cached())),
                Mode::PassThrough => ("-passthrough", Some("best,passthrough")),
                Mode::Direct => ("-direct", Some("best,direct")),
                // Only Bickford has it.
                Mode::AsPeers => ("-as-peers", Some("best")),
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
    all.extend(peers.iter().flat_map(|peer| peer.configurations()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;

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
