//! A file system over paths that notices when a path does not stay right, and whose files tell
//! which one they are: the size of an inode is its number.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use bickford::ops::{Attr, Data, Opened, Payload};
use bickford::path::{Allocation, FileSystem, Listing, New, Open, SetXattr, Subject};
use bickford::{Context, Errno, FileHandle};
use rustix::fs::RenameFlags;

#[derive(Debug, Default)]
pub struct Tree {
    names: BTreeMap<PathBuf, u64>,
    directories: HashMap<u64, bool>,
    open: HashMap<u64, u64>,
    next: u64,
}

/// Shared with the test.
#[derive(Debug, Default)]
pub struct Mirror {
    tree: Mutex<Tree>,
    /// How often a path changed while a method ran.
    pub moved: AtomicU64,
    /// How often another thread is let in while a method runs.
    pub yields: u32,
    /// Methods that ran, with their paths, in order.
    pub log: Mutex<Vec<String>>,
    /// What the next renames are refused with, if they are.
    pub refusals: Mutex<VecDeque<Option<Errno>>>,
    gates: Mutex<HashMap<&'static str, Gate>>,
}

/// Where a method stops once.
#[derive(Debug)]
struct Gate {
    entered: Sender<()>,
    leave: Receiver<()>,
}

pub const ROOT_INO: u64 = 1;

impl Tree {
    fn find(&self, path: &Path) -> Result<u64, Errno> {
        if path == Path::new("/") {
            return Ok(ROOT_INO);
        }
        self.names.get(path).copied().ok_or(Errno::NOENT)
    }

    pub fn opens(&self) -> usize {
        self.open.len()
    }

    pub fn links(&self, ino: u64) -> usize {
        self.names.values().filter(|other| **other == ino).count()
    }

    fn is_directory(&self, ino: u64) -> bool {
        ino == ROOT_INO || self.directories.get(&ino).copied().unwrap_or(false)
    }

    fn has_children(&self, path: &Path) -> bool {
        self.names.keys().any(|name| name.parent() == Some(path))
    }

    fn make(&mut self, path: &Path, directory: bool) -> Result<u64, Errno> {
        let parent = self.find(path.parent().ok_or(Errno::INVAL)?)?;
        if !self.is_directory(parent) {
            return Err(Errno::NOTDIR);
        }
        if self.names.contains_key(path) {
            return Err(Errno::EXIST);
        }
        self.next += 1;
        let ino = ROOT_INO + self.next;
        self.names.insert(path.into(), ino);
        self.directories.insert(ino, directory);
        Ok(ino)
    }

    fn remove(&mut self, path: &Path, directory: bool) -> Result<(), Errno> {
        let ino = self.find(path)?;
        match (self.is_directory(ino), directory) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            (true, true) if self.has_children(path) => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        self.names.remove(path);
        Ok(())
    }

    /// Takes a name, and all names below it, out.
    fn cut(&mut self, path: &Path) -> Vec<(PathBuf, u64)> {
        let below = |name: &&PathBuf| name.starts_with(path);
        let names: Vec<_> = self.names.keys().filter(below).cloned().collect();
        let cut = |name: PathBuf| {
            let ino = self.names.remove(&name)?;
            Some((name.strip_prefix(path).ok()?.to_path_buf(), ino))
        };
        names.into_iter().filter_map(cut).collect()
    }

    fn paste(&mut self, path: &Path, names: Vec<(PathBuf, u64)>) {
        for (rest, ino) in names {
            let whole = if rest.as_os_str().is_empty() {
                path.into()
            } else {
                path.join(rest)
            };
            self.names.insert(whole, ino);
        }
    }

