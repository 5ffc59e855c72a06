//! Serves a path file system through the interface over inodes.
//!
//! There is one adapter, and it is asynchronous. A file system that answers before it returns has
//! futures that are ready when they are made; then nothing here waits but claims, and the worker
//! with them.

mod directory;
mod files;
mod held;
mod hidden;
mod operations;
mod owners;
mod tree;
mod wait;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bickford_abi::{InitFlags, Opcode};
use rustix::rand::GetRandomFlags;

use self::directory::Directories;
use self::owners::Owners;
use self::wait::wait;
use super::filesystem::Immediate;
use super::future::{FileSystem, Spawner};
use super::{Names, Options};
use crate::filesystem::Negotiation;
use crate::filesystem::future::{FileSystem as Tasks, Owned, owned};
use crate::inode::{Claim, Table, Want};
#[allow(
    clippy::wildcard_imports,
    reason = "the operation table names every operation and answer"
)]
use crate::ops::*;
use crate::{Context, DetachedContext, Errno, Generation, NodeId, Reply};

/// Serves a file system over paths.
#[derive(Debug)]
pub struct Adapter<F> {
    waiting: Waiting<Immediate<F>>,
}

impl<F: super::FileSystem> Adapter<F> {
    /// Serves `filesystem`, shown to the kernel as `options` say.
    pub fn new(filesystem: F, options: Options) -> Self {
        Self {
            waiting: Waiting::new(Immediate(filesystem), options),
        }
    }

    fn waiting(&self) -> &Waiting<Immediate<F>> {
        &self.waiting
    }

    /// The names that the kernel knows.
    #[must_use]
    pub fn names(&self) -> Names {
        self.waiting.names()
    }

    /// The file system.
    #[must_use]
    pub fn filesystem(&self) -> &F {
        &self.waiting.filesystem().0
    }
}

/// Serves an asynchronous file system over paths on the threads that requests come to: each keeps its thread until it is
/// answered. For methods that hardly ever wait: no request becomes a task, and data that are written are not copied for
/// one. A signal ends no method ([`FileSystem::may_cancel`] is not asked); see [`crate::Interrupt`].
#[derive(Debug)]
pub struct Waiting<F> {
    core: Core<F>,
}

impl<F: FileSystem> Waiting<F> {
    /// Serves `filesystem`, shown to the kernel as `options` say.
    pub fn new(filesystem: F, options: Options) -> Self {
        Self {
            core: Core::new(filesystem, options, None),
        }
    }

    /// The names that the kernel knows.
    #[must_use]
    pub fn names(&self) -> Names {
        self.core.names()
    }

    /// The file system.
    #[must_use]
    pub fn filesystem(&self) -> &F {
        &self.core.filesystem
    }
}

/// The adapter's work.
#[derive(Debug)]
pub(super) struct Core<F> {
    pub(super) filesystem: F,
    options: Options,
    table: Arc<Table>,
    directories: Directories,
    /// Whether a file system that does not implement open is asked all the same.
    opens_needed: AtomicBool,
    /// Whether record locks come here, and with them the duty to give them up.
    locks_here: AtomicBool,
    owners: Owners,
    /// How many names were hidden.
    hidden: AtomicU64,
    /// Tells file handles of this session from those of others, which have the same node ids. Zero where they do
    /// not outlive what the kernel keeps.
    generation: AtomicU32,
    /// For work that outlives a request that was given up, where requests are tasks.
    tasks: Option<(Weak<Self>, Spawner)>,
}

impl<F: FileSystem> Core<F> {
    fn new(filesystem: F, options: Options, tasks: Option<(Weak<Self>, Spawner)>) -> Self {
        Self {
            filesystem,
            options,
            table: Table::new(options.noforget),
            directories: Directories::default(),
            opens_needed: AtomicBool::new(true),
            locks_here: AtomicBool::new(false),
            owners: Owners::default(),
            hidden: AtomicU64::new(0),
            generation: AtomicU32::new(0),
            tasks,
        }
    }

    /// With a task for each request.
    pub(super) fn spawning(filesystem: F, options: Options, spawner: Spawner) -> Arc<Self> {
        Arc::new_cyclic(|this| Self::new(filesystem, options, Some((this.clone(), spawner))))
    }

    pub(super) fn names(&self) -> Names {
        Names::new(Arc::clone(&self.table))
    }

