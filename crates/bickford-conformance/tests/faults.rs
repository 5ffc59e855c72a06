//! What breaks below, in the daemon or in the connection reaches the callers as an error, loses
//! nothing that was written, and can be cleaned up.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bickford_conformance::{
    BODY_DEADLINE, Combination, Finished, Image, Mount, Scratch, SharedMap, Watchdog, command_path,
    full_length, fuse_mounts, maps_shared, require_root, run, say, wait_for,
};

const FILE_BYTES: usize = 1 << 20;
const DEADLINE: Duration = Duration::from_secs(60);
const WORKERS: usize = 4;

/// Contents that differ from file to file and from block to block.
fn contents(index: usize) -> Vec<u8> {
    let words = (0..FILE_BYTES / 8).map(|word| (index * FILE_BYTES + word) as u64);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Writes a file to the disk, or says why not. Errors of close(2) count too, which the kernel gives
/// only to fsync(2) on this way.
fn write_synced(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// Fills `directory` until ENOSPC arrives. Nothing that was synced may be lost, above or below.
fn fill(directory: &Path, lower: &Path) {
    let name = |index: usize| format!("file-{index}");
    let mut written = 0;
    let error = loop {
        match write_synced(&directory.join(name(written)), &contents(written)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1000, "the disk never fills");
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert!(written > 4, "full after {written} files");
    for index in 0..written {
        for place in [directory, lower] {
            let path = place.join(name(index));
            let found = fs::read(&path).expect("read");
            assert!(found == contents(index), "{} is damaged", path.display());
        }
    }
    // Once there is room again, so is the file system.
    fs::remove_file(directory.join(name(0))).expect("remove");
    fs::remove_file(directory.join(name(written))).expect("remove what did not fit");
    let room = || write_synced(&directory.join("again"), &contents(7)).is_ok();
    assert!(wait_for(DEADLINE, room), "no room after files were removed");
    assert!(fs::read(lower.join("again")).expect("read") == contents(7));
}

#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    require_root();
    let bytes = 24 << 20;
    let native = Image::new(bytes);
    fill(native.path(), native.path());
    for combination in Combination::selected() {
        eprintln!("== full on {combination}");
        let image = Image::new(bytes);
        let mount = Mount::over(image.path(), &combination).must_start();
        fill(mount.path(), image.path());
        mount.finish();
    }
}

/// What is said of files when the disk is broken: numbers of errors.
#[derive(Debug, PartialEq)]
struct Broken {
    create: Option<i32>,
    remove: Option<i32>,
    read: Option<i32>,
}

/// Writes before and after the lower file system turns read-only.
fn break_below(directory: &Path, image: &Image) -> Broken {
    write_synced(&directory.join("before"), &contents(1)).expect("write");
    let mut open = File::create(directory.join("open")).expect("create");
    open.write_all(b"early").expect("write");
    open.sync_all().expect("sync");
    image.break_to_read_only();
    let late = open.write_all(b"late").and_then(|()| open.sync_all());
    assert!(late.is_err(), "a write to a broken disk succeeded");
    let create = File::create(directory.join("after")).map(drop);
    let remove = fs::remove_file(directory.join("before"));
    let read = fs::read(directory.join("before"));
    if let Ok(read) = &read {
        assert!(*read == contents(1));
    }
    let number = |error: Option<std::io::Error>| error.and_then(|error| error.raw_os_error());
    Broken {
        create: number(create.err()),
        remove: number(remove.err()),
        read: number(read.err()),
    }
}

#[test]
fn a_lower_that_turns_read_only_is_told_and_stays_readable() {
    require_root();
    let bytes = 24 << 20;
    let native = Image::new(bytes);
    let below = break_below(native.path(), &native);
    assert!(
        matches!(below.create, Some(libc::EROFS | libc::EIO)) && below.remove == below.create,
        "{below:?}"
    );
    assert!(
        below.create != Some(libc::EROFS) || below.read.is_none(),
        "read-only, and not readable: {below:?}"
    );
    for combination in Combination::selected() {
        eprintln!("== read-only on {combination}");
        let image = Image::new(bytes);
        let mount = Mount::over(image.path(), &combination).must_start();
        let mut found = break_below(mount.path(), &image);
        if found.read.is_none() {
            // From a cache, where the disk is not even read any more (Linux 6.12).
            found.read = below.read;
        }
        assert_eq!(found, below);
        mount.finish();
    }
}

/// Processes that write and read until an error arrives.
struct Load(Vec<(Child, BufReader<std::process::ChildStdout>)>);

impl Load {
    /// Starts them and waits until each has done a round.
    fn start(directory: &Path) -> Self {
        let worker = env!("CARGO_BIN_EXE_conformance-worker");
        let start = |_| {
            let mut child = Command::new(worker)
                .arg("load")
                .arg(directory)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .expect("worker");
            let output = BufReader::new(child.stdout.take().expect("stdout"));
            (child, output)
        };
        let mut workers: Vec<_> = (0..WORKERS).map(start).collect();
        for (_, output) in &mut workers {
            let mut line = String::new();
            output.read_line(&mut line).expect("line");
            assert_eq!(line, "started\n");
        }
        Self(workers)
    }

    /// Waits for the error that ends each, and requires that there is one.
    fn all_fail(mut self) {
        for (child, output) in &mut self.0 {
            assert!(
                wait_for(DEADLINE, || child.try_wait().expect("wait").is_some()),
                "a caller hangs"
            );
            let mut said = String::new();
            output.read_to_string(&mut said).expect("output");
            let status = child.wait().expect("wait");
            assert_eq!(status.code(), Some(1), "{said}");
            eprintln!("   a caller got: {}", said.trim());
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            // Fails for those that have ended, which is as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The lower directory mounts again and has what was written.
fn mount_again(lower: &Path, combination: &Combination) {
    let again = Mount::over(lower, combination).must_start();
    assert!(fs::read(again.path().join("kept")).expect("read") == contents(3));
    again.finish();
}

#[test]
fn a_killed_daemon_ends_its_callers_and_can_be_cleaned_up() {
    require_root();
    let scratch = Scratch::new("kill");
    for combination in Combination::selected() {
        eprintln!("== kill -9 on {combination}");
        let lower = scratch.directory(&combination.to_string());
        let mut mount = Mount::over(&lower, &combination).must_start();
        write_synced(&mount.path().join("kept"), &contents(3)).expect("write");
        let load = Load::start(mount.path());
        mount.kill_daemon();
        load.all_fail();
        assert!(mount.is_mounted(), "the dead mount is still in the tree");
        let unmounted = mount.unmount();
        assert!(unmounted.status.success(), "{}", unmounted.report());
        assert!(!mount.is_mounted(), "{}", unmounted.report());
        drop(mount);
        mount_again(&lower, &combination);
    }
}

/// The daemon tells by its status that this was no unmount, and takes the dead mount away.
fn ends_as_aborted(mut mount: Mount) {
    let status = mount.wait_for_daemon();
    assert!(!status.success(), "{status}: {}", mount.log());
    assert!(mount.log().contains("aborted"), "{}", mount.log());
    assert!(!mount.is_mounted(), "{}", mount.log());
}

#[test]
fn an_aborted_connection_ends_its_callers_and_its_daemon() {
    require_root();
    let scratch = Scratch::new("abort");
    for combination in Combination::selected() {
        eprintln!("== abort on {combination}");
        let lower = scratch.directory(&combination.to_string());
        let mount = Mount::over(&lower, &combination).must_start();
        write_synced(&mount.path().join("kept"), &contents(3)).expect("write");
        let load = Load::start(mount.path());
        mount.abort();
        load.all_fail();
        ends_as_aborted(mount);
        mount_again(&lower, &combination);
    }
}

/// The kernel looks for requests that wait too long every 15 s.
#[test]
fn a_request_that_is_not_answered_in_time_ends_the_mount() {
    require_root();
    if !full_length() {
        return say(format_args!(
            "left out: a request timeout, which takes a minute; BICKFORD_LENGTH=full has it"
        ));
    }
    let doctor = run(Command::new(command_path()).arg("doctor"));
    let mut lines = doctor.output.lines();
    if lines.any(|line| line.contains("a later kernel has") && line.contains("request timeout")) {
        return say(format_args!(
            "left out: a request timeout; Linux 6.15 is needed"
        ));
    }
    let scratch = Scratch::new("late");
    for combination in Combination::few() {
        eprintln!("== late on {combination}");
        let lower = scratch.directory(&combination.to_string());
        fs::write(lower.join("kept"), contents(3)).expect("write");
        let mount = Mount::over(&lower, &combination)
            .argument("--request-timeout=1")
            .argument("--layer=delay:read=1000s")
            .must_start();
        let error = fs::read(mount.path().join("kept")).expect_err("nobody answers");
        eprintln!("   the caller got: {error}");
        ends_as_aborted(mount);
        mount_again(&lower, &combination);
    }
}

#[test]
fn mounting_again_and_again_leaves_nothing_behind() {
    require_root();
    let cycles = if full_length() { 1000 } else { 100 };
    let scratch = Scratch::new("cycles");
    let own_descriptors = || fs::read_dir("/proc/self/fd").expect("fd").count();
    for combination in Combination::selected() {
        eprintln!("== {cycles} cycles on {combination}");
        let lower = scratch.directory(&combination.to_string());
        let watchdog = Watchdog::start("cycles", Duration::from_secs(3600)).over(scratch.path());
        let before = own_descriptors();
        for cycle in 0..cycles {
            mount_and_unmount(&scratch, &lower, &combination, cycle);
        }
        let lower_path = lower.to_string_lossy().into_owned();
        assert!(
            wait_for(DEADLINE, || daemons_of(&lower_path).is_empty()),
            "daemons left behind: {:?}",
            daemons_of(&lower_path)
        );
        assert_eq!(own_descriptors(), before);
        drop(watchdog);
    }
}

fn mount_and_unmount(scratch: &Scratch, lower: &Path, combination: &Combination, cycle: u32) {
    let mountpoint = scratch.path().join("mnt");
    let log = scratch.path().join("log");
    fs::create_dir(&mountpoint).expect("mountpoint");
    let said = |finished: &Finished| {
        let log = fs::read_to_string(&log).unwrap_or_default();
        format!(
            "cycle {cycle}: {}the daemon's log:\n{log}",
            finished.report()
        )
    };
    let mut mount = Command::new(command_path());
    mount.arg("mount").args(combination.flags());
    // The parent returns when the mount answers.
    let mounted = run(mount
        .arg("--log-file")
        .args([log.as_path(), lower, &mountpoint]));
    assert!(mounted.status.success(), "{}", said(&mounted));
    fs::write(mountpoint.join("cycle"), cycle.to_string()).expect("write");
    let unmounted = run(Command::new(command_path()).arg("unmount").arg(&mountpoint));
    assert!(unmounted.status.success(), "{}", said(&unmounted));
    assert!(
        fuse_mounts(scratch.path()).is_empty(),
        "{}",
        said(&unmounted)
    );
    let read = fs::read_to_string(lower.join("cycle")).expect("read");
    assert_eq!(read, cycle.to_string());
    fs::remove_dir(&mountpoint).expect("remove");
    fs::remove_file(&log).expect("remove the log");
}

/// Processes with `argument` on their command line.
fn daemons_of(argument: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    let lines = processes.filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(argument)
            .then(|| format!("{:?}: {line}", entry.file_name()))
    });
    lines.collect()
}

/// A daemon out of descriptors tells the caller, and serves on once files are closed.
#[test]
fn a_descriptor_limit_is_told_and_passes() {
    const LIMIT: u32 = 256;
    require_root();
    let scratch = Scratch::new("limit");
    for combination in Combination::selected() {
        eprintln!("== {LIMIT} descriptors on {combination}");
        let lower = scratch.directory(&combination.to_string());
        let mount = Mount::over(&lower, &combination)
            .descriptor_limit(LIMIT)
            .must_start();
        for index in 0..2 * LIMIT {
            fs::write(mount.path().join(index.to_string()), index.to_string()).expect("write");
        }
        let mut open = Vec::new();
        let mut refused = None;
        for index in 0..2 * LIMIT {
            match File::open(mount.path().join(index.to_string())) {
                Ok(file) => open.push((index, file)),
                Err(error) => refused = refused.or(error.raw_os_error()),
            }
        }
        eprintln!("   {} open at once, then {refused:?}", open.len());
        // Not EMFILE, which is the caller's own limit.
        let table_full = 23;
        assert!(
            refused.is_none_or(|error| error == table_full),
            "{refused:?}"
        );
        assert!(open.len() > LIMIT as usize / 2, "{} open", open.len());
        for (index, file) in &mut open {
            let mut contents = String::new();
            file.read_to_string(&mut contents).expect("read");
            assert_eq!(contents, index.to_string());
        }
        drop(open);
        // Files are closed in the daemon some time after they are closed here.
        let last = mount.path().join((2 * LIMIT - 1).to_string());
        assert!(
            wait_for(DEADLINE, || fs::read(&last).is_ok()),
            "it stays out of descriptors"
        );
        if maps_shared(mount.path()) {
            many_opens_of_one_file(mount.path(), 2 * LIMIT);
        }
        mount.finish();
    }
}

/// A mapping keeps its file open without a descriptor of this process.
fn many_opens_of_one_file(directory: &Path, opens: u32) {
    let path = directory.join("mapped");
    fs::write(&path, [7; 4096]).expect("write");
    let maps: Vec<SharedMap> = (0..opens)
        .map(|_| {
            let mut options = File::options();
            let file = options.read(true).write(true).open(&path).expect("open");
            SharedMap::new(&file, 4096).expect("map")
        })
        .collect();
    assert!(maps.iter().all(|map| map.read(100, 1) == [7]));
}

#[test]
fn a_busy_mount_names_who_is_busy() {
    require_root();
    let scratch = Scratch::new("busy");
    if let Some(combination) = Combination::selected().into_iter().next() {
        let lower = scratch.directory("lower");
        let mount = Mount::over(&lower, &combination)
            .deadline(BODY_DEADLINE)
            .must_start();
        let mut sleeper = Command::new("sleep")
            .arg("600")
            .current_dir(mount.path())
            .spawn()
            .expect("sleep");
        let refused = mount.unmount();
        let still_mounted = mount.is_mounted();
        sleeper.kill().expect("kill");
        sleeper.wait().expect("wait");
        assert!(!refused.status.success(), "{}", refused.report());
        assert!(still_mounted, "{}", refused.report());
        let pid = sleeper.id().to_string();
        let words = refused
            .errors
            .split(|character: char| !character.is_ascii_digit());
        assert!(
            words.into_iter().any(|word| word == pid),
            "process {pid} is not named: {}",
            refused.report()
        );
        mount.finish();
    }
}