    fn rename(&mut self, from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
        let source = self.find(from)?;
        let target = self.find(to).ok();
        self.find(to.parent().ok_or(Errno::INVAL)?)?;
        if to.starts_with(from) || from.starts_with(to) {
            return Err(Errno::INVAL);
        }
        if flags.contains(RenameFlags::EXCHANGE) {
            target.ok_or(Errno::NOENT)?;
            let (first, second) = (self.cut(from), self.cut(to));
            self.paste(to, first);
            self.paste(from, second);
            return Ok(());
        }
        if let Some(target) = target {
            match (self.is_directory(source), self.is_directory(target)) {
                _ if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EXIST),
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if self.has_children(to) => return Err(Errno::NOTEMPTY),
                _ if source == target => return Ok(()),
                _ => {}
            }
            self.names.remove(to);
        }
        let names = self.cut(from);
        self.paste(to, names);
        Ok(())
    }
}

impl Mirror {
    pub fn with_yields(yields: u32) -> Arc<Self> {
        Arc::new(Self {
            yields,
            ..Self::default()
        })
    }

    pub fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap()
    }

    pub fn find(&self, path: &Path) -> Option<u64> {
        self.tree().find(path).ok()
    }

    /// Stops the next call of a method. Answers what tells that it was called, and what lets it go
    /// on.
    pub fn stop(&self, method: &'static str) -> (Receiver<()>, Sender<()>) {
        let (entered, is_in) = channel();
        let (go_on, leave) = channel();
        self.gates
            .lock()
            .unwrap()
            .insert(method, Gate { entered, leave });
        (is_in, go_on)
    }

    /// Others put a directory in the place of a file.
    pub fn replace(&self, path: &str) {
        let mut tree = self.tree();
        tree.remove(path.as_ref(), false).unwrap();
        tree.make(path.as_ref(), true).unwrap();
    }

    /// An open file tells nothing any more, as one that is gone.
    pub fn forget_open(&self, handle: u64) {
        self.tree().open.remove(&handle);
    }

    fn enter(&self, method: &'static str, path: Option<&Path>) {
        let path = path.map_or("-".into(), |path| path.display().to_string());
        self.log.lock().unwrap().push(format!("{method} {path}"));
        let gate = self.gates.lock().unwrap().remove(method);
        if let Some(gate) = gate {
            gate.entered.send(()).unwrap();
            gate.leave.recv().unwrap();
        }
    }

    /// What a path leads to, from the beginning to the end of a method.
    fn watch(&self, path: &Path) -> Result<u64, Errno> {
        let before = self.tree().find(path);
        for _ in 0..self.yields {
            std::thread::yield_now();
            if self.tree().find(path) != before {
                self.moved.fetch_add(1, Ordering::SeqCst);
            }
        }
        before
    }

    fn ino(&self, subject: Subject<'_>) -> Result<u64, Errno> {
        match (subject.path(), subject.handle()) {
            (Ok(path), _) => self.watch(path),
            (_, Some(handle)) => self.tree().open.get(&handle.0).copied().ok_or(Errno::BADF),
            _ => Err(Errno::NOENT),
        }
    }

    fn open_ino(&self, ino: u64) -> Opened {
        let mut tree = self.tree();
        tree.next += 1;
        let handle = tree.next;
        tree.open.insert(handle, ino);
        Opened::new(FileHandle(handle))
    }
}

/// What is served; the test keeps the other end.
#[derive(Debug)]
pub struct Served(pub Arc<Mirror>);

