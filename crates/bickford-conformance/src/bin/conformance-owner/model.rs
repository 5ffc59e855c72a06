//! What an owner knows.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Directories that all processes use.
pub const SHARED: u64 = 3;
/// Of its own names an owner uses so many again and again in each directory: what was there before is what may be taken
/// for what is there now.
const NAMES: u64 = 12;
const LOG_MAX: usize = 10_000;

pub type Id = u64;

/// A directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Shared(u64),
    Own(Id),
}

pub type Key = (Place, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Link(String),
    Directory,
}

/// What is known of an inode.
#[derive(Clone, Debug)]
pub struct Inode {
    pub kind: Kind,
    pub data: Vec<u8>,
    pub mode: u32,
    pub links: u64,
    pub number: u64,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Seconds and nanoseconds, where they were set and nothing was written since.
    pub modified: Option<(i64, i64)>,
    /// How many of the owner's open files are of it.
    pub opens: usize,
}

pub struct Owner {
    root: PathBuf,
    index: u64,
    pub rng: fastrand::Rng,
    pub maps: bool,
    next: Id,
    pub inodes: HashMap<Id, Inode>,
    pub names: BTreeMap<Key, Id>,
    pub open: Vec<(File, Id)>,
    log: VecDeque<(Id, String)>,
    /// The inode that the current step is about.
    about: Id,
}

pub fn wrong<T>(what: impl std::fmt::Display) -> io::Result<T> {
    Err(io::Error::other(what.to_string()))
}

/// Says what failed where it should not.
pub fn at<T>(what: &str, path: &Path, result: Result<T, impl std::fmt::Display>) -> io::Result<T> {
    result.map_err(|error| io::Error::other(format!("{what} {}: {error}", path.display())))
}

impl Owner {
    pub fn new(root: &Path, index: u64, seed: u64, maps: bool) -> Self {
        Self {
            root: root.to_path_buf(),
            index,
            rng: fastrand::Rng::with_seed(seed.wrapping_mul(1_000).wrapping_add(index)),
            maps,
            next: 0,
            inodes: HashMap::new(),
            names: BTreeMap::new(),
            open: Vec::new(),
            log: VecDeque::new(),
            about: 0,
        }
    }

    pub fn prefix(&self) -> String {
        format!("p{}-", self.index)
    }

    pub fn inode(&mut self, id: Id) -> &mut Inode {
        self.inodes.get_mut(&id).expect("an inode that is known")
    }

    pub fn note(&mut self, id: Id, what: String) {
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.about = id;
        self.log.push_back((id, what));
    }

    /// The last steps about the inode that the current one is about.
    pub fn log_about_last(&self, count: usize) -> Vec<String> {
        let of_it = self.log.iter().rev().filter(|(id, _)| *id == self.about);
        let mut about: Vec<_> = of_it.take(count).map(|(_, what)| what.clone()).collect();
        about.reverse();
        about
    }

    /// The name of a directory of its own.
    fn name_of(&self, id: Id) -> &Key {
        let named = self.names.iter().find(|(_, other)| **other == id);
        named.expect("a directory has a name").0
    }

    pub fn directory(&self, place: Place) -> PathBuf {
        match place {
            Place::Shared(number) => self.root.join(format!("d{number}")),
            Place::Own(id) => self.path(self.name_of(id)),
        }
    }

    pub fn path(&self, (place, name): &Key) -> PathBuf {
        self.directory(*place).join(name)
    }

    pub fn is_below(&self, place: Place, id: Id) -> bool {
        match place {
            Place::Shared(_) => false,
            Place::Own(own) => own == id || self.is_below(self.name_of(own).0, id),
        }
    }

    pub fn is_empty(&self, id: Id) -> bool {
        !self.names.keys().any(|(place, _)| *place == Place::Own(id))
    }

    pub fn directories(&self) -> Vec<Id> {
        let directories = self.inodes.iter();
        let directories = directories.filter(|(_, inode)| inode.kind == Kind::Directory);
        let mut ids: Vec<_> = directories.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    pub fn one<T>(&mut self, of: Vec<T>) -> Option<T> {
        let mut of = of;
        match of.len() {
            0 => None,
            count => Some(of.swap_remove(self.rng.usize(..count))),
        }
    }

    /// One of its names whose inode is so.
    pub fn any(&mut self, is_so: impl Fn(&Inode) -> bool) -> Option<(Key, Id)> {
        let inodes = &self.inodes;
        let names = self.names.iter().filter(|(_, id)| is_so(&inodes[id]));
        let names: Vec<_> = names.map(|(key, id)| (key.clone(), *id)).collect();
        self.one(names)
    }

    /// A name that leads nowhere.
    pub fn free(&mut self) -> Key {
        let own = self.directories();
        loop {
            let place = match self.rng.bool() {
                true => Place::Shared(self.rng.u64(..SHARED)),
                false => self.one(own.clone()).map_or(Place::Shared(0), Place::Own),
            };
            let number = self.rng.u64(..NAMES * 2);
            // Some with more letters than are kept beside an entry of the kernel's cache.
            let rest = if number < NAMES {
                ""
            } else {
                "-and-more-than-fits-into-the-entry-itself"
            };
            let key = (place, format!("{}{number}{rest}", self.prefix()));
            if !self.names.contains_key(&key) {
                return key;
            }
        }
    }

    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (count, first) = (self.rng.usize(1..=most), self.rng.u8(..));
        (0..count)
            .map(|at| first.wrapping_add((at / 7) as u8))
            .collect()
    }

    pub fn add(&mut self, key: Key, kind: Kind, mode: u32, number: u64) -> Id {
        self.next += 1;
        let inode = Inode {
            kind,
            data: Vec::new(),
            mode,
            links: 1,
            number,
            xattrs: BTreeMap::new(),
            modified: None,
            opens: 0,
        };
        self.inodes.insert(self.next, inode);
        self.names.insert(key, self.next);
        self.next
    }

    /// A name is gone.
    pub fn lose(&mut self, key: &Key) {
        if let Some(id) = self.names.remove(key) {
            self.inode(id).links -= 1;
            self.drop_if_gone(id);
        }
    }

    pub fn drop_if_gone(&mut self, id: Id) {
        let inode = self.inode(id);
        if inode.links == 0 && inode.opens == 0 {
            self.inodes.remove(&id);
        }
    }
}
