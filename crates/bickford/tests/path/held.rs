//! What waits for what, and what open files are without names.

use std::sync::Arc;
use std::thread;

use bickford::Errno;
use bickford::abi::Opcode;
use bickford::path::{Adapter, Names, Options};
use bickford::transport::memory::Kernel;

use crate::client::{Client, ROOT, session};
use crate::mirror::{Mirror, Served};
use crate::support::wait_until;

const ENOENT: i32 = 2;
const EINTR: i32 = 4;

struct Fixture {
    kernel: Kernel,
    client: Client,
    mirror: Arc<Mirror>,
    names: Names,
}

fn fixture(options: Options) -> Fixture {
    let mirror = Arc::<Mirror>::default();
    let adapter = Adapter::new(Served(Arc::clone(&mirror)), options);
    let names = adapter.names();
    let kernel = session(adapter);
    Fixture {
        client: Client::new(&kernel, 1),
        kernel,
        mirror,
        names,
    }
}

impl Fixture {
    fn wait_for(&self, waiting: usize) {
        wait_until(&format!("{waiting} wait"), || {
            self.names.sizes().waiting == waiting
        });
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.mirror.log.lock().unwrap())
    }
}

#[test]
fn a_rename_waits_for_those_below_and_holds_up_only_those_that_come_later() {
    let fixture = fixture(Options::default());
    let client = &fixture.client;
    let dir = client.mkdir(ROOT, "dir").unwrap().nodeid;
    let file = client.mknod(dir, "file").unwrap().nodeid;
    let other = client.mknod(ROOT, "other").unwrap().nodeid;
    let opened = client.open(file).unwrap();
    let (is_in, go_on) = fixture.mirror.stop("read");
    fixture.log();
    thread::scope(|scope| {
        let reads = scope.spawn(|| client.read_at(Opcode::Read, file, opened.fh, 0, 8));
        is_in.recv().unwrap();
        let renames = scope.spawn(|| client.rename((ROOT, "dir"), (ROOT, "new"), 0));
        fixture.wait_for(1);
        let looks = scope.spawn(|| client.getattr(file));
        fixture.wait_for(2);
        client.getattr(other).unwrap();
        client.lookup(ROOT, "missing").unwrap_err();
        go_on.send(()).unwrap();
        reads.join().unwrap().unwrap();
        renames.join().unwrap().unwrap();
        looks.join().unwrap().unwrap();
    });
    let expected = [
        "read /dir/file",
        "getattr /other",
        "getattr /missing",
        "rename /dir",
        "getattr /new/file",
    ];
    assert_eq!(fixture.log(), expected);
}

#[test]
fn who_waits_can_be_interrupted() {
    let fixture = fixture(Options::default());
    let client = &fixture.client;
    let file = client.mknod(ROOT, "file").unwrap().nodeid;
    let opened = client.open(file).unwrap();
    let (is_in, go_on) = fixture.mirror.stop("read");
    thread::scope(|scope| {
        let reads = scope.spawn(|| client.read_at(Opcode::Read, file, opened.fh, 0, 8));
        is_in.recv().unwrap();
        let unique = Client::unique();
        let renames =
            scope.spawn(move || client.rename_as(unique, (ROOT, "file"), (ROOT, "new"), 0));
        fixture.wait_for(1);
        client.interrupt(unique);
        assert_eq!(renames.join().unwrap(), Err(EINTR));
        fixture.wait_for(0);
        client.getattr(file).unwrap();
        go_on.send(()).unwrap();
        reads.join().unwrap().unwrap();
    });
    assert!(fixture.kernel.server().in_flight().is_empty());
}

#[test]
fn with_handles_only_a_rename_does_not_wait_for_a_read() {
    let options = Options {
        handles_only: true,
        ..Options::default()
    };
    let fixture = fixture(options);
    let client = &fixture.client;
    let (entry, opened) = client.create(ROOT, "file").unwrap();
    let (is_in, go_on) = fixture.mirror.stop("read");
    thread::scope(|scope| {
        let reads = scope.spawn(|| client.read_at(Opcode::Read, entry.nodeid, opened.fh, 0, 8));
        is_in.recv().unwrap();
        client.rename((ROOT, "file"), (ROOT, "new"), 0).unwrap();
        go_on.send(()).unwrap();
        assert_eq!(
            reads.join().unwrap().unwrap(),
            entry.attr.size.to_ne_bytes()
        );
    });
}

