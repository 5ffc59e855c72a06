//! Serves a path file system through the interface over inodes.

mod directory;
mod files;
mod held;
mod hidden;
mod operations;
mod tree;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bickford_abi::InitFlags;

use self::directory::Directories;
use super::{FileSystem, Names, Options};
use crate::filesystem::Negotiation;
use crate::filesystem::blocking;
use crate::inode::{Claim, Table, Want};
#[allow(
    clippy::wildcard_imports,
    reason = "the operation table names every operation and answer"
)]
use crate::ops::*;
use crate::{Context, Errno, NodeId, Reply};

/// Serves a file system over paths.
#[derive(Debug)]
pub struct Adapter<F> {
    core: Core<F>,
}

impl<F: FileSystem> Adapter<F> {
    /// Serves `filesystem`, shown to the kernel as `options` say.
    pub fn new(filesystem: F, options: Options) -> Self {
        Self {
            core: Core {
                filesystem,
                options,
                table: Table::new(options.noforget),
                directories: Directories::default(),
                opens_needed: AtomicBool::new(true),
                hidden: AtomicU64::new(0),
            },
        }
    }

    /// The names that the kernel knows.
    #[must_use]
    pub fn names(&self) -> Names {
        Names::new(Arc::clone(&self.core.table))
    }

    /// The file system.
    #[must_use]
    pub fn filesystem(&self) -> &F {
        &self.core.filesystem
    }
}

/// The adapter's work, with methods that return their answers.
#[derive(Debug)]
struct Core<F> {
    filesystem: F,
    options: Options,
    table: Arc<Table>,
    directories: Directories,
    /// Whether a file system that does not implement open is asked all the same.
    opens_needed: AtomicBool,
    /// How many names were hidden.
    hidden: AtomicU64,
}

impl<F: FileSystem> Core<F> {
    fn negotiate(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        negotiation.want(InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO);
        negotiation.want(InitFlags::NO_OPEN_SUPPORT);
        self.filesystem.init(negotiation)?;
        // open(2) with O_TRUNC is to come as truncate, and `..` is never looked up.
        negotiation.refuse(InitFlags::ATOMIC_O_TRUNC | InitFlags::EXPORT_SUPPORT);
        let can_do_without = negotiation.wanted().contains(InitFlags::NO_OPEN_SUPPORT);
        let Options {
            direct_io,
            auto_cache,
            hide_removed,
            ..
        } = self.options;
        let needed = !can_do_without || direct_io || auto_cache || hide_removed;
        self.opens_needed.store(needed, Ordering::Relaxed);
        Ok(())
    }

    fn claim(&self, cx: &Context<'_>, want: Want<'_>) -> Result<Claim, Errno> {
        self.table.claim(want, || cx.interrupt())
    }

    /// Attributes as the kernel is to see them.
    fn dress(&self, node: NodeId, mut attr: Attr) -> Attr {
        self.options.apply(&mut attr);
        if !self.options.use_ino || attr.ino == 0 {
            attr.ino = node.0;
        }
        attr
    }

    fn entry(&self, node: NodeId, attr: Attr) -> Entry {
        Entry {
            node,
            attr: self.dress(node, attr),
            entry_valid: self.options.entry_timeout,
            attr_valid: self.options.attr_timeout,
            ..Entry::default()
        }
    }

    fn attributes(&self, node: NodeId, attr: Attr) -> Attributes {
        Attributes {
            attr: self.dress(node, attr),
            valid: self.options.attr_timeout,
        }
    }
}

macro_rules! define_delegation {
    ($($method:ident: $operation:ty => $answer:ty, $default:expr, [$($opcode:ident),+], $doc:literal;)+) => {
        impl<F: FileSystem> crate::FileSystem for Adapter<F> {
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                self.core.negotiate(negotiation)
            }

            fn destroy(&self) {
                self.core.filesystem.destroy();
            }

            fn forget(&self, forgets: &[Forget]) {
                self.core.table.forget(forgets);
            }

            $(
                fn $method(&self, cx: &Context<'_>, op: $operation, reply: Reply<$answer>) {
                    reply.complete(blocking::FileSystem::$method(&self.core, cx, op));
                }
            )+
        }
    };
}

for_each_operation!(define_delegation);
