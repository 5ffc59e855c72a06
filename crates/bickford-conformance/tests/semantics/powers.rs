//! What capabilities, and their lack, let a caller do.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use bickford_conformance::say;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{Check, Seen, saw};

pub(crate) const CHECKS: &[Check] = &[
    ("set-id-bits-of-others", set_id_bits_of_others),
    ("set-id-bits-and-owners", set_id_bits_and_owners),
    ("set-id-bits-kept", set_id_bits_kept),
    ("file-capabilities", file_capabilities),
    ("trusted-names", trusted_names),
    ("below-an-overlay", below_an_overlay),
];

/// Of nobody else.
const OWNER: u32 = 1003;
const OTHER: u32 = 1005;

/// What `act` returns in a thread of this user that has no capabilities but these.
fn acting<T: Send>(uid: u32, only: CapabilitySet, act: impl FnOnce() -> T + Send) -> T {
    let become_user = || -> Result<(), Errno> {
        let gid = Gid::from_raw(uid);
        rustix::thread::set_keep_capabilities(true)?;
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        let uid = Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        let only = only & rustix::thread::capabilities(None)?.permitted;
        let sets = CapabilitySets {
            effective: only,
            permitted: only,
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, sets)
    };
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| {
            become_user().expect("another user");
            act()
        });
        acting.join().expect("act")
    })
}

/// A file of [`OWNER`] that nobody has had open.
fn made(path: PathBuf, kind: FileType, mode: u32) -> PathBuf {
    drop(fs::remove_file(&path));
    rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), 0).expect("make");
    chown(&path, Some(OWNER), Some(OWNER)).expect("chown");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
    path
}

fn mode(path: &Path) -> String {
    format!("{:o}", fs::metadata(path).expect("stat").mode())
}

fn owned(path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    rustix::fs::chownat(CWD, path, uid, gid, AtFlags::empty())
}

fn set_id_bits_of_others(top: &Path) -> Seen {
    let mut seen = Seen::new();
    for kind in [FileType::RegularFile, FileType::Fifo, FileType::Socket] {
        for bits in [0o755, 0o4755, 0o2755, 0o6755] {
            let path = made(top.join("file"), kind, bits);
            for (user, only) in [
                (OTHER, CapabilitySet::empty()),
                (0, CapabilitySet::empty()),
                (OTHER, CapabilitySet::CHOWN),
            ] {
                saw!(seen, acting(user, only, || owned(&path, None, None)));
                saw!(seen, mode(&path));
            }
            let to = || owned(&path, Some(7), Some(7));
            saw!(seen, acting(OTHER, CapabilitySet::CHOWN, to), mode(&path));
            saw!(seen, fs::metadata(&path).map(|found| found.uid()).ok());
        }
    }
    seen
}

/// Who may, takes them away so.
fn set_id_bits_and_owners(top: &Path) -> Seen {
    let mut seen = Seen::new();
    for kind in [FileType::RegularFile, FileType::Fifo] {
        for (user, only) in [
            (OWNER, CapabilitySet::empty()),
            (OTHER, CapabilitySet::FOWNER),
            (0, CapabilitySet::all()),
        ] {
            let path = made(top.join("file"), kind, 0o6755);
            saw!(seen, acting(user, only, || owned(&path, None, None)));
            saw!(seen, mode(&path));
        }
        let path = made(top.join("file"), kind, 0o6755);
        let own = || owned(&path, None, Some(OWNER));
        saw!(seen, acting(OWNER, CapabilitySet::empty(), own));
        saw!(seen, mode(&path));
    }
    seen
}

type Change = fn(&File) -> Result<(), Errno>;

const CHANGES: [(&str, Change); 5] = [
    ("write", |file| {
        file.write_all_at(b"x", 0)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }),
    ("truncate", |file| rustix::fs::ftruncate(file, 5)),
    ("allocate", |file| {
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 9000)
    }),
    ("punch", |file| {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, punch, 0, 50)
    }),
    ("copy", |file| {
        rustix::fs::copy_file_range(file, Some(&mut 0), file, Some(&mut 100), 50).map(drop)
    }),
];

/// Opens a file for reading and writing whatever its mode says, changes it, and waits until that is below.
fn changed(path: &Path, change: Change) -> Result<(), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    change(&file)?;
    rustix::fs::fsync(&file)
}

