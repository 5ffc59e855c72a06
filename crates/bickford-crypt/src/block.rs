//! Blocks and headers as bytes.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::geometry::{BLOCK, HEADER, NONCE, OVERHEAD};
use crate::keys::Keys;

/// What every file begins with: a name, and the version in the last byte.
pub(crate) const MAGIC: [u8; 8] = *b"bickfrd\x01";

/// Tells apart files: part of what each block authenticates.
pub(crate) type FileId = [u8; 24];

/// Randomness was not to be had, or bytes are not what they were written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Broken> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(layer = "crypt", "no random numbers: {error}");
        Broken
    })?;
    Ok(bytes)
}

/// The header of a file.
pub(crate) fn header(id: &FileId) -> [u8; HEADER as usize] {
    let mut header = [0; HEADER as usize];
    let (magic, rest) = header.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    rest.copy_from_slice(id);
    header
}

/// The id in a header.
pub(crate) fn file_id(header: &[u8]) -> Result<FileId, Broken> {
    let header = header.get(..HEADER as usize).ok_or(Broken)?;
    let id = header.strip_prefix(&MAGIC).ok_or(Broken)?;
    id.try_into().map_err(|_| Broken)
}

/// What a block authenticates beside its contents.
fn associated(id: &FileId, block: u64, last: bool) -> [u8; 33] {
    let mut bytes = [0; 33];
    let (file, rest) = bytes.split_at_mut(24);
    file.copy_from_slice(id);
    let (number, flag) = rest.split_at_mut(8);
    number.copy_from_slice(&block.to_le_bytes());
    flag.fill(u8::from(last));
    bytes
}

/// Encrypts a block with this nonce: nonce, ciphertext, tag.
pub(crate) fn seal_with(
    keys: &Keys,
    nonce: [u8; NONCE],
    id: &FileId,
    block: u64,
    last: bool,
    plain: &[u8],
) -> Result<Vec<u8>, Broken> {
    let cipher = XChaCha20Poly1305::new((&*keys.contents).into());
    let aad = associated(id, block, last);
    let payload = Payload {
        msg: plain,
        aad: &aad,
    };
    let sealed = cipher.encrypt(XNonce::from_slice(&nonce), payload);
    let sealed = sealed.map_err(|_| Broken)?;
    Ok([nonce.as_slice(), &sealed].concat())
}

/// Encrypts a block with a random nonce.
pub(crate) fn seal(
    keys: &Keys,
    id: &FileId,
    block: u64,
    last: bool,
    plain: &[u8],
) -> Result<Vec<u8>, Broken> {
    debug_assert!(plain.len() as u64 <= BLOCK);
    seal_with(keys, random()?, id, block, last, plain)
}

/// Decrypts a block.
pub(crate) fn open(
    keys: &Keys,
    id: &FileId,
    block: u64,
    last: bool,
    sealed: &[u8],
) -> Result<Vec<u8>, Broken> {
    let (nonce, sealed) = sealed.split_at_checked(NONCE).ok_or(Broken)?;
    let empty = sealed.len() as u64 + NONCE as u64 == OVERHEAD;
    if empty && !(last && block == 0) {
        return Err(Broken);
    }
    let cipher = XChaCha20Poly1305::new((&*keys.contents).into());
    let aad = associated(id, block, last);
    let payload = Payload {
        msg: sealed,
        aad: &aad,
    };
    cipher
        .decrypt(XNonce::from_slice(nonce), payload)
        .map_err(|_| Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_opens_only_as_what_and_where_it_was_sealed() {
        let keys = Keys::from_master(&[1; 32]);
        let id = [7; 24];
        let sealed = seal(&keys, &id, 3, false, b"contents").unwrap();
        assert_eq!(open(&keys, &id, 3, false, &sealed).unwrap(), b"contents");
        assert!(open(&keys, &id, 4, false, &sealed).is_err());
        assert!(open(&keys, &id, 3, true, &sealed).is_err());
        assert!(open(&keys, &[8; 24], 3, false, &sealed).is_err());
        assert!(open(&Keys::from_master(&[2; 32]), &id, 3, false, &sealed).is_err());
        for length in 0..sealed.len() {
            assert!(open(&keys, &id, 3, false, &sealed[..length]).is_err());
        }
        for bit in 0..sealed.len() * 8 {
            let mut altered = sealed.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&keys, &id, 3, false, &altered).is_err());
        }
    }
}
