//! What is mounted: the pass-through file system with a named configuration.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bickford::FileSystem;
use bickford::mount::MountGuard;
use bickford::transport::TransportChoice;
use bickford::{MountOptions, MountedSession, Session, SessionConfig, Workers};
use bickford_layers::crypt::{looks_encrypted, makes_a_key};
use bickford_layers::{LayerSpec, Summary};
use bickford_program::carrying::{TransportName, Tuning};
use bickford_program::waiting::Waiting;
use bickford_stackfs::{self as stackfs, LowerWatch, StackFs};

use crate::cli::Failure;
use crate::new_keys::NewKeys;

/// What is chosen on the command line; what is `None` is the preset's choice.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Choices {
    #[command(flatten)]
    pub(crate) stackfs: stackfs::Arguments,

    /// How requests come in; by default auto for the preset fast, and dev for the others
    #[arg(long, value_enum)]
    pub(crate) transport: Option<TransportName>,

    /// Let file handles hold for good, as an export over NFS needs
    ///
    /// They then outlive what the kernel caches, and the mount. SOURCE must be on ext2, ext3 or ext4. An
    /// NFS client that makes handles up reaches what is beside SOURCE on that file system, as with
    /// an export of a directory without subtree_check. Not with --layer.
    #[arg(long)]
    pub(crate) nfs_export: bool,

    /// A layer over SOURCE, such as 'log:format=json'; may be given again, the first is outermost
    ///
    /// 'bickford layers' lists them with their options.
    #[arg(long = "layer", value_name = "NAME[:OPTION=VALUE,...]")]
    pub(crate) layers: Vec<LayerSpec>,

    #[command(flatten)]
    pub(crate) tuning: Tuning,

    /// Most threads that handle requests: in all over /dev/fuse [default: 32; with base 1], for each CPU over
    /// io_uring [2 to 16, default: 16]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,
}

/// SOURCE, open and not yet mounted.
pub(crate) struct Backend {
    source: PathBuf,
    stackfs: Arc<StackFs>,
    /// With the layers over it.
    served: Box<dyn FileSystem>,
    layers: Summary,
    choices: Choices,
    new_keys: NewKeys,
}

/// Most names that are looked at for a new key.
const NAMES_LOOKED_AT: usize = 1000;

/// Whether `source` may be under a new key: one of another key would seem to be empty.
fn check_new_key(source: &Path) -> Result<(), Failure> {
    let names = std::fs::read_dir(source).into_iter().flatten().flatten();
    let names = names.take(NAMES_LOOKED_AT).map(|entry| entry.file_name());
    let (encrypted, others) =
        names.partition::<Vec<_>, _>(|name| looks_encrypted(name.as_encoded_bytes()));
    let shown = source.display();
    match (encrypted.is_empty(), others.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => Err(Failure::new(format!(
            "--layer crypt: {shown} holds names that look encrypted, and create=true would make another key, which \
             reads none of them; give the key file that they were made with, or an empty directory"
        ))),
        (true, false) => {
            // Who goes to the background has no log yet, and the daemon finds the key made.
            let text = "is not empty, and what is in it is not shown under a new key";
            let _ = writeln!(std::io::stderr(), "bickford: warning: {shown} {text}");
            Ok(())
        }
    }
}

fn cannot_serve(error: &bickford_stackfs::Error) -> Failure {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    match (error, limit.current) {
        (bickford_stackfs::Error::Descriptors(_), Some(limit)) => Failure::new(format!(
            "{limit} open files, the limit of this process, are too few to serve a directory; raise it to 256 at \
             least (ulimit -n 256)"
        )),
        _ => Failure::new(error.to_string()),
    }
}

/// What serves the mount.
pub(crate) struct Serving {
    pub(crate) session: MountedSession,
    pub(crate) watch: Option<LowerWatch>,
    pub(crate) layers: Summary,
    pub(crate) new_keys: NewKeys,
}

