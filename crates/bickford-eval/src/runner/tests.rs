//! What a runner has done, and when.

use bickford::filesystem::blocking;
use bickford::mount::MountOptions;
use bickford::ops::{Attr, Attributes, Getattr};
use bickford::{Blocking, Context, Errno, Negotiation, NodeId, Session, SessionConfig};

use super::*;
use crate::results::Settings;

/// A program in the worker's place that says what `script` prints.
fn ui(script: String) -> Ui {
    let again = ["/bin/sh", "-c"].map(OsString::from).to_vec();
    Ui {
        progress: false,
        again: [again, vec![script.into(), "worker".into()]].concat(),
        bickford: "bickford".into(),
    }
}

/// A run in `place`, and nothing of it done yet.
fn store(place: &Path, mut settings: Settings) -> Store {
    settings.rounds = 1;
    settings.directory = place.to_owned();
    settings.device = crate::host::device::Choice::Directory(place.to_owned());
    Store::create(&place.join("out"), settings).unwrap()
}

#[test]
fn caches_are_warmed_before_a_run_and_not_within_it() {
    let place = tempfile::tempdir().unwrap();
    let told = place.path().join("told");
    let ui = ui(format!(
        "cat >> '{0}'; echo >> '{0}'; echo '{{\"done\":{{\"operations\":1,\"bytes\":1,\"files\":0,\"elapsed_s\":1.0,\"latencies\":[]}}}}'",
        told.display()
    ));
    let mut settings = crate::report::fixture::results(&[], &[]).settings;
    settings.rows = crate::rows::sac10(0.001);
    let ids = ["s3c-25", "s3e-25"];
    settings.rows.retain(|row| ids.contains(&row.id.as_str()));
    let mut store = store(place.path(), settings);
    let stop = Arc::new(AtomicBool::new(false));
    Runner::new(&mut store, &ui, stop).unwrap().run().unwrap();
    let errors = ids.map(|row| store.results.error(row, "native"));
    assert_eq!(errors, [None, None]);
    let told = fs::read_to_string(told).unwrap();
    let jobs: Vec<&str> = told
        .lines()
        .filter_map(|job| job.split('"').nth(1))
        .collect();
    assert_eq!(
        jobs,
        ["prepare", "warm", "run", "warm", "run", "run", "run"]
    );
}

