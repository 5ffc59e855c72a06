//! How a path file system is shown to the kernel.

use std::time::Duration;

use crate::mount::{OptionError, unknown};
use crate::ops::Attr;

/// Options of [`super::Adapter`]; the names are those of fuse(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long the kernel may use a name without asking (`entry_timeout`).
    pub entry_timeout: Duration,
    /// How long the kernel may use attributes without asking (`attr_timeout`).
    pub attr_timeout: Duration,
    /// How long the kernel may take a name not to exist (`negative_timeout`); zero by default.
    pub negative_timeout: Duration,
    /// Reads and writes go past the page cache (`direct_io`).
    pub direct_io: bool,
    /// Opening a file keeps what the page cache has of it (`kernel_cache`).
    pub kernel_cache: bool,
    /// Opening a file keeps what the page cache has of it if neither its size nor its modification
    /// time changed since it was last opened (`auto_cache`).
    pub auto_cache: bool,
    /// Names and their node ids are kept for as long as the session lasts (`noforget`). Memory
    /// then grows with the number of names ever looked up. File handles, which an export over NFS hands
    /// to its clients, hold as long; without this, and under a layer, as long as the kernel keeps the inode.
    pub noforget: bool,
    /// Inode numbers are those that the file system answers, and tell which names are hard links
    /// of one file (`use_ino`). Otherwise they are made up, and hard links are known when they are
    /// made through the mount.
    ///
    /// The numbers must be unique among all files: names of two files of one type that have several names
    /// and one number lead to one of them, for reading and for writing. Zero, where that cannot be promised (files of
    /// another device below), has one made up. A name whose number changes is another inode from then
    /// on; who has it open by the old one has no path.
    pub use_ino: bool,
    /// All files belong to this user (`uid`).
    pub uid: Option<u32>,
    /// All files belong to this group (`gid`).
    pub gid: Option<u32>,
    /// Permissions of all files are 0777 without these bits (`umask`).
    pub umask: Option<u32>,
    /// Removing the last name of an open file renames it to `.fuse_hidden...` until it is closed,
    /// for file systems that know open files by path alone. What fuse(8) does without
    /// `hard_remove`; off here. A rename over an open file hides that one first: there is nothing of the name
    /// for a moment below, and for good if the daemon is killed in it.
    pub hide_removed: bool,
    /// Operations on open files and directories get their handle and no path, and claim none:
    /// cheaper, and renames do not wait for reads (what libfuse calls `nullpath_ok`). Handle zero
    /// tells nothing, and comes with the path: that of directories without `opendir`, for instance.
    pub handles_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            entry_timeout: Duration::from_secs(1),
            attr_timeout: Duration::from_secs(1),
            negative_timeout: Duration::ZERO,
            direct_io: false,
            kernel_cache: false,
            auto_cache: false,
            noforget: false,
            use_ino: false,
            uid: None,
            gid: None,
            umask: None,
            hide_removed: false,
            handles_only: false,
        }
    }
}

impl Options {
    /// With names, attributes and missing names all valid for `time`: what does not change, or
    /// changes with a notification, the kernel may remember for years.
    #[must_use]
    pub fn valid_for(time: Duration) -> Self {
        Self {
            entry_timeout: time,
            attr_timeout: time,
            negative_timeout: time,
            ..Self::default()
        }
    }

