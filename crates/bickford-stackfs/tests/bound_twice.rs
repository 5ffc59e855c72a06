//! A directory of SOURCE that is mounted once more below SOURCE.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use bickford_stackfs::{IoMode, Preset};
use support::{Mount, Mounted, can_mount, has, with_io};

/// On ext4, and on tmpfs, where node ids are no handles.
fn each(test: impl Fn(&Mount)) {
    if !can_mount() {
        return;
    }
    for place in [std::env::temp_dir().as_path(), Path::new("/dev/shm")] {
        for io in [
            IoMode::Plain,
            IoMode::Cached,
            IoMode::Direct,
            IoMode::Passthrough,
        ]
        .into_iter()
        .filter(has)
        {
            let lower = tempfile::tempdir_in(place).unwrap();
            let first = lower.path().join("first");
            fs::create_dir(&first).unwrap();
            let second = Mounted::bound(&first, &lower.path().join("second"));
            let read_only = Mounted::bound(&first, &lower.path().join("read-only"));
            let mut remount = Command::new("mount");
            remount.args(["-o", "remount,bind,ro"]).arg(&read_only.0);
            assert!(remount.status().unwrap().success());
            fs::write(first.join("file"), "one\n").unwrap();
            let settings = with_io(Preset::Fast.settings(), io);
            let mount = Mount::over(lower, |builder| builder.settings(settings));
            eprintln!("{place:?} {} {}", mount.stackfs.identity(), io.name());
            test(&mount);
            drop((second, read_only, mount));
        }
    }
}

#[test]
fn its_files_are_the_same_by_both_names() {
    each(|mount| {
        let [first, second] = ["first/file", "second/file"].map(|name| mount.path(name));
        assert_eq!(fs::read(&second).unwrap(), b"one\n");
        let mut appends = OpenOptions::new().append(true).open(&second).unwrap();
        let writes = OpenOptions::new().write(true).open(&first).unwrap();
        writes.write_all_at(b"a longer line\n", 0).unwrap();
        assert_eq!(fs::read(&second).unwrap(), b"a longer line\n");
        appends.write_all(b"another\n").unwrap();
        assert_eq!(fs::metadata(&first).unwrap().len(), 22);
        drop((appends, writes));
        let whole = "a longer line\nanother\n";
        assert_eq!(fs::read_to_string(&first).unwrap(), whole);
        assert_eq!(
            fs::read_to_string(mount.below("first/file")).unwrap(),
            whole
        );
        fs::hard_link(&second, mount.path("second/name")).unwrap();
        assert_eq!(fs::metadata(&first).unwrap().nlink(), 2);
        fs::remove_file(mount.path("second/name")).unwrap();
        // An object without a name stays for who has it open.
        let open = fs::File::open(&first).unwrap();
        fs::remove_file(&second).unwrap();
        assert_eq!(open.metadata().unwrap().nlink(), 0);
        let mut text = [0; 22];
        open.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(text, whole.as_bytes());
    });
}

#[test]
fn what_is_mounted_read_only_is_not_written() {
    each(|mount| {
        fs::write(mount.path("first/file"), "two\n").unwrap();
        let file = mount.path("read-only/file");
        let refused = |error: std::io::Error| error.kind() == ErrorKind::ReadOnlyFilesystem;
        let written = OpenOptions::new().append(true).open(&file);
        let written = written.and_then(|mut file| file.write_all(b"x").and(file.sync_all()));
        assert!(refused(written.unwrap_err()));
        assert_eq!(fs::read(mount.below("first/file")).unwrap(), b"two\n");
    });
}
