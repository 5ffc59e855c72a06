//! Names and targets of symbolic links: deterministic, authenticated, as base64url.

use aes_siv::KeyInit;
use aes_siv::siv::Aes256Siv;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::block::Broken;
use crate::keys::Keys;

/// Bytes that encryption adds.
const TAG: usize = 16;
/// Longest name that still fits in the 255 bytes of a name below.
pub const NAME_MAX: usize = 175;
/// Longest target of a symbolic link that still fits in the 4095 bytes of one below.
pub const TARGET_MAX: usize = 3055;

/// What the text is: names and targets do not stand for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Name,
    Target,
}

impl Kind {
    fn associated(self) -> [&'static [u8]; 1] {
        match self {
            Self::Name => [b"name"],
            Self::Target => [b"target"],
        }
    }
}

/// Encrypts a name or target.
pub(crate) fn seal(keys: &Keys, kind: Kind, plain: &[u8]) -> Result<String, Broken> {
    let mut cipher = Aes256Siv::new((&*keys.names).into());
    let sealed = cipher.encrypt(kind.associated(), plain);
    Ok(URL_SAFE_NO_PAD.encode(sealed.map_err(|_| Broken)?))
}

/// Decrypts a name or target.
pub(crate) fn open(keys: &Keys, kind: Kind, text: &[u8]) -> Result<Vec<u8>, Broken> {
    let sealed = URL_SAFE_NO_PAD.decode(text).map_err(|_| Broken)?;
    let mut cipher = Aes256Siv::new((&*keys.names).into());
    let plain = cipher.decrypt(kind.associated(), &sealed);
    plain.map_err(|_| Broken)
}

/// Whether a name below could be one that was encrypted, with whatever key.
#[must_use]
pub fn looks_encrypted(name: &[u8]) -> bool {
    URL_SAFE_NO_PAD
        .decode(name)
        .is_ok_and(|sealed| sealed.len() > TAG)
}

/// How long a target is whose length below is `length`.
pub(crate) fn plain_length(length: u64) -> u64 {
    (length * 3 / 4).saturating_sub(TAG as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_names_look_so() {
        let keys = Keys::from_master(&[1; 32]);
        for name in ["a", "a name with blanks"] {
            let sealed = seal(&keys, Kind::Name, name.as_bytes()).unwrap();
            assert!(looks_encrypted(sealed.as_bytes()));
            assert!(!looks_encrypted(name.as_bytes()));
        }
    }

    #[test]
    fn names_come_back_and_nothing_else_is_a_name() {
        let keys = Keys::from_master(&[1; 32]);
        for length in [1, 2, 3, 17, NAME_MAX, TARGET_MAX] {
            let plain = vec![b'n'; length];
            let sealed = seal(&keys, Kind::Name, &plain).unwrap();
            assert_eq!(open(&keys, Kind::Name, sealed.as_bytes()).unwrap(), plain);
            assert_eq!(plain_length(sealed.len() as u64), length as u64);
            assert!(open(&keys, Kind::Target, sealed.as_bytes()).is_err());
            assert!(!sealed.contains(['/', '.']));
        }
        let longest = seal(&keys, Kind::Name, &[b'n'; NAME_MAX]).unwrap();
        assert_eq!(longest.len(), 255);
        let target = seal(&keys, Kind::Target, &[b'n'; TARGET_MAX]).unwrap();
        assert!(target.len() <= 4095 && plain_length(4096) <= TARGET_MAX as u64 + 1);
        for other in [
            b"".as_slice(),
            b"a",
            b"lost+found",
            b"AAAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert!(open(&keys, Kind::Name, other).is_err());
        }
    }
}
