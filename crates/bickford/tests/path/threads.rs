//! Many threads rename, exchange, make and remove names while others look: no node may ever turn
//! out to be another one, and no path may change while a method runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bickford::abi::Opcode;
use bickford::path::{Adapter, Names, Options};
use bickford::transport::memory::Kernel;

use crate::client::{Client, ROOT, session};
use crate::mirror::{Mirror, ROOT_INO, Served};
use crate::tasks;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const THREADS: usize = 6;
const STEPS: u64 = 600;
const ENOENT: i32 = 2;
const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

/// A fixed sequence of numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit
    }
}

#[derive(Clone, Copy)]
struct Seen {
    ino: u64,
    directory: bool,
    lookups: u64,
}

struct Thread {
    client: Client,
    mirror: Arc<Mirror>,
    numbers: Numbers,
    seen: BTreeMap<u64, Seen>,
    /// Whether names are removed, so that nodes may be without one.
    removes: bool,
}

impl Thread {
    fn pick(&mut self, directories: bool) -> (u64, Seen) {
        let fits = |seen: &&u64| self.seen[seen].directory || !directories;
        let nodes: Vec<u64> = self.seen.keys().filter(fits).copied().collect();
        let node = nodes[self.numbers.below(nodes.len())];
        (node, self.seen[&node])
    }

    fn place(&mut self) -> (u64, &'static str) {
        let (node, _) = self.pick(true);
        (node, NAMES[self.numbers.below(NAMES.len())])
    }

    fn saw(&mut self, entry: &bickford::abi::EntryOut) {
        let directory = entry.attr.mode & 0o170_000 == 0o040_000;
        let ino = entry.attr.size;
        let new = Seen {
            ino,
            directory,
            lookups: 0,
        };
        let seen = self.seen.entry(entry.nodeid).or_insert(new);
        assert_eq!(
            seen.ino, ino,
            "a lookup led to a node that is another inode"
        );
        seen.lookups += 1;
    }

    fn look(&mut self) {
        let (node, seen) = self.pick(false);
        match self.client.getattr(node) {
            Ok(out) => assert_eq!(out.attr.size, seen.ino, "a wrong path was handed out"),
            Err(ENOENT) if self.removes => {
                assert_eq!(self.mirror.tree().links(seen.ino), 0, "a path was lost");
            }
            Err(errno) => panic!("getattr of a node that exists: errno {errno}"),
        }
    }

    fn read(&mut self) {
        let (node, seen) = self.pick(false);
        let Ok(opened) = self.client.open(node) else {
            assert!(self.removes, "a file that exists cannot be opened");
            return;
        };
        let read = self
            .client
            .read_at(Opcode::Read, node, opened.fh, 0, 8)
            .unwrap();
        assert_eq!(read, seen.ino.to_ne_bytes(), "another file was read");
        self.client
            .release(Opcode::Release, node, opened.fh)
            .unwrap();
    }

    fn step(&mut self) {
        let choices = if self.removes { 12 } else { 8 };
        match self.numbers.below(choices) {
            0 | 1 => {
                let (parent, name) = self.place();
                if let Ok(entry) = self.client.lookup(parent, name) {
                    self.saw(&entry);
                }
            }
            2 | 3 => self.look(),
            4 => self.read(),
            number @ 5..=7 => {
                let (from, to) = (self.place(), self.place());
                let flags = match number {
                    5 => EXCHANGE,
                    6 if self.removes => 0,
                    _ => NOREPLACE,
                };
                if from != to {
                    let _ = self.client.rename(from, to, flags);
                }
            }
            number @ 8..=9 => {
                let (parent, name) = self.place();
                let made = match number {
                    8 => self.client.mkdir(parent, name),
                    _ => self.client.mknod(parent, name),
                };
                if let Ok(entry) = made {
                    self.saw(&entry);
                }
            }
            number => {
                let (parent, name) = self.place();
                let _ = match number {
                    10 => self.client.rmdir(parent, name),
                    _ => self.client.unlink(parent, name),
                };
            }
        }
    }
}

/// Directories `a` to `d`, in each directories `a` and `b` and files `c` and `d`.
fn plant(client: &Client) -> BTreeMap<u64, Seen> {
    let mut seen = BTreeMap::new();
    let mut add = |entry: bickford::abi::EntryOut, directory| {
        let new = Seen {
            ino: entry.attr.size,
            directory,
            lookups: 1,
        };
        seen.insert(entry.nodeid, new);
        entry.nodeid
    };
    for name in NAMES {
        let top = add(client.mkdir(ROOT, name).unwrap(), true);
        for inner in ["a", "b"] {
            add(client.mkdir(top, inner).unwrap(), true);
        }
        for inner in ["c", "d"] {
            add(client.mknod(top, inner).unwrap(), false);
        }
    }
    seen
}

fn run(removes: bool) {
    let mirror = Mirror::with_yields(2);
    let adapter = Adapter::new(Served(Arc::clone(&mirror)), Options::default());
    let names = adapter.names();
    stress(&session(adapter), &names, &mirror, removes);
}

fn stress(kernel: &Kernel, names: &Names, mirror: &Arc<Mirror>, removes: bool) {
    let planted = plant(&Client::new(kernel, 0));
    let root = Seen {
        ino: ROOT_INO,
        directory: true,
        lookups: 0,
    };
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let mut seen = planted.clone();
            seen.values_mut().for_each(|seen| seen.lookups = 0);
            seen.insert(ROOT, root);
            let mut thread = Thread {
                client: Client::new(kernel, number + 1),
                mirror: Arc::clone(mirror),
                numbers: Numbers(0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1) << 20),
                seen,
                removes,
            };
            std::thread::spawn(move || {
                (0..STEPS).for_each(|_| thread.step());
                thread.seen
            })
        })
        .collect();
    let seen: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(
        mirror.moved.load(Ordering::SeqCst),
        0,
        "paths changed under a method"
    );
    let client = Client::new(kernel, 0);
    for (node, seen) in seen.into_iter().flatten().chain(planted) {
        client.forget(node, seen.lookups);
    }
    let sizes = names.sizes();
    assert_eq!(
        (sizes.nodes, sizes.names, sizes.waiting),
        (1, 0, 0),
        "something leaked"
    );
}

#[test]
fn renames_and_exchanges_never_hand_out_a_wrong_path() {
    run(false);
}

#[test]
fn nor_do_removals() {
    run(true);
}

#[test]
fn nor_do_tasks() {
    for removes in [false, true] {
        let mirror = Mirror::with_yields(2);
        let fixture = tasks::fixture(Arc::clone(&mirror), Options::default(), true);
        stress(&fixture.kernel, &fixture.names, &mirror, removes);
    }
}
