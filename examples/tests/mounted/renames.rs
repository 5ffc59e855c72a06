//! Renames, exchanges, links and removals on a real mount against those who look: every directory
//! and file says which one it is, so that a wrong path shows.
//!
//! `BICKFORD_LENGTH=full` makes it last for minutes.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::example::{Example, can_mount, full_length, transports};

const DIRECTORIES: usize = 8;
const THREADS: usize = 4;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A fixed sequence of numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit
    }
}

fn open(directory: impl AsFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(directory, name, flags | OFlags::CLOEXEC, Mode::from(0o644))
}

fn text(file: OwnedFd) -> String {
    let mut text = String::new();
    File::from(file).read_to_string(&mut text).unwrap();
    text
}

/// Directories by number, wherever they are; each holds a file `id` with its number. The last is
/// the root.
struct World {
    directories: Vec<OwnedFd>,
}

impl World {
    fn new(example: &Example) -> Self {
        let mut directories = Vec::new();
        for number in 0..DIRECTORIES {
            let path = example.path(&format!("start{number}"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("id"), number.to_string()).unwrap();
            directories.push(File::open(&path).unwrap().into());
        }
        fs::write(example.path("id"), DIRECTORIES.to_string()).unwrap();
        directories.push(File::open(example.path("")).unwrap().into());
        // From `start0` and so on to names that are exchanged and moved.
        for (number, name) in NAMES.iter().chain(&["f", "g", "h"]).enumerate() {
            fs::rename(example.path(&format!("start{number}")), example.path(name)).unwrap();
        }
        Self { directories }
    }

    fn look(&self, number: usize) {
        let id = open(&self.directories[number], "id", OFlags::RDONLY).unwrap();
        assert_eq!(
            text(id),
            number.to_string(),
            "a path led into another directory"
        );
    }

    fn rename(&self, numbers: &mut Numbers) {
        let mut place = || {
            let directory = &self.directories[numbers.below(DIRECTORIES + 1)];
            (directory, NAMES[numbers.below(NAMES.len())])
        };
        let (from, to) = (place(), place());
        let exchange = numbers.below(2) == 0;
        let flags = if exchange {
            RenameFlags::EXCHANGE
        } else {
            RenameFlags::NOREPLACE
        };
        match rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags) {
            // No such name, a name in the way, or a directory into itself.
            Ok(()) | Err(Errno::NOENT | Errno::EXIST | Errno::INVAL) => {}
            Err(errno) => panic!("rename {} to {}: {errno}", from.1, to.1),
        }
    }

    /// A file of one's own: made, linked elsewhere, its first name removed, read by the other.
    fn own_file(&self, numbers: &mut Numbers, name: &str) {
        let first = &self.directories[numbers.below(DIRECTORIES + 1)];
        let second = &self.directories[numbers.below(DIRECTORIES + 1)];
        let file = open(first, name, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR).unwrap();
        rustix::io::write(&file, name.as_bytes()).unwrap();
        let linked = format!("{name}.linked");
        rustix::fs::linkat(first, name, second, &*linked, AtFlags::empty()).unwrap();
        rustix::fs::unlinkat(first, name, AtFlags::empty()).unwrap();
        assert_eq!(text(open(second, &linked, OFlags::RDONLY).unwrap()), name);
        rustix::fs::unlinkat(second, &*linked, AtFlags::empty()).unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 0);
        let mut bytes = [0; 64];
        let length = rustix::io::pread(&file, &mut bytes, 0).unwrap();
        assert_eq!(
            &bytes[..length],
            name.as_bytes(),
            "an open file is another one"
        );
    }
}

fn stress(example: &Example, steps: usize) {
    let world = Arc::new(World::new(example));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let world = Arc::clone(&world);
            scope.spawn(move || {
                let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ ((thread as u64 + 1) << 24));
                for step in 0..steps {
                    match numbers.below(4) {
                        0 | 1 => world.rename(&mut numbers),
                        2 => world.look(numbers.below(DIRECTORIES + 1)),
                        _ => world.own_file(&mut numbers, &format!("file{thread}-{step}")),
                    }
                }
            });
        }
    });
    (0..=DIRECTORIES).for_each(|number| world.look(number));
    drop(world);
    // RELEASE and FORGET come some time after close(2).
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let used = || {
        let stat = rustix::fs::statvfs(example.path("")).unwrap();
        usize::try_from(stat.f_files - stat.f_ffree).unwrap()
    };
    while used() != 2 * (DIRECTORIES + 1) {
        assert!(
            std::time::Instant::now() < deadline,
            "{} inodes are left",
            used()
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn never_lead_to_another_file() {
    if !can_mount() {
        return;
    }
    for transport in transports() {
        eprintln!("over {transport}");
        let example = Example::start_over(transport, env!("CARGO_BIN_EXE_memfs"), &[]);
        stress(&example, if full_length() { 250_000 } else { 400 });
        example.finish();
    }
}
