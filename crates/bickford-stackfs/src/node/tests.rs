use std::ffi::CString;

use super::*;

fn nodes(dir: &std::path::Path, handles: bool) -> Nodes {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(dir, flags, Mode::empty()).unwrap();
    Nodes::new(root, 256, handles, false).unwrap()
}

/// Both ways to keep a node, each when this machine and user can do it.
fn each(test: impl Fn(&std::path::Path, Nodes)) {
    for handles in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        test(dir.path(), nodes(dir.path(), handles));
    }
}

#[test]
fn a_name_and_its_hard_link_are_one_node() {
    each(|dir, nodes| {
        std::fs::write(dir.join("a"), "x").unwrap();
        std::fs::hard_link(dir.join("a"), dir.join("b")).unwrap();
        let a = nodes.lookup(ROOT, c"a").unwrap();
        let b = nodes.lookup(ROOT, c"b").unwrap();
        assert_eq!((a.node, a.generation), (b.node, b.generation));
        assert_eq!(nodes.attributes(a.node).unwrap().stx_nlink, 2);
        nodes.forget(a.node, 2);
        assert_eq!(nodes.table_len(), 0);
    });
}

#[test]
fn a_node_follows_its_object_through_renames() {
    each(|dir, nodes| {
        std::fs::create_dir(dir.join("d")).unwrap();
        let d = nodes.lookup(ROOT, c"d").unwrap();
        std::fs::rename(dir.join("d"), dir.join("e")).unwrap();
        std::fs::write(dir.join("e/f"), "x").unwrap();
        let f = nodes.lookup(d.node, c"f").unwrap();
        assert_eq!(f.statx.stx_size, 1);
        assert_eq!(nodes.lookup(ROOT, c"d").err(), Some(Errno::NOENT));
    });
}

#[test]
fn what_is_held_by_a_descriptor_has_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = nodes(dir.path(), false);
    std::fs::create_dir(dir.path().join("d")).unwrap();
    for name in ["f", "d/g"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    let d = nodes.lookup(ROOT, c"d").unwrap().node;
    let f = nodes.lookup(ROOT, c"f").unwrap().node;
    let g = nodes.lookup(d, c"g").unwrap().node;
    assert_eq!(nodes.named(f), Some((ROOT, c"f".to_owned())));
    assert_eq!(nodes.named(g), Some((d, c"g".to_owned())));
    assert_eq!(nodes.named(d), None, "names of directories are left alone");
    nodes.forget(d, 1);
    assert_eq!(nodes.named(g), None);
}

#[test]
fn names_that_are_no_component_are_refused() {
    each(|_, nodes| {
        for name in [c"", c".", c"..", c"a/b", c"/"] {
            assert_eq!(
                nodes.lookup(ROOT, name).err(),
                Some(Errno::INVAL),
                "{name:?}"
            );
        }
    });
}

#[test]
fn a_symbolic_link_is_a_node_and_leads_nowhere() {
    each(|dir, nodes| {
        std::os::unix::fs::symlink("/", dir.join("l")).unwrap();
        let link = nodes.lookup(ROOT, c"l").unwrap();
        assert_eq!(u32::from(link.statx.stx_mode) & 0o170_000, 0o120_000);
        assert!(nodes.lookup(link.node, c"etc").is_err());
    });
}

#[test]
fn a_removed_object_stays_until_it_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = nodes(dir.path(), true);
    if nodes.identity() == "descriptors" {
        return;
    }
    std::fs::write(dir.path().join("a"), "text").unwrap();
    let a = nodes.lookup(ROOT, c"a").unwrap();
    let doomed = nodes.doom(nodes.directory(ROOT).unwrap().as_fd(), c"a", false);
    std::fs::remove_file(dir.path().join("a")).unwrap();
    nodes.removed(doomed, true);
    let statx = nodes.attributes(a.node).unwrap();
    assert_eq!((statx.stx_nlink, statx.stx_size), (0, 4));
    let mut text = String::new();
    let mut file = std::fs::File::from(nodes.open(a.node, OFlags::RDONLY).unwrap());
    std::io::Read::read_to_string(&mut file, &mut text).unwrap();
    assert_eq!(text, "text");
    drop(file);
    nodes.forget(a.node, 1);
    assert_eq!(nodes.attributes(a.node).err(), Some(Errno::STALE));
}

