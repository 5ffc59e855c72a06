//! Files that are made: they get their headers.

use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::time::Duration;

use bickford::abi::OpenOutFlags;
use bickford::filesystem::future::Owned;
use bickford::ops::{Created, Entry, Forget, Kept, Mknod, Open, Opened, Unlink};
use bickford::{DetachedContext, Errno, NodeId, Reply};

use crate::block;
use crate::file::{File, Inner};
use crate::filesystem::O_RDWR;

/// How a file was made: its name below, where it has one, and the flags of open(2).
pub(crate) struct Made {
    pub(crate) place: Option<(NodeId, CString)>,
    pub(crate) flags: u32,
}

/// Gives a file that was just made its header; whatever fails, nothing stays open, and no name of a
/// file without a header.
pub(crate) fn initialize(
    inner: &Arc<Inner>,
    cx: &DetachedContext,
    created: Created,
    made: Made,
    then: impl FnOnce(Result<Created, Errno>) + Send + 'static,
) {
    let node = created.entry.node;
    let give_up = {
        let (inner, cx) = (Arc::clone(inner), cx.clone());
        move || {
            inner.release(&cx, node, created.opened, made.flags);
            inner.lower.0.forget(&[Forget { node, count: 1 }]);
        }
    };
    if created.entry.attr.size != 0 {
        // It was made by another meanwhile; the kernel looks it up again and opens it.
        give_up();
        return then(Err(Errno::STALE));
    }
    let id = block::random();
    let begin = id.and_then(|id| {
        let empty = block::seal(&inner.keys, &id, 0, true, &[])?;
        Ok((id, [block::header(&id).as_slice(), &empty].concat()))
    });
    let Ok((id, bytes)) = begin else {
        give_up();
        return then(Err(Errno::IO));
    };
    let (inner, cx) = (Arc::clone(inner), cx.clone().uninterrupted());
    let handle = created.opened.handle;
    let file = File::new(Arc::clone(&inner), cx.clone(), node, handle, id);
    file.write_below(0, &bytes, move |written| match written {
        Ok(()) => {
            inner.remember(node, handle, id);
            inner.found_empty(node, handle);
            let mut created = created;
            created.entry.attr.size = 0;
            // Blocks and times are those from before the header was written.
            created.entry.attr_valid = Duration::ZERO;
            then(Ok(plain_open(created)));
        }
        Err(errno) => {
            if let Some((parent, name)) = &made.place {
                remove(&inner, &cx, *parent, name);
            }
            give_up();
            then(Err(errno));
        }
    });
}

/// Removes a file that was just made and cannot be used.
fn remove(inner: &Inner, cx: &DetachedContext, parent: NodeId, name: &CStr) {
    let op = Unlink::new(parent, name);
    let reply = Reply::intercept(|_| ());
    inner.lower.0.unlink(&cx.context(), op, reply);
}

/// Makes a file and then opens it.
pub(crate) fn make_and_open(
    inner: &Arc<Inner>,
    cx: DetachedContext,
    op: Owned<Mknod<'static>>,
    reply: Reply<Created>,
) {
    let (inner, below) = (Arc::clone(inner), Arc::clone(inner));
    let (context, making) = (cx.clone(), op.clone());
    let made = reply.wrap(move |result: Result<Entry, Errno>, reply| {
        let entry = match result {
            Ok(entry) => entry,
            Err(errno) => return reply.error(errno),
        };
        let (below, cx) = (Arc::clone(&inner), cx.uninterrupted());
        let context = cx.clone();
        let opened = reply.wrap(move |result: Result<Opened, Errno>, reply| {
            if result.is_err() {
                let op = op.operation();
                remove(&inner, &cx, op.parent, op.name);
                let node = entry.node;
                inner.lower.0.forget(&[Forget { node, count: 1 }]);
            }
            reply.complete(result.map(|opened| Created { entry, opened }));
        });
        let op = Open::new(entry.node, O_RDWR);
        below.lower.0.open(&context.context(), op, opened);
    });
    below
        .lower
        .0
        .mknod(&context.context(), making.operation(), made);
}

/// The kernel must not read and write the file below itself.
fn plain_open(mut created: Created) -> Created {
    created.opened.flags -= OpenOutFlags::PASSTHROUGH;
    created.opened.backing_id = 0;
    created
}