#[test]
fn with_handles_only_a_directory_without_a_handle_is_listed() {
    let fixture = fixture(Options {
        handles_only: true,
        ..Options::default()
    });
    let client = &fixture.client;
    let dir = client.mkdir(ROOT, "dir").unwrap().nodeid;
    client.mknod(dir, "file").unwrap();
    let opened = client.opendir(dir).unwrap();
    let listed = client
        .read_at(Opcode::Readdir, dir, opened.fh, 0, 4096)
        .unwrap();
    assert!(listed.windows(4).any(|bytes| bytes == b"file"));
    client.release(Opcode::Releasedir, dir, opened.fh).unwrap();
}

#[test]
fn an_open_file_without_names_goes_on() {
    let fixture = fixture(Options::default());
    let client = &fixture.client;
    let (entry, opened) = client.create(ROOT, "file").unwrap();
    client.unlink(ROOT, "file").unwrap();
    assert_eq!(
        client.getattr(entry.nodeid).unwrap().attr.size,
        entry.attr.size
    );
    let read = client
        .read_at(Opcode::Read, entry.nodeid, opened.fh, 0, 8)
        .unwrap();
    assert_eq!(read, entry.attr.size.to_ne_bytes());
    let again = client.create(ROOT, "file").unwrap();
    assert_ne!(again.0.nodeid, entry.nodeid);
    client
        .release(Opcode::Release, entry.nodeid, opened.fh)
        .unwrap();
    assert_eq!(client.getattr(entry.nodeid).unwrap_err(), ENOENT);
    client.forget(entry.nodeid, 1);
    assert_eq!(fixture.names.sizes().nodes, 2);
}

#[test]
fn a_handle_is_not_released_while_another_operation_uses_it() {
    let fixture = fixture(Options::default());
    let client = &fixture.client;
    let (entry, opened) = client.create(ROOT, "file").unwrap();
    client.unlink(ROOT, "file").unwrap();
    let (is_in, go_on) = fixture.mirror.stop("getattr");
    fixture.log();
    thread::scope(|scope| {
        let looks = scope.spawn(|| client.getattr(entry.nodeid));
        is_in.recv().unwrap();
        client
            .release(Opcode::Release, entry.nodeid, opened.fh)
            .unwrap();
        assert_eq!(fixture.log(), ["getattr -"]);
        go_on.send(()).unwrap();
        assert_eq!(looks.join().unwrap().unwrap().attr.size, entry.attr.size);
    });
    assert_eq!(fixture.log(), ["release -"]);
    client.forget(entry.nodeid, 1);
    assert_eq!(fixture.names.sizes().nodes, 1);
}

#[test]
fn hard_links_are_one_node_made_here_or_told_by_use_ino() {
    let fixture = fixture(Options {
        use_ino: true,
        ..Options::default()
    });
    let client = &fixture.client;
    let entry = client.mknod(ROOT, "first").unwrap();
    assert_eq!(
        client.link(entry.nodeid, ROOT, "second").unwrap().nodeid,
        entry.nodeid
    );
    client.unlink(ROOT, "first").unwrap();
    assert_eq!(
        client.getattr(entry.nodeid).unwrap().attr.size,
        entry.attr.size
    );
    assert_eq!(
        client.link(entry.nodeid, ROOT, "third").unwrap().nodeid,
        entry.nodeid
    );
    client.forget(entry.nodeid, 3);
    assert_eq!(fixture.names.sizes().nodes, 1);
    let second = client.lookup(ROOT, "second").unwrap();
    assert_ne!(second.nodeid, entry.nodeid, "node ids are never used twice");
    assert_eq!(client.lookup(ROOT, "third").unwrap().nodeid, second.nodeid);
}

