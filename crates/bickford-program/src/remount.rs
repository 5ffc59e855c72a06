//! `-o remount`: other flags on the mount that is there, and nothing else.
//!
//! mount(8) passes what the mount has, from mountinfo and from fstab(5), beside what is to change. So what
//! cannot be changed is accepted where it is in force already, and refused otherwise.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use bickford::mount::{GenericFlags, MountEntry, MountOptions, remount, split_options};
use bickford::trace::control;
use clap::ArgMatches;
use clap::parser::ValueSource;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;

use crate::failure::Failure;
use crate::waiting::Waiting;
use crate::words;

/// The option of mount(8) that asks for other flags on the mount that is there.
pub const REMOUNT: &str = "remount";

/// What the kernel lists among a FUSE mount's options, besides those that can be given.
const KERNEL_OPTIONS: &[&str] = &["user_id", "group_id", "rootmode", "fd"];

/// What a program has to tell for this.
pub struct Remount<'a> {
    /// Where the mount is, as given.
    pub mountpoint: &'a Path,
    /// The command line of this program, its name first.
    pub words: Vec<OsString>,
    /// What an interpreter's command line begins with here, up to the word that names the program; nothing where there is
    /// no interpreter.
    pub before: Vec<OsString>,
    /// All options of `-o`.
    pub options: Vec<String>,
    /// The names of those that are settled when it is mounted, besides the mount's.
    pub settled: &'a [&'static str],
    /// The command with the flags of a mount.
    pub command: &'a clap::Command,
    /// What a whole command line of the program, in any form, asks of that command.
    pub matches: &'a dyn Fn(Vec<OsString>) -> Option<ArgMatches>,
    /// Sets flags; of other options it says what is wrong.
    pub apply: &'a dyn Fn(Vec<String>, MountOptions) -> Result<MountOptions, Failure>,
    /// How flags alone are asked for.
    pub usage: &'a str,
}

impl Remount<'_> {
    /// Changes the flags of the mount that is there to those that are asked for.
    ///
    /// # Errors
    /// There is none, or something else is asked for that is not in force.
    pub fn run(&self) -> Result<(), Failure> {
        let _waiting = Waiting::on("the mount point", self.mountpoint);
        let entry = std::fs::canonicalize(self.mountpoint);
        let entry = entry.and_then(|path| MountEntry::at(&path)).ok().flatten();
        let options = self.options.iter().filter(|option| *option != REMOUNT);
        let (fixed, changed) = options
            .cloned()
            .partition::<Vec<_>, _>(|option| self.is_settled(option));
        let now = entry
            .as_ref()
            .map_or(GenericFlags::empty(), MountEntry::flags);
        let start = MountOptions::new().flags(kept(now, &fixed));
        let wanted = (self.apply)(changed, start)?;
        if let Some(entry) = entry.filter(MountEntry::is_fuse) {
            self.refuse_others(&entry, &fixed)?;
        }
        Ok(remount(self.mountpoint, wanted.flags)?)
    }

    /// Whether an option is of the mount and not one of its flags.
    fn is_settled(&self, option: &str) -> bool {
        let name = name(option);
        KERNEL_OPTIONS.contains(&name)
            || self.settled.contains(&name)
            || MountOptions::is_fixed(name)
    }

    /// Refuses what is asked for beside flags and is not in force.
    fn refuse_others(&self, entry: &MountEntry, fixed: &[String]) -> Result<(), Failure> {
        let flags = self.flags_of(self.words.clone(), true);
        let told = fixed.iter().any(|option| !kernel_tells(entry, option)) || !flags.is_empty();
        let daemon = told.then(|| self.daemon_of(entry)).flatten();
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
        let place = self.mountpoint.display();
        match option.or_else(flag) {
            None => Ok(()),
            Some(option) if !answers => Err(Failure::new(format!(
                "remount {place}: no daemon answers there that could tell whether '{option}' is in force; leave the \
                 option out, or name the flags alone: {}",
                self.usage
            ))),
            Some(option) => Err(Failure::new(format!(
                "remount {place}: '{option}' is not in force there and cannot be changed by remounting; unmount it \
                 and mount it so, or leave the option out"
            ))),
        }
    }

    /// What the daemon behind the mount was called with, if it is one of ours and answers.
    fn daemon_of(&self, entry: &MountEntry) -> Option<Served> {
        let pid = pid_of(entry)?;
        let mut words = words::of(&pid.to_string())?;
        words.drain(..self.before_in(&words));
        let options = (self.matches)(words.clone()).and_then(|given| {
            let texts = given.get_many::<String>("options")?;
            Some(texts.flat_map(|text| split_options(text)).collect())
        });
        Some(Served {
            options: options.unwrap_or_default(),
            flags: self.flags_of(words, false),
        })
    }

    /// How many words an interpreter has before the program's where the daemon runs: it may have options of its own.
    fn before_in(&self, line: &[OsString]) -> usize {
        let Some((name, before)) = self.before.split_last() else {
            return 0;
        };
        let named = line.iter().position(|word| word == name);
        named.unwrap_or(before.len()).min(line.len())
    }

    /// The flags of a command line, with or without those that have their default.
    fn flags_of(&self, words: Vec<OsString>, only_given: bool) -> Vec<Flag> {
        let Some(matches) = (self.matches)(words) else {
            return Vec::new();
        };
        let flags = self.command.get_arguments().filter_map(|argument| {
            let long = argument.get_long().filter(|_| !argument.is_hide_set())?;
            let id = argument.get_id().as_str();
            let given = matches.value_source(id)? == ValueSource::CommandLine;
            let values = matches.get_raw(id)?.map(OsStr::to_owned).collect();
            (given || !only_given).then(|| (long.to_owned(), values))
        });
        flags.collect()
    }
}

/// The process that listens at the control socket of a mount, as the kernel knows it.
fn pid_of(entry: &MountEntry) -> Option<Pid> {
    let user = entry.owner().unwrap_or(0);
    let sockets = control::find(entry.connection(), user)
        .into_iter()
        .flatten();
    let mut found = sockets.filter_map(|socket| control::connect(&socket.address()).ok());
    Some(socket_peercred(found.next()?).ok()?.pid)
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

/// Whether mountinfo shows that an option is in force.
fn kernel_tells(entry: &MountEntry, option: &str) -> bool {
    match option.split_once('=') {
        Some(("fsname", name)) => entry.source == OsStr::new(name),
        Some(("subtype", name)) => entry.subtype() == Some(name),
        None if option == "blkdev" => entry.is_block_device(),
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