    fn negotiate(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        negotiation.want(InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO);
        negotiation.want(InitFlags::NO_OPEN_SUPPORT | InitFlags::SETXATTR_EXT);
        if !self.options.noforget {
            // What was forgotten is not found again by its id.
            negotiation.withhold(InitFlags::EXPORT_SUPPORT);
        }
        if negotiation.want(InitFlags::EXPORT_SUPPORT) {
            let mut generation = [0; 4];
            rustix::rand::getrandom(&mut generation, GetRandomFlags::empty())?;
            let generation = u32::from_ne_bytes(generation);
            self.generation.store(generation, Ordering::Relaxed);
        }
        self.filesystem.init(negotiation)?;
        // open(2) with O_TRUNC is to come as truncate.
        negotiation.refuse(InitFlags::ATOMIC_O_TRUNC);
        let wanted = negotiation.wanted();
        let locks = wanted.contains(InitFlags::POSIX_LOCKS);
        self.locks_here.store(locks, Ordering::Relaxed);
        // Without open there is no release either, with which locks of open files end.
        let locks = wanted.intersects(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS);
        let can_do_without = wanted.contains(InitFlags::NO_OPEN_SUPPORT) && !locks;
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

    /// Whether a task ends where it is when its caller gets a signal.
    fn may_drop(&self, opcode: Opcode) -> bool {
        let changes_names = matches!(
            opcode,
            Opcode::Symlink
                | Opcode::Mknod
                | Opcode::Mkdir
                | Opcode::Unlink
                | Opcode::Rmdir
                | Opcode::Rename
                | Opcode::Rename2
                | Opcode::Link
                | Opcode::Create
                | Opcode::Tmpfile
        );
        !changes_names && self.filesystem.may_cancel(opcode)
    }

    /// Claims for a request. A task that may be dropped ends with that; others, and threads, hear
    /// of a signal while they wait for what they claim.
    async fn claim(&self, cx: &Context<'_>, want: Want<'_>) -> Result<Claim, Errno> {
        let listens = self.tasks.is_none() || !self.may_drop(cx.opcode());
        let claiming = self.table.claim(want, || listens.then(|| cx.interrupt()));
        claiming.await
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
        // The kernel knows the root without a lookup, and with generation zero.
        let generation = match node {
            NodeId::ROOT => 0,
            _ => self.generation.load(Ordering::Relaxed).into(),
        };
        Entry {
            node,
            generation: Generation(generation),
            attr: self.dress(node, attr),
            entry_valid: self.options.entry_timeout,
            attr_valid: self.options.attr_timeout,
        }
    }

    fn attributes(&self, node: NodeId, attr: Attr) -> Attributes {
        Attributes {
            attr: self.dress(node, attr),
            valid: self.options.attr_timeout,
        }
    }
}

macro_rules! define_operations {
    ($($method:ident: $operation:ident $(<$lifetime:lifetime>)? => $answer:ty, $default:expr, [$($opcode:ident),+], $doc:literal;)+) => {
        impl<F: FileSystem> crate::FileSystem for Waiting<F> {
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                self.core.negotiate(negotiation)
            }

            // Claims wait for methods that run, never for a request that has yet to begin.
            fn is_prompt(&self) -> bool {
                self.core.filesystem.is_prompt()
            }

            fn destroy(&self) {
                self.core.filesystem.destroy();
            }

            fn forget(&self, forgets: &[Forget]) {
                self.core.table.forget(forgets);
            }

            $(
                fn $method(&self, cx: &Context<'_>, op: $operation $(<$lifetime>)?, reply: Reply<$answer>) {
                    reply.complete(wait(Core::$method(&self.core, cx, op)));
                }
            )+
        }

        impl<F: FileSystem> Tasks for Core<F> {
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                self.negotiate(negotiation)
            }

            fn is_prompt(&self) -> bool {
                self.filesystem.is_prompt()
            }

            fn destroy(&self) {
                self.filesystem.destroy();
            }

            fn forget(&self, forgets: &[Forget]) {
                self.table.forget(forgets);
            }

            fn may_cancel(&self, opcode: Opcode) -> bool {
                self.may_drop(opcode)
            }

            $(
                async fn $method(
                    self: Arc<Self>,
                    cx: DetachedContext,
                    op: owned!($operation $($lifetime)?),
                ) -> Result<$answer, Errno> {
                    Core::$method(&*self, &cx.context(), op.operation()).await
                }
            )+
        }
    };
}

for_each_operation!(define_operations);

/// Operations with the names of the inode interface, some of which the path API has, too.
mod delegation {
    use super::super::FileSystem;
    use super::Adapter;
    use crate::filesystem::define_delegation;
    #[allow(
        clippy::wildcard_imports,
        reason = "the operation table names every operation and answer"
    )]
    use crate::ops::*;

    for_each_operation!(define_delegation [F: FileSystem] Adapter<F> => waiting;);
}
