//! File handles, as an export over NFS hands them to its clients: without `--nfs-export` they hold as
//! long as the kernel keeps the inode, with it as long as the file.

use std::fs::{self, File};
use std::io::{Read, Result};
use std::path::{Path, PathBuf};

use bickford_conformance::{Combination, FileHandle, Mount, Scratch, require_root};
use rustix::io::Errno;

const EXPORT: &str = "--nfs-export";

fn handle(mount: &Mount, path: &str) -> FileHandle {
    FileHandle::of(&mount.path().join(path)).expect("name_to_handle_at")
}

/// Where a handle leads to, and what the file there has to say.
fn open(mount: &Mount, handle: &FileHandle) -> Result<(PathBuf, String)> {
    let top = File::open(mount.path())?;
    let mut file = handle.open(&top)?;
    let path = fs::read_link(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&file)
    ))?;
    let mut text = String::new();
    if file.metadata()?.is_file() {
        file.read_to_string(&mut text)?;
    }
    Ok((path, text))
}

fn errno(opened: Result<(PathBuf, String)>) -> Option<i32> {
    opened.err().and_then(|error| error.raw_os_error())
}

const STALE: Option<i32> = Some(Errno::STALE.raw_os_error());

fn mounted(source: &Path, combination: &Combination, export: bool) -> Mount {
    let mut builder = Mount::over(source, combination);
    if export {
        builder = builder.argument(EXPORT);
    }
    builder.must_start()
}

#[test]
fn they_outlive_the_mount_where_that_is_asked_for() {
    require_root();
    for combination in Combination::selected() {
        eprintln!("== handles on {combination}");
        let scratch = Scratch::new("handles");
        let source = scratch.directory("lower");
        fs::create_dir_all(source.join("a/b")).expect("directory");
        for name in ["a/b/f", "a/b/gone"] {
            fs::write(source.join(name), name).expect("write");
        }
        let before = mounted(&source, &combination, true);
        let [top, directory, file, gone] =
            ["", "a/b", "a/b/f", "a/b/gone"].map(|path| handle(&before, path));
        fs::remove_file(before.path().join("a/b/gone")).expect("remove");
        before.finish();

        let without = mounted(&source, &combination, false);
        assert_eq!(errno(open(&without, &file)), STALE, "{combination}");
        without.finish();

        let mount = mounted(&source, &combination, true);
        let path = |name: &str| mount.path().join(name);
        // The file first: nothing has been looked up yet.
        let (_, text) = open(&mount, &file).expect("file");
        assert_eq!(text, "a/b/f", "{combination}");
        let (found, _) = open(&mount, &directory).expect("directory");
        assert_eq!(found, path("a/b"), "{combination}");
        let (found, _) = open(&mount, &top).expect("top");
        assert_eq!(found, mount.path(), "{combination}");
        assert_eq!(errno(open(&mount, &gone)), STALE, "{combination}");
        // A name in the directory that was found by its handle is that file, and one inode with it.
        let names = fs::read_dir(path("a/b")).expect("list").count();
        assert_eq!(names, 1, "{combination}");
        assert_eq!(fs::read_to_string(path("a/b/f")).expect("read"), "a/b/f");
        mount.finish();
    }
}

#[test]
fn directories_beside_source_are_out_of_reach() {
    require_root();
    let scratch = Scratch::new("beside");
    let source = scratch.directory("lower");
    fs::create_dir_all(scratch.path().join("beside/below")).expect("directory");
    for combination in Combination::selected() {
        let whole = mounted(scratch.path(), &combination, true);
        let forged = ["", "beside", "beside/below", "lower"].map(|path| handle(&whole, path));
        whole.finish();
        let mount = mounted(&source, &combination, true);
        let [_, others @ ..] = &forged;
        for handle in others {
            assert_eq!(errno(open(&mount, handle)), STALE, "{combination}");
        }
        mount.finish();
    }
}

#[test]
fn what_cannot_be_exported_is_refused_and_said() {
    require_root();
    let Some(combination) = Combination::selected().into_iter().next() else {
        return;
    };
    let scratch = Scratch::new("refused");
    let layered = Mount::over(&scratch.directory("lower"), &combination)
        .argument(EXPORT)
        .argument("--layer=stats");
    let error = layered.start().expect_err("a layer").to_string();
    assert!(error.contains("--nfs-export: a layer"), "{error}");

    let proc = Mount::over(Path::new("/proc/self/net"), &combination).argument(EXPORT);
    let error = proc.start().expect_err("proc").to_string();
    assert!(error.contains("ext2, ext3 or ext4"), "{error}");
}
