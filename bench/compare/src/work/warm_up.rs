//! A mixed load before the measured one, for file systems that are slow until they have run for a while.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of the file that is read and written in large requests.
const LARGE: usize = 1 << 20;

/// Uses all kinds of operations in a new directory below `root` for `length`, and removes it.
pub(crate) fn run(root: &Path, length: Duration) -> io::Result<()> {
    let directory = root.join("warm-up");
    fs::create_dir(&directory)?;
    let end = Instant::now() + length;
    let mut buffer = vec![1; LARGE];
    while Instant::now() < end {
        for _ in 0..20 {
            // What a file system does not have is not warmed up.
            let _ = small(&directory);
        }
        let _ = large(&directory, &mut buffer);
        let _ = fs::read_dir(&directory).map(Iterator::count);
    }
    fs::remove_dir_all(&directory)
}

fn small(directory: &Path) -> io::Result<()> {
    let (name, other) = (directory.join("file"), directory.join("other"));
    let mut page = [1; 4096];
    File::create(&name)?.write_all(&page)?;
    fs::rename(&name, &other)?;
    File::open(&other)?.read_exact(&mut page)?;
    fs::metadata(&other)?;
    // A missing name.
    let _ = fs::metadata(&name);
    fs::remove_file(&other)?;
    fs::create_dir(&name)?;
    fs::remove_dir(&name)?;
    std::os::unix::fs::symlink("file", &other)?;
    fs::read_link(&other)?;
    fs::remove_file(&other)
}

fn large(directory: &Path, buffer: &mut [u8]) -> io::Result<()> {
    let name = directory.join("large");
    let mut file = File::create(&name)?;
    file.write_all(buffer)?;
    file.sync_all()?;
    drop(file);
    File::open(&name)?.read_exact(buffer)?;
    fs::remove_file(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_its_time_and_leaves_nothing() {
        let root = tempfile::tempdir().expect("a directory");
        let begun = Instant::now();
        run(root.path(), Duration::from_millis(30)).expect("to run");
        assert!(begun.elapsed() >= Duration::from_millis(30));
        let left = fs::read_dir(root.path()).expect("to list").count();
        assert_eq!(left, 0);
        for part in [small(root.path()), large(root.path(), &mut [0; 64])] {
            part.expect("each operation to work");
        }
    }
}