#[test]
fn an_object_that_is_forgotten_while_it_is_removed_is_nobody_elses() {
    // Node ids are file handles on the one, and on the other, a tmpfs as a rule, numbers that are used again.
    for place in [std::env::temp_dir(), "/dev/shm".into()] {
        let Ok(dir) = tempfile::tempdir_in(place) else {
            continue;
        };
        let nodes = nodes(dir.path(), true);
        if nodes.identity() == "descriptors" {
            continue;
        }
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("a"), "a").unwrap();
        let a = nodes.lookup(ROOT, c"a").unwrap();
        let doomed = nodes.doom(nodes.directory(ROOT).unwrap().as_fd(), c"a", false);
        assert!(doomed.is_some());
        std::fs::remove_file(path("a")).unwrap();
        nodes.forget(a.node, 1);
        nodes.removed(doomed, false);
        // Enough that one of them has the id.
        for number in 0..1_000 {
            let name = CString::new(number.to_string()).unwrap();
            std::fs::write(path(name.to_str().unwrap()), "other").unwrap();
            let other = nodes.lookup(ROOT, &name).unwrap();
            let statx = nodes.attributes(other.node).unwrap();
            assert_eq!((statx.stx_nlink, statx.stx_size), (1, 5));
        }
    }
}

#[test]
fn a_removed_directory_stays_until_it_is_forgotten() {
    for exclusive in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let nodes = nodes(dir.path(), true);
        if nodes.identity() == "descriptors" {
            return;
        }
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let d = nodes.lookup(ROOT, c"d").unwrap();
        let doomed = nodes.doom(nodes.directory(ROOT).unwrap().as_fd(), c"d", exclusive);
        std::fs::remove_dir(dir.path().join("d")).unwrap();
        nodes.removed(doomed, true);
        assert_eq!(nodes.attributes(d.node).unwrap().stx_nlink, 0);
        nodes.forget(d.node, 1);
        assert_eq!(nodes.attributes(d.node).err(), Some(Errno::STALE));
    }
}

/// What was kept for a node must be gone before its id is another's.
#[test]
fn an_id_that_is_used_again_leads_to_the_new_directory() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        crate::say(format_args!("skipped: no /dev/shm"));
        return;
    };
    let nodes = nodes(dir.path(), true);
    if nodes.identity() != "table of file handles" {
        crate::say(format_args!("skipped: nodes are {}", nodes.identity()));
        return;
    }
    let mut seen = std::collections::HashMap::new();
    let mut names = (0..).map(|number| CString::new(number.to_string()).unwrap());
    // Two that get the same id when they are looked up one after the other.
    let (one, other) = names
        .find_map(|name| {
            std::fs::create_dir(dir.path().join(name.to_str().unwrap())).unwrap();
            let id = nodes.lookup(ROOT, &name).unwrap().node;
            nodes.forget(id, 1);
            seen.insert(id, name.clone()).map(|other| (other, name))
        })
        .unwrap();
    let look = |name: &CStr| {
        for _ in 0..50_000 {
            let found = nodes.lookup(ROOT, name).unwrap();
            let fd = nodes.directory(found.node).unwrap();
            assert_eq!(statx_of(fd.as_fd()).unwrap().stx_ino, found.statx.stx_ino);
            nodes.forget(found.node, 1);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| look(&one));
        scope.spawn(|| look(&other));
    });
}

/// Mounted while it lives.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn mounts_that_are_found_at_once_have_the_same_files() {
    if !rustix::process::geteuid().is_root() {
        crate::say(format_args!("skipped: only root mounts"));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    std::fs::create_dir(&first).unwrap();
    std::fs::create_dir(&second).unwrap();
    let none = rustix::mount::MountFlags::empty();
    rustix::mount::mount("twice", &first, "tmpfs", none, None).unwrap();
    let first = Mounted(first);
    std::fs::write(first.0.join("file"), "text").unwrap();
    rustix::mount::mount_bind(&first.0, &second).unwrap();
    let _second = Mounted(second);
    for round in 0..200 {
        let nodes = nodes(dir.path(), true);
        let together = std::sync::Barrier::new(2);
        let node_in = |name| {
            together.wait();
            let directory = nodes.lookup(ROOT, name).unwrap();
            nodes.lookup(directory.node, c"file").unwrap().node
        };
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| node_in(c"first"));
            let other = node_in(c"second");
            (one.join(), other)
        });
        assert_eq!(one.unwrap(), other, "round {round}");
    }
}