impl FileSystem for Served {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
        self.0.enter("getattr", subject.path().ok());
        let ino = self.0.ino(subject)?;
        let tree = self.0.tree();
        let mut attr = if tree.is_directory(ino) {
            Attr::directory(ino, 0o755)
        } else {
            Attr::file(ino, 0o644, 0)
        };
        attr.size = ino;
        attr.links = u32::try_from(tree.links(ino)).unwrap();
        Ok(attr)
    }

    fn mknod(&self, _: &Context<'_>, path: &Path, _: New) -> Result<(), Errno> {
        self.0.tree().make(path, false).map(drop)
    }

    fn mkdir(&self, _: &Context<'_>, path: &Path, _: New) -> Result<(), Errno> {
        self.0.tree().make(path, true).map(drop)
    }

    fn create(&self, _: &Context<'_>, path: &Path, _: New, _: Open) -> Result<Opened, Errno> {
        let ino = self.0.tree().make(path, false)?;
        Ok(self.0.open_ino(ino))
    }

    fn unlink(&self, _: &Context<'_>, path: &Path) -> Result<(), Errno> {
        self.0.enter("unlink", Some(path));
        self.0.watch(path)?;
        self.0.tree().remove(path, false)
    }

    fn rmdir(&self, _: &Context<'_>, path: &Path) -> Result<(), Errno> {
        self.0.watch(path)?;
        self.0.tree().remove(path, true)
    }

    fn rename(
        &self,
        _: &Context<'_>,
        from: &Path,
        to: &Path,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.0.enter("rename", Some(from));
        self.0.watch(from)?;
        if let Some(Some(errno)) = self.0.refusals.lock().unwrap().pop_front() {
            return Err(errno);
        }
        self.0.tree().rename(from, to, flags)
    }

    fn link(&self, _: &Context<'_>, existing: Subject<'_>, new: &Path) -> Result<(), Errno> {
        let ino = self.0.watch(existing.path()?)?;
        let mut tree = self.0.tree();
        tree.find(new.parent().ok_or(Errno::INVAL)?)?;
        match tree.names.contains_key(new) {
            true => return Err(Errno::EXIST),
            false if tree.is_directory(ino) => return Err(Errno::PERM),
            false => {}
        }
        tree.names.insert(new.into(), ino);
        Ok(())
    }

    fn chmod(&self, _: &Context<'_>, _: Subject<'_>, _: u32) -> Result<(), Errno> {
        Ok(())
    }

    fn setxattr(&self, _: &Context<'_>, _: Subject<'_>, _: SetXattr<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn removexattr(&self, _: &Context<'_>, _: Subject<'_>, _: &CStr) -> Result<(), Errno> {
        Ok(())
    }

    fn fallocate(&self, _: &Context<'_>, _: Subject<'_>, _: Allocation) -> Result<(), Errno> {
        Ok(())
    }

    fn write(
        &self,
        _: &Context<'_>,
        _: Subject<'_>,
        _: u64,
        data: Payload<'_>,
    ) -> Result<u32, Errno> {
        u32::try_from(data.len()).map_err(|_| Errno::INVAL)
    }

    fn open(&self, _: &Context<'_>, path: &Path, _: Open) -> Result<Opened, Errno> {
        let ino = self.0.watch(path)?;
        Ok(self.0.open_ino(ino))
    }

    fn release(&self, _: &Context<'_>, file: Subject<'_>) -> Result<(), Errno> {
        self.0.enter("release", file.path().ok());
        let handle = file.handle().ok_or(Errno::BADF)?;
        self.0
            .tree()
            .open
            .remove(&handle.0)
            .map(drop)
            .ok_or(Errno::BADF)
    }

    /// Answers the number of the inode that the path leads to; by handle where there is no path.
    fn read(&self, _: &Context<'_>, file: Subject<'_>, _: u64, _: u32) -> Result<Data, Errno> {
        self.0.enter("read", file.path().ok());
        let ino = self.0.ino(file)?;
        let handle = file.handle().ok_or(Errno::BADF)?;
        let opened = self
            .0
            .tree()
            .open
            .get(&handle.0)
            .copied()
            .ok_or(Errno::BADF)?;
        if opened != ino {
            self.0.moved.fetch_add(1, Ordering::SeqCst);
        }
        Ok(ino.to_ne_bytes().to_vec().into())
    }

    fn readdir(
        &self,
        cx: &Context<'_>,
        directory: Subject<'_>,
        listing: &mut Listing,
    ) -> Result<(), Errno> {
        let path = directory.path()?;
        let below = |name: &&PathBuf| name.parent() == Some(path);
        let names: Vec<_> = self.0.tree().names.keys().filter(below).cloned().collect();
        for name in names {
            let attr = self.getattr(cx, Subject::of_path(&name))?;
            listing.add_attr(name.file_name().unwrap().as_encoded_bytes(), attr);
        }
        Ok(())
    }
}
