//! How large a device must be for what is run on it.

use crate::rows::Kind;
use crate::wml;

/// What must fit on a device at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    /// Bytes of files.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl Room {
    /// What all of these need, one after the other.
    pub(crate) fn of<'a>(kinds: impl Iterator<Item = &'a Kind>) -> Self {
        kinds.fold(Self::default(), |room, kind| Self {
            bytes: room.bytes.max(kind.bytes()),
            inodes: room.inodes.max(kind.inodes()),
        })
    }

    /// Bytes that the files may come to: some grow by appends.
    pub(crate) fn grown(self) -> u64 {
        self.bytes.saturating_add(self.bytes / 4)
    }

    /// Bytes of the device: with room for ext4's own tables and journal.
    pub(crate) fn length(self) -> u64 {
        self.grown().saturating_add(512 << 20)
    }

    /// `-N` of mke2fs(8); `None` where what it makes by itself, an inode for 16 KiB in its present
    /// configuration, is enough.
    pub(crate) fn more_inodes(self) -> Option<u64> {
        // Some for what ext4 keeps to itself.
        let needed = self
            .inodes
            .saturating_add(self.inodes / 16)
            .saturating_add(1024);
        (needed > self.length() / (16 << 10)).then_some(needed)
    }
}

impl Kind {
    /// Bytes of the largest state of the files, for the size of the device.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Fio(spec) => spec.bytes,
            Self::Wml { text, scale } => wml::scaled(text, *scale).map_or(0, |w| {
                // A file takes whole blocks, an inode and its share of a directory.
                w.filesets
                    .iter()
                    .map(|s| {
                        let blocks = s.size.div_ceil(4096).saturating_mul(4096);
                        s.entries.saturating_mul(blocks.saturating_add(1024))
                    })
                    .fold(0, u64::saturating_add)
                    .saturating_mul(3)
                    / 2
            }),
            Self::Postmark {
                files,
                transactions,
            } => files
                .saturating_add(transactions / 2)
                .saturating_mul(64 << 10),
            Self::Copy { bytes } => bytes.saturating_mul(2),
            Self::Bonnie { bytes, .. } | Self::BufferWrite { bytes, .. } => *bytes,
        }
    }

    /// Files and directories of the largest state, for the inodes of the device.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        match self {
            Self::Fio(spec) => spec.files,
            Self::Wml { text, scale } => wml::scaled(text, *scale).map_or(0, |w| {
                w.filesets
                    .iter()
                    // Each level of directories has at most half as many as the one below, and one.
                    .map(|s| {
                        let leaves = s.entries.div_ceil(s.dirwidth.max(1));
                        s.entries.saturating_add(leaves.saturating_mul(2))
                    })
                    .fold(0, u64::saturating_add)
            }),
            Self::Postmark {
                files,
                transactions,
            } => files.saturating_add(*transactions),
            Self::Copy { .. } | Self::Bonnie { .. } | Self::BufferWrite { .. } => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_of_any_size_has_a_size() {
        let text = "define fileset name=a,path=/x,entries=4294967295,size=17592186044416,prealloc\n\
                    define process name=p { thread name=t { flowop deletefile name=d,filesetname=a } }\n";
        let kind = Kind::Wml {
            text: text.to_owned(),
            scale: 1.0,
        };
        assert_eq!(kind.bytes(), u64::MAX / 2);
    }

    #[test]
    fn many_small_files_get_an_inode_each() {
        let text = "define fileset name=s,path=/t,size=4k,entries=200000,dirwidth=20,prealloc\n\
                    define process name=p { thread name=t { flowop deletefile name=d,filesetname=s } }";
        let kind = Kind::Wml {
            text: text.to_owned(),
            scale: 1.0,
        };
        let room = Room::of(std::iter::once(&kind));
        assert!(
            room.length() / (16 << 10) < 200_000,
            "what is tested is needed"
        );
        assert!(room.more_inodes().unwrap() >= 210_000);
        let few = Room {
            bytes: 4 << 30,
            inodes: 1_000,
        };
        assert_eq!(few.more_inodes(), None);
    }
}
