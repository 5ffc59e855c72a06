//! Any sequence of operations against a model that knows which inode every node is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bickford::abi::{EntryOut, Opcode};
use bickford::path::{Adapter, Names, Options};
use bickford::transport::memory::Kernel;
use proptest::prelude::*;

use crate::client::{Answer, Client, ROOT, session};
use crate::mirror::{Mirror, ROOT_INO, Served};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const ENOENT: i32 = 2;

#[derive(Clone, Debug)]
enum Op {
    Lookup(usize, usize),
    Mkdir(usize, usize),
    Mknod(usize, usize),
    Unlink(usize, usize),
    Rmdir(usize, usize),
    Rename(usize, usize, usize, usize, u32),
    Link(usize, usize, usize),
    Open(usize),
    Release(usize),
    Forget(usize, u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    let node = 0usize..64;
    let name = 0..NAMES.len();
    let place = (node.clone(), name.clone());
    prop_oneof![
        4 => place.clone().prop_map(|(p, n)| Op::Lookup(p, n)),
        3 => place.clone().prop_map(|(p, n)| Op::Mkdir(p, n)),
        3 => place.clone().prop_map(|(p, n)| Op::Mknod(p, n)),
        2 => place.clone().prop_map(|(p, n)| Op::Unlink(p, n)),
        1 => place.clone().prop_map(|(p, n)| Op::Rmdir(p, n)),
        6 => (place.clone(), place, 0u32..3).prop_map(|((p, n), (q, m), f)| Op::Rename(p, n, q, m, f)),
        3 => (node.clone(), node.clone(), name).prop_map(|(o, p, n)| Op::Link(o, p, n)),
        2 => node.clone().prop_map(Op::Open),
        2 => node.clone().prop_map(Op::Release),
        2 => (node, 1u64..4).prop_map(|(n, c)| Op::Forget(n, c)),
    ]
}

#[derive(Debug)]
struct Known {
    ino: u64,
    directory: bool,
    lookups: u64,
    opens: usize,
    names: BTreeSet<(u64, String)>,
}

struct World {
    _kernel: Kernel,
    client: Client,
    mirror: Arc<Mirror>,
    names: Names,
    use_ino: bool,
    known: BTreeMap<u64, Known>,
    open: Vec<(u64, u64)>,
}

impl World {
    fn new(use_ino: bool) -> Self {
        let mirror = Arc::<Mirror>::default();
        let options = Options {
            use_ino,
            ..Options::default()
        };
        let adapter = Adapter::new(Served(Arc::clone(&mirror)), options);
        let names = adapter.names();
        let kernel = session(adapter);
        let root = Known {
            ino: ROOT_INO,
            directory: true,
            lookups: 1,
            opens: 0,
            names: BTreeSet::new(),
        };
        Self {
            client: Client::new(&kernel, 1),
            _kernel: kernel,
            mirror,
            names,
            use_ino,
            known: BTreeMap::from([(ROOT, root)]),
            open: Vec::new(),
        }
    }

    fn pick(&self, number: usize, directories: bool) -> u64 {
        let fits = |known: &Known| known.lookups > 0 && (known.directory || !directories);
        let nodes: Vec<_> = self.known.iter().filter(|(_, known)| fits(known)).collect();
        *nodes[number % nodes.len()].0
    }

    fn path(&self, node: u64) -> Option<PathBuf> {
        if node == ROOT {
            return Some("/".into());
        }
        let (parent, name) = self.known[&node].names.first()?;
        Some(self.path(*parent)?.join(name))
    }

    fn at(&self, parent: u64, name: &str) -> Option<u64> {
        self.mirror.find(&self.path(parent)?.join(name))
    }

    fn named(&self, parent: u64, name: &str) -> Option<u64> {
        let wanted = (parent, name.to_string());
        let holds = |(node, known): (&u64, &Known)| known.names.contains(&wanted).then_some(*node);
        self.known.iter().find_map(holds)
    }

