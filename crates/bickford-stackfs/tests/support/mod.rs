//! A mounted StackFS that cannot hang the tests.
#![allow(dead_code, reason = "shared by several test programs")]

pub(crate) mod leased;
pub(crate) mod watched;

use std::ffi::CStr;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bickford::abi::InitFlags;
use bickford::layer::{Layer, Layered};
use bickford::mount::{
    AccessPolicy, MountEntry, MountGuard, MountOptions, Unmount, abort, mount, probe_kernel,
};
use bickford::transport::TransportChoice;
use bickford::{Session, SessionConfig, Workers};
use bickford_stackfs::{Builder, IoMode, Preset, Settings, StackFs};

/// Generous: it ends what hangs, and measures nothing.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Mount {
    pub(crate) stackfs: Arc<StackFs>,
    lower: tempfile::TempDir,
    point: tempfile::TempDir,
    pub(crate) session: Arc<Session>,
    guard: Option<MountGuard>,
    watchdog: Option<Watchdog>,
}

impl Mount {
    /// Serves a fresh directory on the file system of the temporary directory.
    pub(crate) fn new(preset: Preset) -> Self {
        Self::with(preset.settings())
    }

    /// The same with these settings.
    pub(crate) fn with(settings: Settings) -> Self {
        let lower = tempfile::tempdir().unwrap();
        Self::over(lower, |builder| builder.settings(settings))
    }

    /// Serves `lower`.
    pub(crate) fn over(
        lower: tempfile::TempDir,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        Self::for_at_most(DEADLINE, lower, settings)
    }

    /// Serves `lower` for longer.
    pub(crate) fn for_at_most(
        deadline: Duration,
        lower: tempfile::TempDir,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        Self::begin(deadline, lower, settings, Session::start)
    }

    /// Serves a fresh directory by one thread that reads the device.
    pub(crate) fn by_one_thread(settings: Settings) -> Self {
        let lower = tempfile::tempdir().unwrap();
        let set = |builder: Builder| builder.settings(settings);
        Self::begin(DEADLINE, lower, set, |stackfs, device, config| {
            let config = config.workers(Workers::SINGLE);
            Session::start(stackfs, device, config.transport(TransportChoice::DevFuse))
        })
    }

    /// Serves `lower` with a layer over it, which may wait: no other request is bound to its thread.
    pub(crate) fn below_layer(
        layer: impl Layer,
        lower: tempfile::TempDir,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        Self::begin(DEADLINE, lower, settings, |stackfs, device, config| {
            let config = config.transport(TransportChoice::DevFuse);
            Session::start(Layered::new(layer, stackfs), device, config)
        })
    }

    fn begin(
        deadline: Duration,
        lower: tempfile::TempDir,
        settings: impl FnOnce(Builder) -> Builder,
        start: impl FnOnce(Arc<StackFs>, OwnedFd, SessionConfig) -> io::Result<Session>,
    ) -> Self {
        let point = tempfile::tempdir().unwrap();
        let watchdog = Watchdog::over([lower.path(), point.path()], deadline);
        std::fs::set_permissions(lower.path(), permissions(0o777)).unwrap();
        let stackfs = Arc::new(settings(StackFs::builder(lower.path())).build().unwrap());
        let checked = stackfs.settings().permission_checks;
        let access = match checked {
            true => AccessPolicy::Everyone,
            false => AccessPolicy::Owner,
        };
        let options = MountOptions::new()
            .access(access)
            .default_permissions(checked)
            .fsname("stackfs-test");
        let mounted = mount(point.path(), &options).unwrap();
        let workers = if stackfs.settings().write_back {
            Workers::default()
        } else {
            Workers::SINGLE
        };
        let config = SessionConfig::default().workers(workers);
        let session = start(Arc::clone(&stackfs), mounted.device, config).unwrap();
        let session = Arc::new(session);
        watchdog.tells(&session);
        Self {
            stackfs,
            lower,
            point,
            session,
            guard: Some(mounted.guard),
            watchdog: Some(watchdog),
        }
    }

    /// A path through the mount.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.point.path().join(name)
    }

    /// The same path in the lower directory.
    pub(crate) fn below(&self, name: impl AsRef<Path>) -> PathBuf {
        self.lower.path().join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.unmount(Unmount::Lazy).unwrap();
        }
        self.session.wait();
        drop(self.watchdog.take());
    }
}

/// Where the mounts of this process are, and what they are over.
static PLACES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Aborts all FUSE mounts of this process and ends it on its deadline, unless it is dropped before.
struct Watchdog {
    places: [PathBuf; 2],
    session: Arc<OnceLock<Arc<Session>>>,
    _alive: Sender<()>,
}

