//! Options that others act on, and options of other file systems.

/// Options that mount(8), fstab(5) and systemd.mount(5) act on themselves, and those that ask for what is so
/// anyway; the program that mounts gets to see them and has nothing to do. `lazytime` allows what FUSE
/// does not need, `nonempty` what it does not ask.
pub(super) const IGNORED: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "norelatime",
    "silent",
    "loud",
    "lazytime",
    "nolazytime",
    "nomand",
    "noiversion",
    "nonempty",
];

/// Prefixes of options that are comments to everybody but the one they are meant for.
pub(super) const IGNORED_PREFIXES: &[&str] = &["x-", "X-", "comment=", "uhelper=", "helper="];

const REFUSED: &[(&str, &str)] = &[
    (
        "mand",
        "the kernel has no mandatory locks on FUSE, and since Linux 5.15 none at all; leave it out",
    ),
    ("iversion", "FUSE keeps no counter of changes; leave it out"),
];

/// Why an option that mount(8) or mount.fuse3(8) know is not one here.
pub(super) fn refused(name: &str) -> Option<&'static str> {
    let row = REFUSED.iter().find(|(refused, _)| *refused == name);
    row.map(|(_, reason)| *reason)
}
