//! `crypt:key=PATH,passphrase-file=PATH`: encrypts contents and names.
//!
//! | option | meaning |
//! |---|---|
//! | `key=PATH` | the key file; keep it, nothing can be read without it. Required |
//! | `passphrase-file=PATH` | a file with the passphrase; a newline at its end does not count. Required |
//! | `create=true` | makes the key file where there is none |
//! | `memory=SIZE`, `passes=N` | what a try of the passphrase costs, for `create`; 64M and 3 by default |
//!
//! What is encrypted and how, and what is guaranteed, is told by [`bickford_crypt`] and by
//! `docs/crypt-format.md`. Kernel pass-through and zero-message open are turned off. This layer has
//! no switches: half of it would be a danger. The directory below should be empty at first: names
//! that are not its own are not shown.

use std::path::Path;

use bickford_crypt::{Cost, Crypt, create_key_file, read_passphrase};

use crate::LayerError;
use crate::registry::{Built, Entry};
use crate::spec::Options;

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
            "what a try of the passphrase takes, for create [64M]",
        ),
        ("passes=N", "how often it is gone over, for create [3]"),
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
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    if let Some(memory) = options.size("memory")? {
        cost.memory = narrow(memory >> 10);
    }
    if let Some(passes) = options.number("passes")? {
        cost.times = narrow(passes);
    }
    let failed = |error: bickford_crypt::Error| LayerError::new(ENTRY.name, error);
    let passphrase = read_passphrase(Path::new(passphrase)).map_err(failed)?;
    if create && !key.exists() {
        create_key_file(key, &passphrase, cost).map_err(failed)?;
    }
    let crypt = Crypt::open(below, key, &passphrase).map_err(failed)?;
    Ok(Built {
        file_system: Box::new(crypt),
        needs: Crypt::needs(),
        about: format!("key of {}", key.display()),
        reporter: None,
    })
}
