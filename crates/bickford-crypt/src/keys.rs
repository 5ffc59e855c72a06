//! Keys, and the file that holds the master key.

use std::fmt;
use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::Error;
use crate::block::random;

/// What the file of the master key begins with; the version is the last byte.
const MAGIC: [u8; 16] = *b"bickford-crypt\0\x01";
/// Bytes before the wrapped key that it authenticates: magic, parameters, salt.
const PREFIX: usize = 16 + 16 + 32;
/// All bytes of the file.
const LENGTH: usize = PREFIX + 24 + 32 + 16;

/// Least memory, in KiB, of each lane (RFC 9106).
const LANE_MIN: u32 = 8;
/// More memory, in KiB, than a key file may ask for.
const MEMORY_MAX: u32 = 4 << 20;
const LANES_MAX: u32 = 64;

/// What it costs to try a passphrase (Argon2id, RFC 9106).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Memory in KiB.
    pub memory: u32,
    /// Passes over it.
    pub times: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Default for Cost {
    /// The second recommendation of RFC 9106: 64 MiB, three passes, four lanes.
    fn default() -> Self {
        Self {
            memory: 64 << 10,
            times: 3,
            lanes: 4,
        }
    }
}

impl Cost {
    /// What is possible, for messages.
    pub(crate) const BOUNDS: &'static str =
        "possible are 1 to 1024 passes, 1 to 64 lanes, and 8 KiB for each lane to 4 GiB of memory";

    /// How many passes are possible.
    pub const PASSES: RangeInclusive<u32> = 1..=1024;

    /// How much memory is possible with so many lanes, in KiB.
    #[must_use]
    pub const fn memory_for(lanes: u32) -> RangeInclusive<u32> {
        LANE_MIN.saturating_mul(lanes)..=MEMORY_MAX
    }

    fn is_possible(self) -> bool {
        let lanes = 1..=LANES_MAX;
        lanes.contains(&self.lanes)
            && Self::PASSES.contains(&self.times)
            && Self::memory_for(self.lanes).contains(&self.memory)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            memory,
            times,
            lanes,
        } = self;
        write!(f, "{memory} KiB of memory, passes: {times}, lanes: {lanes}")
    }
}

/// The keys of a file system; erased when dropped.
pub(crate) struct Keys {
    pub(crate) contents: Zeroizing<[u8; 32]>,
    pub(crate) names: Zeroizing<[u8; 64]>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    pub(crate) fn from_master(master: &[u8; 32]) -> Self {
        let derive = Hkdf::<Sha256>::new(None, master);
        let mut keys = Self {
            contents: Zeroizing::new([0; 32]),
            names: Zeroizing::new([0; 64]),
        };
        // Fails only for more than 255 hashes of output.
        let contents = derive.expand(b"bickford-crypt 1 contents", &mut *keys.contents);
        let names = derive.expand(b"bickford-crypt 1 names", &mut *keys.names);
        debug_assert!(contents.is_ok() && names.is_ok());
        keys
    }
}

fn wrapping_key(passphrase: &[u8], salt: &[u8], cost: Cost) -> Result<Zeroizing<[u8; 32]>, Error> {
    if !cost.is_possible() {
        return Err(Error::Cost(cost));
    }
    let params = Params::new(cost.memory, cost.times, cost.lanes, Some(32));
    let params = params.map_err(|_| Error::Cost(cost))?;
    let mut key = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(passphrase, salt, &mut *key)
        .map_err(|_| Error::Cost(cost))?;
    Ok(key)
}