#[test]
fn any_number_of_hard_links_is_one_node() {
    for use_ino in [false, true] {
        let fixture = fixture(Options {
            use_ino,
            ..Options::default()
        });
        let client = &fixture.client;
        let node = client.mknod(ROOT, "first").unwrap().nodeid;
        let names: Vec<_> = (0..100).map(|number| format!("link{number}")).collect();
        for name in &names {
            assert_eq!(client.link(node, ROOT, name).unwrap().nodeid, node);
        }
        for name in ["first"]
            .into_iter()
            .chain(names.iter().map(|name| &**name))
        {
            assert_eq!(client.lookup(ROOT, name).unwrap().nodeid, node, "{name}");
        }
        client.forget(node, 202);
        assert_eq!(fixture.names.sizes().names, 0);
    }
}

#[test]
fn names_without_lookups_are_not_kept_without_end() {
    let fixture = fixture(Options::default());
    let client = &fixture.client;
    let node = client.mknod(ROOT, "first").unwrap().nodeid;
    for number in 0..100 {
        client.link(node, ROOT, &format!("link{number}")).unwrap();
        client.forget(node, 1);
    }
    assert!(fixture.names.sizes().names < 40);
}

#[test]
fn a_directory_does_not_go_into_itself() {
    let fixture = fixture(Options::default());
    let client = &fixture.client;
    let outer = client.mkdir(ROOT, "outer").unwrap().nodeid;
    let inner = client.mkdir(outer, "inner").unwrap().nodeid;
    let rename = client.rename((ROOT, "outer"), (inner, "outer"), 0);
    assert_eq!(rename, Err(22));
    assert_eq!(client.rename((outer, "inner"), (ROOT, "outer"), 2), Err(22));
    assert_eq!(fixture.names.sizes().names, 2);
}

fn hiding() -> Fixture {
    fixture(Options {
        hide_removed: true,
        ..Options::default()
    })
}

fn hidden_name(number: u64) -> String {
    format!(".fuse_hidden{number:016x}")
}

#[test]
fn hidden_names_only_where_asked_for() {
    let fixture = hiding();
    let client = &fixture.client;
    let hidden = || client.lookup(ROOT, &hidden_name(0)).is_ok();
    let (entry, opened) = client.create(ROOT, "file").unwrap();
    client.unlink(ROOT, "file").unwrap();
    assert_eq!(client.lookup(ROOT, "file").unwrap_err(), ENOENT);
    assert!(hidden());
    let read = client
        .read_at(Opcode::Read, entry.nodeid, opened.fh, 0, 8)
        .unwrap();
    assert_eq!(read, entry.attr.size.to_ne_bytes());
    client
        .release(Opcode::Release, entry.nodeid, opened.fh)
        .unwrap();
    assert!(!hidden());
    client.mknod(ROOT, "closed").unwrap();
    fixture.log();
    client.unlink(ROOT, "closed").unwrap();
    assert!(!fixture.log().iter().any(|line| line.starts_with("rename")));
}

#[test]
fn what_a_rename_does_not_replace_keeps_its_name() {
    let fixture = hiding();
    let client = &fixture.client;
    let (entry, opened) = client.create(ROOT, "file").unwrap();
    let renamed = client.rename((ROOT, "missing"), (ROOT, "file"), 0);
    assert_eq!(renamed, Err(ENOENT));
    assert_eq!(client.lookup(ROOT, "file").unwrap().nodeid, entry.nodeid);
    client
        .release(Opcode::Release, entry.nodeid, opened.fh)
        .unwrap();
    assert!(client.lookup(ROOT, "file").is_ok());
    assert_eq!(client.lookup(ROOT, &hidden_name(0)).unwrap_err(), ENOENT);
}

#[test]
fn a_file_that_a_rename_replaces_is_hidden_until_it_is_closed() {
    let fixture = hiding();
    let client = &fixture.client;
    client.mknod(ROOT, "new").unwrap();
    let (entry, opened) = client.create(ROOT, "file").unwrap();
    let close = || client.release(Opcode::Release, entry.nodeid, opened.fh);
    client.rename((ROOT, "new"), (ROOT, "file"), 0).unwrap();
    assert!(client.lookup(ROOT, &hidden_name(0)).is_ok());
    close().unwrap();
    assert_eq!(client.lookup(ROOT, &hidden_name(0)).unwrap_err(), ENOENT);
}

