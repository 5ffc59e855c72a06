//! The extended attributes of one inode.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

use crate::path::SetXattr;
use crate::{Errno, Result};

/// Bytes that the extended attributes of one inode may have together.
pub const XATTRS_BYTES_MAX: usize = 64 << 10;

const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// Extended attributes by name (xattr(7)). Those of the name space `system` are not among them: ACLs that
/// are kept and not obeyed grant more than whoever sets them means to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xattrs(BTreeMap<CString, Vec<u8>>);

impl Xattrs {
    /// Sets one.
    ///
    /// # Errors
    /// EEXIST or ENODATA as the flags say, ENOSPC beyond [`XATTRS_BYTES_MAX`], EOPNOTSUPP for names of
    /// `system`.
    pub fn set(&mut self, xattr: SetXattr<'_>) -> Result<()> {
        let SetXattr { name, value, flags } = xattr;
        if name.to_bytes().starts_with(b"system.") {
            return Err(Errno::OPNOTSUPP);
        }
        match (self.0.get(name), flags) {
            (Some(_), CREATE) => return Err(Errno::EXIST),
            (None, REPLACE) => return Err(Errno::NODATA),
            _ => {}
        }
        let others = self.0.iter().filter(|(other, _)| other.as_c_str() != name);
        let held: usize = others
            .map(|(name, value)| name.count_bytes() + value.len())
            .sum();
        if held + name.count_bytes() + value.len() > XATTRS_BYTES_MAX {
            return Err(Errno::NOSPC);
        }
        self.0.insert(name.into(), value.into());
        Ok(())
    }

    /// The value of one.
    ///
    /// # Errors
    /// ENODATA where there is none.
    pub fn get(&self, name: &CStr) -> Result<Vec<u8>> {
        self.0.get(name).cloned().ok_or(Errno::NODATA)
    }

    /// The names, each followed by a NUL byte.
    #[must_use]
    pub fn list(&self) -> Vec<u8> {
        let names = self.0.keys();
        names
            .flat_map(|name| name.to_bytes_with_nul().to_vec())
            .collect()
    }

    /// Removes one.
    ///
    /// # Errors
    /// ENODATA where there is none.
    pub fn remove(&mut self, name: &CStr) -> Result<()> {
        self.0.remove(name).map(drop).ok_or(Errno::NODATA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_bounds_are_kept() {
        let mut xattrs = Xattrs::default();
        let set = |xattrs: &mut Xattrs, name, value: &[u8], flags| {
            xattrs.set(SetXattr::with_flags(name, value, flags))
        };
        let acl = set(&mut xattrs, c"system.posix_acl_access", b"", 0);
        assert_eq!(acl, Err(Errno::OPNOTSUPP));
        assert_eq!(set(&mut xattrs, c"a", b"1", REPLACE), Err(Errno::NODATA));
        assert_eq!(set(&mut xattrs, c"a", b"1", CREATE), Ok(()));
        assert_eq!(set(&mut xattrs, c"a", b"2", CREATE), Err(Errno::EXIST));
        assert_eq!(
            set(&mut xattrs, c"a", &[0; XATTRS_BYTES_MAX - 1], 0),
            Ok(())
        );
        // What is replaced does not count.
        assert_eq!(
            set(&mut xattrs, c"a", &[1; XATTRS_BYTES_MAX - 1], 0),
            Ok(())
        );
        assert_eq!(set(&mut xattrs, c"b", b"", 0), Err(Errno::NOSPC));
        assert_eq!(set(&mut xattrs, c"a", b"3", REPLACE), Ok(()));
        assert_eq!(set(&mut xattrs, c"b", b"", 0), Ok(()));
        assert_eq!(xattrs.list(), b"a\0b\0");
        assert_eq!(xattrs.get(c"a").unwrap(), b"3");
        assert_eq!(xattrs.remove(c"a"), Ok(()));
        assert_eq!(xattrs.remove(c"a"), Err(Errno::NODATA));
        assert_eq!(xattrs.get(c"a"), Err(Errno::NODATA));
    }
}
