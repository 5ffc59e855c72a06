//! Flags of the command line in `-o`, so that a line of fstab(5) can say everything that the command line can.

use std::ffi::OsString;

use bickford::mount::{MountOptions, split_options};

/// `--NAME=VALUE` for each `NAME=VALUE` of the option texts where NAME is a flag of `command` and no mount option. It may
/// be written with `_` for `-`, as mount options are.
///
/// They are to come before what was given on the command line, which therefore wins.
#[must_use]
pub fn lifted<'t>(
    texts: impl Iterator<Item = &'t String>,
    command: &clap::Command,
) -> Vec<OsString> {
    texts
        .flat_map(|text| split_options(text))
        .filter_map(|option| {
            let long = own_flag(&option, command)?;
            let value = option.get(long.len()..).unwrap_or_default();
            Some(OsString::from(format!("--{long}{value}")))
        })
        .collect()
}

/// The flag of `command` that an option names, if it does.
#[must_use]
pub fn own_flag<'c>(option: &str, command: &'c clap::Command) -> Option<&'c str> {
    let name = option.split('=').next().unwrap_or_default();
    if MountOptions::known_names().any(|known| known == name) {
        return None;
    }
    let dashed = name.replace('_', "-");
    own_flags(command).find(|long| long.replace('_', "-") == dashed)
}

/// The flags that may stand in `-o`: those with a long name, but not the ones that end the program.
pub fn own_flags(command: &clap::Command) -> impl Iterator<Item = &str> {
    let longs = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set());
    longs
        .filter_map(clap::Arg::get_long)
        .filter(|long| !matches!(*long, "help" | "version"))
}