#[test]
fn a_file_that_is_closed_while_a_rename_replaces_it_is_removed() {
    // With its path, the end of the open file would wait for the rename.
    let fixture = fixture(Options {
        hide_removed: true,
        handles_only: true,
        ..Options::default()
    });
    let client = &fixture.client;
    client.mknod(ROOT, "new").unwrap();
    let (entry, opened) = client.create(ROOT, "file").unwrap();
    let close = || client.release(Opcode::Release, entry.nodeid, opened.fh);
    let (hides, go_on) = fixture.mirror.stop("rename");
    thread::scope(|scope| {
        let renames = scope.spawn(|| client.rename((ROOT, "new"), (ROOT, "file"), 0));
        hides.recv().unwrap();
        let (replaces, replace) = fixture.mirror.stop("rename");
        go_on.send(()).unwrap();
        replaces.recv().unwrap();
        close().unwrap();
        replace.send(()).unwrap();
        renames.join().unwrap().unwrap();
    });
    assert_eq!(client.lookup(ROOT, &hidden_name(0)).unwrap_err(), ENOENT);
    assert_eq!(fixture.mirror.tree().opens(), 0);
}

#[test]
fn of_two_that_close_a_hidden_file_at_once_one_removes_it() {
    // With its path, the removal would wait for the end of the other open.
    let fixture = fixture(Options {
        hide_removed: true,
        handles_only: true,
        ..Options::default()
    });
    let client = &fixture.client;
    let (entry, one) = client.create(ROOT, "file").unwrap();
    let other = client.open(entry.nodeid).unwrap();
    client.unlink(ROOT, "file").unwrap();
    fixture.log();
    let close = |handle| client.release(Opcode::Release, entry.nodeid, handle);
    let (releases, released) = fixture.mirror.stop("release");
    thread::scope(|scope| {
        let first = scope.spawn(|| close(one.fh));
        releases.recv().unwrap();
        let (removes, removed) = fixture.mirror.stop("unlink");
        let second = scope.spawn(|| close(other.fh));
        removes.recv().unwrap();
        released.send(()).unwrap();
        wait_until("the first has ended, or waits for the second", || {
            first.is_finished() || fixture.names.sizes().waiting == 1
        });
        removed.send(()).unwrap();
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
    let log = fixture.log();
    let removals = log.iter().filter(|line| line.starts_with("unlink"));
    assert_eq!(removals.count(), 1, "{log:?}");
}

#[test]
fn a_hidden_file_that_is_forgotten_while_it_is_closed_is_removed() {
    // With its path, the end of the open file would keep what it claims.
    let fixture = fixture(Options {
        hide_removed: true,
        handles_only: true,
        ..Options::default()
    });
    let client = &fixture.client;
    let (entry, opened) = client.create(ROOT, "file").unwrap();
    client.unlink(ROOT, "file").unwrap();
    let close = || client.release(Opcode::Release, entry.nodeid, opened.fh);
    let (releases, released) = fixture.mirror.stop("release");
    thread::scope(|scope| {
        let closes = scope.spawn(close);
        releases.recv().unwrap();
        client.forget(entry.nodeid, 1);
        released.send(()).unwrap();
        closes.join().unwrap().unwrap();
    });
    assert_eq!(client.lookup(ROOT, &hidden_name(0)).unwrap_err(), ENOENT);
    assert_eq!(fixture.names.sizes().nodes, 1);
}

#[test]
fn a_rename_over_an_open_file_is_done_or_undone() {
    let io = Some(Errno::IO);
    // The first hides the old file.
    let refused: [&[_]; 3] = [&[], &[io], &[None, io]];
    for refusals in refused {
        let fixture = hiding();
        let client = &fixture.client;
        let new = client.mknod(ROOT, "new").unwrap();
        let (old, opened) = client.create(ROOT, "file").unwrap();
        *fixture.mirror.refusals.lock().unwrap() = refusals.iter().copied().collect();
        let renamed = client.rename((ROOT, "new"), (ROOT, "file"), 0);
        let expected = match refusals.is_empty() {
            true => (Ok(()), [Err(ENOENT), Ok(new.nodeid), Ok(old.nodeid)]),
            false => (Err(5), [Ok(new.nodeid), Ok(old.nodeid), Err(ENOENT)]),
        };
        let found = ["new", "file", &hidden_name(0)].map(|name| client.lookup(ROOT, name));
        let nodes = found.map(|found| found.map(|entry| entry.nodeid));
        assert_eq!((renamed, nodes), expected, "{refusals:?}");
        for node in [new, old] {
            assert_eq!(
                client.getattr(node.nodeid).unwrap().attr.size,
                node.attr.size
            );
        }
        client
            .release(Opcode::Release, old.nodeid, opened.fh)
            .unwrap();
        assert_eq!(client.lookup(ROOT, &hidden_name(0)).unwrap_err(), ENOENT);
    }
}

#[test]
fn a_hidden_file_that_is_given_a_name_keeps_it() {
    let fixture = hiding();
    let client = &fixture.client;
    let (moved, first) = client.create(ROOT, "moved").unwrap();
    let (linked, second) = client.create(ROOT, "linked").unwrap();
    client.unlink(ROOT, "moved").unwrap();
    client.unlink(ROOT, "linked").unwrap();
    let from = hidden_name(0);
    client.rename((ROOT, &from), (ROOT, "rescued"), 0).unwrap();
    client.link(linked.nodeid, ROOT, "kept").unwrap();
    for (entry, opened) in [(moved, first), (linked, second)] {
        client
            .release(Opcode::Release, entry.nodeid, opened.fh)
            .unwrap();
    }
    let ino = |name| client.lookup(ROOT, name).map(|entry| entry.attr.ino);
    assert_eq!(ino("rescued"), Ok(moved.attr.ino));
    assert_eq!(ino("kept"), Ok(linked.attr.ino));
    assert_eq!(ino(&hidden_name(1)), Err(ENOENT));
}

#[test]
fn hidden_names_of_earlier_sessions_are_not_in_the_way() {
    let fixture = hiding();
    let client = &fixture.client;
    for number in 0..3 {
        client.mknod(ROOT, &hidden_name(number)).unwrap();
    }
    let (_, _) = client.create(ROOT, "file").unwrap();
    client.unlink(ROOT, "file").unwrap();
    assert!(client.lookup(ROOT, &hidden_name(3)).is_ok());
}

/// Forgets what a file was looked up as, opens it by one name, which then goes, and looks up the other.
fn look_up_what_is_open(handle_tells: bool) -> (u64, u64) {
    let options = Options {
        use_ino: true,
        ..Options::default()
    };
    let fixture = fixture(options);
    let client = &fixture.client;
    let made = client.mknod(ROOT, "first").unwrap().nodeid;
    client.link(made, ROOT, "second").unwrap();
    client.forget(made, 2);
    let file = client.lookup(ROOT, "first").unwrap().nodeid;
    assert_ne!(file, made);
    let opened = client.open(file).unwrap();
    client.unlink(ROOT, "first").unwrap();
    if !handle_tells {
        fixture.mirror.forget_open(opened.fh);
    }
    let entry = client.lookup(ROOT, "second").unwrap();
    assert_eq!(entry.attr.nlink, 1);
    (file, entry.nodeid)
}

/// Two nodes would be two page caches.
#[test]
fn what_is_open_by_a_name_that_is_gone_is_the_same_by_its_other_name() {
    let (file, found) = look_up_what_is_open(true);
    assert_eq!(found, file);
}

/// Its number is given to something else when it ends, which may be before the kernel forgets it.
#[test]
fn what_has_the_number_of_an_open_file_that_is_gone_is_another() {
    let (file, found) = look_up_what_is_open(false);
    assert_ne!(found, file);
}