impl Backend {
    pub(crate) fn open(
        source: &Path,
        choices: &Choices,
        mount: &MountOptions,
    ) -> Result<Self, Failure> {
        let mut settings = choices.stackfs.settings();
        settings.nfs_export = choices.nfs_export;
        if choices.nfs_export && !choices.layers.is_empty() {
            return Err(Failure::new(
                "--nfs-export: a layer has seen no name of what comes by a file handle; leave --nfs-export or --layer out",
            ));
        }
        if let Err(error) = bickford_stackfs::raise_descriptor_limit() {
            tracing::warn!("no more open files than ulimit -Sn says: {error}");
        }
        let builder = StackFs::builder(source).settings(settings);
        let waiting = Waiting::on("SOURCE", source);
        let stackfs = builder.mount_flags(mount.flags).build();
        drop(waiting);
        let stackfs = stackfs.map_err(|error| cannot_serve(&error))?;
        let stackfs = Arc::new(stackfs);
        if choices.layers.iter().any(makes_a_key) {
            check_new_key(source)?;
        }
        let (served, layers) =
            bickford_layers::build(&choices.layers, Box::new(Arc::clone(&stackfs)))
                .map_err(|error| Failure::new(error.to_string()))?;
        let new_keys = NewKeys::of(&layers, source);
        Ok(Self {
            source: source.to_owned(),
            stackfs,
            served,
            layers,
            choices: choices.clone(),
            new_keys,
        })
    }

    fn config(&self, single_threaded: bool) -> SessionConfig {
        let mut config = self.choices.stackfs.session_config();
        if let Some(most) = self.choices.workers {
            config = config.workers(Workers::up_to(most.get()));
        }
        if single_threaded {
            config = config
                .workers(Workers::SINGLE)
                .transport(TransportChoice::DevFuse);
        }
        if let Some(transport) = self.choices.transport {
            config = config.transport(transport.choice());
        }
        self.choices.tuning.apply(config)
    }

    /// Closes SOURCE again.
    pub(crate) fn into_new_keys(self) -> NewKeys {
        self.new_keys
    }

    /// Whether it may be mounted so.
    pub(crate) fn check_mount(
        &self,
        mountpoint: &Path,
        options: &MountOptions,
    ) -> Result<(), Failure> {
        let checked = self.stackfs.settings().check_mount(mountpoint, options);
        checked.map_err(|error| Failure::new(error.to_string()))
    }

    /// Mounts and serves it; `mounted` is told of the mount before anybody serves it.
    pub(crate) fn mount(
        self,
        mountpoint: &Path,
        options: &MountOptions,
        single_threaded: bool,
        mounted: impl FnOnce(&MountGuard),
    ) -> Result<Serving, Failure> {
        self.check_mount(mountpoint, options)?;
        let config = self.config(single_threaded);
        let fail = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
        let lower = self.lower_in_force();
        let waiting = Waiting::on("the mount point", mountpoint);
        let mount = bickford::mount::mount(mountpoint, options).map_err(|error| fail(&error))?;
        drop(waiting);
        mounted(&mount.guard);
        let session = Session::on_mount(self.served, mount, config)
            .map_err(|error| Failure::of_start(&error))?;
        let shown = self.layers.shown();
        let watch = (self.stackfs).watch_lower_shown(session.server(), move |name| shown(name));
        let watch = watch.map_err(|error| fail(&error))?;
        // Said once it answers; the session has said before what it negotiated.
        tracing::info!(
            source = %self.source.display(),
            mountpoint = %mountpoint.display(),
            preset = self.choices.stackfs.preset().name(),
            io = self.stackfs.io_mode().name(),
            lower,
            inodes = self.stackfs.identity(),
            "mounted"
        );
        for line in self.layers.lines() {
            tracing::info!("layer {line}");
        }
        Ok(Serving {
            session,
            watch,
            layers: self.layers,
            new_keys: self.new_keys,
        })
    }

    fn lower_in_force(&self) -> &'static str {
        let settings = self.stackfs.settings();
        match (settings.exclusive, self.stackfs.is_watched()) {
            (true, _) => "exclusive",
            (_, true) => "watch",
            _ => "shared",
        }
    }
}
