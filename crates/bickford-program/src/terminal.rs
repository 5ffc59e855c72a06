//! What is said to whoever started the program, also when nobody reads it any more: `println` and `eprintln`
//! panic then, with mounts still to be taken down.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;

use bickford_layers::log::misleads;

static NAME: OnceLock<String> = OnceLock::new();

/// Sets the name by which the program speaks of itself: in messages, in the log, and as a process. Once.
pub fn set_name(name: &str) {
    let _ = NAME.set(name.to_owned());
}

/// That name; until it is set, that of the file which runs.
#[must_use]
pub fn name() -> &'static str {
    NAME.get_or_init(|| {
        let first = std::env::args_os().next().unwrap_or_default();
        let file = Path::new(&first).file_name().map(OsStr::to_string_lossy);
        file.map_or_else(|| "bickford".to_owned(), |name| escaped(&name))
    })
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
/// What was said is lost for another reason, such as a full disk.
pub fn write_out(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// A line on standard error, after the program's name.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{}: {}", name(), escaped(text));
}

/// Text with the characters that mislead (see [`misleads`]), which names of files may have, written as Rust writes them.
#[must_use]
pub fn escaped(text: &str) -> String {
    let shown = |c: char| match misleads(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Text without these characters: names of processes, and what another user's daemon says, may have them.
#[must_use]
pub fn printable(text: &str) -> String {
    let shown = |c: char| if misleads(c) { '?' } else { c };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_looks_like_another() {
        let odd = "a\u{1b}[0m\u{2028}b\u{202e}gr\u{fc}n";
        assert_eq!(escaped(odd), "a\\u{1b}[0m\\u{2028}b\\u{202e}gr\u{fc}n");
        assert_eq!(printable(odd), "a?[0m?b?gr\u{fc}n");
    }
}
