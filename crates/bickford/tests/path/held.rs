//! What waits for what, and what open files are without names.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bickford::abi::Opcode;
use bickford::path::{Adapter, Names, Options};
use bickford::transport::memory::Kernel;

use crate::client::{Client, ROOT, session};
use crate::mirror::{Mirror, Served};

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
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.names.sizes().waiting != waiting {
            assert!(
                Instant::now() < deadline,
                "{:?}, not {waiting} waiting",
                self.names.sizes()
            );
            thread::sleep(Duration::from_millis(1));
        }
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

#[test]
fn hidden_names_only_where_asked_for() {
    let fixture = fixture(Options {
        hide_removed: true,
        ..Options::default()
    });
    let client = &fixture.client;
    let hidden = || client.lookup(ROOT, ".fuse_hidden0000000000000000").is_ok();
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
