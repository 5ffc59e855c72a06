//! A directory with calls around its operations.

use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

use ::bickford_program::Invocation;
use bickford::MountOptions;
use bickford_stackfs::{Arguments, StackFs};

use crate::abi::{BICKFORD_ERROR_SYSTEM, bickford_config, bickford_layer, bickford_program};
use crate::dispatch::User;
use crate::guard::{Failure, guarded};
use crate::layer::Layer;
use crate::options::Options;
use crate::program::{Given, Serving, serve_with, status};
use crate::session::{Mount, path};

/// Opens the directory, for a mount with these options.
fn open(
    source: &Path,
    chosen: &Arguments,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Arc<StackFs>, Failure> {
    let settings = chosen.settings();
    settings
        .check_mount(mountpoint, options)
        .map_err(Failure::argument)?;
    let stackfs = StackFs::builder(source)
        .settings(settings)
        .mount_flags(options.flags)
        .build()
        .map_err(|error| Failure::new(BICKFORD_ERROR_SYSTEM, error))?;
    Ok(Arc::new(stackfs))
}

/// # Safety
/// `layer` is null or points to a layer.
unsafe fn given_layer<'a>(layer: *const bickford_layer) -> Result<&'a bickford_layer, Failure> {
    // SAFETY: the caller's promise.
    let layer = unsafe { layer.as_ref() };
    layer.ok_or_else(|| Failure::argument("layer is NULL"))
}

/// Mounts a directory through StackFS with calls around its operations. Beside those of
/// `bickford_mount` up to `allow_idmap`, `options` may have `preset=base|opt|fast`,
/// `io=auto|passthrough|cached|direct|plain`, `lower=exclusive|watch`, `no_xattr`, and, where root
/// alone may use the mount, `no_permission_checks`. A layer with calls for READ or WRITE turns
/// kernel pass-through off, one with calls for OPEN, OPENDIR or their ends the open without a
/// request, and one with calls for FLUSH the close without one. What the kernel does not ask, no call
/// sees; with preset=base it asks most. With `lower=watch` other processes may change the source beside the mount: what this
/// one changes there, otherwise or through another mount of its own, is not seen.
///
/// # Safety
/// As for `bickford_mount`; `layer` points to a layer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_stackfs_mount(
    source: *const c_char,
    mountpoint: *const c_char,
    options: *const c_char,
    config: *const bickford_config,
    layer: *const bickford_layer,
    session: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (source, layer, mut mount) = unsafe {
            (
                path(source, "source")?,
                given_layer(layer)?,
                Mount::new(mountpoint, options, config, session, Options::for_stackfs)?,
            )
        };
        let options = &mut mount.options.mount;
        options
            .fsname
            .get_or_insert_with(|| source.to_string_lossy().into_owned());
        options.subtype.get_or_insert_with(|| "bickford".into());
        let stackfs = open(source, &mount.options.stackfs, mount.mountpoint, options)?;
        let (config, prompt) = (mount.config, mount.options.prompt);
        let filesystem = Layer::new(Arc::clone(&stackfs), layer, config, prompt)?;
        mount.serve(filesystem, None, |mounted| {
            stackfs.watch_lower(mounted.server())
        })
    })
}

/// Flags of a program that serves a directory.
#[derive(Debug, Clone, clap::Args)]
struct Flags {
    #[command(flatten)]
    chosen: Arguments,

    /// No call waits for another request of the mount: threads of io_uring take several at a time
    #[arg(long)]
    prompt: bool,
}

/// # Safety
/// As for [`bickford_program_run_stackfs`].
unsafe fn serve(
    given: &Given,
    invocation: &mut Invocation<Flags>,
    layer: *const bickford_layer,
) -> Result<Serving<Layer<StackFs>>, Failure> {
    // SAFETY: the caller's promise.
    let layer = unsafe { given_layer(layer) }?;
    let (options, config) = given.filled_in()?;
    let Flags { chosen, prompt } = invocation.arguments.clone();
    let prompt = prompt || options.prompt;
    let options = options.with_stackfs(chosen);
    let config = options.adjusted(config);
    if let Err(error) = bickford_stackfs::raise_descriptor_limit() {
        tracing::warn!("no more open files than ulimit -Sn says: {error}");
    }
    let stackfs = open(
        Path::new(&invocation.source),
        &options.stackfs,
        &invocation.mountpoint,
        &invocation.mount_options,
    )?;
    serve_with(invocation, &options, &config);
    tracing::info!(
        preset = options.stackfs.preset().name(),
        io = stackfs.io_mode().name(),
        inodes = stackfs.identity(),
        "serving a directory"
    );
    Ok(Serving {
        filesystem: Layer::new(Arc::clone(&stackfs), layer, config, prompt)?,
        names: None,
        watched: Some(stackfs),
    })
}

/// A program (`bickford_program_run`) that serves a directory through StackFS with calls around its operations
/// (`bickford_stackfs_mount`), whose options its command line has as flags. The program's `source` is what the help calls the
/// directory. `layer` is read when `open` has returned, which may fill it in.
///
/// # Safety
/// As for `bickford_program_run`; `layer` points to a layer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_program_run_stackfs(
    argc: i32,
    argv: *const *mut c_char,
    program: *const bickford_program,
    config: *const bickford_config,
    layer: *const bickford_layer,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promises.
        let (given, made) = unsafe {
            let user = User(given_layer(layer)?.user);
            Given::read((argc, argv), program, config, user, Options::for_stackfs)?
        };
        if !given.has_source() {
            return Err(Failure::argument(
                "the program has no source, or one that is no path: set source and source_is_path",
            ));
        }
        // SAFETY: as above.
        let serve = |given: &Given, at: &mut _| unsafe { serve(given, at, layer) };
        Ok(given.run(made.arguments::<Flags>(), serve))
    })
}