    /// Sets one option of an option text ([`split_options`](crate::mount::split_options)): `name` or `name=value`, as
    /// in fuse(8); times are in seconds, which may have a fraction, and the umask is octal.
    ///
    /// # Errors
    /// The option is not known, or its value says nothing.
    pub fn set(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            ("entry_timeout", Some(value)) => self.entry_timeout = seconds(name, value)?,
            ("attr_timeout", Some(value)) => self.attr_timeout = seconds(name, value)?,
            ("negative_timeout", Some(value)) => self.negative_timeout = seconds(name, value)?,
            ("uid", Some(value)) => self.uid = Some(id(name, value)?),
            ("gid", Some(value)) => self.gid = Some(id(name, value)?),
            ("umask", Some(value)) => self.umask = Some(permissions(name, value)?),
            ("direct_io", None) => self.direct_io = true,
            ("kernel_cache", None) => self.kernel_cache = true,
            ("auto_cache", None) => self.auto_cache = true,
            ("noforget", None) => self.noforget = true,
            ("use_ino", None) => self.use_ino = true,
            ("hide_removed", None) => self.hide_removed = true,
            ("handles_only", None) => self.handles_only = true,
            (name, value) => return Err(refused(name, value)),
        }
        Ok(())
    }

    /// Every option name that [`set`](Self::set) accepts.
    pub fn known_names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().copied()
    }

    /// Attributes as the kernel is to see them. Without `use_ino` the number is set elsewhere.
    pub(crate) fn apply(&self, attr: &mut Attr) {
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        if let Some(umask) = self.umask {
            attr.mode = attr.file_type() | (0o777 & !umask);
        }
    }
}

const NAMES: [&str; 13] = [
    "entry_timeout",
    "attr_timeout",
    "negative_timeout",
    "uid",
    "gid",
    "umask",
    "direct_io",
    "kernel_cache",
    "auto_cache",
    "noforget",
    "use_ino",
    "hide_removed",
    "handles_only",
];

fn bad(name: &str, value: &str, reason: &str) -> OptionError {
    OptionError::BadValue {
        option: name.to_owned(),
        value: value.to_owned(),
        reason: reason.to_owned(),
    }
}

fn refused(name: &str, value: Option<&str>) -> OptionError {
    match (NAMES.contains(&name), value) {
        (false, _) => unknown(name, &NAMES.map(str::to_owned)),
        (true, None) => OptionError::MissingValue {
            option: name.to_owned(),
        },
        (true, Some(value)) => OptionError::UnexpectedValue {
            option: name.to_owned(),
            value: value.to_owned(),
        },
    }
}

fn seconds(name: &str, value: &str) -> Result<Duration, OptionError> {
    let seconds = value.parse().ok().map(Duration::try_from_secs_f64);
    match seconds {
        Some(Ok(time)) => Ok(time),
        _ => Err(bad(name, value, "this is no number of seconds")),
    }
}

fn id(name: &str, value: &str) -> Result<u32, OptionError> {
    let number = value.parse();
    number.map_err(|_| bad(name, value, "this is no number of a user or group"))
}

fn permissions(name: &str, value: &str) -> Result<u32, OptionError> {
    let octal = u32::from_str_radix(value, 8).ok();
    let bits = octal.filter(|bits| *bits <= 0o777);
    bits.ok_or_else(|| {
        bad(
            name,
            value,
            "this is no octal number of permissions, as 022 is",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_fuse_are_read() {
        let text = [
            "entry_timeout=2.5",
            "attr_timeout=0",
            "negative_timeout=3600",
            "uid=1000",
            "gid=100",
            "umask=022",
            "direct_io",
            "kernel_cache",
            "auto_cache",
            "noforget",
            "use_ino",
            "hide_removed",
            "handles_only",
        ];
        let mut options = Options::default();
        for (option, name) in text.into_iter().zip(NAMES) {
            assert!(option.starts_with(name));
            options.set(option).unwrap();
        }
        let expected = Options {
            entry_timeout: Duration::from_millis(2500),
            attr_timeout: Duration::ZERO,
            negative_timeout: Duration::from_secs(3600),
            uid: Some(1000),
            gid: Some(100),
            umask: Some(0o022),
            direct_io: true,
            kernel_cache: true,
            auto_cache: true,
            noforget: true,
            use_ino: true,
            hide_removed: true,
            handles_only: true,
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let mut options = Options::default();
        let refused = [
            "entry_timeout=-1",
            "entry_timeout=inf",
            "attr_timeout=soon",
            "attr_timeout",
            "attr_timeout=",
            "uid=root",
            "uid=4294967296",
            "umask=9",
            "umask=1777",
            "direct_io=1",
            "fsname=x",
            "",
        ];
        for option in refused {
            assert!(options.set(option).is_err(), "{option}");
        }
        assert_eq!(options, Options::default());
    }
}
