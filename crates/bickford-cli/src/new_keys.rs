//! Key files that were made for a mount: where that fails they are taken away again.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use bickford_layers::Summary;
use bickford_layers::crypt::{NewKeyFile, looks_encrypted};
use bickford_program::terminal::escaped;
use rustix::fs::{Dir, Mode, OFlags};

/// Dropped without [`Self::keep`], it removes them, unless something in SOURCE may be encrypted with one: the mount
/// may have been used before it failed.
pub(crate) struct NewKeys {
    made: Vec<NewKeyFile>,
    /// SOURCE itself, whatever is mounted over it.
    source: Option<OwnedFd>,
}

impl NewKeys {
    pub(crate) fn of(layers: &Summary, source: &Path) -> Self {
        let made = layers.made().to_vec();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::open(source, flags, Mode::empty()).ok();
        let source = (!made.is_empty()).then(open).flatten();
        Self { made, source }
    }

    /// They are in use.
    pub(crate) fn keep(mut self) {
        self.made.clear();
    }

    /// What is made in a new mount has a name in its root first.
    fn are_unused(&self) -> bool {
        let unused = || {
            let mut names = Dir::read_from(self.source.as_ref()?).ok()?;
            let is_other =
                |name: &rustix::fs::DirEntry| !looks_encrypted(name.file_name().to_bytes());
            Some(names.all(|name| name.is_ok_and(|name| is_other(&name))))
        };
        unused().unwrap_or(false)
    }
}

impl Drop for NewKeys {
    fn drop(&mut self) {
        if self.made.is_empty() {
            return;
        }
        for key in &self.made {
            let left = match self.are_unused() {
                true => key.remove().err().map(|error| error.to_string()),
                false => Some("something in SOURCE may be encrypted with it".to_owned()),
            };
            if let Some(why) = left {
                // Who goes to the background has no log.
                let text = format!("the new key file {} is left: {why}", key.path().display());
                let _ = writeln!(io::stderr(), "bickford: warning: {}", escaped(&text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bickford_stackfs::StackFs;

    #[test]
    fn a_key_that_may_be_in_use_is_left() {
        let place = tempfile::tempdir().unwrap();
        let (source, key) = (place.path().join("src"), place.path().join("key"));
        let passphrase = place.path().join("passphrase");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(&passphrase, "secret").unwrap();
        let given = format!(
            "key={},passphrase-file={}",
            key.display(),
            passphrase.display()
        );
        let spec = format!("crypt:{given},create=true,memory=32K,passes=1").parse();
        let spec = [spec.unwrap()];
        let new_keys = || {
            let stackfs = StackFs::builder(&source).build().unwrap();
            let built = bickford_layers::build(&spec, Box::new(stackfs));
            NewKeys::of(&built.unwrap().1, &source)
        };
        drop(new_keys());
        assert!(!key.exists());
        let used = new_keys();
        std::fs::write(source.join("A".repeat(40)), "").unwrap();
        drop(used);
        assert!(key.exists());
    }
}