impl Watchdog {
    fn over(places: [&Path; 2], deadline: Duration) -> Self {
        // As the kernel names them, without asking what may be mounted there.
        let places = places.map(|place| {
            let above = place.parent().unwrap().canonicalize().unwrap();
            above.join(place.file_name().unwrap())
        });
        locked(&PLACES).extend_from_slice(&places);
        let session = Arc::new(OnceLock::<Arc<Session>>::new());
        let watched = Arc::downgrade(&session);
        let (alive, ended) = channel::<()>();
        std::thread::spawn(move || {
            if ended.recv_timeout(deadline) == Err(RecvTimeoutError::Timeout) {
                let session = watched.upgrade().and_then(|set| set.get().cloned());
                let requests = session.as_ref().map(|one| one.server().in_flight().list());
                say(format_args!("deadline: {requests:?} in flight; aborting"));
                abort_all();
                // Its mount may be detached already.
                if let Some(Err(error)) = session.map(|one| one.abort()) {
                    say(format_args!("{error}"));
                }
                std::process::exit(101);
            }
        });
        Self {
            places,
            session,
            _alive: alive,
        }
    }

    fn tells(&self, session: &Arc<Session>) {
        let _ = self.session.set(Arc::clone(session));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        locked(&PLACES).retain(|place| !self.places.contains(place));
    }
}

/// A request that was read keeps its caller, and so this process, until it is answered or its connection aborted.
fn abort_all() {
    let places = locked(&PLACES);
    for mount in MountEntry::all().unwrap_or_default() {
        let ours = places
            .iter()
            .any(|place| mount.mountpoint.starts_with(place));
        if ours
            && mount.is_fuse()
            && let Err(error) = abort(mount.connection())
        {
            let point = mount.mountpoint.display();
            say(format_args!("abort {point}: {error}"));
        }
    }
}

/// Writes to standard error where the output of tests that pass is captured, too.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// These settings with another way for data to travel.
pub(crate) fn with_io(settings: Settings, io: IoMode) -> Settings {
    let mut settings = settings;
    settings.io = io;
    settings
}

/// What is mounted on a directory, while it lives. A mount that serves it keeps it longer.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Mounted {
    /// A file system of its own.
    pub(crate) fn at(directory: &Path, kind: &str, options: Option<&CStr>) -> Self {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount(kind, directory, kind, flags, options).unwrap();
        Self(directory.to_owned())
    }

    /// Another directory, at one that is made.
    pub(crate) fn bound(source: impl AsRef<Path>, directory: &Path) -> Self {
        std::fs::create_dir(directory).unwrap();
        rustix::mount::mount_bind(source.as_ref(), directory).unwrap();
        Self(directory.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Fails what does not come, whatever the load.
pub(crate) fn until(what: &str, mut come: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !come() {
        assert!(
            Instant::now() < deadline,
            "not within half a minute: {what}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One test at a time, where they look at the descriptors of this process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    locked(&ALONE)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn permissions(mode: u32) -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(mode)
}

/// How many descriptors this process has open.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Mounting needs root; without, a test has nothing to stand on and says so.
pub(crate) fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        say(format_args!(
            "skipped: only root mounts a pass-through of other users' files"
        ));
    }
    root
}

/// Whether this kernel has a feature.
pub(crate) fn offers(feature: InitFlags) -> bool {
    static OFFERED: OnceLock<InitFlags> = OnceLock::new();
    let offered = OFFERED.get_or_init(|| probe_kernel().unwrap().flags);
    offered.contains(feature)
}

/// Whether this kernel has data travel so; if not it is said.
pub(crate) fn has(io: &IoMode) -> bool {
    let has = *io != IoMode::Passthrough || offers(InitFlags::PASSTHROUGH);
    if !has {
        say(format_args!("left out: Linux passes through from 6.9 on"));
    }
    has
}

/// Runs `test` with each preset and each way that data can travel, and proves which one it was.
pub(crate) fn each_preset(test: impl Fn(&Mount)) {
    if !can_mount() {
        return;
    }
    for (preset, io) in [
        (Preset::Base, IoMode::Plain),
        (Preset::Opt, IoMode::Plain),
        (Preset::Fast, IoMode::Passthrough),
        (Preset::Fast, IoMode::Cached),
        (Preset::Fast, IoMode::Direct),
    ]
    .into_iter()
    .filter(|(_, io)| has(io))
    {
        let mount = Mount::with(with_io(preset.settings(), io));
        assert_eq!(mount.stackfs.io_mode(), io);
        eprintln!("preset {}, io {}", preset.name(), io.name());
        test(&mount);
    }
}
