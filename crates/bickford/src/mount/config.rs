//! /etc/fuse.conf, the system's rules for unprivileged mounts.

use std::fs;
use std::io;
use std::path::Path;

/// Where fusermount3 looks for its rules.
pub const FUSE_CONF: &str = "/etc/fuse.conf";

/// What fusermount3 allows without a `mount_max` line.
const DEFAULT_MOUNT_MAX: i64 = 1000;

/// The content of fuse.conf(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FuseConfig {
    /// Users other than root may give `allow_other` and `allow_root`.
    pub user_allow_other: bool,
    /// How many FUSE mounts users other than root may have; -1 for no bound.
    pub mount_max: i64,
}

impl Default for FuseConfig {
    fn default() -> Self {
        Self {
            user_allow_other: false,
            mount_max: DEFAULT_MOUNT_MAX,
        }
    }
}

impl FuseConfig {
    /// Reads [`FUSE_CONF`]; a missing file means the defaults.
    pub fn load() -> io::Result<Self> {
        Self::load_from(Path::new(FUSE_CONF))
    }

    /// Reads `path`; a missing file means the defaults.
    pub fn load_from(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => Ok(Self::parse(&String::from_utf8_lossy(&bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Reads the text of a fuse.conf. Lines fusermount3 would not understand have no effect here either.
    pub fn parse(text: &str) -> Self {
        let mut config = Self::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line == "user_allow_other" {
                config.user_allow_other = true;
            } else if let Some((name, value)) = line.split_once('=')
                && name.trim() == "mount_max"
                && let Ok(bound) = value.trim().parse()
            {
                config.mount_max = bound;
            }
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_noise_have_no_effect() {
        let text = "# user_allow_other\n#mount_max = 7\n\nuser_allow_others\nmount_max = x\n";
        assert_eq!(FuseConfig::parse(text), FuseConfig::default());
    }

    #[test]
    fn both_settings_are_read() {
        let config = FuseConfig::parse("  user_allow_other # all\nmount_max = 12\n");
        assert_eq!(
            config,
            FuseConfig {
                user_allow_other: true,
                mount_max: 12
            }
        );
    }

    #[test]
    fn a_missing_file_means_the_defaults() {
        let missing = Path::new("/nonexistent/fuse.conf");
        assert_eq!(
            FuseConfig::load_from(missing).unwrap(),
            FuseConfig::default()
        );
    }
}
