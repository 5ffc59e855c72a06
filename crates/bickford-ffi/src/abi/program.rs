//! What a program is, and what its command line asks for.

use std::ffi::{c_char, c_void};

/// A flag of a program's own: `--NAME`, and in `-o` without the dashes, but where mount(8) has an option of that name. `--help`
/// must not show the name already. One with a value may be given several times.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bickford_flag {
    /// Without dashes: letters, digits, `-`, `_` and `.`. `NAME|L` for the letter or digit L as well: `-L`. UTF-8, as all these
    /// are.
    pub name: *const c_char,
    /// What its value is called in the help, such as `BYTES`; NULL where it has none.
    pub value: *const c_char,
    /// The value that it has where none is given, or NULL.
    pub initial: *const c_char,
    /// What it does, in a line, or NULL.
    pub help: *const c_char,
}

/// What a command line asks for. The strings stay until the program has ended; the structure and its arrays do not.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bickford_invocation {
    /// What stands before the mount point, as an absolute path where it is one; the program's name where nothing does.
    pub source: *const c_char,
    /// Where it will be mounted, as given.
    pub mountpoint: *const c_char,
    /// For each flag of the program, in its order, the value, empty for a flag without one, and the last of several; NULL where it
    /// is not given and has no initial value.
    pub values: *const *const c_char,
    /// How many they are.
    pub value_count: u64,
    /// For each flag all its values, ended by NULL: those in `-o` first, otherwise in the order in which they are given.
    pub all_values: *const *const *const c_char,
}

/// Opens what a program serves, in the process that will, before anything is mounted. Directory, terminal and standard input are
/// still the caller's, so that it may ask for a password; in the background they are left afterwards. A process that it starts
/// stays with the caller's terminal, and ends with ^C or a hangup there, unless it calls setsid(2). Returns zero; or something
/// else, with why written to `message`, NUL-terminated, for the user: what failed, on what, and why. Without that a positive
/// value is taken for an errno.
pub type bickford_open = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        given: *const bickford_invocation,
        message: *mut c_char,
        room: u64,
    ) -> i32,
>;

/// Is told the number of the session once the mount answers, for notifications. It may be waited for by another thread and is
/// closed by the program's end.
pub type bickford_begun = Option<unsafe extern "C" fn(user: *mut c_void, session: u64)>;

/// A program that serves a file system.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bickford_program {
    /// `BICKFORD_ABI_VERSION`.
    pub abi_version: u32,
    /// One where the source is a file or directory: `open` gets its absolute path. Zero for anything else.
    pub source_is_path: u32,
    /// In messages, in the log and in /proc/mounts, where the type is `fuse.NAME`.
    pub name: *const c_char,
    /// Its version, or NULL.
    pub version: *const c_char,
    /// What it serves, in a line for the help, or NULL.
    pub about: *const c_char,
    /// What has to stand before the mount point, as the help calls it, such as `FILE.tar`; NULL where nothing has to.
    pub source: *const c_char,
    /// Options as for `bickford_mount`, or over paths for `bickford_mount_paths`, that hold where the command line does not say
    /// otherwise; or NULL. With `foreground_only` the background is refused: the program cannot be run again with the command line
    /// of its process.
    pub options: *const c_char,
    /// Flags of its own; NULL for none.
    pub flags: *const bickford_flag,
    /// How many they are.
    pub flag_count: u64,
    /// Opens what is served, or NULL. `user` is that of the callbacks.
    pub open: bickford_open,
    /// Is told of the session, or NULL.
    pub begun: bickford_begun,
}
