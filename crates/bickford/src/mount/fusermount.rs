//! Mounting and unmounting through fusermount3, the set-user-id helper of the fuse3 package.
//!
//! It is told by the environment variable `_FUSE_COMMFD` which of its descriptors is a socket, opens the
//! device, mounts it and sends the descriptor over that socket.
//!
//! It is not asked for its own `auto_unmount`: it takes a mount that can still be opened for alive, which
//! a mount is without its server where OPENDIR was answered with ENOSYS.

use std::fs::File;
use std::io::{self, IoSliceMut, Read, Seek};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use super::direct::{DEVICE, probe_device};
use super::options::MountOptions;
use super::point::MountPoint;
use super::{MountEntry, MountError};
use crate::sys::process::waits_for_children;

const PROGRAM: &str = "fusermount3";

/// Where to look besides PATH, which a service may not have.
const PLACES: &[&str] = &["/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin"];

/// Most that is kept of what the helper wrote to standard error.
const MAX_MESSAGE_LEN: u64 = 4096;

/// Where fusermount3 is, if it is installed.
pub fn find_fusermount() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
    listed
        .chain(PLACES.iter().map(PathBuf::from))
        .map(|dir| dir.join(PROGRAM))
        .find(|file| file.is_file())
}

pub(super) fn mount(
    point: &MountPoint,
    options: &MountOptions,
    why_not_direct: &'static str,
) -> Result<OwnedFd, MountError> {
    let mountpoint = &point.path;
    let program = find_fusermount().ok_or_else(|| MountError::FusermountMissing {
        mountpoint: mountpoint.clone(),
        reason: why_not_direct,
    })?;
    let failed = |source: io::Error| MountError::Helper {
        mountpoint: mountpoint.clone(),
        source,
    };
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| failed(errno.into()))?;
    let mut messages = message_file().map_err(failed)?;
    let mut child = waits_for_children(&mut Command::new(&program))
        .arg0(PROGRAM)
        .arg("-o")
        .arg(options.to_fusermount())
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", "0")
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(messages.try_clone().map_err(failed)?)
        .spawn()
        .map_err(|error| failed(not_run(&program, &error)))?;
    let received = receive_descriptor(ours.as_fd());
    // Nothing hangs on how it ended.
    let _ = ended(&mut child);
    match received {
        Ok(Some(device)) => Ok(device),
        Ok(None) => {
            let message = read_messages(&mut messages);
            let cure = cure(&message, mountpoint);
            Err(MountError::Fusermount {
                mountpoint: mountpoint.clone(),
                message: message + &cure,
            })
        }
        Err(error) => Err(failed(error)),
    }
}

/// What to do about a refusal, to follow it; may be empty.
fn cure(message: &str, mountpoint: &Path) -> String {
    if message.contains(DEVICE) && probe_device().is_err() {
        return "; let root allow it: chmod 666 /dev/fuse, which is what udev's rules give it"
            .to_owned();
    }
    // The kernel lets nobody into a user's mount whose effective user is another, as that of a program that is
    // set-user-id: here it comes from a second mount at one place.
    let there = MountEntry::at(mountpoint).ok().flatten();
    match there.filter(MountEntry::is_fuse) {
        Some(_) => format!(
            "; a FUSE mount is there already, into which fusermount3 may not look: unmount it first (bickford \
             unmount {})",
            mountpoint.display()
        ),
        None => String::new(),
    }
}

/// Unmounts through fusermount3; the error is what it wrote.
pub(super) fn unmount(
    program: &Path,
    mountpoint: &Path,
    lazy: bool,
) -> io::Result<Result<(), String>> {
    let mut messages = message_file()?;
    let mut child = waits_for_children(&mut Command::new(program))
        .arg0(PROGRAM)
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(mountpoint)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(messages.try_clone()?)
        .spawn()
        .map_err(|error| not_run(program, &error))?;
    let success = match ended(&mut child)? {
        Some(status) => status.success(),
        // It says what it was refused.
        None => messages.metadata()?.len() == 0,
    };
    Ok(if success {
        Ok(())
    } else {
        Err(read_messages(&mut messages))
    })
}

