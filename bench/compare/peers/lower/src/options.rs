//! The command line of an adapter: `[-o OPTION[,OPTION]] SOURCE MOUNTPOINT`.

use std::path::PathBuf;
use std::process::exit;
use std::time::Duration;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory to pass through.
    pub source: PathBuf,
    /// Where to mount it.
    pub mountpoint: PathBuf,
    /// Write-back cache.
    pub writeback: bool,
    /// OPEN is answered ENOSYS: opening costs no request.
    pub zero_open: bool,
    /// The kernel reads and writes the lower file.
    pub passthrough: bool,
    /// No page cache.
    pub direct: bool,
    /// How many threads serve requests.
    pub threads: usize,
}

/// How long names and attributes are cached: for good, as nobody else changes the directory.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

impl Options {
    /// How long the kernel may believe what it is told.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        FOREVER
    }

    /// Flags for the lower file of an open with `flags`. With a write-back cache the kernel reads through
    /// descriptors that are open for writing, and appends by itself.
    #[must_use]
    pub fn lower_flags(&self, flags: i32) -> i32 {
        let mut flags = flags & !libc::O_DIRECT;
        if self.writeback {
            flags &= !libc::O_APPEND;
            if flags & libc::O_ACCMODE == libc::O_WRONLY {
                flags = flags & !libc::O_ACCMODE | libc::O_RDWR;
            }
        }
        flags
    }
}

/// Reads the command line, or ends the process with the reason why it cannot be.
#[must_use]
pub fn parse() -> Options {
    match read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!(
                "{message}\nusage: [-o writeback,zero_open,passthrough,direct] SOURCE MOUNTPOINT"
            );
            exit(2);
        }
    }
}

fn read(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        source: PathBuf::new(),
        mountpoint: PathBuf::new(),
        writeback: false,
        zero_open: false,
        passthrough: false,
        direct: false,
        threads: (2 * cpus).max(4),
    };
    let mut paths = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument != "-o" {
            paths.push(argument);
            continue;
        }
        let list = arguments.next().ok_or("-o needs a list of options")?;
        for word in list.split(',') {
            match word {
                // The adapters in Rust know no other way.
                "best" => {}
                "writeback" => options.writeback = true,
                "zero_open" => options.zero_open = true,
                "passthrough" => options.passthrough = true,
                "direct" => options.direct = true,
                _ => return Err(format!("unknown option {word}")),
            }
        }
    }
    let [source, mountpoint] = &paths[..] else {
        return Err(format!("two paths are needed, {} were given", paths.len()));
    };
    options.source = source.into();
    options.mountpoint = mountpoint.into();
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<Options, String> {
        read(text.split(' ').map(str::to_owned))
    }

    #[test]
    fn options_and_paths_in_any_order() {
        let options = words("a -o best,writeback,direct b").expect("parse");
        assert!(options.writeback && options.direct && !options.zero_open);
        assert_eq!(options.mountpoint.to_str(), Some("b"));
        assert!(words("a -o fast b").is_err() && words("a").is_err());
    }

    #[test]
    fn a_write_back_cache_needs_readable_descriptors() {
        let options = words("a -o writeback b").expect("parse");
        let flags = options.lower_flags(libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT);
        assert_eq!(flags, libc::O_RDWR | libc::O_CREAT);
    }
}
