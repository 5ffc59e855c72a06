//! `-o remount`: other flags on the mount that is there, and nothing else.
//!
//! mount(8) passes what the mount has, from mountinfo and from fstab(5), beside what is to change. So what
//! cannot be changed is accepted where it is in force already, and refused otherwise.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bickford::mount::{GenericFlags, MountEntry, MountOptions, remount, split_options};
use bickford_program::waiting::Waiting;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};

use super::{Arguments, REMOUNT, of_option};
use crate::argv;
use crate::cli::{Cli, Failure};
use crate::commands::target::Target;

/// What the kernel lists among a FUSE mount's options, besides those that can be given.
const KERNEL_OPTIONS: &[&str] = &["user_id", "group_id", "rootmode", "fd", "blksize"];

/// Changes the flags of the mount that is there to those that are asked for.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let _waiting = Waiting::on("the mount point", &arguments.mountpoint);
    let entry = std::fs::canonicalize(&arguments.mountpoint);
    let entry = entry.and_then(|path| MountEntry::at(&path)).ok().flatten();
    let options = arguments
        .flags
        .split_options()
        .filter(|option| option != REMOUNT);
    let (fixed, changed) = options.partition::<Vec<_>, _>(|option| is_fixed(option));
    let now = entry
        .as_ref()
        .map_or(GenericFlags::empty(), MountEntry::flags);
    let start = MountOptions::new().flags(kept(now, &fixed));
    let wanted = arguments
        .apply(changed.into_iter(), start)
        .map_err(|error| of_option(&error))?;
    if let Some(entry) = entry.filter(MountEntry::is_fuse) {
        refuse_others(&entry, &fixed, &arguments.mountpoint)?;
    }
    Ok(remount(&arguments.mountpoint, wanted.flags)?)
}

/// The flags that stay without being named.
///
/// What only the kernel lists comes where mount(8) read mountinfo: then every flag that is to be is named. Before
/// util-linux 2.39 mount(8) drops `exec`, `suid` and the like, together with what they take away. For strictatime
/// mountinfo has no word.
fn kept(now: GenericFlags, fixed: &[String]) -> GenericFlags {
    match fixed
        .iter()
        .any(|option| KERNEL_OPTIONS.contains(&name(option)))
    {
        true => now & GenericFlags::STRICT_ATIME,
        false => now,
    }
}

fn name(option: &str) -> &str {
    option.split('=').next().unwrap_or_default()
}

/// Whether an option is of the mount and not one of its flags.
fn is_fixed(option: &str) -> bool {
    let name = name(option);
    KERNEL_OPTIONS.contains(&name) || MountOptions::is_fixed(name)
}

/// Refuses what is asked for beside flags and is not in force.
fn refuse_others(entry: &MountEntry, fixed: &[String], mountpoint: &Path) -> Result<(), Failure> {
    let flags = flags_of(std::env::args_os().collect(), true);
    let told = fixed.iter().any(|option| !kernel_tells(entry, option)) || !flags.is_empty();
    let daemon = told.then(|| daemon_of(mountpoint)).flatten();
    let answers = daemon.is_some();
    let served = daemon.unwrap_or_default();
    let has = |option: &&String| {
        kernel_tells(entry, option) || served.options.iter().any(|other| other == *option)
    };
    let option = fixed.iter().find(|option| !has(option)).cloned();
    let flag = || {
        let other = flags.iter().find(|flag| !served.flags.contains(flag))?;
        Some(shown(other))
    };
    match option.or_else(flag) {
        None => Ok(()),
        Some(option) if !answers => Err(Failure::new(format!(
            "remount {}: no daemon answers there that could tell whether '{option}' is in force; leave the option \
             out, or name the flags alone: bickford mount -o remount,FLAGS SOURCE MOUNTPOINT",
            mountpoint.display()
        ))),
        Some(option) => Err(Failure::new(format!(
            "remount {}: '{option}' is not in force there and cannot be changed by remounting; unmount it and \
             mount it so, or leave the option out",
            mountpoint.display()
        ))),
    }
}

/// Whether mountinfo shows that an option is in force.
fn kernel_tells(entry: &MountEntry, option: &str) -> bool {
    match option.split_once('=') {
        Some(("fsname", name)) => entry.source == OsStr::new(name),
        Some(("subtype", name)) => entry.fs_type == format!("fuse.{name}"),
        _ => entry.super_options.split(',').any(|shown| shown == option),
    }
}

/// What a command line asks for.
#[derive(Default)]
struct Served {
    options: Vec<String>,
    flags: Vec<Flag>,
}

/// A flag of `mount` by its long name, with its values.
type Flag = (String, Vec<OsString>);

fn shown((name, values): &Flag) -> String {
    let values = values.iter().map(|value| value.to_string_lossy());
    let value = values.collect::<Vec<_>>().join(",");
    match value.as_str() {
        "true" => name.clone(),
        _ => format!("{name}={value}"),
    }
}

/// What the daemon behind the mount was called with, if it is one of ours and answers.
fn daemon_of(mountpoint: &Path) -> Option<Served> {
    let target = Target::find(mountpoint).ok()?;
    let pid = target.daemon()?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = line.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    let words = words
        .map(|word| OsStr::from_bytes(word).to_owned())
        .collect::<Vec<_>>();
    let options = matches(words.clone()).and_then(|given| {
        Some(
            given
                .get_many::<String>("options")?
                .cloned()
                .collect::<Vec<_>>(),
        )
    });
    Some(Served {
        options: options
            .unwrap_or_default()
            .iter()
            .flat_map(|text| split_options(text))
            .collect(),
        flags: flags_of(words, false),
    })
}

/// The matches of `mount` in a command line of any form.
fn matches(arguments: Vec<OsString>) -> Option<ArgMatches> {
    let command = Cli::command();
    let form = argv::Form::detect(arguments, &command).ok()?;
    let arguments = argv::lift_options(form.arguments, &command).ok()?;
    let mut matches = command.try_get_matches_from(arguments).ok()?;
    Some(matches.remove_subcommand()?.1)
}

/// The flags of a command line, with or without those that have their default.
fn flags_of(arguments: Vec<OsString>, only_given: bool) -> Vec<Flag> {
    let cli = Cli::command();
    let (Some(matches), Some(mount)) = (matches(arguments), cli.find_subcommand("mount")) else {
        return Vec::new();
    };
    let flags = mount.get_arguments().filter_map(|argument| {
        let long = argument.get_long().filter(|_| !argument.is_hide_set())?;
        let id = argument.get_id().as_str();
        let given = matches.value_source(id)? == ValueSource::CommandLine;
        let values = matches.get_raw(id)?.map(OsStr::to_owned).collect();
        (given || !only_given).then(|| (long.to_owned(), values))
    });
    flags.collect()
}
