//! Names of operations, and sets of them.

use std::fmt;
use std::str::FromStr;

use crate::ops::for_each_operation;

macro_rules! define_kinds {
    ($($method:ident: $operation:ident $(<$lt:lifetime>)? => $answer:ty, $default:expr, [$first:ident $(, $rest:ident)*], $doc:literal;)+) => {
        /// An operation that is answered, as a layer sees it; opcodes that ask the same are one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum OperationKind {
            $(#[doc = $doc] $first,)+
        }

        impl OperationKind {
            /// Every operation.
            pub const ALL: &'static [Self] = &[$(Self::$first,)+];

            /// Its name, that of the method of [`crate::FileSystem`].
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$first => stringify!($method),)+
                }
            }
        }
    };
}

for_each_operation!(define_kinds);

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no operation's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOperation {
    name: String,
}

impl fmt::Display for UnknownOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = OperationKind::ALL.iter().map(|kind| kind.name());
        write!(f, "unknown operation {:?}", self.name)?;
        match nearest(&self.name, names) {
            Some(near) => write!(f, "; did you mean {near:?}?"),
            None => f.write_str("; operations are named as the methods of a file system: lookup, getattr, open, read, ..."),
        }
    }
}

impl std::error::Error for UnknownOperation {}

impl FromStr for OperationKind {
    type Err = UnknownOperation;

    fn from_str(name: &str) -> Result<Self, UnknownOperation> {
        let known = Self::ALL.iter().find(|kind| kind.name() == name);
        known.copied().ok_or_else(|| UnknownOperation {
            name: name.to_owned(),
        })
    }
}

/// The candidate that `name` was most likely meant to be, if one is near enough.
#[must_use]
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let name = name.to_ascii_lowercase();
    let scored = candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&name, candidate), candidate));
    scored
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= candidate.len().max(name.len()).div_ceil(3))
        .map(|(_, candidate)| candidate)
}

/// A set of operations.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationSet(u64);

const _: () = assert!(
    OperationKind::ALL.len() <= 64,
    "an OperationSet has 64 bits"
);

impl OperationSet {
    /// No operation.
    pub const NONE: Self = Self(0);
    /// Every operation.
    pub const ALL: Self = Self::of(OperationKind::ALL);
    /// READ and WRITE.
    pub const DATA: Self = Self::of(&[OperationKind::Read, OperationKind::Write]);
    /// Operations that open or end something open: they do not come with a zero-message open.
    pub const OPENS: Self = Self::of(&[
        OperationKind::Open,
        OperationKind::Release,
        OperationKind::Opendir,
        OperationKind::Releasedir,
    ]);
    /// Operations that end something open: what is open below stays so without them.
    pub const ENDS: Self = Self::of(&[OperationKind::Release, OperationKind::Releasedir]);
    /// Operations that change something wherever they succeed. OPEN changes something only with
    /// `O_TRUNC`, and is not among them.
    pub const CHANGES: Self = Self::of(&[
        OperationKind::Setattr,
        OperationKind::Symlink,
        OperationKind::Mknod,
        OperationKind::Mkdir,
        OperationKind::Unlink,
        OperationKind::Rmdir,
        OperationKind::Rename,
        OperationKind::Link,
        OperationKind::Write,
        OperationKind::Setxattr,
        OperationKind::Removexattr,
        OperationKind::Create,
        OperationKind::Fallocate,
        OperationKind::CopyFileRange,
        OperationKind::Tmpfile,
    ]);

    /// These operations.
    #[must_use]
    pub const fn of(kinds: &[OperationKind]) -> Self {
        let mut bits = 0;
        let mut rest = kinds;
        while let [kind, tail @ ..] = rest {
            bits |= 1 << *kind as u32;
            rest = tail;
        }
        Self(bits)
    }

    /// Whether an operation is in it.
    #[must_use]
    pub const fn contains(self, kind: OperationKind) -> bool {
        self.0 & (1 << kind as u32) != 0
    }

    /// Whether both have an operation in common.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The operations of both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The operations that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The operations that are in both.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// These, with the operations that end what these open.
    pub(super) const fn with_ends(self) -> Self {
        let files = Self::of(&[
            OperationKind::Open,
            OperationKind::Create,
            OperationKind::Tmpfile,
        ]);
        let mut all = self;
        if self.intersects(files) {
            all = all.with(Self::of(&[OperationKind::Release]));
        }
        if self.contains(OperationKind::Opendir) {
            all = all.with(Self::of(&[OperationKind::Releasedir]));
        }
        all
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The operations.
    pub fn iter(self) -> impl Iterator<Item = OperationKind> {
        let all = OperationKind::ALL.iter().copied();
        all.filter(move |kind| self.contains(*kind))
    }
}

impl FromIterator<OperationKind> for OperationSet {
    fn from_iter<I: IntoIterator<Item = OperationKind>>(kinds: I) -> Self {
        kinds
            .into_iter()
            .fold(Self::NONE, |set, kind| set.with(Self::of(&[kind])))
    }
}

impl fmt::Debug for OperationSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(OperationKind::name))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_near_ones_are_suggested() {
        for kind in OperationKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
        let error = "lokup".parse::<OperationKind>().unwrap_err().to_string();
        assert!(error.contains("\"lookup\""), "{error}");
        let error = "zzzzzzzzzz".parse::<OperationKind>().unwrap_err();
        assert!(!error.to_string().contains("did you mean"));
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let all: OperationSet = OperationKind::ALL.iter().copied().collect();
        assert_eq!(all, OperationSet::ALL);
        assert_eq!(all.iter().count(), OperationKind::ALL.len());
        let rest = all.without(OperationSet::DATA);
        assert!(!rest.contains(OperationKind::Read) && rest.contains(OperationKind::Open));
        assert!(rest.both(OperationSet::DATA).is_empty());
    }
}
