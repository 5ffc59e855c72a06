//! `make install` of the command, below a directory that stands for `/`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PREFIX: &str = "/opt/some where";

/// What was built, and where it goes.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("from");
        fs::create_dir(&from).unwrap();
        symlink(env!("CARGO_BIN_EXE_bickford"), from.join("bickford")).unwrap();
        Self { directory }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    fn script(&self) -> Command {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut script = Command::new(top.join("scripts/install.sh"));
        script
            .env("FROM", self.directory.path().join("from"))
            .env("JARS", self.directory.path().join("from"))
            .env("DESTDIR", self.root())
            .env("PREFIX", PREFIX)
            .env_remove("LIBDIR")
            .env_remove("MOUNTDIR");
        script
    }

    /// All that is no directory, as it would be seen.
    fn installed(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut open = vec![self.root()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    open.push(entry.path());
                } else {
                    let path = entry.path();
                    let path = path.strip_prefix(self.root()).unwrap();
                    found.insert(format!("/{}", path.display()));
                }
            }
        }
        found
    }
}

fn done(mut command: Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    output
}

#[test]
fn what_is_installed_works_and_is_all_taken_away_again() {
    let place = Place::new();
    let output = done(place.script());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("the C library is left out"), "{said}");

    let command = format!("{PREFIX}/bin/bickford");
    let link = fs::read_link(place.at("/sbin/mount.fuse.bickford")).unwrap();
    assert_eq!(link, Path::new(&command));
    let mode = fs::metadata(place.at(&command))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
    let mut version = Command::new(place.at(&command));
    version.arg("--version");
    assert!(done(version).stdout.starts_with(b"bickford "));
    let page = place.at(&format!("{PREFIX}/share/man/man1/bickford-mount.1"));
    assert!(fs::read_to_string(page).unwrap().contains("SOURCE"));
    let bash = place.at(&format!(
        "{PREFIX}/share/bash-completion/completions/bickford"
    ));
    assert!(fs::read_to_string(bash).unwrap().contains("complete "));

    // What is there and not ours stays.
    let other = place.at(&format!("{PREFIX}/share/man/man1/other.1"));
    fs::write(&other, "").unwrap();
    let mut uninstall = place.script();
    uninstall.arg("uninstall");
    done(uninstall);
    let left = place.installed();
    assert_eq!(
        left,
        BTreeSet::from([format!("{PREFIX}/share/man/man1/other.1")])
    );
}

#[test]
fn what_cannot_be_is_said_before_anything_is_made() {
    let place = Place::new();
    let refused = |name: &str, value: &OsStr, what: &str| {
        let output = place.script().env(name, value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(what), "{said}");
        assert!(!place.root().exists());
    };
    refused("PREFIX", OsStr::new("usr"), "'usr' is not absolute");
    refused("FROM", OsStr::new("/nonexistent"), "nothing was built");
    let mut unknown = place.script();
    let output = unknown.arg("remove").output().unwrap();
    assert!(!output.status.success());
}
