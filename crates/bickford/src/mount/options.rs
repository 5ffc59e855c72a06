//! Mount options as mount.fuse3(8) and mount(8) define them.

use std::fmt::Write as _;

use bitflags::bitflags;

use super::foreign::{self, IGNORED, IGNORED_PREFIXES};
use super::option_text::{
    OptionError, checked_value, escape_option, no_value, split_options, unknown,
};

/// Who may use the mounted file system besides the user who mounted it.
///
/// The kernel knows only [`Owner`](Self::Owner) and [`Everyone`](Self::Everyone). With
/// [`OwnerAndRoot`](Self::OwnerAndRoot) it lets everybody in, and whoever serves the requests has to
/// turn other users away with EACCES. A session does so, and lets the kernel keep no
/// attributes of the root: checking permissions ([`MountOptions::default_permissions`], `FUSE_POSIX_ACL`) it asks
/// for them on the way to anything. Where it does not check them, and below a bind mount that leads past the root, it
/// shows others what it has cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessPolicy {
    /// Only the user who mounted (the default).
    #[default]
    Owner,
    /// The user who mounted, and root (`allow_root`).
    OwnerAndRoot,
    /// Every user (`allow_other`).
    Everyone,
}

impl AccessPolicy {
    /// The option that asks for this policy.
    pub(super) fn option_name(self) -> Option<&'static str> {
        match self {
            Self::Owner => None,
            Self::OwnerAndRoot => Some("allow_root"),
            Self::Everyone => Some("allow_other"),
        }
    }
}

/// What the root of the file system is; the mount point has to be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RootKind {
    /// A directory (the default).
    #[default]
    Directory,
    /// A regular file, mounted over a regular file.
    RegularFile,
}

bitflags! {
    /// The flags of mount(8) that do not depend on the file system.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct GenericFlags: u32 {
        /// No writes (`ro`).
        const READ_ONLY = 1;
        /// Set-user-id bits have no effect (`nosuid`).
        const NO_SUID = 1 << 1;
        /// Device files cannot be opened (`nodev`).
        const NO_DEV = 1 << 2;
        /// Files cannot be executed (`noexec`).
        const NO_EXEC = 1 << 3;
        /// Access times are not updated (`noatime`).
        const NO_ATIME = 1 << 4;
        /// Access times of directories are not updated (`nodiratime`).
        const NO_DIR_ATIME = 1 << 5;
        /// Access times are always updated (`strictatime`).
        const STRICT_ATIME = 1 << 6;
        /// Every write is synchronous (`sync`).
        const SYNC = 1 << 7;
        /// Changes of directories are synchronous (`dirsync`).
        const DIR_SYNC = 1 << 8;
        /// Symbolic links are not followed (`nosymfollow`).
        const NO_SYMFOLLOW = 1 << 9;
    }
}

/// What a flag name does: the bits it clears, then the bits it sets.
struct FlagRow {
    name: &'static str,
    clear: GenericFlags,
    set: GenericFlags,
}

const fn row(name: &'static str, clear: GenericFlags, set: GenericFlags) -> FlagRow {
    FlagRow { name, clear, set }
}

const NONE: GenericFlags = GenericFlags::empty();
const ATIME: GenericFlags = GenericFlags::NO_ATIME.union(GenericFlags::STRICT_ATIME);

const FLAGS: &[FlagRow] = &[
    row("rw", GenericFlags::READ_ONLY, NONE),
    row("ro", NONE, GenericFlags::READ_ONLY),
    row("suid", GenericFlags::NO_SUID, NONE),
    row("nosuid", NONE, GenericFlags::NO_SUID),
    row("dev", GenericFlags::NO_DEV, NONE),
    row("nodev", NONE, GenericFlags::NO_DEV),
    row("exec", GenericFlags::NO_EXEC, NONE),
    row("noexec", NONE, GenericFlags::NO_EXEC),
    row("atime", GenericFlags::NO_ATIME, NONE),
    row(
        "noatime",
        GenericFlags::STRICT_ATIME,
        GenericFlags::NO_ATIME,
    ),
    row("diratime", GenericFlags::NO_DIR_ATIME, NONE),
    row("nodiratime", NONE, GenericFlags::NO_DIR_ATIME),
    row("relatime", ATIME, NONE),
    row(
        "strictatime",
        GenericFlags::NO_ATIME,
        GenericFlags::STRICT_ATIME,
    ),
    row("nostrictatime", GenericFlags::STRICT_ATIME, NONE),
    row("async", GenericFlags::SYNC, NONE),
    row("sync", NONE, GenericFlags::SYNC),
    row("dirsync", NONE, GenericFlags::DIR_SYNC),
    row("symfollow", GenericFlags::NO_SYMFOLLOW, NONE),
    row("nosymfollow", NONE, GenericFlags::NO_SYMFOLLOW),
];

