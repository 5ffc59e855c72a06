//! Command lines of processes, the program's name first.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// That of this process. With musl the standard library knows it only where `main` is Rust's, which that of a program in C is not.
pub(crate) fn own() -> Vec<OsString> {
    let known = std::env::args_os().collect::<Vec<_>>();
    match known.is_empty() {
        true => of("self").unwrap_or_default(),
        false => known,
    }
}

/// That of a process by its name in /proc; `None` where it has ended.
pub(crate) fn of(process: &str) -> Option<Vec<OsString>> {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let words = line.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    let words = words.map(|word| OsStr::from_bytes(word).to_owned());
    Some(words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_what_the_standard_library_may_not() {
        let known = std::env::args_os().collect::<Vec<_>>();
        assert_eq!(of("self").unwrap(), known);
    }
}
