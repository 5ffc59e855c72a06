//! Set-user-id and set-group-id bits of a file that is written are what they are natively, above and
//! below, whichever way the data travel and whatever was open before.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{each_preset, permissions};

/// What the file has been through when its bits are set.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    Read,
    OpenForReading,
    OpenForWriting,
}

/// How it is written then.
#[derive(Clone, Copy, Debug)]
enum How {
    Write,
    Append,
    Splice,
    Truncate,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    mode: u32,
    before: Before,
    how: How,
    writer: u32,
}

/// A set-group-id bit without the group's right to execute means nothing, and FUSE leaves it
/// (`FUSE_HANDLE_KILLPRIV_V2` in `fuse.h`).
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in [0o4777, 0o2777, 0o6777, 0o6755] {
        for before in [
            Before::Nothing,
            Before::Read,
            Before::OpenForReading,
            Before::OpenForWriting,
        ] {
            for how in [How::Write, How::Append, How::Splice, How::Truncate] {
                for writer in [0, 65534] {
                    cases.push(Case {
                        mode,
                        before,
                        how,
                        writer,
                    });
                }
            }
        }
    }
    // What may not be opened is not written.
    cases.retain(|case| case.writer == 0 || case.mode != 0o6755);
    cases
}

/// A process of `writer` writes to `file`: it is opened by `writer`, or is `open`.
fn write(case: Case, file: &Path, open: Option<&File>) {
    let script = match case.how {
        How::Write => "printf abc",
        How::Append => "printf abc >&3",
        // cat(1) of a pipe splices where it can; sendfile(2) of dd's would too.
        How::Splice => "printf abc | cat",
        How::Truncate => "printf abc",
    };
    let mut command = Command::new("sh");
    let redirected = match case.how {
        How::Append => format!("exec 3>>\"$0\"; {script}"),
        How::Truncate => format!("{script} >\"$0\""),
        How::Write | How::Splice => format!("{{ {script}; }} 1<>\"$0\""),
    };
    match open {
        Some(open) => {
            let script = script.replace(" >&3", "");
            command.arg("-c").arg(script);
            command.stdout(Stdio::from(open.try_clone().unwrap()));
        }
        None => {
            command.arg("-c").arg(redirected).arg(file);
        }
    }
    let status = command.uid(case.writer).gid(case.writer).status().unwrap();
    assert!(status.success(), "{case:?}");
}

/// Goes through `case` in `directory`; the mode that the file has then.
fn mode_after(case: Case, directory: &Path, name: &str) -> (PathBuf, u32) {
    let path = directory.join(name);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o777);
    drop(options.open(&path).unwrap());
    fs::set_permissions(&path, permissions(0o777)).unwrap();
    let mut reader = None;
    let mut writer = None;
    match case.before {
        Before::Nothing => {}
        Before::Read => drop(fs::read(&path).unwrap()),
        Before::OpenForReading => reader = Some(File::open(&path).unwrap()),
        Before::OpenForWriting => {
            writer = Some(OpenOptions::new().write(true).open(&path).unwrap());
        }
    }
    fs::set_permissions(&path, permissions(case.mode)).unwrap();
    write(case, &path, writer.as_ref());
    drop((reader, writer));
    let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
    (path, mode)
}

#[test]
fn bits_are_those_of_the_native_file_system() {
    let native = tempfile::tempdir().unwrap();
    fs::set_permissions(native.path(), permissions(0o777)).unwrap();
    each_preset(|mount| {
        for (number, case) in cases().into_iter().enumerate() {
            let name = number.to_string();
            let (file, expected) = mode_after(case, native.path(), &name);
            fs::remove_file(file).unwrap();
            let (_, above) = mode_after(case, &mount.path(""), &name);
            let below = fs::metadata(mount.below(&name)).unwrap().mode() & 0o7777;
            assert_eq!(
                format!("{above:o} above, {below:o} below"),
                format!("{expected:o} above, {expected:o} below"),
                "{case:?}"
            );
        }
    });
}
