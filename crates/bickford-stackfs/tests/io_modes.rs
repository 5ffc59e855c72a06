//! What each way that data can travel promises.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bickford::abi::{InitFlags, Opcode};
use bickford_stackfs::{IoMode, Preset};

use rustix::fs::IFlags;
use support::{Mount, Mounted, can_mount, each_preset, has, permissions, until, with_io};

/// What `auto` comes to for root.
fn passthrough() -> Option<Mount> {
    if !can_mount() || !has(&IoMode::Passthrough) {
        return None;
    }
    let mount = Mount::new(Preset::Fast);
    assert_eq!(mount.stackfs.io_mode(), IoMode::Passthrough);
    Some(mount)
}

fn both(path: std::path::PathBuf) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

#[test]
fn a_file_that_was_there_before_lives_on_when_it_is_removed() {
    each_preset(|mount| {
        fs::write(mount.below("f"), "text").unwrap();
        let file = both(mount.path("f"));
        fs::remove_file(mount.path("f")).unwrap();
        let mut text = [0; 4];
        file.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"text");
        file.write_all_at(b"more", 4).unwrap();
        file.set_len(6).unwrap();
        file.sync_all().unwrap();
        assert_eq!(
            (
                file.metadata().unwrap().len(),
                file.metadata().unwrap().nlink()
            ),
            (6, 0)
        );
    });
}

#[test]
fn closing_costs_no_flush_where_nothing_is_done_then() {
    if !can_mount() {
        return;
    }
    for io in [IoMode::Plain, IoMode::Passthrough, IoMode::Direct]
        .into_iter()
        .filter(has)
    {
        let mount = Mount::with(with_io(Preset::Fast.settings(), io));
        for round in 0..5 {
            fs::write(mount.path("f"), [round; 10]).unwrap();
            assert_eq!(fs::read(mount.below("f")).unwrap(), [round; 10], "{io:?}");
        }
        let flushed = mount.session.stats().of(Opcode::Flush).count;
        assert!(flushed <= 1, "{io:?}: {flushed}");
    }
}

#[test]
fn opening_with_truncation_empties_the_lower_file() {
    each_preset(|mount| {
        fs::write(mount.below("f"), "a longer text").unwrap();
        fs::write(mount.path("f"), "short").unwrap();
        assert_eq!(fs::read(mount.below("f")).unwrap(), b"short");
        assert_eq!(fs::read(mount.path("f")).unwrap(), b"short");
    });
}

#[test]
fn what_one_descriptor_writes_another_reads() {
    each_preset(|mount| {
        fs::write(mount.path("f"), vec![0; 300_000]).unwrap();
        let (one, two) = (both(mount.path("f")), File::open(mount.path("f")).unwrap());
        for round in 1..20_u8 {
            let at = u64::from(round) * 13_001;
            one.write_all_at(&[round; 100], at).unwrap();
            let mut seen = [0; 100];
            two.read_exact_at(&mut seen, at).unwrap();
            assert_eq!(seen, [round; 100]);
        }
    });
}

#[test]
fn all_opens_of_a_file_share_one_backing_file() {
    let Some(mount) = passthrough() else { return };
    fs::write(mount.path("f"), "text").unwrap();
    let reader = File::open(mount.path("f")).unwrap();
    let registered = mount.stackfs.passthrough_len();
    let writer = both(mount.path("f"));
    assert_eq!((registered, mount.stackfs.passthrough_len()), (1, 1));
    writer.write_all_at(b"TEXT", 0).unwrap();
    let mut text = [0; 4];
    reader.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"TEXT");
    assert_eq!(fs::read(mount.below("f")).unwrap(), b"TEXT");
}

#[test]
fn a_file_that_is_opened_often_does_not_drive_others_out() {
    const FILES: usize = 8;
    const OPENS: u64 = 1_000;
    let Some(mount) = passthrough() else { return };
    let name = |file| format!("f{file}");
    for file in 0..FILES {
        fs::write(mount.below(name(file)), "text").unwrap();
        fs::read(mount.path(name(file))).unwrap();
    }
    for _ in 0..OPENS {
        drop(File::open(mount.path(name(0))).unwrap());
    }
    until("RELEASE of all opens", || {
        mount.session.stats().of(Opcode::Release).count >= OPENS + FILES as u64
    });
    assert_eq!(mount.stackfs.passthrough_len(), FILES);
}

