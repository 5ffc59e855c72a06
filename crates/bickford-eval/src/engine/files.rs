//! The files of a set: their paths, which of them exist, and which is taken next.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::block::pattern;
use crate::wml::FileSet;

/// Marks a file that is not in the list of existing ones.
const NOWHERE: u32 = u32::MAX;

/// The tree of a set: directories of `dirwidth` entries, files in the lowest ones only.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    name: String,
    entries: u64,
    width: u64,
    levels: u32,
}

impl Tree {
    pub(super) fn new(set: &FileSet) -> Self {
        let leaves = set.entries.div_ceil(set.dirwidth);
        let width = set.dirwidth.max(2);
        let mut levels = 0;
        let mut reach = 1_u64;
        while reach < leaves {
            reach = reach.saturating_mul(width);
            levels += 1;
        }
        Self {
            name: set.name.clone(),
            entries: set.entries,
            width: set.dirwidth,
            levels,
        }
    }

    /// Writes the path of the directory `leaf` into `path`, which holds the root.
    fn directory(&self, path: &mut String, leaf: u64) {
        let fan_out = self.width.max(2);
        path.push('/');
        path.push_str(&self.name);
        for level in (0..self.levels).rev() {
            let digit = leaf / fan_out.saturating_pow(level) % fan_out;
            // Writing to a String cannot fail.
            let _ = write!(path, "/d{digit}");
        }
    }

    /// Puts the path of file `index` under `root` into `path`.
    pub(super) fn path(&self, path: &mut String, root: &str, index: u32) {
        path.clear();
        path.push_str(root);
        self.directory(path, u64::from(index) / self.width);
        let _ = write!(path, "/f{index:07}");
    }

    /// Makes every directory.
    pub(super) fn make_directories(&self, root: &str) -> io::Result<()> {
        let mut path = String::new();
        for leaf in 0..self.entries.div_ceil(self.width).max(1) {
            path.clear();
            path.push_str(root);
            self.directory(&mut path, leaf);
            fs::create_dir_all(&path)?;
        }
        Ok(())
    }
}

/// The indexes of the set's files in a random but repeatable order; the first `existing` of them are
/// there before the run.
fn order(set: &FileSet, seed: u64) -> (Vec<u32>, usize) {
    let mut all: Vec<u32> = (0..u32::try_from(set.entries).unwrap_or(NOWHERE)).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut all);
    (all, usize::try_from(set.existing()).unwrap_or(usize::MAX))
}

/// Makes the directories of `set` under `root` and the files that exist before a run.
pub(super) fn prepare(set: &FileSet, root: &Path, seed: u64) -> io::Result<()> {
    let root = root
        .to_str()
        .ok_or_else(|| io::Error::other("the directory's name is not UTF-8"))?;
    let tree = Tree::new(set);
    tree.make_directories(root)?;
    let (mut indexes, existing) = order(set, seed);
    indexes.truncate(existing);
    // Directory by directory: as a file system is filled, not at random.
    indexes.sort_unstable();
    let block = pattern(usize::try_from(set.size.min(1 << 20)).unwrap_or(1 << 20));
    let mut path = String::new();
    for index in indexes {
        tree.path(&mut path, root, index);
        fill(Path::new(&path), set.size, &block)?;
    }
    Ok(())
}

/// Makes a file of `bytes` bytes, of `block` over and over.
pub(crate) fn fill(path: &Path, bytes: u64, block: &[u8]) -> io::Result<fs::File> {
    let mut file = fs::File::create(path)?;
    write(&mut file, bytes, block)?;
    Ok(file)
}

/// Writes `bytes` bytes, by calls of all of `block`.
pub(super) fn write(file: &mut fs::File, bytes: u64, block: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(block.get(..part).unwrap_or(block))?;
        left -= part as u64;
    }
    Ok(())
}

#[derive(Debug)]
struct Lists {
    existing: Vec<u32>,
    /// The one that has been missing longest comes first.
    missing: VecDeque<u32>,
    /// Place in `existing`, or `NOWHERE`.
    place: Vec<u32>,
    open: Vec<u16>,
}

/// Which files of a set exist. The lock is never held across a system call.
#[derive(Debug)]
pub(super) struct Pool {
    lists: Mutex<Lists>,
}

