//! Extensions that follow a request (`struct fuse_ext_header`): supplementary groups and security
//! contexts.

use std::ffi::CStr;

use bickford_abi::{EXT_GROUPS, ExtHeader, MAX_NR_SECCTX, Secctx, SecctxHeader};

use super::{Cursor, Malformed};

/// The extensions of a request, checked for length but not yet read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extensions<'a> {
    bytes: &'a [u8],
}

/// A security attribute that a new inode is to have (`struct fuse_secctx`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurityContext<'a> {
    /// Name of the extended attribute, such as `security.selinux`.
    pub name: &'a CStr,
    /// Its value.
    pub value: &'a [u8],
}

/// More groups than any kernel lets a process have (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

impl<'a> Extensions<'a> {
    /// Over the bytes that `total_extlen` counts.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The bytes as the kernel sent them.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    fn blocks(self) -> impl Iterator<Item = (u32, &'a [u8])> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let header: ExtHeader = Cursor::new(rest).read().ok()?;
            let block = rest.get(size_of::<ExtHeader>()..header.size as usize)?;
            rest = rest
                .get((header.size as usize).next_multiple_of(8)..)
                .unwrap_or_default();
            Some((header.r#type, block))
        })
    }

    /// The supplementary group that decides a creation, where the kernel sent groups.
    #[must_use]
    pub fn groups(self) -> Option<Vec<u32>> {
        let (_, block) = self.blocks().find(|(kind, _)| *kind == EXT_GROUPS)?;
        let mut cursor = Cursor::new(block);
        let count = cursor.read::<u32>().ok()? as usize;
        if count > GROUPS_MAX.min(block.len() / size_of::<u32>()) {
            return None;
        }
        (0..count).map(|_| cursor.read::<u32>().ok()).collect()
    }

    /// The security contexts for a new inode.
    ///
    /// # Errors
    /// [`Malformed`] when a length does not fit.
    pub fn security_contexts(self) -> Result<Vec<SecurityContext<'a>>, Malformed> {
        let Some((count, block)) = self.blocks().find(|(kind, _)| *kind <= MAX_NR_SECCTX) else {
            return Ok(Vec::new());
        };
        let mut contexts = Vec::new();
        let mut rest = block;
        for _ in 0..count {
            let mut cursor = Cursor::new(rest);
            let header: Secctx = cursor.read()?;
            let name = cursor.text()?;
            let value = cursor.bytes(header.size as usize)?;
            contexts.push(SecurityContext { name, value });
            let taken = size_of::<Secctx>() + name.count_bytes() + 1 + value.len();
            rest = rest.get(taken.next_multiple_of(8)..).unwrap_or_default();
        }
        Ok(contexts)
    }
}

const _: () = assert!(size_of::<SecctxHeader>() == size_of::<ExtHeader>());

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((8 + body.len() as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn groups_are_read() {
        let body: Vec<u8> = [2u32, 10, 20]
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect();
        assert_eq!(
            Extensions::new(&block(EXT_GROUPS, &body)).groups(),
            Some(vec![10, 20])
        );
    }

    #[test]
    fn a_count_beyond_the_block_is_no_groups() {
        let body: Vec<u8> = [9u32, 10].iter().flat_map(|n| n.to_ne_bytes()).collect();
        assert_eq!(Extensions::new(&block(EXT_GROUPS, &body)).groups(), None);
    }

    #[test]
    fn a_security_context_is_read() {
        let mut body = Vec::new();
        body.extend(3u32.to_ne_bytes());
        body.extend(0u32.to_ne_bytes());
        body.extend(b"security.x\0abc");
        let bytes = block(1, &body);
        let contexts = Extensions::new(&bytes).security_contexts().unwrap();
        assert_eq!(
            contexts,
            [SecurityContext {
                name: c"security.x",
                value: b"abc"
            }]
        );
    }
}