    /// An entry was answered for a name.
    fn entered(&mut self, parent: u64, name: &str, entry: &EntryOut, fresh: bool) {
        let ino = self.at(parent, name);
        assert_eq!(
            Some(entry.attr.size),
            ino,
            "{name} in {:?}",
            self.path(parent)
        );
        let before = self.named(parent, name);
        if let Some(before) = before.filter(|_| !fresh) {
            assert_eq!(
                entry.nodeid, before,
                "a name that the kernel knows leads elsewhere"
            );
        }
        let key = (parent, name.to_string());
        if let Some(known) = self.known.get_mut(&entry.nodeid) {
            assert_eq!(Some(known.ino), ino, "a node changed what it is");
            let renamed = before == Some(entry.nodeid);
            assert!(
                renamed || self.use_ino,
                "two names of unknown kinship share a node"
            );
            known.lookups += 1;
            known.names.insert(key);
            return;
        }
        let known = Known {
            ino: entry.attr.size,
            directory: entry.attr.mode & 0o170_000 == 0o040_000,
            lookups: 1,
            opens: 0,
            names: BTreeSet::from([key]),
        };
        self.known.insert(entry.nodeid, known);
    }

    fn unname(&mut self, parent: u64, name: &str) {
        let key = (parent, name.to_string());
        self.known.values_mut().for_each(|known| {
            known.names.remove(&key);
        });
    }

    /// Drops what the kernel does not know any more and nothing known is below.
    fn reap(&mut self) {
        loop {
            let parents: BTreeSet<u64> = self
                .known
                .values()
                .flat_map(|known| known.names.iter().map(|(p, _)| *p))
                .collect();
            let before = self.known.len();
            self.known.retain(|node, known| {
                known.lookups > 0 || known.opens > 0 || parents.contains(node)
            });
            if self.known.len() == before {
                return;
            }
        }
    }

    fn make(&mut self, parent: u64, name: &str, directory: bool) {
        let before = self.at(parent, name);
        let made = match directory {
            true => self.client.mkdir(parent, name),
            false => self.client.mknod(parent, name),
        };
        match made {
            Ok(entry) => {
                assert_eq!(before, None);
                self.unname(parent, name);
                self.entered(parent, name, &entry, true);
            }
            Err(_) => assert_eq!(self.at(parent, name), before),
        }
    }

    fn remove(&mut self, parent: u64, name: &str, directory: bool) {
        let before = self.at(parent, name);
        let removed = match directory {
            true => self.client.rmdir(parent, name),
            false => self.client.unlink(parent, name),
        };
        if removed.is_ok() {
            assert!(before.is_some());
            assert_eq!(self.at(parent, name), None, "another name was removed");
            self.unname(parent, name);
        } else {
            assert_eq!(self.at(parent, name), before);
        }
    }

