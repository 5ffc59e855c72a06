//! The process that waits for the mount, as the one in the background sees it.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bickford::MountedSession;
use bickford::mount::{Unmount, unmount_only};

use super::PATIENCE;
use super::report::Place;
use crate::signals::end_at_once;

/// How long mounting may go on when the process that waited has ended. It may hang: at a mount point below
/// a mount that does.
const GRACE: Duration = Duration::from_secs(1);

/// The thread allocates little; the default stack is what an address space that is limited lacks.
const STACK: usize = 256 << 10;

/// How far this process has come.
enum Stage {
    Starting,
    Mounted(Place),
    Serving(Arc<MountedSession>),
    /// There is no mount, and the program is to end by itself.
    Failed,
}

struct Shared {
    stage: Mutex<Stage>,
    changed: Condvar,
}

impl Shared {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process that waits. If it ends before it has acknowledged the mount, this one ends too.
pub(super) struct Front {
    shared: Arc<Shared>,
}

impl Front {
    pub(super) fn watch(socket: UnixStream) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            stage: Mutex::new(Stage::Starting),
            changed: Condvar::new(),
        });
        let watched = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("bickford-front".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                if !acknowledges(&socket) {
                    give_up(&watched);
                }
            })?;
        Ok(Self { shared })
    }

    pub(super) fn mounted(&self, place: Place) {
        self.enter(Stage::Mounted(place));
    }

    pub(super) fn serving(&self, session: Arc<MountedSession>) {
        self.enter(Stage::Serving(session));
    }

    pub(super) fn failed(&self) {
        self.enter(Stage::Failed);
    }

    fn enter(&self, stage: Stage) {
        *self.shared.stage() = stage;
        self.shared.changed.notify_all();
    }
}

fn acknowledges(mut socket: &UnixStream) -> bool {
    let mut byte = [0_u8; 1];
    loop {
        match socket.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return matches!(read, Ok(1)),
        }
    }
}

/// Takes away what was mounted, and ends this process, whatever its other threads are doing.
fn give_up(shared: &Shared) -> ! {
    let starting = |stage: &mut Stage| matches!(stage, Stage::Starting);
    let waited = shared
        .changed
        .wait_timeout_while(shared.stage(), GRACE, starting);
    let (stage, _) = waited.unwrap_or_else(PoisonError::into_inner);
    if matches!(*stage, Stage::Failed) {
        drop(stage);
        std::thread::sleep(PATIENCE);
        tracing::warn!("the program goes on though it has mounted nothing: ending");
        std::process::exit(1);
    }
    tracing::warn!("whoever asked for the mount has ended before it was seen to answer: ending");
    match &*stage {
        Stage::Serving(session) => end_at_once(session),
        Stage::Mounted(place) => {
            if let Err(error) = unmount_only(place.path(), place.identity(), Unmount::Force) {
                tracing::error!("{error}");
            }
        }
        Stage::Starting | Stage::Failed => {}
    }
    std::process::exit(1);
}