impl Pool {
    pub(super) fn new(set: &FileSet, seed: u64) -> Self {
        let (mut existing, count) = order(set, seed);
        let missing = existing.split_off(count.min(existing.len()));
        let files = existing.len() + missing.len();
        let mut place = vec![NOWHERE; files];
        for (at, index) in existing.iter().enumerate() {
            if let Some(slot) = place.get_mut(*index as usize) {
                *slot = at as u32;
            }
        }
        Self {
            lists: Mutex::new(Lists {
                existing,
                missing: missing.into(),
                place,
                open: vec![0; files],
            }),
        }
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the file that has been missing longest; it is nobody else's until [`Pool::created`].
    pub(super) fn take_missing(&self) -> Option<u32> {
        self.lists().missing.pop_front()
    }

    /// The file now exists and is open once.
    pub(super) fn created(&self, index: u32) {
        let lists = &mut *self.lists();
        if let (Some(place), Some(open)) = (
            lists.place.get_mut(index as usize),
            lists.open.get_mut(index as usize),
        ) {
            *place = lists.existing.len() as u32;
            *open += 1;
            lists.existing.push(index);
        }
    }

    /// The next existing file after `rotor`, kept from being deleted until [`Pool::release`].
    pub(super) fn hold_existing(&self, rotor: &mut usize) -> Option<u32> {
        let lists = &mut *self.lists();
        if lists.existing.is_empty() {
            return None;
        }
        *rotor = (*rotor + 1) % lists.existing.len();
        let index = *lists.existing.get(*rotor)?;
        *lists.open.get_mut(index as usize)? += 1;
        Some(index)
    }

    /// Ends one hold of `index`.
    pub(super) fn release(&self, index: u32) {
        if let Some(open) = self.lists().open.get_mut(index as usize) {
            *open = open.saturating_sub(1);
        }
    }

    /// Takes an existing file that nobody holds out of the set; [`Pool::deleted`] follows.
    pub(super) fn take_existing(&self, rotor: &mut usize) -> Option<u32> {
        let lists = &mut *self.lists();
        let count = lists.existing.len();
        for step in 1..=count {
            let at = (*rotor + step) % count;
            let index = *lists.existing.get(at)?;
            if lists.open.get(index as usize) == Some(&0) {
                *rotor = at;
                lists.existing.swap_remove(at);
                if let Some(moved) = lists.existing.get(at)
                    && let Some(place) = lists.place.get_mut(*moved as usize)
                {
                    *place = at as u32;
                }
                *lists.place.get_mut(index as usize)? = NOWHERE;
                return Some(index);
            }
        }
        None
    }

    /// The file is gone and may be created again, last of all.
    pub(super) fn deleted(&self, index: u32) {
        let lists = &mut *self.lists();
        lists.missing.push_back(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(entries: u64, dirwidth: u64, prealloc_pct: u64) -> FileSet {
        FileSet {
            name: "s".into(),
            entries,
            single: false,
            size: 10,
            dirwidth,
            prealloc_pct,
        }
    }

    #[test]
    fn directories_have_the_width_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let set = set(100, 4, 100);
        prepare(&set, root.path(), 1).unwrap();
        let mut files = 0;
        let mut stack = vec![root.path().join("s")];
        while let Some(dir) = stack.pop() {
            let entries: Vec<_> = fs::read_dir(&dir).unwrap().map(Result::unwrap).collect();
            assert!(entries.len() <= 4, "{dir:?} has {}", entries.len());
            for entry in entries {
                if entry.file_type().unwrap().is_dir() {
                    stack.push(entry.path());
                } else {
                    assert_eq!(entry.metadata().unwrap().len(), 10);
                    files += 1;
                }
            }
        }
        assert_eq!(files, 100);
    }

    #[test]
    fn one_directory_where_the_width_is_no_limit() {
        let tree = Tree::new(&set(100, 1_000_000, 0));
        let mut path = String::new();
        tree.path(&mut path, "/r", 99);
        assert_eq!(path, "/r/s/f0000099");
    }

    #[test]
    fn what_exists_on_disk_is_what_the_pool_says() {
        let root = tempfile::tempdir().unwrap();
        let set = set(50, 8, 40);
        prepare(&set, root.path(), 7).unwrap();
        let pool = Pool::new(&set, 7);
        let tree = Tree::new(&set);
        let mut path = String::new();
        let (mut rotor, mut seen) = (0, 0);
        while let Some(index) = pool.take_existing(&mut rotor) {
            tree.path(&mut path, root.path().to_str().unwrap(), index);
            assert!(Path::new(&path).exists());
            seen += 1;
        }
        assert_eq!(seen, 20);
    }

    #[test]
    fn a_held_file_is_never_deleted() {
        let pool = Pool::new(&set(3, 8, 100), 1);
        let mut rotor = 0;
        let held = pool.hold_existing(&mut rotor).unwrap();
        let taken = [
            pool.take_existing(&mut rotor),
            pool.take_existing(&mut rotor),
        ];
        assert!(taken.iter().all(|t| t.is_some_and(|i| i != held)));
        assert_eq!(pool.take_existing(&mut rotor), None);
        pool.release(held);
        assert_eq!(pool.take_existing(&mut rotor), Some(held));
        assert_eq!(pool.hold_existing(&mut rotor), None);
        pool.deleted(held);
        assert_eq!(pool.take_missing(), Some(held));
        pool.created(held);
        assert_eq!(pool.hold_existing(&mut rotor), Some(held));
    }

    #[test]
    fn what_was_deleted_is_created_again_last_of_all() {
        let pool = Pool::new(&set(10, 8, 80), 1);
        let mut rotor = 0;
        let deleted = pool.take_existing(&mut rotor).unwrap();
        pool.deleted(deleted);
        let order = [(); 3].map(|()| pool.take_missing());
        assert_eq!(order[2], Some(deleted));
        assert_eq!(pool.take_missing(), None);
    }
}
