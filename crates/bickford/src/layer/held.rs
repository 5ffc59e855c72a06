//! What a success below holds, and how it is given back when nobody will hear of it.

use rustix::io::Errno;

use super::OperationKind;
use super::about::{Describe, Nodes, Observe};
use crate::dispatch::{Context, DetachedContext};
use crate::filesystem::FileSystem;
use crate::ops::{Forget, Release, Releasedir};
use crate::reply::Reply;
use crate::{FileHandle, NodeId};

/// How what an operation opens below is given back; kept until it is answered.
#[derive(Debug)]
pub struct Closing {
    cx: DetachedContext,
    kind: OperationKind,
    node: NodeId,
    flags: u32,
}

impl Closing {
    /// For an operation as it goes to the file system below. In a box, for most operations open
    /// nothing and their answers are to be small on the way.
    #[allow(
        private_bounds,
        reason = "every operation is described, and nothing else"
    )]
    #[must_use]
    pub fn of<O: Describe>(cx: &Context<'_>, op: &O) -> Option<Box<Self>> {
        let opens = matches!(
            O::KIND,
            OperationKind::Open
                | OperationKind::Opendir
                | OperationKind::Create
                | OperationKind::Tmpfile
        );
        opens.then(|| {
            let about = op.about();
            Box::new(Self {
                cx: cx.detach().uninterrupted(),
                kind: O::KIND,
                node: about.node,
                flags: about.flags.unwrap_or(0),
            })
        })
    }
}

/// The lookups and the open file that an answer holds. What the file system below answered and its
/// caller does not hear of must be given back to it: the kernel sends neither FORGET nor RELEASE for
/// an operation that failed.
#[derive(Debug)]
pub struct Held {
    nodes: Nodes,
    handle: Option<FileHandle>,
}

impl Held {
    /// What a result holds; an error holds nothing.
    #[allow(private_bounds, reason = "every answer is observed, and nothing else")]
    #[must_use]
    pub fn of<A: Observe>(result: &Result<A, Errno>) -> Self {
        let answer = result.as_ref().ok();
        Self {
            nodes: answer.map_or(Nodes::None, Observe::nodes),
            handle: answer.and_then(Observe::handle),
        }
    }

    /// Gives back to `lower` what `told`, the answer that its caller gets instead, does not hold.
    pub fn give_back(self, told: Self, lower: &impl FileSystem, closing: Option<&Closing>) {
        if let (Some(handle), Some(closing), None) = (self.handle, closing, told.handle) {
            self.close(handle, lower, closing);
        }
        if self.nodes == told.nodes {
            return;
        }
        let untold = self.nodes.without(told.nodes).into_iter();
        let forgets: Vec<_> = untold.map(|node| Forget { node, count: 1 }).collect();
        if !forgets.is_empty() {
            lower.forget(&forgets);
        }
    }

    fn close(&self, handle: FileHandle, lower: &impl FileSystem, closing: &Closing) {
        let cx = closing.cx.context();
        let reply = Reply::intercept(|_| ());
        if closing.kind == OperationKind::Opendir {
            let op = Releasedir {
                node: closing.node,
                handle,
            };
            return lower.releasedir(&cx, op, reply);
        }
        let made = match self.nodes {
            Nodes::One(node) => node,
            _ => NodeId(0),
        };
        let opened = match closing.kind {
            OperationKind::Open => closing.node,
            _ => made,
        };
        lower.release(&cx, Release::new(opened, handle, closing.flags), reply);
    }
}
