//! What lies below the crypt layer: one file, one symbolic link, and names, all of them the input's
//! to alter.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bickford::filesystem::blocking::FileSystem;
use bickford::ops::{
    Attr, Attributes, Create, Created, Data, Directory, DirectoryEntry, Entry, Getattr, Open,
    Opened, Read, Readdir, Readlink, Release, Setattr, Symlink, Target, Write, Written,
};
use bickford::{Context, Errno, FileHandle, NodeId};

pub const ROOT: u64 = 1;
pub const FILE: u64 = 2;
pub const LINK: u64 = 3;
pub const HANDLE: u64 = 7;

#[derive(Default)]
pub struct State {
    pub file: Vec<u8>,
    pub target: Vec<u8>,
    pub names: Vec<Vec<u8>>,
    /// The name of what was made last.
    pub made: Vec<u8>,
    pub opens: usize,
}

/// Shared, so that the target alters it.
#[derive(Clone, Default)]
pub struct Lower(Arc<Mutex<State>>);

impl Lower {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn attr(&self, node: NodeId) -> Attr {
        match node.0 {
            FILE => Attr::file(FILE, 0o644, self.file.len() as u64),
            LINK => Attr {
                mode: 0o120_777,
                ..Attr::file(LINK, 0, self.target.len() as u64)
            },
            _ => Attr::directory(ROOT, 0o755),
        }
    }

    fn entry(&self, node: u64) -> Entry {
        let node = NodeId(node);
        Entry::new(node, self.attr(node), Duration::ZERO)
    }

    fn attributes(&self, node: NodeId) -> Attributes {
        Attributes {
            attr: self.attr(node),
            valid: Duration::ZERO,
        }
    }
}

impl FileSystem for Lower {
    fn getattr(&self, _: &Context<'_>, op: Getattr) -> Result<Attributes, Errno> {
        Ok(self.state().attributes(op.node))
    }

    fn setattr(&self, _: &Context<'_>, op: Setattr) -> Result<Attributes, Errno> {
        let mut state = self.state();
        if let Some(size) = op.size {
            let size = usize::try_from(size).map_err(|_| Errno::FBIG)?;
            state.file.resize(size, 0);
        }
        Ok(state.attributes(op.node))
    }

    fn readlink(&self, _: &Context<'_>, _: Readlink) -> Result<Target, Errno> {
        Ok(Target(self.state().target.clone()))
    }

    fn symlink(&self, _: &Context<'_>, op: Symlink<'_>) -> Result<Entry, Errno> {
        let mut state = self.state();
        state.target = op.target.to_bytes().to_vec();
        Ok(state.entry(LINK))
    }

    fn create(&self, _: &Context<'_>, op: Create<'_>) -> Result<Created, Errno> {
        let mut state = self.state();
        state.file.clear();
        state.made = op.name.to_bytes().to_vec();
        state.opens += 1;
        Ok(Created {
            entry: state.entry(FILE),
            opened: Opened::new(FileHandle(HANDLE)),
        })
    }

    fn open(&self, _: &Context<'_>, _: Open) -> Result<Opened, Errno> {
        self.state().opens += 1;
        Ok(Opened::new(FileHandle(HANDLE)))
    }

    fn release(&self, _: &Context<'_>, _: Release) -> Result<(), Errno> {
        self.state().opens -= 1;
        Ok(())
    }

    fn read(&self, _: &Context<'_>, op: Read) -> Result<Data, Errno> {
        Ok(Data::part(&self.state().file, op.offset, op.size))
    }

    fn write(&self, _: &Context<'_>, op: Write<'_>) -> Result<Written, Errno> {
        let data = op.data.bytes().map_err(|_| Errno::IO)?;
        let offset = usize::try_from(op.offset).map_err(|_| Errno::FBIG)?;
        super::put(&mut self.state().file, offset, &data);
        Ok(Written(data.len() as u32))
    }

    fn readdir(&self, _: &Context<'_>, op: Readdir) -> Result<Directory, Errno> {
        let state = self.state();
        let mut listing = op.listing();
        let dots = [b".".to_vec(), b"..".to_vec()];
        let names = dots.iter().chain(&state.names);
        for (at, name) in (1..).zip(names).skip(op.offset as usize) {
            let entry = DirectoryEntry {
                name,
                ino: FILE,
                offset: at,
                mode: 0o100_000,
            };
            if !listing.push_entry(&entry, &Entry::default()) {
                break;
            }
        }
        Ok(listing)
    }
}
