//! How a file system over paths is shown to the kernel, as option text.

use std::time::Duration;

use bickford::path::Options;

use crate::guard::Failure;
use crate::tuning::number;

pub(crate) const NAMES: [&str; 13] = [
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

fn seconds(name: &str, value: &str) -> Result<Duration, Failure> {
    let refused = || Failure::argument(format!("{name}=\"{value}\" is no number of seconds"));
    let seconds: f64 = value.parse().map_err(|_| refused())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| refused())
}

fn permissions(name: &str, value: &str) -> Result<u32, Failure> {
    let octal = u32::from_str_radix(value, 8).ok();
    octal.filter(|bits| *bits <= 0o777).ok_or_else(|| {
        Failure::argument(format!(
            "{name}=\"{value}\" is no octal number of permissions, as 022 is"
        ))
    })
}

/// Takes an option; false where it is none of these.
pub(crate) fn set(options: &mut Options, name: &str, value: Option<&str>) -> Result<bool, Failure> {
    match (name, value) {
        ("entry_timeout", Some(value)) => options.entry_timeout = seconds(name, value)?,
        ("attr_timeout", Some(value)) => options.attr_timeout = seconds(name, value)?,
        ("negative_timeout", Some(value)) => options.negative_timeout = seconds(name, value)?,
        ("uid", Some(value)) => options.uid = Some(number(name, value, 0)?),
        ("gid", Some(value)) => options.gid = Some(number(name, value, 0)?),
        ("umask", Some(value)) => options.umask = Some(permissions(name, value)?),
        ("direct_io", None) => options.direct_io = true,
        ("kernel_cache", None) => options.kernel_cache = true,
        ("auto_cache", None) => options.auto_cache = true,
        ("noforget", None) => options.noforget = true,
        ("use_ino", None) => options.use_ino = true,
        ("hide_removed", None) => options.hide_removed = true,
        ("handles_only", None) => options.handles_only = true,
        (name, value) if NAMES.contains(&name) => {
            let text = match value {
                Some(_) => "takes no value",
                None => "needs a value",
            };
            return Err(Failure::argument(format!("option {name} {text}")));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_fuse_are_read() {
        let text = [
            ("entry_timeout", Some("2.5")),
            ("attr_timeout", Some("0")),
            ("negative_timeout", Some("3600")),
            ("uid", Some("1000")),
            ("gid", Some("100")),
            ("umask", Some("022")),
            ("direct_io", None),
            ("kernel_cache", None),
            ("auto_cache", None),
            ("noforget", None),
            ("use_ino", None),
            ("hide_removed", None),
            ("handles_only", None),
        ];
        assert_eq!(text.map(|(name, _)| name).len(), NAMES.len());
        let mut options = Options::default();
        for (name, value) in text {
            assert!(NAMES.contains(&name));
            assert!(set(&mut options, name, value).unwrap(), "{name}");
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
            ("entry_timeout", Some("-1")),
            ("entry_timeout", Some("inf")),
            ("attr_timeout", Some("soon")),
            ("attr_timeout", None),
            ("uid", Some("root")),
            ("uid", Some("4294967296")),
            ("umask", Some("9")),
            ("umask", Some("1777")),
            ("direct_io", Some("1")),
        ];
        for (name, value) in refused {
            assert!(set(&mut options, name, value).is_err(), "{name} {value:?}");
        }
        assert_eq!(options, Options::default());
        assert!(!set(&mut options, "fsname", Some("x")).unwrap());
    }
}
