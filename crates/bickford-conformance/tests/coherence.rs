//! What others change in the lower directory is seen through the mount: at once where it is watched,
//! and within the timeouts of the `base` preset.
//!
//! How long it took is printed, not judged: a busy machine may take any time.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bickford_conformance::{Combination, Mount, Preset, Scratch, require_root};
use rustix::fs::{AtFlags, StatxFlags};

const ROUNDS: usize = 10;
/// Each takes some seconds where only timeouts help.
const ROUNDS_OF_TIMEOUTS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(60);
const GOAL: Duration = Duration::from_millis(100);

/// A directory seen from below and through the mount.
struct Sides {
    below: PathBuf,
    above: PathBuf,
    delays: Vec<(&'static str, Duration)>,
}

impl Sides {
    /// Waits until what was just done below is seen above.
    fn seen(&mut self, what: &'static str, condition: impl Fn(&Path) -> bool) {
        let start = Instant::now();
        while !condition(&self.above) {
            assert!(
                start.elapsed() < DEADLINE,
                "{what}: not seen within {DEADLINE:?}"
            );
            std::thread::sleep(Duration::from_micros(500));
        }
        self.delays.push((what, start.elapsed()));
    }

    /// One change of each kind, each on something that the kernel has cached before.
    fn round(&mut self, round: usize) {
        let (first, second) = (format!("first-{round}"), format!("second-{round}"));
        let (first, second) = (first.as_str(), second.as_str());
        let below = self.below.clone();
        let has = |name: &str| {
            let name = name.to_owned();
            move |above: &Path| above.join(&name).exists()
        };
        assert!(!has(first)(&self.above) && !has(second)(&self.above));
        fs::write(below.join(first), "one").expect("write");
        self.seen("create", has(first));
        self.seen("read", |above| {
            fs::read(above.join(first)).is_ok_and(|data| data == b"one")
        });
        fs::write(below.join(first), "two, longer").expect("write");
        self.seen("write", |above| {
            fs::read(above.join(first)).is_ok_and(|data| data == b"two, longer")
        });
        let mut appender = File::options()
            .append(true)
            .open(below.join(first))
            .expect("open");
        appender.write_all(b" and more").expect("append");
        self.seen("append", |above| {
            fs::metadata(above.join(first)).is_ok_and(|metadata| metadata.len() == 20)
        });
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(below.join(first), mode).expect("chmod");
        self.seen("chmod", |above| {
            let metadata = fs::metadata(above.join(first));
            metadata.is_ok_and(|metadata| metadata.permissions().mode() & 0o777 == 0o600)
        });
        fs::rename(below.join(first), below.join(second)).expect("rename");
        self.seen("rename", |above| has(second)(above) && !has(first)(above));
        self.seen("list", |above| names(above).contains(&second.to_owned()));
        fs::remove_file(below.join(second)).expect("remove");
        self.seen("remove", |above| !has(second)(above));
        self.seen("list", |above| !names(above).contains(&second.to_owned()));
    }

    fn print(&self) {
        let mut delays: Vec<Duration> = self.delays.iter().map(|(_, delay)| *delay).collect();
        delays.sort();
        let late = delays.iter().filter(|delay| **delay > GOAL).count();
        let slowest = self.delays.iter().max_by_key(|(_, delay)| *delay);
        eprintln!(
            "   {} changes seen: median {:?}, {late} after more than {GOAL:?}, slowest {slowest:?}",
            delays.len(),
            delays[delays.len() / 2],
        );
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("list").flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// A process that reads and writes in the mount meanwhile.
struct Load(Child);

impl Load {
    fn start(directory: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conformance-worker"));
        let command = command
            .arg("load")
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Self(command.spawn().expect("worker"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Fails when it has ended before, which its test then tells.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_changes_below_is_seen_above() {
    require_root();
    let scratch = Scratch::new("coherence");
    let mut combinations = vec![Combination::dev(Preset::Base, 1)];
    combinations.extend(Combination::all().into_iter().filter(|one| one.watch));
    for combination in combinations {
        eprintln!("== coherence on {combination}");
        let lower = scratch.directory(&combination.to_string());
        let (below, load) = (lower.join("shared"), lower.join("load"));
        fs::create_dir(&below).expect("directory");
        fs::create_dir(&load).expect("directory");
        let mount = Mount::over(&lower, &combination).must_start();
        let mut sides = Sides {
            below,
            above: mount.path().join("shared"),
            delays: Vec::new(),
        };
        let mut load = Load::start(&mount.path().join("load"));
        let rounds = if combination.watch {
            ROUNDS
        } else {
            ROUNDS_OF_TIMEOUTS
        };
        for round in 0..rounds {
            sides.round(round);
        }
        assert_eq!(
            load.0.try_wait().expect("wait"),
            None,
            "the load ended by itself"
        );
        drop(load);
        sides.print();
        mount.finish();
    }
}

/// The kernel knows the names that the layer shows, and fanotify tells those below.
#[test]
fn what_changes_below_a_layer_that_encrypts_names_is_seen_above() {
    require_root();
    let scratch = Scratch::new("coherence-crypt");
    let layer = scratch.crypt_layer();
    let lower = scratch.directory("lower");
    let watching = Combination::all().into_iter().find(|one| one.watch);
    let mount = |combination: &Combination| {
        let mount = Mount::over(&lower, combination);
        mount.argument("--layer").argument(&layer).must_start()
    };
    let changing = mount(&Combination::dev(Preset::Base, 1));
    let watched = mount(&watching.expect("a combination"));
    let mut sides = Sides {
        below: changing.path().to_owned(),
        above: watched.path().to_owned(),
        delays: Vec::new(),
    };
    for round in 0..ROUNDS_OF_TIMEOUTS {
        sides.round(round);
    }
    watched.finish();
    changing.finish();
}

/// The answer to a GETATTR that was read before a change may come after it.
#[test]
fn attributes_read_before_a_change_do_not_outlive_it() {
    require_root();
    let scratch = Scratch::new("late-attributes");
    for combination in Combination::selected() {
        let lower = scratch.directory(&combination.to_string());
        fs::create_dir(lower.join("directory")).expect("mkdir");
        let mount = Mount::over(&lower, &combination)
            .argument("--layer=delay:getattr=400ms")
            .must_start();
        let directory = mount.path().join("directory");
        let links = || fs::metadata(&directory).expect("stat").nlink();
        assert_eq!(links(), 2, "{combination}");
        let late = directory.clone();
        let looking = std::thread::spawn(move || {
            let flags = AtFlags::STATX_FORCE_SYNC;
            let wanted = StatxFlags::BASIC_STATS;
            rustix::fs::statx(rustix::fs::CWD, &late, flags, wanted).expect("statx");
        });
        std::thread::sleep(Duration::from_millis(100));
        fs::create_dir(directory.join("new")).expect("mkdir");
        looking.join().expect("thread");
        // `base` and `opt` cache for a second.
        if combination.preset != Preset::Fast {
            std::thread::sleep(Duration::from_millis(1_100));
        }
        assert_eq!(links(), 3, "{combination}");
        mount.finish();
    }
}
