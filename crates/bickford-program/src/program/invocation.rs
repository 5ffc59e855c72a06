use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bickford::mount::OptionError;
use bickford::{MountOptions, MountedSession, SessionConfig, path};
use bickford_layers::Shown;

use super::{NoArguments, Opened};

type Hook = Box<dyn FnOnce(&Mounted) -> Opened<()> + Send>;

/// A mount that answers.
#[non_exhaustive]
pub struct Mounted {
    /// Its session.
    pub session: Arc<MountedSession>,
    /// How a name of the file system is shown through the layers over it: that name is what a notification has to have.
    pub shown: Shown,
}

/// What the command line asks for. What of it is changed in [`Program::run`](super::Program::run) holds.
pub struct Invocation<A = NoArguments> {
    /// The flags of [`Program::arguments`](super::Program::arguments).
    pub arguments: A,
    /// What stands before the mount point: an absolute path where it is one
    /// ([`Program::source_path`](super::Program::source_path)), and the program's name where nothing does.
    pub source: OsString,
    /// Where it will be mounted, as given.
    pub mountpoint: PathBuf,
    /// With `fsname` and `subtype`. What must hold whatever the command line says, such as
    /// [`GenericFlags::READ_ONLY`](bickford::mount::GenericFlags::READ_ONLY), is set here: mount(8) says `rw` where
    /// nobody has said anything.
    pub mount_options: MountOptions,
    /// Those of [`Program::path_options`](super::Program::path_options), with what the command line says; for the
    /// adapter.
    pub path_options: path::Options,
    /// How it is served where the command line says nothing else: that of
    /// [`Program::session_config`](super::Program::session_config).
    pub session_config: SessionConfig,
    /// Whether it handles one request after the other, so that the command line gets no more threads than one: where
    /// [`Program::session_config`](super::Program::session_config) has [`Workers::SINGLE`](bickford::Workers::SINGLE).
    pub single_threaded: bool,
    /// The path options of the command line.
    pub(super) path_texts: Vec<String>,
    pub(super) matches: clap::ArgMatches,
    pub(super) hooks: Vec<Hook>,
    pub(super) kept: Vec<Box<dyn Send>>,
}

impl<A> Invocation<A> {
    /// The flags of [`Program::flag`](super::Program::flag).
    #[must_use]
    pub fn matches(&self) -> &clap::ArgMatches {
        &self.matches
    }

    /// Takes other path options than [`Program::path_options`](super::Program::path_options) where the command line
    /// says nothing: for what is known only of what was opened.
    ///
    /// # Errors
    /// What the command line says does not go with them.
    pub fn default_path_options(&mut self, options: path::Options) -> Result<(), OptionError> {
        self.path_options = options;
        for text in &self.path_texts {
            self.path_options.set(text)?;
        }
        Ok(())
    }

    /// Calls `hook` once the mount answers, before anybody is told so: for what sends notifications, or needs the
    /// session otherwise. Its error is what the user is told, and the mount is taken away.
    pub fn when_mounted(&mut self, hook: impl FnOnce(&Mounted) -> Opened<()> + Send + 'static) {
        self.hooks.push(Box::new(hook));
    }

    /// Drops `value` when the mount is gone, and not before: an executor, a connection, a lock file.
    pub fn keep(&mut self, value: impl Send + 'static) {
        self.kept.push(Box::new(value));
    }
}

impl<A: fmt::Debug> fmt::Debug for Invocation<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation")
            .field("arguments", &self.arguments)
            .field("source", &self.source)
            .field("mountpoint", &self.mountpoint)
            .field("mount_options", &self.mount_options)
            .field("path_options", &self.path_options)
            .finish_non_exhaustive()
    }
}