    fn rename(&mut self, from: (u64, &str), to: (u64, &str), flags: u32) {
        let (source, target) = (self.at(from.0, from.1), self.at(to.0, to.1));
        if from == to || (source.is_some() && source == target) {
            return; // The kernel does not ask.
        }
        let renamed = self.client.rename(from, to, flags);
        let now = (self.at(from.0, from.1), self.at(to.0, to.1));
        let exchange = flags == 2;
        if renamed.is_err() {
            assert_eq!(now, (source, target));
            return;
        }
        let (first, second) = (self.named(from.0, from.1), self.named(to.0, to.1));
        self.unname(from.0, from.1);
        self.unname(to.0, to.1);
        if let Some(node) = first {
            self.known
                .get_mut(&node)
                .unwrap()
                .names
                .insert((to.0, to.1.into()));
        }
        if let Some(node) = second.filter(|_| exchange) {
            self.known
                .get_mut(&node)
                .unwrap()
                .names
                .insert((from.0, from.1.into()));
        }
        let now = (self.at(from.0, from.1), self.at(to.0, to.1));
        let expected = if exchange {
            (target, source)
        } else {
            (None, source)
        };
        assert_eq!(now, expected, "another name was renamed");
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Lookup(p, n) => {
                let (parent, name) = (self.pick(p, true), NAMES[n]);
                let expected = self.at(parent, name);
                match self.client.lookup(parent, name) {
                    Ok(entry) => self.entered(parent, name, &entry, false),
                    Err(errno) => {
                        assert_eq!((errno, expected), (ENOENT, None));
                        self.unname(parent, name);
                    }
                }
            }
            Op::Mkdir(p, n) => self.make(self.pick(p, true), NAMES[n], true),
            Op::Mknod(p, n) => self.make(self.pick(p, true), NAMES[n], false),
            Op::Unlink(p, n) => self.remove(self.pick(p, true), NAMES[n], false),
            Op::Rmdir(p, n) => self.remove(self.pick(p, true), NAMES[n], true),
            Op::Rename(p, n, q, m, flags) => {
                let (from, to) = (self.pick(p, true), self.pick(q, true));
                self.rename((from, NAMES[n]), (to, NAMES[m]), flags);
            }
            Op::Link(o, p, n) => {
                let (node, parent) = (self.pick(o, false), self.pick(p, true));
                if let Ok(entry) = self.client.link(node, parent, NAMES[n]) {
                    assert_eq!(entry.nodeid, node, "a hard link is another node");
                    assert_eq!(self.at(parent, NAMES[n]), Some(self.known[&node].ino));
                    let known = self.known.get_mut(&node).unwrap();
                    known.lookups += 1;
                    known.names.insert((parent, NAMES[n].into()));
                }
            }
            Op::Open(o) => {
                let node = self.pick(o, false);
                if let Ok(opened) = self.client.open(node) {
                    self.open.push((node, opened.fh));
                    self.known.get_mut(&node).unwrap().opens += 1;
                }
            }
            Op::Release(number) if !self.open.is_empty() => {
                let (node, handle) = self.open.swap_remove(number % self.open.len());
                self.client.release(Opcode::Release, node, handle).unwrap();
                self.known.get_mut(&node).unwrap().opens -= 1;
            }
            Op::Release(_) => {}
            Op::Forget(o, count) => {
                let node = self.pick(o, false);
                let known = self.known.get_mut(&node).unwrap();
                let count = if node == ROOT {
                    0
                } else {
                    count.min(known.lookups)
                };
                known.lookups -= count;
                self.client.forget(node, count);
            }
        }
        self.reap();
    }

    fn check(&self) {
        for (node, known) in self.known.iter().filter(|(_, known)| known.lookups > 0) {
            let size = self.client.getattr(*node).map(|out| out.attr.size);
            let alive = self.path(*node).is_some() || known.opens > 0;
            let expected: Answer<u64> = if alive { Ok(known.ino) } else { Err(ENOENT) };
            assert_eq!(size, expected, "node {node:x} at {:?}", self.path(*node));
        }
        for (node, handle) in &self.open {
            let read = self
                .client
                .read_at(Opcode::Read, *node, *handle, 0, 4096)
                .unwrap();
            assert_eq!(
                read,
                self.known[node].ino.to_ne_bytes(),
                "an open file is another one"
            );
        }
        let sizes = self.names.sizes();
        let names: usize = self.known.values().map(|known| known.names.len()).sum();
        assert_eq!(
            (sizes.nodes, sizes.names, sizes.waiting),
            (self.known.len(), names, 0)
        );
    }

    /// Everything is closed and forgotten: nothing may be left.
    fn end(mut self) {
        for (node, handle) in std::mem::take(&mut self.open) {
            self.client.release(Opcode::Release, node, handle).unwrap();
        }
        for (node, known) in self.known.iter().filter(|(node, _)| **node != ROOT) {
            self.client.forget(*node, known.lookups);
        }
        let sizes = self.names.sizes();
        assert_eq!((sizes.nodes, sizes.names, sizes.waiting), (1, 0, 0));
    }
}

fn run(ops: &[Op], use_ino: bool) {
    let mut world = World::new(use_ino);
    for op in ops {
        world.step(op);
        world.check();
    }
    world.end();
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 192,
        rng_seed: proptest::test_runner::RngSeed::Fixed(0x0b1c_4f04),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_table_agrees_with_the_model(ops in proptest::collection::vec(any_op(), 1..80)) {
        run(&ops, false);
    }

    #[test]
    fn the_table_agrees_with_the_model_with_use_ino(
        ops in proptest::collection::vec(any_op(), 1..80)
    ) {
        run(&ops, true);
    }
}
