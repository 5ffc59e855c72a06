//! Serves SOURCE at MOUNTPOINT in the foreground: `passthrough SOURCE MOUNTPOINT [PRESET [IO]]`.

use bickford::mount::MountOptions;
use bickford::{Session, SessionConfig, Workers};
use bickford_stackfs::{Preset, StackFs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: passthrough SOURCE MOUNTPOINT [base|opt|fast [auto|passthrough|cached|direct|plain]]";
    let source = arguments.next().ok_or(usage)?;
    let mountpoint = arguments.next().ok_or(usage)?;
    let preset: Preset = arguments
        .next()
        .map_or(Ok(Preset::default()), |name| name.parse())?;

    let mut settings = preset.settings();
    if let Some(name) = arguments.next() {
        settings.io = name.parse()?;
    }
    let stackfs = StackFs::builder(&source).settings(settings).build()?;
    let mut options = MountOptions::new()
        .fsname(source)
        .subtype("stackfs")
        .default_permissions(true);
    if rustix::process::geteuid().is_root() {
        options.apply("allow_other")?;
    }
    let workers = match preset.single_threaded() {
        true => Workers::SINGLE,
        false => Workers::default(),
    };
    let config = SessionConfig::default().workers(workers);
    Session::mount(stackfs, mountpoint, &options, config)?.wait();
    Ok(())
}
