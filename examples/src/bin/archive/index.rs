//! What is where in an archive.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bickford::Errno;
use bickford::ops::{Attr, Timestamp};
use tar::{Archive, Entry, EntryType};

/// Names that are kept of one archive.
const NAMES_MAX: usize = 1 << 22;

/// A file, directory or symbolic link of the archive.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) attr: Attr,
    /// Where the contents begin in the archive.
    pub(crate) offset: u64,
    pub(crate) target: Vec<u8>,
}

/// An archive, and what is where in it.
pub(crate) struct Tar {
    pub(crate) file: Arc<OwnedFd>,
    members: HashMap<PathBuf, Member>,
    pub(crate) children: HashMap<PathBuf, BTreeMap<Vec<u8>, u32>>,
}

/// A member's path below the root; `None` for what leads outside, is the root, or is longer than
/// the kernel would ask for.
fn clean(path: &Path) -> Option<PathBuf> {
    if path.as_os_str().len() > 4096 {
        return None;
    }
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir | Component::RootDir => {}
            _ => return None,
        }
    }
    clean.parent().is_some().then_some(clean)
}

impl Member {
    /// From an entry of the archive; `None` for devices, sparse files and the like.
    fn read(entry: &Entry<'_, File>, ino: u64) -> Result<Option<Self>, Box<dyn Error>> {
        let header = entry.header();
        let mode = header.mode()? & 0o7777;
        let mut attr = match header.entry_type() {
            EntryType::Directory => Attr::directory(ino, mode),
            EntryType::Symlink => Attr {
                mode: 0o120_777,
                ..Attr::file(ino, 0, 0)
            },
            EntryType::Regular | EntryType::Continuous => Attr::file(ino, mode, entry.size()),
            _ => return Ok(None),
        };
        let seconds = i64::try_from(header.mtime()?).unwrap_or(0);
        attr.modified = Timestamp {
            seconds,
            nanoseconds: 0,
        };
        attr.changed = attr.modified;
        attr.uid = u32::try_from(header.uid()?)?;
        attr.gid = u32::try_from(header.gid()?)?;
        let target = entry
            .link_name_bytes()
            .map(|bytes| bytes.to_vec())
            .unwrap_or_default();
        Ok(Some(Self {
            attr,
            offset: entry.raw_file_position(),
            target,
        }))
    }
}

impl Tar {
    pub(crate) fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut archive = Archive::new(file.try_clone()?);
        let file = Arc::new(file.into());
        let mut tar = Self {
            file,
            members: HashMap::new(),
            children: HashMap::new(),
        };
        tar.add(
            "/".into(),
            Member {
                attr: Attr::directory(1, 0o755),
                offset: 0,
                target: Vec::new(),
            },
        );
        let mut links = Vec::new();
        for entry in archive.entries()? {
            let entry = entry?;
            let Some(path) = clean(&entry.path()?) else {
                continue;
            };
            if tar.members.len() + links.len() >= NAMES_MAX {
                return Err(
                    format!("more than {NAMES_MAX} names; this example keeps no more").into(),
                );
            }
            if entry.header().entry_type() == EntryType::Link {
                links.extend(entry.link_name()?.and_then(|to| Some((path, clean(&to)?))));
            } else if let Some(member) = Member::read(&entry, tar.members.len() as u64 + 1)? {
                tar.add(path, member);
            }
        }
        for (path, to) in links {
            if let Some(member) = tar.members.get(&to).cloned() {
                tar.add(path, member);
            }
        }
        Ok(tar)
    }

    /// Adds a member, and the directories above it that the archive does not name.
    fn add(&mut self, path: PathBuf, member: Member) {
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            if !self.members.contains_key(parent) {
                let ino = (1 << 40) + self.members.len() as u64;
                let attr = Attr::directory(ino, 0o755);
                self.add(
                    parent.into(),
                    Member {
                        attr,
                        offset: 0,
                        target: Vec::new(),
                    },
                );
            }
            let children = self.children.entry(parent.into()).or_default();
            children.insert(name.as_bytes().to_vec(), member.attr.mode);
        }
        self.members.insert(path, member);
    }

    pub(crate) fn member(&self, path: &Path) -> Result<&Member, Errno> {
        self.members.get(path).ok_or(Errno::NOENT)
    }
}
