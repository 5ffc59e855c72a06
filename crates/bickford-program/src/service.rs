//! From the flags to the end of a mount, in the foreground or in the background.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bickford::MountedSession;
use bickford::mount::{MountGuard, Unmount, Via};
use bickford::trace::control::{Control, socket_directory};
use bickford_layers::Summary;

use crate::background::{self, Background};
use crate::failure::Failure;
use crate::flags::Flags;
use crate::logging::Log;
use crate::notify::notify;
use crate::signals::Signals;
use crate::statistics::statistics;
use crate::status::Status;
use crate::terminal::escaped;

/// A session that has begun, and what it needs for as long as it goes on.
pub struct Started {
    /// The session.
    pub session: Arc<MountedSession>,
    /// The layers over it.
    pub layers: Summary,
    /// Called when signals end the session, and not this process with the mount in place.
    pub begun: Box<dyn FnOnce()>,
    /// Dropped when the mount is gone.
    pub kept: Box<dyn Send>,
}

/// Is told of a mount before anybody serves it.
pub type Told<'t> = dyn Fn(&MountGuard) + 't;

/// Mounts and serves: stays in the foreground, or returns when the mount answers.
///
/// `modules` as for [`Log::start`]. `check` says what is wrong before a process in the background is made, and
/// answers what to do once the mount answers. `open` opens what is to be served, which may ask at the terminal, wait
/// and be ended by signals, and answers what mounts it; that tells its argument of the mount before anybody serves it.
///
/// # Errors
/// Why there is no mount, or that it was aborted.
pub fn serve<C, M>(
    flags: &Flags,
    modules: &[&str],
    check: impl FnOnce() -> Result<C, Failure>,
    open: impl FnOnce() -> Result<M, Failure>,
) -> Result<Status, Failure>
where
    C: FnOnce(),
    M: FnOnce(&Told<'_>) -> Result<Started, Failure>,
{
    let Some(background) = Background::take()? else {
        if flags.in_foreground() {
            let log = flags.start_log(modules, false)?;
            let started = Service::start(flags, open, || Ok(()), &|_| {});
            let started = started.inspect_err(|_| log.failed());
            return started?.run(|_| Ok(()), &log);
        }
        let answers = check()?;
        let status = background::detach()?;
        answers();
        return Ok(status);
    };
    let started = flags.start_log(modules, true).and_then(|log| {
        let leave = || background.leave();
        let started = Service::start(flags, open, leave, &|it| background.mounted(it));
        let service = started.inspect_err(|_| log.failed())?;
        Ok((log, service))
    });
    match started {
        Ok((log, service)) => {
            let result = service.run(|session| background.ready(session), &log);
            if let Err(failure) = &result {
                tracing::error!("{failure}");
            }
            result
        }
        Err(failure) => {
            background.failed(&failure);
            Ok(Status::FAILURE)
        }
    }
}

/// A mount that is being served.
struct Service {
    session: Arc<MountedSession>,
    layers: Summary,
    kept: Box<dyn Send>,
    aborting: Arc<AtomicBool>,
    stats: bool,
}

impl Service {
    fn start<M>(
        flags: &Flags,
        open: impl FnOnce() -> Result<M, Failure>,
        leave: impl FnOnce() -> Result<(), Failure>,
        mounted: &Told<'_>,
    ) -> Result<Self, Failure>
    where
        M: FnOnce(&Told<'_>) -> Result<Started, Failure>,
    {
        // Before anything is mounted over what it opens.
        let mount = open()?;
        leave()?;
        // Before anything is mounted, so that no signal ends this process with the mount in place.
        let signals = Signals::catch()?;
        let started = mount(mounted)?;
        let session = started.session;
        let aborting = signals.end_on_signal(Arc::clone(&session));
        (started.begun)();
        Ok(Self {
            session,
            layers: started.layers,
            kept: started.kept,
            aborting,
            stats: flags.stats,
        })
    }

    /// Serves until the mount is gone.
    fn run(
        self,
        ready: impl FnOnce(&Arc<MountedSession>) -> io::Result<()>,
        log: &Log,
    ) -> Result<Status, Failure> {
        let Self {
            session,
            layers,
            kept,
            aborting,
            stats,
        } = self;
        let control = serve_control(&session);
        if let Err(error) = &control {
            tracing::warn!("no control socket, so 'bickford stat' will not work: {error}");
        }
        let own = session.guard().via() != Via::Descriptor;
        if let Err(error) = ready(&session) {
            take_away(session.guard());
            return Err(Failure::new(format!(
                "the process that asked for the mount is gone: {error}"
            )));
        }
        log.started();
        let mountpoint = session.guard().mountpoint().display();
        // A line of its own: a path may have more.
        let shown = escaped(&mountpoint.to_string());
        notify(&format!(
            "READY=1\nMAINPID={}\nSTATUS=serving {shown}",
            std::process::id()
        ));
        session.wait();
        drop(kept);
        drop(control);
        remove_directory(&socket_directory());
        let report = layers.report();
        if !report.is_empty() {
            tracing::info!("layers:\n{report}");
        }
        if stats {
            tracing::info!("{}", statistics(&session));
        }
        notify("STOPPING=1");
        let guard = session.guard();
        let aborted = aborting.load(Ordering::SeqCst) || (own && guard.is_mounted());
        take_away(guard);
        if aborted {
            return Err(Failure::new(format!(
                "{mountpoint}: the connection was aborted"
            )));
        }
        tracing::info!("{mountpoint}: unmounted");
        Ok(Status::SUCCESS)
    }
}

fn serve_control(session: &MountedSession) -> io::Result<Control> {
    match session.serve_control() {
        // Another daemon of the user has just ended, and removed the directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => session.serve_control(),
        served => served,
    }
}

pub(crate) fn take_away(guard: &MountGuard) {
    if let Err(error) = guard.unmount(Unmount::Lazy) {
        tracing::warn!("{error}");
    }
}

/// Removes a user's directory of control sockets where it is empty. Root's stays.
pub fn remove_directory(directory: &Path) {
    let name = directory.file_name().unwrap_or_default();
    if name.as_encoded_bytes().starts_with(b"bickford-") {
        // Others of the user's mounts have theirs there.
        let _ = std::fs::remove_dir(directory);
    }
}
