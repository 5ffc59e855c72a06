//! Where blocks lie, and how long files are.

/// Plaintext bytes of a block; the last one of a file may have fewer.
pub(crate) const BLOCK: u64 = 4096;
/// Bytes of a nonce (XChaCha20).
pub(crate) const NONCE: usize = 24;
/// Bytes of a tag (Poly1305).
pub(crate) const TAG: usize = 16;
/// What a block takes below beyond its plaintext.
pub(crate) const OVERHEAD: u64 = (NONCE + TAG) as u64;
/// What a full block takes below.
pub(crate) const SLOT: u64 = BLOCK + OVERHEAD;
/// Bytes before the first block.
pub(crate) const HEADER: u64 = 32;

/// Longest file; its length below still fits in `i64`.
pub const SIZE_MAX: u64 = (i64::MAX as u64 - HEADER) / SLOT * BLOCK;

/// Where a block begins below.
pub(crate) fn position(block: u64) -> u64 {
    block.saturating_mul(SLOT).saturating_add(HEADER)
}

/// The last block of a file of `size` bytes; an empty file has an empty block 0.
pub(crate) fn last_block(size: u64) -> u64 {
    size.saturating_sub(1) / BLOCK
}

/// Plaintext bytes of a block of a file of `size` bytes.
pub(crate) fn block_length(block: u64, size: u64) -> usize {
    usize::try_from(size.saturating_sub(block.saturating_mul(BLOCK)).min(BLOCK)).unwrap_or(0)
}

/// How long a file of `size` bytes is below.
pub(crate) fn lower_length(size: u64) -> u64 {
    let last = last_block(size);
    position(last) + block_length(last, size) as u64 + OVERHEAD
}

/// How long a file is whose length below is `length`. A length that no file has counts as one byte
/// more than its whole blocks, so that whoever reads to the end meets the damage.
pub(crate) fn plain_size(length: u64) -> u64 {
    if length == lower_length(0) {
        return 0;
    }
    let blocks = length.saturating_sub(HEADER);
    let (full, rest) = (blocks / SLOT, blocks % SLOT);
    match rest {
        0 if full > 0 => full * BLOCK,
        rest if rest > OVERHEAD => full * BLOCK + rest - OVERHEAD,
        _ => full * BLOCK + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_one_to_one() {
        for size in (0..3 * BLOCK + 2).chain([1 << 40, SIZE_MAX]) {
            assert_eq!(plain_size(lower_length(size)), size);
        }
        assert!(i64::try_from(lower_length(SIZE_MAX)).is_ok());
    }

    #[test]
    fn no_wrong_length_is_an_empty_file() {
        for length in 0..2 * SLOT {
            let empty = plain_size(length) == 0;
            assert_eq!(empty, length == lower_length(0), "{length}");
        }
    }
}