impl GenericFlags {
    /// What the option of this name switches on; `None` for any other option.
    pub(super) fn set_by(name: &str) -> Option<Self> {
        FLAGS.iter().find(|row| row.name == name).map(|row| row.set)
    }
}

const VALUED: &[&str] = &["fsname", "subtype", "max_read"];
const SWITCHES: &[&str] = &[
    "allow_other",
    "allow_root",
    "default_permissions",
    "auto_unmount",
];
pub(super) const CONTEXTS: &[&str] = &["context", "fscontext", "defcontext", "rootcontext"];

/// The options of one mount. The default is `nosuid,nodev`, which is what fusermount3 gives to
/// unprivileged users.
///
/// ```
/// use bickford::mount::{AccessPolicy, MountOptions};
/// let options = MountOptions::parse(r"fsname=a\,b,allow_other,ro")?;
/// assert_eq!(options.fsname.as_deref(), Some("a,b"));
/// assert_eq!(options.access, AccessPolicy::Everyone);
/// # Ok::<(), bickford::mount::OptionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountOptions {
    /// The source shown in /proc/mounts; without it the subtype, without that "/dev/fuse".
    pub fsname: Option<String>,
    /// The type shown in /proc/mounts is `fuse.SUBTYPE`.
    pub subtype: Option<String>,
    /// Who may use the mount.
    pub access: AccessPolicy,
    /// The kernel checks permissions by mode, owner and group.
    pub default_permissions: bool,
    /// Largest read request in bytes. The kernel's own bound without it.
    pub max_read: Option<u32>,
    /// The mount is taken away when the process that serves it is gone, however it went.
    pub auto_unmount: bool,
    /// The flags common to all file systems.
    pub flags: GenericFlags,
    /// SELinux contexts as (option name, context), see mount(8).
    pub contexts: Vec<(String, String)>,
    /// What the root of the file system is.
    pub root: RootKind,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            fsname: None,
            subtype: None,
            access: AccessPolicy::Owner,
            default_permissions: false,
            max_read: None,
            auto_unmount: false,
            flags: GenericFlags::NO_SUID | GenericFlags::NO_DEV,
            contexts: Vec::new(),
            root: RootKind::Directory,
        }
    }
}

