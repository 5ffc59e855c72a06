//! Symbolic links and `..` of a path, without asking a mount about its root.
//!
//! realpath(3) asks each component for its attributes or its target, so that it hangs with the mount
//! whose name it is given.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Links that are followed, as many as the kernel does.
const LINKS_MAX: u32 = 40;

/// What is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// No mount.
    Plain,
    Mount,
    /// A mount in which requests are waiting: whoever looks into it may wait with them.
    Waiting,
}

/// The path without links, `.` and `..`. A mount point is no link, and is not touched, nor is what lies in a
/// mount in which requests are waiting: links there are left.
pub(super) fn resolve(path: &Path, place: impl Fn(&Path) -> Place) -> io::Result<PathBuf> {
    let mut resolved = PathBuf::from("/");
    // The mount that is not to be looked into.
    let mut waiting: Option<PathBuf> = None;
    let mut left = VecDeque::new();
    let mut links = 0;
    prepend(path, &mut left);
    while let Some(name) = left.pop_front() {
        if name == ".." {
            resolved.pop();
            waiting = waiting.filter(|mount| resolved.starts_with(mount));
            continue;
        }
        let next = resolved.join(&name);
        let at = place(&next);
        if at != Place::Plain {
            waiting = (at == Place::Waiting).then(|| next.clone());
        }
        if at != Place::Plain || waiting.is_some() {
            resolved = next;
            continue;
        }
        match fs::read_link(&next) {
            Ok(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(io::Error::other("too many symbolic links"));
                }
                if target.is_absolute() {
                    resolved = "/".into();
                }
                prepend(&target, &mut left);
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => resolved = next,
            Err(error) => return Err(error),
        }
    }
    Ok(resolved)
}

fn prepend(path: &Path, left: &mut VecDeque<OsString>) {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => left.push_front(name.to_owned()),
            Component::ParentDir => left.push_front("..".into()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_parents_are_gone() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("a/b", root.join("relative")).unwrap();
        symlink(root.join("relative"), root.join("absolute")).unwrap();
        symlink("../loop", root.join("a/loop")).unwrap();
        symlink("a/loop", root.join("loop")).unwrap();
        let of = |path: &str| resolve(&root.join(path), |_| Place::Plain);
        assert_eq!(of("a/b").unwrap(), root.join("a/b"));
        assert_eq!(of("absolute").unwrap(), root.join("a/b"));
        assert_eq!(of("relative/..").unwrap(), root.join("a"));
        assert_eq!(of("a/./b/../../a").unwrap(), root.join("a"));
        assert!(of("loop").unwrap_err().to_string().contains("too many"));
        assert_eq!(of("none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(
            resolve(Path::new("/.."), |_| Place::Plain).unwrap(),
            Path::new("/")
        );
    }

    #[test]
    fn a_mount_point_is_not_touched() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        // Would be an error if it were.
        let point = root.join("hangs");
        symlink("nowhere/at/all", &point).unwrap();
        let place = |path: &Path| match path == point {
            true => Place::Mount,
            false => Place::Plain,
        };
        assert_eq!(resolve(&point, place).unwrap(), point);
        assert_eq!(resolve(&point.join(".."), place).unwrap(), root);
    }

    #[test]
    fn nothing_in_a_mount_is_touched_where_requests_wait() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let (point, inner) = (root.join("point"), root.join("point/inner"));
        fs::create_dir_all(&inner).unwrap();
        symlink("/", point.join("link")).unwrap();
        symlink("/", root.join("beside")).unwrap();
        let place = |path: &Path| match path {
            path if path == point => Place::Waiting,
            path if path == inner => Place::Mount,
            _ => Place::Plain,
        };
        let of = |path: &str| resolve(&root.join(path), place).unwrap();
        assert_eq!(of("point/link"), root.join("point/link"));
        assert_eq!(of("point/none"), root.join("point/none"));
        assert_eq!(of("point/inner"), inner);
        assert_eq!(of("point/../beside"), Path::new("/"));
        assert!(resolve(&inner.join("none"), place).is_err(), "looked into");
    }
}
