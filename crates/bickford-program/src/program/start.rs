//! From the command line to a mount that answers.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use bickford::{FileSystem, MountOptions, Session, SessionConfig};
use bickford_layers::Summary;
use rustix::fs::{AtFlags, CWD, StatxFlags};

use super::line::Line;
use super::{Invocation, Mounted, Opened, Program, Source};
use crate::failure::Failure;
use crate::service::{self, Started, Told, take_away};
use crate::status::Status;
use crate::terminal::escaped;
use crate::waiting::Waiting;

impl<A: clap::Args> Line<A> {
    /// Opens and mounts it, and serves it in the foreground, or has that done in the background.
    pub(super) fn serve<F: FileSystem>(
        self,
        program: Program<A>,
        open: impl FnOnce(&mut Invocation<A>) -> Opened<F>,
    ) -> Result<Status, Failure> {
        let modules = program.modules();
        let modules = modules.iter().map(String::as_str).collect::<Vec<_>>();
        let flags = self.common.flags.clone();
        let checked = self.check(&program);
        let check = || checked.map(|()| || ());
        service::serve(&flags, &modules, check, || self.open(program, open))
    }

    fn open<F: FileSystem>(
        self,
        program: Program<A>,
        open: impl FnOnce(&mut Invocation<A>) -> Opened<F>,
    ) -> Result<impl FnOnce(&Told<'_>) -> Result<Started, Failure>, Failure> {
        let (mount_options, path_options) = self.options(&program)?;
        let path_texts = self.path_texts(&program);
        let source = self.source(&program);
        let mut given = Invocation {
            arguments: self.arguments,
            matches: self.matches,
            source: source.clone(),
            mountpoint: self.mountpoint,
            mount_options,
            path_options,
            session_config: program.session,
            single_threaded: program.is_single_threaded(),
            path_texts,
            hooks: Vec::new(),
            kept: Vec::new(),
        };
        if matches!(program.source, Source::Path(_)) {
            await_answer(Path::new(&source));
        }
        let opened = open(&mut given).map_err(|error| Failure::new(with_reasons(&*error)))?;
        self.common.check_workers(given.single_threaded)?;
        let config = self.common.session_config(given.session_config);
        let below: Box<dyn FileSystem> = Box::new(opened);
        let built = program.registry.build(&self.common.layers, below);
        let (served, layers) = built.map_err(|error| Failure::new(error.to_string()))?;
        Ok(move |told: &Told<'_>| mount(served, layers, given, config, told))
    }
}

/// Waits until the file system of the source answers, and says so where that takes long. Not while it is being opened,
/// which may ask at the terminal.
fn await_answer(source: &Path) {
    let _waiting = Waiting::on("what is to be opened", source);
    // What the kernel remembers says nothing about a server that is gone. Opening tells what is wrong.
    let asked = AtFlags::STATX_FORCE_SYNC;
    let _ = rustix::fs::statx(CWD, source, asked, StatxFlags::TYPE);
}

fn mount<A>(
    served: Box<dyn FileSystem>,
    layers: Summary,
    given: Invocation<A>,
    config: SessionConfig,
    told: &Told<'_>,
) -> Result<Started, Failure> {
    let mountpoint = &given.mountpoint;
    let waiting = Waiting::on("the mount point", mountpoint);
    let mounted = bickford::mount::mount(mountpoint, &given.mount_options);
    drop(waiting);
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(error) => {
            // As long as it lives it uses its keys.
            drop(served);
            remove_keys(&layers);
            return Err(Failure::from(error));
        }
    };
    told(&mounted.guard);
    let session = Session::on_mount(served, mounted, config);
    let session = session.map_err(|error| Failure::of_start(&error))?;
    let session = Arc::new(session);
    let mounted = Mounted {
        session: Arc::clone(&session),
        shown: layers.shown(),
    };
    for hook in given.hooks {
        hook(&mounted).map_err(|error| {
            // One before it may keep the session, and with it the mount.
            take_away(session.guard());
            Failure::new(with_reasons(&*error))
        })?;
    }
    log(&given.mount_options, mountpoint, &layers);
    Ok(Started {
        session,
        layers,
        begun: Box::new(|| ()),
        kept: Box::new(given.kept),
    })
}

fn log(options: &MountOptions, mountpoint: &Path, layers: &Summary) {
    let source = options.fsname.as_deref().unwrap_or_default();
    tracing::info!(source, mountpoint = %mountpoint.display(), "mounted");
    for line in layers.lines() {
        tracing::info!("layer {line}");
    }
}

/// Takes away key files that were made for a mount that there is not.
fn remove_keys(layers: &Summary) {
    for key in layers.made() {
        if let Err(error) = key.remove() {
            let path = escaped(&key.path().display().to_string());
            tracing::warn!("the new key file {path} is left: {error}");
        }
    }
}

/// An error with what is below it, where it does not say that itself.
fn with_reasons(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(reason) = next {
        let told = reason.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        next = reason.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("open the store")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("/db: {0}")]
    struct Inner(#[source] std::io::Error);

    #[test]
    fn every_reason_is_told_once() {
        let error = Outer(Inner(std::io::Error::other("no room")));
        assert_eq!(with_reasons(&error), "open the store: /db: no room");
    }
}