fn prefix(cost: Cost, salt: &[u8; 32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.extend_from_slice(&MAGIC);
    for number in [cost.memory, cost.times, cost.lanes, 0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(salt);
    bytes
}

/// The file of a master key.
pub(crate) fn wrap(
    master: &[u8; 32],
    passphrase: &[u8],
    cost: Cost,
    salt: &[u8; 32],
    nonce: &[u8; 24],
) -> Result<Vec<u8>, Error> {
    let mut file = prefix(cost, salt);
    let key = wrapping_key(passphrase, salt, cost)?;
    let cipher = XChaCha20Poly1305::new((&*key).into());
    let payload = Payload {
        msg: master,
        aad: &file,
    };
    let wrapped = cipher.encrypt(XNonce::from_slice(nonce), payload);
    let wrapped = wrapped.map_err(|_| Error::Random)?;
    file.extend_from_slice(nonce);
    file.extend_from_slice(&wrapped);
    Ok(file)
}

/// The master key of a file.
pub(crate) fn unwrap(file: &[u8], passphrase: &[u8]) -> Result<Zeroizing<[u8; 32]>, Error> {
    if let Some(what) = wrong_with(file) {
        return Err(Error::NotAKeyFile(what));
    }
    let cut = || Error::NotAKeyFile("it was cut off".to_owned());
    let number = |at: usize| {
        let bytes = file.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let (Some(memory), Some(times), Some(lanes)) = (number(16), number(20), number(24)) else {
        return Err(cut());
    };
    let cost = Cost {
        memory,
        times,
        lanes,
    };
    let (aad, rest) = file.split_at(PREFIX);
    let (nonce, wrapped) = rest.split_at(24);
    let key = wrapping_key(passphrase, aad.get(32..).unwrap_or_default(), cost)?;
    let cipher = XChaCha20Poly1305::new((&*key).into());
    let payload = Payload { msg: wrapped, aad };
    let master = cipher.decrypt(XNonce::from_slice(nonce), payload);
    let master = Zeroizing::new(master.map_err(|_| Error::WrongPassphrase)?);
    let mut key = Zeroizing::new([0; 32]);
    key.copy_from_slice(master.get(..32).ok_or_else(cut)?);
    Ok(key)
}

/// What tells that this is no key file, if anything does.
fn wrong_with(file: &[u8]) -> Option<String> {
    let len = file.len();
    let (name, version) = MAGIC.split_at(15);
    if file.is_empty() {
        return Some("it is empty".to_owned());
    }
    if !file.starts_with(name) && !name.starts_with(file) {
        return Some("it does not begin as one".to_owned());
    }
    match file.get(15) {
        Some(other) if version != [*other] => {
            return Some(format!("it is of version {other}, and not of 1"));
        }
        _ => {}
    }
    match len {
        LENGTH => None,
        0..LENGTH => Some(format!("it was cut off: it has {len} bytes of {LENGTH}")),
        _ => Some(format!("it has more than its {LENGTH} bytes")),
    }
}

/// Which file it is: device and inode.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// A key file that is in use for as long as this lives: who made it does not remove it.
#[derive(Debug)]
pub(crate) struct InUse(File);

impl InUse {
    fn of(file: File, path: &Path) -> io::Result<Self> {
        // Without locks on its file system it is used all the same; nobody removes it there.
        if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
            let text = "another process has locked it, as one does that removes it; try again";
            return Err(io::Error::other(text));
        }
        let found = std::fs::metadata(path)?;
        match identity(&found) == identity(&file.metadata()?) {
            true => Ok(Self(file)),
            false => Err(io::Error::other(
                "another file came into its place meanwhile; try again",
            )),
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // A child that was forked and has not reached its exec yet keeps the descriptor.
        let _ = self.0.unlock();
    }
}

/// The master key of the file at `path`, which is in use from then on.
pub(crate) fn read(path: &Path, passphrase: &[u8]) -> Result<(Zeroizing<[u8; 32]>, InUse), Error> {
    let failed = |error: io::Error| Error::File(path.to_owned(), error.to_string());
    // Before it is opened: that could wait for ever, or do something.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other(
            "a key file is a regular file, and this is none",
        )));
    }
    let file = File::open(path).map_err(failed)?;
    let in_use = InUse::of(file, path).map_err(failed)?;
    let file = crate::read_bounded(&in_use.0, LENGTH as u64).map_err(failed)?;
    match unwrap(&file, passphrase) {
        Ok(master) => Ok((master, in_use)),
        Err(error) => Err(Error::KeyFile(path.to_owned(), Box::new(error))),
    }
}

/// A key file that was made just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKeyFile {
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