/// Waits until `path` is there.
fn wait_for(path: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    while !path.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Begins to serve some time after a worker was started that leaves `asked`.
struct Late {
    asked: PathBuf,
    serves: Arc<AtomicBool>,
}

impl blocking::FileSystem for Late {
    fn init(&self, _: &mut Negotiation) -> Result<(), Errno> {
        wait_for(&self.asked);
        self.serves.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn getattr(&self, _: &Context<'_>, _: Getattr) -> Result<Attributes, Errno> {
        let attr = Attr::directory(NodeId::ROOT.0, 0o755);
        let valid = Duration::ZERO;
        Ok(Attributes { attr, valid })
    }
}

/// What a file system does at its beginning is done before a row begins.
#[test]
fn a_mount_serves_before_its_row_is_measured() {
    if !crate::host::is_root() || fs::File::open("/dev/fuse").is_err() {
        crate::terminal::warn("skipped: mounting needs root and /dev/fuse");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let [asked, mounts, log] = ["asked", "mounts", "log"].map(|name| place.path().join(name));
    let settings = crate::report::fixture::results(&["f37"], &[]).settings;
    let mut store = store(place.path(), settings);
    let kind = store.results.settings.rows[0].kind.clone();
    let done = r#"{"done":{"operations":0,"bytes":0,"files":0,"elapsed_s":0,"latencies":[]}}"#;
    let ui = ui(format!(
        "cat > '{}'; stat mnt > /dev/null; echo '{done}'",
        asked.display()
    ));
    let stop = Arc::new(AtomicBool::new(false));
    let runner = Runner::new(&mut store, &ui, Arc::clone(&stop)).unwrap();
    let point = runner.work.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let serves = Arc::new(AtomicBool::new(false));
    let late = Late {
        asked: asked.clone(),
        serves: Arc::clone(&serves),
    };
    let config = Config {
        name: "late".into(),
        command: Some(format!(": > '{}' # {{mnt}}", mounts.display())),
        directory: None,
    };
    let mounting = std::thread::spawn({
        let point = point.clone();
        let options = MountOptions::new().fsname("bickford-test");
        move || {
            wait_for(&mounts);
            Session::mount(Blocking(late), point, &options, SessionConfig::default())
        }
    });
    let target = Target::mount(&config, place.path(), &point, &log, None, &stop).unwrap();
    let ready = runner.make_ready(&kind, &target, None);
    let served = serves.load(Ordering::Relaxed);
    let job = fs::read_to_string(&asked).unwrap_or_default();
    fs::write(&asked, "").unwrap();
    let session = mounting.join().unwrap().unwrap();
    drop(target);
    session.wait();
    ready.unwrap();
    assert!(served && job.starts_with("{\"reach\":"), "{served} {job}");
}

#[test]
fn starting_a_worker_is_no_cost_of_the_engine() {
    let place = tempfile::tempdir().unwrap();
    let done =
        r#"{"done":{"operations":500,"bytes":0,"files":0,"elapsed_s":0.001,"latencies":[]}}"#;
    let ui = ui(format!("cat > /dev/null; echo '{done}'"));
    let settings = crate::report::fixture::results(&["f37"], &[]).settings;
    let mut store = store(place.path(), settings);
    let stop = Arc::new(AtomicBool::new(false));
    let costs = Runner::new(&mut store, &ui, stop).unwrap().engine_cost();
    assert_eq!(costs, BTreeMap::from([("f37".to_owned(), 2_000.0)]));
}

#[test]
fn threads_that_did_nothing_are_told() {
    let place = tempfile::tempdir().unwrap();
    let done = r#"{"done":{"operations":5,"bytes":0,"files":0,"elapsed_s":1.0,"latencies":[],"idle_threads":2}}"#;
    let ui = ui(format!("cat > /dev/null; echo '{done}'"));
    let settings = crate::report::fixture::results(&["f43"], &[]).settings;
    let mut store = store(place.path(), settings);
    let stop = Arc::new(AtomicBool::new(false));
    Runner::new(&mut store, &ui, stop).unwrap().run().unwrap();
    let told =
        "file-server · native: 2 threads found no file to begin with and did nothing".to_owned();
    assert!(store.results.notes.contains(&told), "{:?}", store.results);
}

#[test]
fn what_takes_too_long_is_told_with_its_own_bound() {
    let place = tempfile::tempdir().unwrap();
    let ui = ui("exec sleep 600".into());
    let settings = crate::report::fixture::results(&["f37"], &[]).settings;
    let mut store = store(place.path(), settings);
    let kind = store.results.settings.rows[0].kind.clone();
    let stop = Arc::new(AtomicBool::new(false));
    let runner = Runner::new(&mut store, &ui, stop).unwrap();
    let directory = place.path().to_owned();
    let end = Instant::now();
    let told = |job: Job, bound: Bound| {
        let ended = runner.worker(&job, None, Bound { end, ..bound }, &|| {});
        match ended.unwrap_err() {
            Ended::Failed(error) => error,
            Ended::Interrupted => "interrupted".to_owned(),
        }
    };
    let prepare = Job::Prepare {
        kind: kind.clone(),
        directory: directory.clone(),
    };
    assert_eq!(
        told(prepare, Bound::of_preparing()),
        "making the files of the row was not done within 3600 s and was killed; a smaller --scale may help"
    );
    assert_eq!(
        told(Job::Run { kind, directory }, runner.deadline()),
        "the workload was not done within 60 s and was killed; a longer --deadline or a smaller --scale may help"
    );
}