#[test]
fn a_set_user_id_file_is_passed_through_like_others() {
    let Some(mount) = passthrough() else { return };
    fs::write(mount.below("f"), "text").unwrap();
    fs::set_permissions(mount.below("f"), permissions(0o4755)).unwrap();
    let file = both(mount.path("f"));
    assert_eq!(mount.stackfs.passthrough_len(), 1);
    file.write_all_at(b"TEXT", 0).unwrap();
    assert_eq!(fs::read(mount.below("f")).unwrap(), b"TEXT");
    for path in [mount.path("f"), mount.below("f")] {
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o4755);
    }
}

/// What others wrote or made has put capabilities aside.
#[test]
fn set_id_bits_of_root_stay_after_others_wrote() {
    const STRANGERS: u32 = 12_345;
    each_preset(|mount| {
        fs::create_dir(mount.path("d")).unwrap();
        chown(mount.path("d"), None, Some(STRANGERS)).unwrap();
        let mode = |name: &str| fs::metadata(mount.below(name)).unwrap().mode() & 0o7777;
        let make = |name: &str| fs::write(mount.path(name), "x").unwrap();
        make("theirs");
        fs::set_permissions(mount.path("theirs"), permissions(0o666)).unwrap();
        let others_write = || {
            let mut write = Command::new("sh");
            write.args(["-c", "echo x >>$0"]).arg(mount.path("theirs"));
            assert!(write.uid(65534).gid(65534).status().unwrap().success());
        };
        for (round, directory) in [0o755, 0o2755].into_iter().enumerate() {
            fs::set_permissions(mount.path("d"), permissions(directory)).unwrap();
            assert_eq!(mode("d"), directory);
            let name = |kind: &str| format!("d/{kind}{round}");
            others_write();
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o2755);
            options.open(mount.path(name("opened"))).unwrap();
            assert_eq!(mode(&name("opened")), 0o2755);

            make(&name("changed"));
            chown(mount.path(name("changed")), None, Some(STRANGERS)).unwrap();
            fs::set_permissions(mount.path(name("changed")), permissions(0o6755)).unwrap();
            assert_eq!(mode(&name("changed")), 0o6755);

            others_write();
            fs::write(mount.path(name("changed")), "root writes").unwrap();
            assert_eq!(mode(&name("changed")), 0o6755);
        }
    });
}

#[test]
fn without_extended_attributes_files_are_made_and_written() {
    if !can_mount() {
        return;
    }
    for io in [IoMode::Passthrough, IoMode::Cached, IoMode::Direct]
        .into_iter()
        .filter(has)
    {
        let mut settings = with_io(Preset::Fast.settings(), io);
        settings.xattr = false;
        let mount = Mount::with(settings);
        fs::write(mount.path("f"), "text").unwrap();
        assert_eq!(fs::read(mount.below("f")).unwrap(), b"text");
        let path = mount.path("f");
        let value = rustix::fs::getxattr(&path, "user.name", &mut [0; 8][..]);
        assert_eq!(value, Err(rustix::io::Errno::OPNOTSUPP));
        let flags = rustix::fs::XattrFlags::empty();
        let set = rustix::fs::setxattr(&path, "user.name", b"value", flags);
        assert_eq!(set, Err(rustix::io::Errno::OPNOTSUPP));
        fs::set_permissions(&path, permissions(0o6777)).unwrap();
        let mut write = Command::new("sh");
        write.args(["-c", "echo more >>$0"]).arg(&path);
        assert!(write.uid(65534).gid(65534).status().unwrap().success());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
    }
}

