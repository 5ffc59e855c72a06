//! PostMark: the script it is given, and what it complains of.

use std::fs;
use std::path::Path;

use crate::host::process::{Finished, tail};
use crate::host::utf8;

/// It tells after each tenth of its transactions how far it is: of fewer it dies by SIGFPE.
pub(crate) const TRANSACTIONS_MIN: u64 = 10;

/// Writes a script for `files` files of 1 to 64 KiB in `directory`; `more` are settings of its own.
pub(crate) fn write_script(
    script: &Path,
    directory: &Path,
    files: u64,
    transactions: u64,
    more: &str,
) -> Result<(), String> {
    let text = format!(
        "set location {}\nset number {files}\nset size 1024 65536\nset transactions {transactions}\n{more}\
         set seed 42\nrun\nquit\n",
        utf8(directory)?
    );
    fs::write(script, text).map_err(|e| format!("{}: {e}", script.display()))
}

/// What went wrong in a run that ended with status 0: so it ends after an error, too, and goes on with its defaults
/// after what it did not accept.
pub(crate) fn complaint(finished: &Finished) -> Option<String> {
    let Finished { stdout, stderr, .. } = finished;
    if stderr.contains("Error") {
        return Some(tail(stderr));
    }
    (stdout.contains("Error") || !stdout.contains("transactions")).then(|| tail(stdout))
}