impl MountOptions {
    /// The defaults: `nosuid,nodev`, used by the mounting user only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads an option text such as `ro,fsname=disk\,1`: a comma ends an option, a backslash takes the
    /// next character as it is, later options override earlier ones.
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        options.apply(text)?;
        Ok(options)
    }

    /// Reads an option text on top of what is already set (a second `-o`).
    pub fn apply(&mut self, text: &str) -> Result<(), OptionError> {
        split_options(text)
            .iter()
            .try_for_each(|option| self.set(option))
    }

    /// Sets one option: `name` or `name=value`, unescaped.
    pub fn set(&mut self, option: &str) -> Result<(), OptionError> {
        if IGNORED_PREFIXES
            .iter()
            .any(|prefix| option.starts_with(prefix))
        {
            return Ok(());
        }
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if let Some(row) = FLAGS.iter().find(|row| row.name == name) {
            no_value(name, value)?;
            self.flags.remove(row.clear);
            self.flags.insert(row.set);
            return Ok(());
        }
        if SWITCHES.contains(&name) {
            no_value(name, value)?;
            return self.set_switch(name);
        }
        if VALUED.contains(&name) || CONTEXTS.contains(&name) {
            return self.set_valued(name, checked_value(name, value)?);
        }
        if IGNORED.contains(&name) {
            return Ok(());
        }
        if let Some(reason) = foreign::refused(name) {
            return Err(OptionError::Refused {
                option: name.to_owned(),
                reason,
            });
        }
        let known = Self::known_names().map(str::to_owned).collect::<Vec<_>>();
        Err(unknown(name, &known))
    }

    /// Whether the option of this name is settled when it is mounted: any but a flag and what is left to
    /// others.
    pub fn is_fixed(name: &str) -> bool {
        [VALUED, SWITCHES, CONTEXTS]
            .iter()
            .any(|names| names.contains(&name))
    }

    /// Every option name that [`set`](Self::set) accepts, except the `x-` comments.
    pub fn known_names() -> impl Iterator<Item = &'static str> {
        let flags = FLAGS.iter().map(|row| row.name);
        let rest = [VALUED, SWITCHES, CONTEXTS, IGNORED]
            .into_iter()
            .flatten()
            .copied();
        rest.chain(flags)
    }

    fn set_switch(&mut self, name: &str) -> Result<(), OptionError> {
        match name {
            "allow_other" => self.admit(AccessPolicy::Everyone),
            "allow_root" => self.admit(AccessPolicy::OwnerAndRoot),
            "default_permissions" => {
                self.default_permissions = true;
                Ok(())
            }
            _ => {
                self.auto_unmount = true;
                Ok(())
            }
        }
    }

    fn admit(&mut self, access: AccessPolicy) -> Result<(), OptionError> {
        match (self.access.option_name(), access.option_name()) {
            (Some(first), Some(second)) if first != second => {
                Err(OptionError::Conflict { first, second })
            }
            _ => {
                self.access = access;
                Ok(())
            }
        }
    }

    fn set_valued(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        match name {
            "fsname" => self.fsname = Some(value.to_owned()),
            "subtype" => self.subtype = Some(value.to_owned()),
            "max_read" => {
                let bytes = value.parse().map_err(|_| OptionError::BadValue {
                    option: name.to_owned(),
                    value: value.to_owned(),
                    reason: format!("give a number of bytes from 0 to {}", u32::MAX),
                })?;
                self.max_read = Some(bytes);
            }
            _ => {
                self.contexts.retain(|(known, _)| known != name);
                self.contexts.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(())
    }

    /// Sets the source shown in /proc/mounts.
    #[must_use]
    pub fn fsname(mut self, name: impl Into<String>) -> Self {
        self.fsname = Some(name.into());
        self
    }

    /// Sets the type shown in /proc/mounts to `fuse.SUBTYPE`.
    #[must_use]
    pub fn subtype(mut self, name: impl Into<String>) -> Self {
        self.subtype = Some(name.into());
        self
    }

    /// Sets who may use the mount.
    #[must_use]
    pub fn access(mut self, access: AccessPolicy) -> Self {
        self.access = access;
        self
    }

    /// Lets the kernel check permissions.
    #[must_use]
    pub fn default_permissions(mut self, on: bool) -> Self {
        self.default_permissions = on;
        self
    }

    /// Bounds read requests, in bytes.
    #[must_use]
    pub fn max_read(mut self, bytes: u32) -> Self {
        self.max_read = Some(bytes);
        self
    }

    /// Takes the mount away when the serving process is gone.
    #[must_use]
    pub fn auto_unmount(mut self, on: bool) -> Self {
        self.auto_unmount = on;
        self
    }

    /// Forbids writes.
    #[must_use]
    pub fn read_only(mut self, on: bool) -> Self {
        self.flags.set(GenericFlags::READ_ONLY, on);
        self
    }

    /// Replaces the flags common to all file systems.
    #[must_use]
    pub fn flags(mut self, flags: GenericFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Says what the root of the file system is.
    #[must_use]
    pub fn root(mut self, kind: RootKind) -> Self {
        self.root = kind;
        self
    }

    /// Whether the kernel has to let other users in.
    pub(super) fn kernel_allows_other(&self) -> bool {
        self.access != AccessPolicy::Owner
    }

    /// The source of the mount as /proc/mounts will show it.
    pub(super) fn source(&self) -> &str {
        let named = self.fsname.as_deref().or(self.subtype.as_deref());
        named.unwrap_or("/dev/fuse")
    }

    /// Builder methods take any text; what the kernel cannot hold is refused before it is asked.
    pub(super) fn check(&self) -> Result<(), OptionError> {
        let named = [("fsname", &self.fsname), ("subtype", &self.subtype)];
        for (name, value) in named {
            if let Some(value) = value {
                checked_value(name, Some(value))?;
            }
        }
        for (name, value) in &self.contexts {
            checked_value(name, Some(value))?;
        }
        Ok(())
    }

    /// The text for `fusermount3 -o`, commas and backslashes of values escaped.
    pub(super) fn to_fusermount(&self) -> String {
        let mut text = String::new();
        for row in FLAGS {
            // fusermount3 starts from nosuid,nodev: those two are named when they are lifted.
            let named = match row.name {
                "nosuid" | "nodev" => false,
                "suid" | "dev" => !self.flags.intersects(row.clear),
                _ => !row.set.is_empty() && self.flags.contains(row.set),
            };
            if named {
                push(&mut text, row.name, None);
            }
        }
        let switches = [
            ("allow_other", self.kernel_allows_other()),
            ("default_permissions", self.default_permissions),
        ];
        for (name, _) in switches.iter().filter(|(_, on)| *on) {
            push(&mut text, name, None);
        }
        if let Some(bytes) = self.max_read {
            push(&mut text, "max_read", Some(&bytes.to_string()));
        }
        if let Some(name) = &self.subtype {
            push(&mut text, "subtype", Some(name));
        }
        push(&mut text, "fsname", Some(self.source()));
        for (name, context) in &self.contexts {
            push(&mut text, name, Some(context));
        }
        text
    }
}

fn push(text: &mut String, name: &str, value: Option<&str>) {
    if !text.is_empty() {
        text.push(',');
    }
    text.push_str(name);
    if let Some(value) = value {
        // Writing to a String cannot fail.
        let _ = write!(text, "={}", escape_option(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn default_is_nosuid_nodev() {
        let options = MountOptions::parse("").unwrap();
        assert_eq!(options, MountOptions::new());
        assert_eq!(options.flags, GenericFlags::NO_SUID | GenericFlags::NO_DEV);
        assert_eq!(options.to_fusermount(), "fsname=/dev/fuse");
    }

    #[test]
    fn later_options_override_earlier_ones() {
        let options = MountOptions::parse("ro,noatime,rw,strictatime,suid,dev,noexec").unwrap();
        assert_eq!(
            options.flags,
            GenericFlags::STRICT_ATIME | GenericFlags::NO_EXEC
        );
        assert_eq!(
            options.to_fusermount(),
            "suid,dev,noexec,strictatime,fsname=/dev/fuse"
        );
    }

    #[test]
    fn escaped_commas_stay_in_the_value() {
        let options = MountOptions::parse(r"fsname=a\,b\\c,subtype=x").unwrap();
        assert_eq!(options.fsname.as_deref(), Some(r"a,b\c"));
        assert_eq!(options.source(), r"a,b\c");
        assert_eq!(options.to_fusermount(), r"subtype=x,fsname=a\,b\\c");
    }

    #[test]
    fn quoted_contexts_keep_their_commas() {
        let text = r#"context="system_u:object_r:tmp_t:s0:c1,c2",ro"#;
        let options = MountOptions::parse(text).unwrap();
        let expected = (
            "context".to_owned(),
            "system_u:object_r:tmp_t:s0:c1,c2".to_owned(),
        );
        assert_eq!(options.contexts, [expected]);
        assert!(options.flags.contains(GenericFlags::READ_ONLY));
    }

    #[test]
    fn unknown_option_names_itself_and_the_nearest() {
        let error = MountOptions::parse("ro,alow_other").unwrap_err();
        let message = error.to_string();
        assert_eq!(
            message,
            "mount option 'alow_other' is not known; did you mean 'allow_other'?"
        );
        let message = MountOptions::parse("zzzzzzzz=1").unwrap_err().to_string();
        assert!(message.contains("'zzzzzzzz'"), "{message}");
        assert!(
            message.contains("mount.fuse3(8)") && !message.contains("subtype"),
            "{message}"
        );
    }

    #[test]
    fn values_where_none_belongs_and_none_where_one_does() {
        let message = MountOptions::parse("ro=1").unwrap_err().to_string();
        assert!(
            message.starts_with("mount option 'ro' takes no value"),
            "{message}"
        );
        let message = MountOptions::parse("subtype").unwrap_err().to_string();
        assert!(
            message.starts_with("mount option 'subtype' needs a value"),
            "{message}"
        );
        let message = MountOptions::parse("max_read=lots")
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("mount option 'max_read=lots'"),
            "{message}"
        );
        let message = MountOptions::new()
            .fsname("a\0b")
            .check()
            .unwrap_err()
            .to_string();
        assert!(message.contains("NUL"), "{message}");
    }

    #[test]
    fn options_of_fstab_are_left_to_their_readers() {
        let text = "defaults,noauto,_netdev,user=joe,x-systemd.automount,x-gvfs-show,nofail,\
            silent,loud,lazytime,nolazytime,nomand,noiversion,nonempty";
        assert_eq!(MountOptions::parse(text).unwrap(), MountOptions::new());
    }

    #[test]
    fn what_fuse_has_not_is_refused_by_name() {
        for option in ["mand", "iversion", "blksize=512"] {
            let message = MountOptions::parse(option).unwrap_err().to_string();
            let name = option.split('=').next().unwrap();
            assert!(message.contains(&format!("'{name}': ")), "{message}");
        }
    }

    #[test]
    fn allow_root_lets_the_kernel_admit_all_and_the_library_choose() {
        let options = MountOptions::parse("allow_root").unwrap();
        assert!(options.kernel_allows_other());
        assert_eq!(options.to_fusermount(), "allow_other,fsname=/dev/fuse");
        assert_eq!(options.access, AccessPolicy::OwnerAndRoot);
        let error = MountOptions::parse("allow_root,allow_other").unwrap_err();
        assert_eq!(
            error,
            OptionError::Conflict {
                first: "allow_root",
                second: "allow_other"
            }
        );
    }

    proptest! {
        #[test]
        fn what_is_escaped_comes_back(name in "[^\0\"]{1,40}") {
            let text = format!("fsname={},ro", escape_option(&name));
            let options = MountOptions::parse(&text).unwrap();
            prop_assert_eq!(options.fsname.as_deref(), Some(name.as_str()));
            prop_assert!(options.flags.contains(GenericFlags::READ_ONLY));
        }

        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = MountOptions::parse(&text);
        }
    }
}
