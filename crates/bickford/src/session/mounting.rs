//! Sessions that mount and unmount themselves.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Driver, Session, SessionConfig};
use crate::dispatch::Admission;
use crate::filesystem::FileSystem;
use crate::mount::{
    self, AccessPolicy, MountError, MountGuard, MountOptions, Mounted, Unmount, UnmountError,
};
use crate::trace::control::{self, Control};
use crate::transport::abort;

/// Why a file system is not being served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// It could not be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// It was mounted, but the session did not begin; the mount is gone again.
    #[error("mount {}: the session did not begin: {source}", .mountpoint.display())]
    Start {
        /// Where it was mounted.
        mountpoint: PathBuf,
        /// The reason; where the file system refused, its errno (`raw_os_error`).
        source: io::Error,
    },
}

/// A session and the mount that it serves. Dropped, it unmounts lazily and waits for nothing, so that
/// a method may drop it, too: requests in flight are answered, what is open stays so, and with the
/// last of it the session ends and [`FileSystem::destroy`] is called. Where a [block device](MountOptions::block_device) is mounted
/// and nothing is open, it waits for that, and no method may drop it.
#[derive(Debug)]
pub struct MountedSession {
    session: Session,
    guard: MountGuard,
}

impl Session {
    /// Mounts on `mountpoint` and serves `filesystem` there. When this returns, the mount answers.
    ///
    /// # Errors
    /// When it cannot be mounted, or the session does not begin.
    pub fn mount(
        filesystem: impl FileSystem,
        mountpoint: impl AsRef<Path>,
        options: &MountOptions,
        config: SessionConfig,
    ) -> Result<MountedSession, SessionError> {
        let mounted = mount::mount(mountpoint.as_ref(), options)?;
        Self::on_mount(filesystem, mounted, config)
    }

    /// Serves `filesystem` on what [`mount::mount`] has mounted: for whoever has to know of the mount before
    /// it answers.
    ///
    /// # Errors
    /// When the session does not begin; the mount is gone then.
    pub fn on_mount(
        filesystem: impl FileSystem,
        mounted: Mounted,
        config: SessionConfig,
    ) -> Result<MountedSession, SessionError> {
        let begin =
            |device, config, connection| Self::begin(filesystem, device, config, connection);
        let (session, guard) = on(mounted, config, begin)?;
        Ok(MountedSession { session, guard })
    }

    /// Serves `filesystem` on what [`mount::mount`] has mounted, in the event loop of whoever calls: no thread of the session
    /// handles requests, but [`Driver::serve_one`], which is to be called where the driver's descriptor can be read, and where it has
    /// an error: the session has ended. Requests come over /dev/fuse, workers of `config` there are none, and notifications have a thread
    /// of their own.
    ///
    /// A thread that alone serves must not use the mount, nor wait for the end. Nor may it unmount, but with
    /// [`Unmount::Force`]: the kernel may have something to write back, and waits for
    /// [`destroy`](FileSystem::destroy) where a [block device](MountOptions::block_device) is mounted. The session unmounts as it
    /// is dropped, so drop the driver first; in a struct its field comes first.
    ///
    /// # Errors
    /// When the session does not begin, as with [`TransportChoice::IoUring`](crate::transport::TransportChoice::IoUring); the
    /// mount is gone then.
    pub fn driven(
        filesystem: impl FileSystem,
        mounted: Mounted,
        config: SessionConfig,
    ) -> Result<(MountedSession, Driver), SessionError> {
        let begin =
            |device, config, connection| Self::begin_driven(filesystem, device, config, connection);
        let ((session, driver), guard) = on(mounted, config, begin)?;
        Ok((MountedSession { session, guard }, driver))
    }
}

/// Begins a session on a mount.
fn on<T>(
    mounted: Mounted,
    mut config: SessionConfig,
    begin: impl FnOnce(OwnedFd, SessionConfig, Option<u32>) -> io::Result<T>,
) -> Result<(T, MountGuard), SessionError> {
    if mounted.guard.access() == AccessPolicy::OwnerAndRoot {
        let owner = rustix::process::getuid().as_raw();
        config.server.access = Admission::OwnerAndRoot(owner);
    }
    config.server.default_permissions = mounted.guard.checks_permissions();
    let connection = mounted
        .connection()
        .or_else(|| abort::connection(&mounted.device));
    match begin(mounted.device, config, connection) {
        Ok(begun) => Ok((begun, mounted.guard)),
        Err(source) => {
            if let Err(error) = mounted.guard.unmount(Unmount::Lazy) {
                tracing::warn!("{error}");
            }
            Err(SessionError::Start {
                mountpoint: mounted.guard.mountpoint().to_owned(),
                source,
            })
        }
    }
}

impl MountedSession {
    /// Serves statistics and events on the control socket of this mount until the result is
    /// dropped; see [`crate::trace::control`].
    ///
    /// # Errors
    /// When the socket cannot be made, or the connection is not known ([`Session::connection`]).
    pub fn serve_control(&self) -> io::Result<Control> {
        let connection = self.session.connection().ok_or_else(|| {
            io::Error::other(
                "before Linux 6.16 the number of a connection that was passed is not known",
            )
        })?;
        let transport = self.session.transport_name().to_owned();
        Control::serve(
            &control::socket_path(connection),
            Arc::clone(self.session.server()),
            transport,
        )
    }

    /// The mount.
    #[must_use]
    pub fn guard(&self) -> &MountGuard {
        &self.guard
    }

    /// Unmounts; the session then ends, and [`Session::wait`] returns. [`Unmount::Force`] ends it also where
    /// the mount is gone already, or is of whoever passed the descriptor and stays.
    ///
    /// # Errors
    /// When the mount is busy, or may not be unmounted, or the connection not aborted.
    pub fn unmount(&self, mode: Unmount) -> Result<(), UnmountError> {
        self.guard.unmount(mode)?;
        if mode != Unmount::Force {
            return Ok(());
        }
        self.session.abort().map_err(|source| UnmountError::Kernel {
            mountpoint: self.guard.mountpoint().to_owned(),
            source,
        })
    }
}

impl std::ops::Deref for MountedSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for MountedSession {
    fn drop(&mut self) {
        if self.guard.is_mounted()
            && let Err(error) = self.guard.unmount(Unmount::Lazy)
        {
            tracing::warn!("{error}");
        }
    }
}
