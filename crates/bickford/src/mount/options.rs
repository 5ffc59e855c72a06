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

/// What the root of the file system is; the mount point has to be the same. As option text, `root_kind=directory` or
/// `root_kind=file`.
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

const VALUED: &[&str] = &["fsname", "subtype", "max_read", "blksize", "root_kind"];
const SWITCHES: &[&str] = &[
    "allow_other",
    "allow_root",
    "default_permissions",
    "auto_unmount",
    "blkdev",
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
    /// The type shown in /proc/mounts is `fuse.SUBTYPE`, of a block device `fuseblk.SUBTYPE`.
    pub subtype: Option<String>,
    /// Who may use the mount.
    pub access: AccessPolicy,
    /// The kernel checks permissions by mode, owner and group.
    pub default_permissions: bool,
    /// Largest read request in bytes. The kernel's own bound without it.
    pub max_read: Option<u32>,
    /// The mount is taken away when the process that serves it is gone, however it went.
    pub auto_unmount: bool,
    /// It is a mount of the block device that `fsname` names (type `fuseblk`), for file systems that keep what they show
    /// there. The kernel holds the device, asks [`bmap`](crate::FileSystem::bmap) for FIBMAP, and unmounting waits for
    /// [`destroy`](crate::FileSystem::destroy): a method, or the only thread that serves it, would wait for itself. Only root
    /// mounts so. A device that another mount namespace has mounted so is not seen: the session then fails to begin, with EPERM.
    pub block_device: bool,
    /// The size of its blocks in bytes, 512 without it: a power of two, from that of the device to that of a page. Some
    /// kernels, as Linux 6.18, take that of a page, whatever is said.
    pub block_size: Option<u32>,
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
            block_device: false,
            block_size: None,
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
            "blkdev" => {
                self.block_device = true;
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
            "max_read" => self.max_read = Some(bytes(name, value)?),
            "blksize" => self.block_size = Some(bytes(name, value)?),
            "root_kind" => self.root = root_kind(name, value)?,
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

    /// Makes it a mount of the block device that `fsname` names.
    #[must_use]
    pub fn block_device(mut self, on: bool) -> Self {
        self.block_device = on;
        self
    }

    /// Sets the size of the blocks of that device, in bytes.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.block_size = Some(bytes);
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
        let refused = |option: &str, reason| OptionError::Refused {
            option: option.to_owned(),
            reason,
        };
        match self.block_device {
            true if self.fsname.is_none() => Err(refused(
                "blkdev",
                "it needs to know the block device: give fsname=DEVICE, too",
            )),
            false if self.block_size.is_some() => Err(refused(
                "blksize",
                "it is for mounts of a block device: give blkdev, too, or leave it out",
            )),
            _ => Ok(()),
        }
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
            ("blkdev", self.block_device),
        ];
        for (name, _) in switches.iter().filter(|(_, on)| *on) {
            push(&mut text, name, None);
        }
        let numbers = [("max_read", self.max_read), ("blksize", self.block_size)];
        for (name, bytes) in numbers {
            if let Some(bytes) = bytes {
                push(&mut text, name, Some(&bytes.to_string()));
            }
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

fn bytes(name: &str, value: &str) -> Result<u32, OptionError> {
    value.parse().map_err(|_| OptionError::BadValue {
        option: name.to_owned(),
        value: value.to_owned(),
        reason: format!("give a number of bytes from 0 to {}", u32::MAX),
    })
}

fn root_kind(name: &str, value: &str) -> Result<RootKind, OptionError> {
    match value {
        "directory" => Ok(RootKind::Directory),
        "file" => Ok(RootKind::RegularFile),
        _ => Err(OptionError::BadValue {
            option: name.to_owned(),
            value: value.to_owned(),
            reason: "the root is a directory or a file".to_owned(),
        }),
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
mod tests;