impl NewKeyFile {
    /// Removes it, where nothing was encrypted with it: without it that is lost. Another file that is in its place by
    /// now stays.
    ///
    /// # Errors
    /// When it cannot be removed, a [`Crypt`](crate::Crypt) uses it, or whether one does cannot be told.
    pub fn remove(&self) -> io::Result<()> {
        let is_it = |found: &Metadata| identity(found) == self.file;
        let is_there = || std::fs::symlink_metadata(&self.path).map(|found| is_it(&found));
        if !is_there()? {
            return Ok(());
        }
        // NFS locks it only for who may write to it.
        let file = File::options().read(true).write(true).open(&self.path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other("another process uses it"),
            TryLockError::Error(error) => {
                let text = format!("whether another process uses it cannot be told: {error}");
                io::Error::new(error.kind(), text)
            }
        })?;
        match is_it(&file.metadata()?) && is_there()? {
            true => std::fs::remove_file(&self.path),
            false => Ok(()),
        }
    }

    /// Where it is: absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a file with a new master key, which must not exist yet.
pub(crate) fn create(path: &Path, passphrase: &[u8], cost: Cost) -> Result<NewKeyFile, Error> {
    let failed = |error: io::Error| Error::File(path.to_owned(), error.to_string());
    let absolute = std::path::absolute(path).map_err(failed)?;
    let master = Zeroizing::new(random::<32>().map_err(|_| Error::Random)?);
    let salt = random().map_err(|_| Error::Random)?;
    let nonce = random().map_err(|_| Error::Random)?;
    let bytes = wrap(&master, passphrase, cost, &salt, &nonce)?;
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(failed)?;
    let written = file.write_all(&bytes).and_then(|()| file.sync_all());
    let found = match written.and_then(|()| file.metadata()) {
        Ok(found) => found,
        Err(error) => {
            // Nothing uses it yet, and a part of one would be in the way of the next try.
            let _ = std::fs::remove_file(path);
            return Err(failed(error));
        }
    };
    // Whatever is encrypted with a key is lost without it: its name is to outlive a crash, too. Not
    // every file system and every directory lets us make sure.
    if let Err(error) = sync_directory_of(path) {
        tracing::warn!(layer = "crypt", path = %path.display(), "the directory of a new key file was not synced: {error}");
    }
    Ok(NewKeyFile {
        path: absolute,
        file: identity(&found),
    })
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Cost = Cost {
        memory: 64,
        times: 1,
        lanes: 1,
    };

    #[test]
    fn a_key_file_opens_only_unaltered_and_with_its_passphrase() {
        let file = wrap(&[9; 32], b"secret", CHEAP, &[1; 32], &[2; 24]).unwrap();
        assert_eq!(file.len(), 136);
        assert_eq!(*unwrap(&file, b"secret").unwrap(), [9; 32]);
        assert_eq!(
            unwrap(&file, b"Secret").unwrap_err(),
            Error::WrongPassphrase
        );
        for at in 0..file.len() {
            let mut altered = file.clone();
            altered[at] ^= 1;
            assert!(unwrap(&altered, b"secret").is_err(), "byte {at}");
            assert!(unwrap(&file[..at], b"secret").is_err());
        }
    }

    #[test]
    fn a_key_file_cannot_ask_for_everything() {
        let cost = Cost {
            memory: u32::MAX,
            ..CHEAP
        };
        let mut file = wrap(&[9; 32], b"secret", CHEAP, &[1; 32], &[2; 24]).unwrap();
        file[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(unwrap(&file, b"secret").unwrap_err(), Error::Cost(cost));
    }

    #[test]
    fn what_is_wrong_with_a_key_file_is_said_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let good = wrap(&[9; 32], b"secret", CHEAP, &[1; 32], &[2; 24]).unwrap();
        let mut version = good.clone();
        version[15] = 7;
        let cases: [(&[u8], &str); 6] = [
            (b"", "is empty"),
            (b"secret\n", "does not begin as one"),
            (&good[..10], "10 bytes of 136"),
            (&good[..135], "135 bytes of 136"),
            (&[good.as_slice(), b"x"].concat(), "more than its 136 bytes"),
            (&version, "version 7"),
        ];
        for (bytes, what) in cases {
            std::fs::write(&path, bytes).unwrap();
            let said = read(&path, b"secret").unwrap_err().to_string();
            assert!(said.contains(what) && said.contains("/key: "), "{said}");
        }
        std::fs::write(&path, &good).unwrap();
        assert!(read(&path, b"secret").is_ok());
        for endless in ["/dev/zero", "/dev/full"] {
            let said = read(Path::new(endless), b"secret").unwrap_err().to_string();
            assert!(said.contains("regular file"), "{said}");
        }
        assert!(crate::read_passphrase(Path::new("/dev/zero")).is_err());
    }

    #[test]
    fn costs_out_of_bounds_say_the_bounds() {
        let costs = [
            Cost { memory: 7, ..CHEAP },
            Cost {
                memory: u32::MAX,
                ..CHEAP
            },
            Cost { times: 0, ..CHEAP },
            Cost {
                times: Cost::PASSES.end() + 1,
                ..CHEAP
            },
            Cost { lanes: 0, ..CHEAP },
            Cost { lanes: 64, ..CHEAP },
        ];
        for cost in costs {
            let refused = wrapping_key(b"secret", &[0; 32], cost).unwrap_err();
            assert!(
                refused.to_string().contains("1 to 1024 passes"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_full_disk_leaves_no_part_of_a_key_file() {
        let run = |command: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-ec", command]).status().unwrap().success()
        };
        if !run("test $(id -u) = 0") {
            // Where the output of tests that pass is captured, too.
            let _ = writeln!(io::stderr(), "skipped: a small tmpfs needs root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (place, path) = (directory.path().display(), directory.path().join("key"));
        assert!(run(&format!("mount -t tmpfs -o size=16k none {place}")));
        let fill = directory.path().join("fill");
        let filled = std::fs::write(&fill, vec![0; 1 << 20]);
        let refused = create(&path, b"secret", CHEAP);
        let left = path.exists();
        std::fs::remove_file(&fill).unwrap();
        let made = create(&path, b"secret", CHEAP);
        let key = read(&path, b"secret").map(drop);
        assert!(run(&format!("umount {place}")));
        assert!(filled.is_err() && refused.is_err());
        assert!(!left, "a part of it is in the way");
        made.unwrap();
        key.unwrap();
    }

    #[test]
    fn a_new_key_file_is_removed_and_no_other_in_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("key"), directory.path().join("other"));
        create(&path, b"secret", CHEAP).unwrap().remove().unwrap();
        assert!(!path.exists());
        let made = create(&path, b"secret", CHEAP).unwrap();
        std::fs::rename(&path, &other).unwrap();
        std::fs::write(&path, "another").unwrap();
        made.remove().unwrap();
        assert!(path.exists() && other.exists());
    }

    #[test]
    fn a_new_key_file_that_another_uses_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let made = create(&path, b"secret", CHEAP).unwrap();
        let users = [
            read(&path, b"secret").unwrap(),
            read(&path, b"secret").unwrap(),
        ];
        for (_, user) in users {
            let left = made.remove().unwrap_err().to_string();
            assert!(left.contains("uses it") && path.exists(), "{left}");
            drop(user);
        }
        let removing = File::open(&path).unwrap();
        removing.lock().unwrap();
        let refused = read(&path, b"secret").unwrap_err().to_string();
        assert!(refused.contains("try again"), "{refused}");
        removing.unlock().unwrap();
        made.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_key_file_that_was_removed_while_it_was_opened_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let made = create(&path, b"secret", CHEAP).unwrap();
        let opened = File::open(&path).unwrap();
        made.remove().unwrap();
        let gone = InUse::of(opened.try_clone().unwrap(), &path).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        create(&path, b"secret", CHEAP).unwrap();
        let other = InUse::of(opened, &path).unwrap_err().to_string();
        assert!(other.contains("another file"), "{other}");
    }

    #[test]
    fn a_key_file_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        create(&path, b"secret", CHEAP).unwrap();
        assert!(create(&path, b"secret", CHEAP).is_err());
        let file = std::fs::read(&path).unwrap();
        assert!(unwrap(&file, b"secret").is_ok());
    }
}
