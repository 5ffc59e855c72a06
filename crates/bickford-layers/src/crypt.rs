//! `crypt:key=PATH,passphrase-file=PATH`: encrypts contents and names.
//!
//! | option | meaning |
//! |---|---|
//! | `key=PATH` | the key file; keep it, nothing can be read without it. It stays open, so that its file system is in use as long as the mount lives. Required |
//! | `passphrase-file=PATH` | a file with the passphrase; a newline at its end does not count. Required. `bickford mount` takes a pipe only with `-f` |
//! | `create=true` | makes the key file where there is none |
//! | `memory=SIZE`, `passes=N` | what a try of the passphrase costs, for `create`; 64M and 3 by default, 32K to 4G and 1 to 1024 |
//!
//! What is encrypted and how, and what is guaranteed, is told by [`bickford_crypt`] and by
//! `docs/crypt-format.md`. Kernel pass-through and zero-message open are turned off. This layer has
//! no switches: half of it would be a danger. The directory below should be empty at first: names
//! that are not its own are not shown.

use std::path::Path;
use std::sync::Arc;

use bickford_crypt::{Cost, Crypt, create_key_file, read_passphrase};
pub use bickford_crypt::{NewKeyFile, looks_encrypted};

use crate::LayerError;
use crate::registry::{Built, Entry};
use crate::spec::{LayerSpec, Options, parse_flag, parse_size};

/// How the layer is asked for.
pub const ENTRY: Entry = Entry {
    name: "crypt",
    about: "encrypts contents and names",
    options: &[
        ("key=PATH", "the key file"),
        ("passphrase-file=PATH", "a file with the passphrase"),
        ("create=true", "makes the key file where there is none"),
        (
            "memory=SIZE",
            "what a try of the passphrase takes, 32K to 4G, for create [64M]",
        ),
        (
            "passes=N",
            "how often it is gone over, 1 to 1024, for create [3]",
        ),
    ],
    constructor: construct,
};

fn construct(
    options: &mut Options<'_>,
    below: Box<dyn bickford::FileSystem>,
) -> Result<Built, LayerError> {
    let missing = |options: &Options<'_>, what| options.error(format_args!("{what} is missing"));
    let key = options.text("key")?;
    let key = Path::new(key.ok_or_else(|| missing(options, "key=PATH"))?);
    let passphrase = options.text("passphrase-file")?;
    let passphrase = passphrase.ok_or_else(|| missing(options, "passphrase-file=PATH"))?;
    let create = options.flag("create")?.unwrap_or(false);
    let mut cost = Cost::default();
    if let Some(memory) = options.read("memory", parse_memory)? {
        cost.memory = memory;
    }
    if let Some(passes) = options.read("passes", parse_passes)? {
        cost.times = passes;
    }
    let failed = |error: bickford_crypt::Error| LayerError::new(ENTRY.name, error);
    let passphrase = read_passphrase(Path::new(passphrase)).map_err(failed)?;
    let made = match create && !key.exists() {
        true => Some(create_key_file(key, &passphrase, cost).map_err(failed)?),
        false => None,
    };
    if !create && !key.exists() {
        return Err(options.error(format_args!(
            "key={}: there is no such file; create=true makes it, for a SOURCE that is empty",
            key.display()
        )));
    }
    let crypt = Crypt::open(below, key, &passphrase).map_err(|error| {
        made.iter().for_each(remove);
        failed(error)
    })?;
    Ok(Built {
        shown: Some(Arc::new(crypt.shown())),
        file_system: Box::new(crypt),
        needs: Crypt::needs(),
        about: format!("key of {}", key.display()),
        reporter: None,
        made,
    })
}

/// Removes a key file under which nothing is encrypted.
pub(crate) fn remove(made: &NewKeyFile) {
    if let Err(error) = made.remove() {
        tracing::warn!(layer = ENTRY.name, path = %made.path().display(), "a new key file that nothing uses is left: {error}");
    }
}

/// In KiB.
fn parse_memory(text: &str) -> Result<u32, String> {
    let kib = parse_size(text)? >> 10;
    let memory = Cost::memory_for(Cost::default().lanes);
    let possible = u32::try_from(kib).ok().filter(|kib| memory.contains(kib));
    possible.ok_or_else(|| "from 32K to 4G are possible".to_owned())
}

fn parse_passes(text: &str) -> Result<u32, String> {
    let possible = text
        .parse()
        .ok()
        .filter(|passes| Cost::PASSES.contains(passes));
    possible.ok_or_else(|| "a whole number from 1 to 1024 is meant".to_owned())
}

/// Whether a layer would make a key file, over a file system that should be empty then.
#[must_use]
pub fn makes_a_key(spec: &LayerSpec) -> bool {
    let value = |key| {
        spec.options()
            .find(|(other, _)| *other == key)
            .map(|it| it.1)
    };
    spec.name() == ENTRY.name
        && value("create").is_some_and(|create| parse_flag(create) == Ok(true))
        && value("key").is_some_and(|key| !Path::new(key).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_taken_within_their_bounds() {
        assert_eq!(parse_memory("32K"), Ok(32));
        assert_eq!(parse_memory("4G"), Ok(4 << 20));
        for wrong in ["1", "31K", "5G", "1000G", "99999999999G", "x"] {
            assert!(parse_memory(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_passes("1024"), Ok(1024));
        for wrong in ["0", "1025", "99999999999", "-1", ""] {
            assert!(
                parse_passes(wrong).unwrap_err().contains("1 to 1024"),
                "{wrong}"
            );
        }
    }
}
