//! File handles, as an export over NFS hands them out: what was found is found again by its id.

use std::sync::Arc;

use bickford::abi::{EntryOut, InitFlags, InitOut};
use bickford::layer::{Interest, Layer, Layered, PostCalls, PreCalls};
use bickford::path::{Adapter, Options};
use bickford::transport::memory::Kernel;
use zerocopy::FromBytes;

use crate::client::{Answer, Client, ROOT, session};
use crate::mirror::{Mirror, Served};

const ESTALE: i32 = 116;

fn keeping() -> Options {
    Options {
        noforget: true,
        ..Options::default()
    }
}

fn adapter(options: Options) -> Adapter<Served> {
    Adapter::new(Served(Arc::<Mirror>::default()), options)
}

/// Whether a session has what file handles need.
fn exports(filesystem: impl bickford::FileSystem) -> bool {
    let answer = Kernel::new(filesystem).init().unwrap();
    let (init, _) = InitOut::read_from_prefix(&answer.body).unwrap();
    InitFlags::from_words(init.flags, init.flags2).contains(InitFlags::EXPORT_SUPPORT)
}

struct Nothing;

impl PreCalls for Nothing {}

impl PostCalls for Nothing {}

impl Layer for Nothing {
    fn name(&self) -> &str {
        "nothing"
    }

    fn interest(&self) -> Interest {
        Interest::default()
    }
}

#[test]
fn handles_outlive_what_the_kernel_keeps_where_names_are_kept() {
    assert!(exports(adapter(keeping())));
    assert!(!exports(adapter(Options::default())));
    assert!(!exports(Layered::new(Nothing, adapter(keeping()))));
}

fn id(found: Answer<EntryOut>) -> Answer<(u64, u64)> {
    found.map(|entry| (entry.nodeid, entry.generation))
}

#[test]
fn what_was_found_is_found_again() {
    for use_ino in [false, true] {
        let kernel = session(adapter(Options {
            use_ino,
            ..keeping()
        }));
        let client = Client::new(&kernel, 1);
        let outer = client.mkdir(ROOT, "outer").unwrap();
        let inner = client.mkdir(outer.nodeid, "inner").unwrap();
        let file = client.mknod(inner.nodeid, "file").unwrap();
        let made = [outer, inner, file];
        let [outer, inner, file] = made.map(|entry| (entry.nodeid, entry.generation));
        for entry in made {
            client.forget(entry.nodeid, 1);
            let again = client.lookup(entry.nodeid, ".").unwrap();
            assert_eq!(id(Ok(again)), id(Ok(entry)));
            assert_eq!(again.attr.ino, entry.attr.ino);
        }
        client.rename((ROOT, "outer"), (ROOT, "moved"), 0).unwrap();
        let above = [file, inner, outer].map(|(node, _)| id(client.lookup(node, "..")));
        // The kernel has the root with generation zero.
        assert_eq!(above, [inner, outer, (ROOT, 0)].map(Ok));
        assert_eq!(id(client.lookup(ROOT, "..")), Ok((ROOT, 0)));
        client.unlink(inner.0, "file").unwrap();
        for (node, name) in [(file.0, "."), (file.0, ".."), (77, "."), (77, "..")] {
            assert_eq!(id(client.lookup(node, name)), Err(ESTALE), "{node}/{name}");
        }
    }
}

#[test]
fn what_took_the_place_of_a_file_is_not_it() {
    let mirror = Arc::<Mirror>::default();
    let kernel = session(Adapter::new(Served(Arc::clone(&mirror)), keeping()));
    let client = Client::new(&kernel, 1);
    let file = client.mknod(ROOT, "name").unwrap();
    // Others have made a directory of it.
    mirror.replace("/name");
    assert_eq!(id(client.lookup(file.nodeid, ".")), Err(ESTALE));
}

#[test]
fn handles_of_another_session_are_not_those_of_this_one() {
    let made = || {
        let kernel = session(adapter(keeping()));
        let client = Client::new(&kernel, 1);
        id(client.mknod(ROOT, "file")).unwrap()
    };
    let (first, second) = (made(), made());
    assert_eq!(first.0, second.0);
    assert_ne!(first.1, second.1);
}
