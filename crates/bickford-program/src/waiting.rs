//! Says what is waited for where that takes long: a file system that does not answer says nothing itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use bickford::mount::MountEntry;

use crate::terminal;

/// How long it is waited without a word.
const PATIENCE: Duration = Duration::from_secs(5);

/// The thread does little; the default stack is what an address space that is limited lacks.
const STACK: usize = 256 << 10;

/// A call that may wait; dropped when it has returned.
pub struct Waiting {
    _returned: Sender<()>,
}

impl Waiting {
    /// For `what`, which is about `path`. Said at most once, on standard error.
    #[must_use]
    pub fn on(what: &'static str, path: &Path) -> Self {
        let (returned, call) = channel();
        let path = path.to_owned();
        let say = move || {
            if call.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let text = format!(
                    "mount {}: still waiting for {what}; {}",
                    path.display(),
                    who_may_not_answer(&path)
                );
                terminal::tell(&text);
            }
        };
        let thread = std::thread::Builder::new().name("bickford-waiting".to_owned());
        // Where no thread can be had, it is waited without a word.
        let _ = thread.stack_size(STACK).spawn(say);
        Self {
            _returned: returned,
        }
    }
}

/// The mount in which a path ends, found without asking it. Links on the way are not known here.
fn who_may_not_answer(path: &Path) -> String {
    let found = || -> io::Result<Option<MountEntry>> {
        let path: PathBuf = std::path::absolute(path)?;
        Ok(MountEntry::containing(&MountEntry::all()?, &path).cloned())
    };
    match found() {
        Ok(Some(mount)) if mount.is_fuse() => {
            let there = mount.mountpoint.display();
            format!(
                "the FUSE mount at {there} may not answer: 'bickford stat {there}' shows what waits in it, 'bickford \
                 unmount --force {there}' takes it away"
            )
        }
        Ok(Some(mount)) => format!(
            "the file system at {}, of type {}, may not answer",
            mount.mountpoint.display(),
            mount.fs_type
        ),
        _ => "what is mounted there may not answer: see findmnt(8)".to_owned(),
    }
}