/// Why it was not run, and what to do.
fn not_run(program: &Path, error: &io::Error) -> io::Error {
    let shown = program.display();
    let cure = match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => format!(
            "it may not be executed: have root restore its mode ('chmod 4755 {shown}'), and see that its file system \
             is not mounted with noexec"
        ),
        Some(Errno::NOEXEC) => {
            "it is no program of this machine: install the fuse3 package of its architecture"
                .to_owned()
        }
        Some(Errno::NOENT) => {
            "it, or the interpreter that it names, is gone: install the fuse3 package again"
                .to_owned()
        }
        _ => match no_process(error) {
            Some(cure) => cure.to_owned(),
            None => "run as root, which needs no fusermount3".to_owned(),
        },
    };
    io::Error::new(error.kind(), format!("run {shown}: {error}; {cure}"))
}

/// What to do where a process cannot be started for want of something.
pub(super) fn no_process(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::AGAIN => Some(
            "no more processes may be started: allow more (ulimit -u, pids.max of the cgroup), or end some",
        ),
        Errno::NOMEM => Some(
            "there is too little memory for another process: allow more (ulimit -v, memory.max of the cgroup), or free \
             some",
        ),
        Errno::MFILE | Errno::NFILE => {
            Some("too many files are open: allow more (ulimit -n, sysctl fs.file-max)")
        }
        _ => None,
    }
}

/// Waits for the helper. `None` where nobody can tell how it ended: whoever started this program may have had
/// SIGCHLD ignored, which execve(2) leaves so, and the kernel then keeps no status (waitpid(2), ECHILD).
fn ended(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    match child.wait() {
        Ok(status) => Ok(Some(status)),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::CHILD) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file in memory: a pipe would have to be read while the helper runs.
fn message_file() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create(
        c"fusermount3 messages",
        MemfdFlags::CLOEXEC,
    )?))
}

fn read_messages(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file
        .rewind()
        .and_then(|()| file.take(MAX_MESSAGE_LEN).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let lines = text
        .lines()
        .map(|line| line.strip_prefix("fusermount3: ").unwrap_or(line));
    let joined = lines.collect::<Vec<_>>().join("; ");
    match read {
        Ok(_) if !joined.is_empty() => joined,
        _ => "it gave no reason".to_owned(),
    }
}

/// One descriptor, or `None` if the other end was closed without sending any.
fn receive_descriptor(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0_u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    match descriptors
        .next()
        .and_then(|mut descriptors| descriptors.next())
    {
        Some(descriptor) => Ok(Some(descriptor)),
        None if received.bytes == 0 => Ok(None),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message without a descriptor",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use std::io::{IoSlice, Write};

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap()
    }

    #[test]
    fn what_cannot_be_run_is_told_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join(PROGRAM);
        // A child of another test may hold it open for writing until it is another program.
        let refused = || loop {
            let error = unmount(&program, Path::new("/none"), false).unwrap_err();
            if error.kind() != io::ErrorKind::ExecutableFileBusy {
                break error;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        std::fs::write(&program, b"\x7fELF, but not more\n").unwrap();
        let told = refused().to_string();
        let chmod = format!("chmod 4755 {}", program.display());
        assert!(told.contains(&chmod), "{told}");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let told = refused().to_string();
        assert!(told.contains("of its architecture"), "{told}");
        std::fs::write(&program, "#!/none/sh\n").unwrap();
        let told = refused().to_string();
        assert!(told.contains("interpreter"), "{told}");
        for (errno, cure) in [
            (Errno::AGAIN, "ulimit -u"),
            (Errno::NOMEM, "ulimit -v"),
            (Errno::MFILE, "ulimit -n"),
            (Errno::IO, "run as root"),
        ] {
            let told = not_run(&program, &errno.into());
            assert_eq!(told.kind(), io::Error::from(errno).kind());
            let told = told.to_string();
            assert!(
                told.contains(cure) && told.contains("/fusermount3: "),
                "{told}"
            );
        }
    }

    #[test]
    fn a_sent_descriptor_arrives_and_its_absence_is_told() {
        let (ours, theirs) = pair();
        let mut file = message_file().unwrap();
        file.write_all(b"fusermount3: one\nfusermount3: two\n")
            .unwrap();
        let descriptors = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        rustix::net::sendmsg(
            &theirs,
            &[IoSlice::new(b"\0")],
            &mut control,
            SendFlags::empty(),
        )
        .unwrap();
        let mut received = File::from(receive_descriptor(ours.as_fd()).unwrap().unwrap());
        assert_eq!(read_messages(&mut received), "one; two");

        rustix::io::write(&theirs, b"x").unwrap();
        assert_eq!(
            receive_descriptor(ours.as_fd()).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        drop(theirs);
        assert!(receive_descriptor(ours.as_fd()).unwrap().is_none());
    }
}
