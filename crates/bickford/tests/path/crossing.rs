//! Attributes that cross a change on their way to the kernel.

use std::sync::Arc;
use std::thread;

use bickford::abi::{
    FallocateIn, NotifyCode, NotifyInvalInodeOut, Opcode, SetattrIn, SetattrValid, SetxattrIn,
    WriteFlags, WriteIn,
};
use bickford::path::{Adapter, Options};
use bickford::transport::memory::Kernel;
use rustix::fs::RenameFlags;
use zerocopy::IntoBytes;

use crate::client::{Answer, Client, ROOT, session};
use crate::mirror::{Mirror, Served};

pub const NONE: [u64; 0] = [];

struct Fixture {
    kernel: Kernel,
    client: Client,
    mirror: Arc<Mirror>,
}

fn fixture(options: Options) -> Fixture {
    let mirror = Arc::<Mirror>::default();
    let kernel = session(Adapter::new(Served(Arc::clone(&mirror)), options));
    Fixture {
        client: Client::new(&kernel, 1),
        kernel,
        mirror,
    }
}

/// Of which nodes the kernel has been told to drop attributes, and nothing else, since this was last asked.
pub fn refused(kernel: &Kernel) -> Vec<u64> {
    let told = kernel.drain();
    let told = told.iter().map(|message| {
        assert_eq!(message.error, NotifyCode::InvalInode as i32);
        let told: NotifyInvalInodeOut = message.read().unwrap();
        assert_eq!((told.off, told.len), (-1, 0));
        told.ino
    });
    let mut nodes: Vec<_> = told.collect();
    nodes.sort_unstable();
    nodes
}

impl Fixture {
    fn refused(&self) -> Vec<u64> {
        refused(&self.kernel)
    }
}

fn set_xattr(client: &Client, node: u64) -> Answer<Vec<u8>> {
    let input = SetxattrIn {
        size: 1,
        ..SetxattrIn::default()
    };
    client.call(
        Opcode::Setxattr,
        node,
        &[input.as_bytes(), b"user.name\0v"].concat(),
    )
}

fn fallocate(client: &Client, node: u64) -> Answer<Vec<u8>> {
    let input = FallocateIn {
        length: 1,
        ..FallocateIn::default()
    };
    client.call(Opcode::Fallocate, node, input.as_bytes())
}

fn write(client: &Client, node: u64, write_flags: WriteFlags) -> Answer<Vec<u8>> {
    let input = WriteIn {
        size: 1,
        write_flags: write_flags.bits(),
        ..WriteIn::default()
    };
    client.call(Opcode::Write, node, &[input.as_bytes(), b"m"].concat())
}

fn set_mode(client: &Client, node: u64, also: SetattrValid) -> Answer<Vec<u8>> {
    let input = SetattrIn {
        valid: (SetattrValid::MODE | also).bits(),
        ..SetattrIn::default()
    };
    client.call(Opcode::Setattr, node, input.as_bytes())
}

/// Threads of elsewhere, as these are, may be any.
#[test]
fn what_was_asked_for_before_a_change_is_refused_before_the_change_is_answered() {
    let fixture = fixture(Options::default());
    let client = &fixture.client;
    let [from, to] = ["from", "to"].map(|name| client.mkdir(ROOT, name).unwrap().nodeid);
    let file = client.mknod(from, "file").unwrap().nodeid;
    let other = client.mknod(to, "other").unwrap().nodeid;
    // Nobody asked before.
    assert_eq!(fixture.refused(), NONE);
    for node in [from, to, file, other] {
        client.getattr(node).unwrap();
    }
    assert_eq!(fixture.refused(), NONE);
    let refused = |nodes: &[u64]| assert_eq!(fixture.refused(), nodes);
    client.mknod(from, "made").unwrap();
    refused(&[from]);
    client.mkdir(to, "made").unwrap();
    refused(&[to]);
    client.create(from, "created").unwrap();
    refused(&[from]);
    client.link(file, to, "link").unwrap();
    refused(&[to]);
    client.unlink(from, "made").unwrap();
    refused(&[from]);
    client.rmdir(to, "made").unwrap();
    refused(&[to]);
    client.rename((from, "file"), (from, "renamed"), 0).unwrap();
    refused(&[from, file]);
    let exchange = RenameFlags::EXCHANGE.bits();
    client
        .rename((from, "renamed"), (to, "other"), exchange)
        .unwrap();
    refused(&[from, to, file, other]);
    set_xattr(client, file).unwrap();
    refused(&[file]);
    client
        .call(Opcode::Removexattr, file, b"user.name\0")
        .unwrap();
    refused(&[file]);
    fallocate(client, file).unwrap();
    refused(&[file]);
    write(client, file, WriteFlags::CACHE).unwrap();
    refused(&[file]);
    set_mode(client, file, SetattrValid::CTIME).unwrap();
    refused(&[file]);
    // The kernel itself refuses what is older than these.
    write(client, file, WriteFlags::empty()).unwrap();
    set_mode(client, file, SetattrValid::empty()).unwrap();
    client
        .rename((from, "missing"), (from, "file"), 0)
        .unwrap_err();
    client.unlink(from, "missing").unwrap_err();
    refused(&[]);
}

#[test]
fn what_is_losing_a_name_is_not_kept() {
    for method in ["unlink", "rename"] {
        let fixture = fixture(Options::default());
        let client = &fixture.client;
        let file = client.mknod(ROOT, "file").unwrap().nodeid;
        client.link(file, ROOT, "link").unwrap();
        let bystander = client.mknod(ROOT, "bystander").unwrap().nodeid;
        let is_kept = |node| client.getattr(node).unwrap().attr_valid > 0;
        assert!(is_kept(file) && is_kept(bystander));
        assert_eq!(fixture.refused(), NONE);
        let (is_in, go_on) = fixture.mirror.stop(method);
        thread::scope(|scope| {
            let removes = scope.spawn(|| match method {
                "unlink" => client.unlink(ROOT, "link"),
                _ => client.rename((ROOT, "bystander"), (ROOT, "link"), 0),
            });
            is_in.recv().unwrap();
            // By its other name: this one waits.
            assert_eq!(client.lookup(ROOT, "file").unwrap().attr_valid, 0);
            assert_eq!(fixture.refused(), [file]);
            go_on.send(()).unwrap();
            removes.join().unwrap().unwrap();
        });
        fixture.refused();
        // The kernel may not have taken that from its count yet.
        assert!(!is_kept(file));
        assert_eq!(fixture.refused(), [file]);
        // Nothing is left of it, and the node may be another's now.
        client.forget(bystander, 1);
        let next = client.mknod(ROOT, "next").unwrap().nodeid;
        fixture.refused();
        assert!(is_kept(next));
    }
}
