//! What layers cannot have in the background.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use bickford_layers::LayerSpec;

use crate::failure::Failure;

/// Files that layers read when they are made.
const READ: [&str; 2] = ["passphrase-file", "switches"];
/// Names of standard input, wherever it comes from.
const STANDARD_INPUT: [&str; 3] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];

/// Whether a file is gone once it has been read.
fn is_read_once(path: &Path) -> bool {
    let kind = || std::fs::metadata(path).map(|it| it.file_type());
    kind().is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
}

/// Refuses layers that want standard error, which a daemon has not. `made_before`: this process makes them as well, to
/// say at once what is wrong with them, and so their files are read twice; standard input cannot be.
///
/// # Errors
/// The layer, what it wants, and what to do instead.
pub fn check_of_a_daemon(layers: &[LayerSpec], made_before: bool) -> Result<(), Failure> {
    for layer in layers {
        let is_read = |(key, _): &(&str, &str)| made_before && READ.contains(key);
        for (key, path) in layer.options().filter(is_read) {
            if STANDARD_INPUT.contains(&path) || is_read_once(Path::new(path)) {
                return Err(Failure::new(format!(
                    "--layer {layer}: {key}={path}: can be read but once, and going into the background reads it \
                     twice; name a file that stays, or stay in the foreground (-f)"
                )));
            }
        }
        if layer.name() == "log" && !layer.options().any(|(key, _)| key == "file") {
            return Err(Failure::new(format!(
                "--layer {layer}: in the background there is no standard error to write to; give it a file \
                 (log:file=PATH), or stay in the foreground (-f)"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(layer: &str, made_before: bool) -> Option<String> {
        let layers = [layer.parse().unwrap()];
        let checked = check_of_a_daemon(&layers, made_before);
        checked.err().map(|failure| failure.to_string())
    }

    #[test]
    fn what_a_daemon_has_not_is_refused() {
        let told = refused("log", false).unwrap();
        assert!(
            told.contains("no standard error") && told.contains("-f"),
            "{told}"
        );
        for layer in ["log:file=/tmp/x", "stats:switches=/tmp/x", "readonly"] {
            assert_eq!(refused(layer, true), None);
        }
    }

    #[test]
    fn what_is_gone_once_read_is_refused_where_it_is_read_twice() {
        let (_end, other) = std::io::pipe().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&other);
        for path in ["/dev/stdin", &format!("/proc/self/fd/{number}")] {
            for layer in ["stats:switches=", "crypt:key=/k,passphrase-file="] {
                let layer = format!("{layer}{path}");
                assert_eq!(refused(&layer, false), None);
                let told = refused(&layer, true).unwrap();
                assert!(told.contains("twice") && told.contains("-f"), "{told}");
            }
        }
    }
}