fn set_id_bits_kept(top: &Path) -> Seen {
    let mut seen = Seen::new();
    for (what, change) in CHANGES {
        for (user, only) in [
            (OWNER, CapabilitySet::FSETID),
            (OWNER, CapabilitySet::empty()),
            (OTHER, CapabilitySet::FSETID),
            (0, CapabilitySet::empty()),
            (0, CapabilitySet::FSETID),
        ] {
            let path = made(top.join("file"), FileType::RegularFile, 0o6777);
            fs::write(&path, [7; 4096]).expect("write");
            let done = acting(user, only, || changed(&path, change));
            saw!(seen, (what, user, done), mode(&path));
        }
    }
    seen
}

/// A program's capabilities go when it is written. Set-id bits stay as they do without.
fn file_capabilities(top: &Path) -> Seen {
    let mut seen = Seen::new();
    const NAME: &str = "security.capability";
    let mut capability = [0; 20];
    capability[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    capability[5] = 0x20;
    for (what, change) in CHANGES {
        for (user, only) in [(0, CapabilitySet::all()), (OWNER, CapabilitySet::empty())] {
            let path = made(top.join("file"), FileType::RegularFile, 0o6777);
            fs::write(&path, [7; 4096]).expect("write");
            rustix::fs::setxattr(&path, NAME, &capability, XattrFlags::empty()).expect("set");
            let done = acting(user, only, || changed(&path, change));
            let left = rustix::fs::getxattr_query(&path, NAME);
            saw!(seen, (what, user, done), mode(&path), left);
        }
    }
    seen
}

fn trusted_names(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let path = made(top.join("file"), FileType::RegularFile, 0o644);
    for name in ["trusted.a", "user.b"] {
        rustix::fs::setxattr(&path, name, b"x", XattrFlags::empty()).expect("set");
    }
    let list = || {
        let mut names = vec![0; 1000];
        let length = rustix::fs::listxattr(&path, &mut names[..])?;
        let mut names: Vec<_> = names[..length].split(|byte| *byte == 0).collect();
        names.sort_unstable();
        let names = names.into_iter().map(String::from_utf8_lossy);
        let names: Vec<_> = names.map(String::from).collect();
        Ok::<_, Errno>((names, rustix::fs::listxattr_query(&path)?))
    };
    for (user, only) in [
        (0, CapabilitySet::all()),
        (0, CapabilitySet::empty()),
        (OTHER, CapabilitySet::SYS_ADMIN),
        (OTHER, CapabilitySet::empty()),
    ] {
        saw!(seen, acting(user, only, list));
    }
    seen
}

/// Overlayfs does what users do with the power of who mounted it.
fn below_an_overlay(top: &Path) -> Seen {
    let mut seen = Seen::new();
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(top.join(name)).expect("directory");
    }
    let merged = top.join("merged");
    let below = |name| top.join(name).display().to_string();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        below("lower"),
        below("upper"),
        below("work")
    );
    let options = CString::new(options).expect("options");
    let flags = MountFlags::empty();
    let mounted = rustix::mount::mount("overlay", &merged, "overlay", flags, &*options);
    saw!(seen, mounted);
    if let Err(error) = mounted {
        // Natively, too, if the kernel has none.
        say(format_args!("left out: below an overlayfs: {error}"));
        return seen;
    }
    for (what, change) in CHANGES {
        for (user, only) in [
            (OTHER, CapabilitySet::empty()),
            (OWNER, CapabilitySet::empty()),
            (0, CapabilitySet::all()),
        ] {
            let path = made(merged.join("file"), FileType::RegularFile, 0o6777);
            fs::write(&path, [7; 4096]).expect("write");
            let done = acting(user, only, || changed(&path, change));
            saw!(seen, (what, user, done), mode(&path));
        }
    }
    let path = made(merged.join("file"), FileType::RegularFile, 0o6755);
    let take = || owned(&path, None, None);
    saw!(seen, acting(OTHER, CapabilitySet::empty(), take));
    saw!(seen, mode(&path));
    let own = || owned(&path, None, Some(OWNER));
    saw!(seen, acting(OWNER, CapabilitySet::empty(), own));
    saw!(seen, mode(&path));
    rustix::mount::unmount(&merged, UnmountFlags::DETACH).expect("unmount");
    seen
}
