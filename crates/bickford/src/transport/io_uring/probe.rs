//! Whether the kernel can do FUSE over io_uring, and how many queues it wants.

use std::fs;
use std::io;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Why FUSE over io_uring cannot be had; `None` when nothing speaks against it.
#[must_use]
pub fn io_uring_obstacle() -> Option<String> {
    match fs::read_to_string(PARAMETER) {
        Ok(value) if value.trim() == "Y" => None,
        Ok(value) => Some(format!(
            "enable_uring is {}; echo Y > {PARAMETER}",
            value.trim()
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(
            "the kernel has no FUSE over io_uring, or the module fuse is not loaded; \
             Linux 6.14 or newer has it"
                .into(),
        ),
        Err(error) => Some(format!("read {PARAMETER}: {error}")),
    }
}

/// Number of possible CPUs: the kernel wants a queue for each.
pub(super) fn possible_cpus() -> io::Result<u16> {
    let list = fs::read_to_string(POSSIBLE)
        .map_err(|error| io::Error::new(error.kind(), format!("read {POSSIBLE}: {error}")))?;
    count(&list).ok_or_else(|| io::Error::other(format!("{POSSIBLE} says {list:?}")))
}

/// Counts a list like `0-3,8`.
fn count(list: &str) -> Option<u16> {
    let mut total = 0u16;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        total = total.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(super::count("0-1\n"), Some(2));
        assert_eq!(super::count("0"), Some(1));
        assert_eq!(super::count("0-3,8,10-11"), Some(7));
        assert_eq!(super::count("3-1"), None);
        assert_eq!(super::count(""), None);
    }
}