#[test]
fn what_may_only_be_appended_to_grows() {
    each_preset(|mount| {
        let below = mount.below("log");
        fs::write(&below, "old").unwrap();
        if mark(&below, IFlags::APPEND, true).is_err() {
            support::say(format_args!(
                "left out: no append-only files in the temporary directory"
            ));
            return;
        }
        let path = mount.path("log");
        let append = |text: &str| -> std::io::Result<()> {
            let mut file = OpenOptions::new().append(true).open(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        let appended = [append(" new"), append(" newer")];
        let found = (fs::read(&path).unwrap(), fs::read(&below).unwrap());
        // Before anything is asserted, so that the directory can be removed.
        mark(&below, IFlags::APPEND, false).unwrap();
        assert!(appended.iter().all(Result::is_ok), "{appended:?}");
        let expected = b"old new newer".to_vec();
        assert_eq!(found, (expected.clone(), expected));
    });
}

#[test]
fn what_may_only_be_appended_to_takes_data_through_a_pipe() {
    if !can_mount() {
        return;
    }
    for (preset, io) in [
        (Preset::Opt, IoMode::Plain),
        (Preset::Fast, IoMode::Plain),
        (Preset::Fast, IoMode::Direct),
    ] {
        let mount = Mount::by_one_thread(with_io(preset.settings(), io));
        fs::write(mount.below("log"), "").unwrap();
        if mark(&mount.below("log"), IFlags::APPEND, true).is_err() {
            return support::say(format_args!(
                "left out: no append-only files in the temporary directory"
            ));
        }
        let mut log = (OpenOptions::new().append(true).open(mount.path("log"))).unwrap();
        // The second of its requests comes through a pipe.
        let part = vec![b'x'; 2 << 20];
        let appended = log.write_all(&part);
        rustix::fs::fcntl_setfl(&log, rustix::fs::OFlags::empty()).unwrap();
        let flagless = log.write_all(&part);
        let grown = fs::metadata(mount.below("log")).unwrap().len();
        // Before anything is asserted, so that the directory can be removed.
        mark(&mount.below("log"), IFlags::APPEND, false).unwrap();
        let done = [appended, flagless];
        assert!(done.iter().all(Result::is_ok), "{io:?}: {done:?}");
        assert_eq!(grown, 4 << 20, "{io:?}");
    }
}

/// The file system that the file is on checks some of this itself, and which differs: both are tried.
fn on_disk_and_tmpfs(test: impl Fn(&Mount)) {
    let memory = || tempfile::tempdir_in("/dev/shm");
    for io in [
        IoMode::Passthrough,
        IoMode::Cached,
        IoMode::Direct,
        IoMode::Plain,
    ]
    .into_iter()
    .filter(has)
    {
        for lower in [tempfile::tempdir(), memory()].into_iter().flatten() {
            let settings = with_io(Preset::Fast.settings(), io);
            test(&Mount::over(lower, |builder| builder.settings(settings)));
        }
    }
}

#[test]
fn data_that_was_mapped_into_a_hole_is_found_there() {
    if !can_mount() {
        return;
    }
    let seek = "import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 1 << 20)
with mmap.mmap(file, 0) as mapped:
    mapped[500000:500005] = b'hello'
    print(os.lseek(file, 0, os.SEEK_DATA) <= 500000 < os.lseek(file, 500000, os.SEEK_HOLE))";
    let found = |mount: &Mount| {
        let is_direct = mount.stackfs.io_mode() == IoMode::Direct;
        if is_direct && !support::offers(InitFlags::DIRECT_IO_ALLOW_MMAP) {
            return support::say(format_args!(
                "left out: files with direct I/O are mapped from Linux 6.6 on"
            ));
        }
        let mut python = Command::new("python3");
        let output = python.args(["-c", seek]).arg(mount.path("f")).output();
        let output = output.unwrap();
        assert_eq!(output.stdout, b"True\n", "{output:?}");
    };
    each_preset(found);
    on_disk_and_tmpfs(found);
}

/// Sets a flag of chattr(1), or takes it away.
fn mark(path: &std::path::Path, flag: IFlags, on: bool) -> std::io::Result<()> {
    let file = File::open(path)?;
    let mut flags = rustix::fs::ioctl_getflags(&file)?;
    flags.set(flag, on);
    Ok(rustix::fs::ioctl_setflags(&file, flags)?)
}

#[test]
fn what_may_only_be_appended_to_is_not_changed_otherwise() {
    if !can_mount() {
        return;
    }
    on_disk_and_tmpfs(|mount| {
        let path = mount.path("log");
        fs::write(&path, "as it was").unwrap();
        // Opened again for reading, it would go the way that it went.
        drop(fs::read(&path).unwrap());
        if mark(&path, IFlags::APPEND, true).is_err() {
            support::say(format_args!("left out: no append-only files here"));
            return;
        }
        // The kernel waits for no RELEASE, and the way stays while a file is open.
        let deadline = Instant::now() + Duration::from_secs(30);
        while mount.stackfs.passthrough_len() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let reader = File::open(&path);
        let appender = OpenOptions::new().read(true).append(true).open(&path);
        if let Ok(file) = &appender {
            // Refused at once, or when it is written back.
            let map = "import mmap, os, sys
with mmap.mmap(os.open(sys.argv[1], os.O_RDWR | os.O_APPEND), 0) as mapped:
    mapped[:4] = b'over'
    mapped.flush()";
            let mut python = Command::new("python3");
            python.args(["-c", map]).arg(&path).stderr(Stdio::null());
            python.status().unwrap();
            rustix::fs::fcntl_setfl(file, rustix::fs::OFlags::empty()).ok();
            drop(file.write_at(b"over", 0));
            drop(file.sync_all());
        }
        let found = fs::read(mount.below("log")).unwrap();
        let mut log = OpenOptions::new().append(true).open(&path).unwrap();
        // What could not be written back may still be in the page beside it.
        let appended = log.write_all(b" end").and_then(|()| log.sync_all());
        let grown = fs::read(mount.below("log")).unwrap();
        // Before anything is asserted, so that the directory can be removed.
        mark(&path, IFlags::APPEND, false).unwrap();
        let io = mount.stackfs.io_mode();
        assert!(reader.is_ok() && appender.is_ok(), "{io:?}: {appender:?}");
        assert!(found.starts_with(b"as it was"), "{io:?}: {found:?}");
        assert!(grown.starts_with(b"as it was"), "{io:?}: {grown:?}");
        assert!(appended.is_err() || grown.ends_with(b" end"), "{io:?}");
    });
}

#[test]
fn what_was_append_only_once_is_written_again() {
    if !can_mount() {
        return;
    }
    let test = |mount: &Mount| {
        let path = mount.path("log");
        fs::write(&path, "as it was").unwrap();
        let before = both(path.clone());
        if mark(&path, IFlags::APPEND, true).is_err() {
            support::say(format_args!("left out: no append-only files here"));
            return;
        }
        let appender = OpenOptions::new().append(true).open(&path);
        mark(&path, IFlags::APPEND, false).unwrap();
        let io = mount.stackfs.io_mode();
        before.write_all_at(b"is", 0).unwrap();
        before.sync_all().expect("nothing forbids it");
        let found = fs::read(mount.below("log")).unwrap();
        assert_eq!(found, b"is it was", "{io:?}");
        drop(appender.unwrap());
    };
    on_disk_and_tmpfs(test);
    each_preset(test);
}

#[test]
fn what_is_made_immutable_is_written_no_more() {
    if !can_mount() {
        return;
    }
    on_disk_and_tmpfs(|mount| {
        let path = mount.path("file");
        fs::write(&path, "as it was").unwrap();
        if mark(&path, IFlags::IMMUTABLE, true).is_err() {
            support::say(format_args!("left out: no immutable files here"));
            return;
        }
        let truncated = File::create(&path);
        let written = OpenOptions::new().write(true).open(&path).and_then(|file| {
            file.write_at(b"over", 0)?;
            file.sync_all()
        });
        let found = fs::read(mount.below("file")).unwrap();
        mark(&path, IFlags::IMMUTABLE, false).unwrap();
        let io = mount.stackfs.io_mode();
        assert_eq!(found, b"as it was", "{io:?}");
        assert!(truncated.is_err() && written.is_err(), "{io:?}");
    });
}

#[test]
fn what_was_written_before_a_file_is_protected_is_there() {
    if !can_mount() {
        return;
    }
    let test = |mount: &Mount| {
        for (name, flag) in [("immutable", IFlags::IMMUTABLE), ("log", IFlags::APPEND)] {
            let path = mount.path(name);
            let mut file = File::create(&path).unwrap();
            file.write_all(b"written before").unwrap();
            if mark(&path, flag, true).is_err() {
                support::say(format_args!("left out: no protected files here"));
                return;
            }
            let synced = file.sync_all();
            drop(file);
            let found = fs::read(mount.below(name)).unwrap();
            mark(&path, flag, false).unwrap();
            let io = mount.stackfs.io_mode();
            assert_eq!(found, b"written before", "{io:?}, {name}");
            synced.unwrap();
        }
    };
    on_disk_and_tmpfs(test);
    each_preset(test);
}

#[test]
fn the_kernel_forgets_a_removed_file_and_so_does_its_registration() {
    let Some(mount) = passthrough() else { return };
    for number in 0..50 {
        fs::write(mount.below(number.to_string()), "x").unwrap();
        fs::read(mount.path(number.to_string())).unwrap();
        fs::remove_file(mount.path(number.to_string())).unwrap();
    }
    until("no registration stays", || {
        mount.stackfs.passthrough_len() == 0
    });
}

#[test]
fn a_file_that_others_may_remove_stays_open_for_nobody() {
    if !can_mount() || !has(&IoMode::Passthrough) {
        return;
    }
    let settings = with_io(Preset::Base.settings(), IoMode::Passthrough);
    let mount = Mount::with(settings);
    fs::write(mount.below("f"), "x").unwrap();
    fs::read(mount.path("f")).unwrap();
    until("no registration stays", || {
        mount.stackfs.passthrough_len() == 0
    });
}

#[test]
fn direct_io_is_refused_where_there_is_none_below() {
    if !can_mount() || !has(&IoMode::Passthrough) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let _memory = Mounted::at(place.path(), "ramfs", None);
    let lower = tempfile::tempdir_in(place.path()).unwrap();
    let settings = with_io(Preset::Fast.settings(), IoMode::Passthrough);
    let mount = Mount::over(lower, |builder| builder.settings(settings));
    fs::write(mount.path("f"), "text").unwrap();
    for path in [mount.below("f"), mount.path("f")] {
        // Open already, or not.
        for _held in [None, Some(File::open(&path).unwrap())] {
            for write in [false, true] {
                let mut options = OpenOptions::new();
                options.read(true).write(write).custom_flags(libc::O_DIRECT);
                let refused = options.open(&path).map_err(|error| error.raw_os_error());
                assert_eq!(refused.unwrap_err(), Some(libc::EINVAL), "{path:?}");
            }
            assert_eq!(fs::read(&path).unwrap(), b"text");
        }
    }
}

#[test]
fn a_reader_may_not_write_what_the_kernel_passes_through() {
    let Some(mount) = passthrough() else { return };
    File::create_new(mount.path("f")).unwrap();
    if mark(&mount.below("f"), IFlags::IMMUTABLE, true).is_err() {
        support::say(format_args!("left out: no immutable files here"));
        return;
    }
    let reader = File::open(mount.path("f")).unwrap();
    let writer = OpenOptions::new().write(true).open(mount.path("f"));
    mark(&mount.below("f"), IFlags::IMMUTABLE, false).unwrap();
    assert_eq!(
        writer.unwrap_err().kind(),
        std::io::ErrorKind::PermissionDenied
    );
    assert!(reader.write_all_at(b"x", 0).is_err());
}

#[test]
fn more_files_than_descriptors_are_made_and_nameless_ones_kept() {
    if !can_mount() {
        return;
    }
    for io in [
        IoMode::Plain,
        IoMode::Passthrough,
        IoMode::Cached,
        IoMode::Direct,
    ]
    .into_iter()
    .filter(has)
    {
        let settings = with_io(Preset::Fast.settings(), io);
        let lower = tempfile::tempdir().unwrap();
        let mount = Mount::over(lower, |builder| builder.settings(settings).descriptors(512));
        let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let nameless = rustix::fs::open(mount.path("."), flags, mode).unwrap();
        let nameless = File::from(nameless);
        nameless.write_all_at(b"text", 0).unwrap();
        for number in 0..800 {
            fs::write(mount.path(number.to_string()), "x").unwrap();
        }
        let mut text = [0; 4];
        nameless.sync_all().unwrap();
        nameless.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"text", "{io:?}");
        assert_eq!(
            fs::read_dir(mount.below("")).unwrap().count(),
            800,
            "{io:?}"
        );
    }
}

#[test]
fn what_finds_no_room_when_it_is_written_back_is_told_and_not_shown() {
    if !can_mount() {
        return;
    }
    for (preset, io) in [(Preset::Opt, IoMode::Plain), (Preset::Fast, IoMode::Cached)] {
        let point = tempfile::tempdir().unwrap();
        let _small = Mounted::at(point.path(), "tmpfs", Some(c"size=1m"));
        let lower = tempfile::TempDir::new_in(point.path()).unwrap();
        let settings = with_io(preset.settings(), io);
        let mount = Mount::over(lower, |builder| builder.settings(settings));
        // The file fits by half, and it is one request.
        fs::write(mount.below("fill"), vec![1; (1 << 20) - (32 << 10)]).unwrap();
        let mut file = File::create(mount.path("f")).unwrap();
        file.write_all(&[2; 64 << 10]).unwrap();
        let told = file.sync_all().map_err(|error| error.raw_os_error());
        assert_eq!(told, Err(Some(libc::ENOSPC)), "{}", io.name());
        drop(file);
        let below = fs::metadata(mount.below("f")).unwrap().len();
        assert!(below < 64 << 10);
        // The kernel forgets its size where it has FUSE_NOTIFY_PRUNE.
        let protocol = mount.session.server().negotiated().unwrap().protocol;
        let begin = Instant::now();
        while protocol.minor >= bickford::notify::PRUNE_SINCE
            && fs::metadata(mount.path("f")).unwrap().len() != below
        {
            assert!(begin.elapsed() < Duration::from_secs(20), "{}", io.name());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
