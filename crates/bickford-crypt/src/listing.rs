//! Listings with decrypted names.

use std::sync::Arc;

use bickford::ops::{Directory, DirectoryEntry, Forget};
use bickford::{DetachedContext, Errno, Reply};

use crate::file::Inner;
use crate::names::{self, Kind};
use crate::queue::run;

/// How a listing is asked for below, from an offset on.
pub(crate) type Fetch = fn(&Inner, &DetachedContext, &Listing, u64, Reply<Directory>);

/// A listing that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing {
    pub(crate) wanted: Wanted,
    pub(crate) size: u32,
    pub(crate) plus: bool,
}

/// The operation, one of two.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    Plain(bickford::ops::Readdir),
    Plus(bickford::ops::Readdirplus),
}

/// What lies below, decrypted, and where the listing goes on when nothing of it can be shown.
fn decrypt(inner: &Inner, wanted: &Listing, below: &Directory) -> (Directory, Option<u64>) {
    let mut shown = Directory::new(wanted.size, wanted.plus);
    let mut hidden = Vec::new();
    let mut end = None;
    for (entry, with) in below.iter() {
        end = Some(entry.offset);
        let dots = entry.name == b"." || entry.name == b"..";
        let name = if dots {
            Ok(entry.name.to_vec())
        } else {
            names::open(&inner.keys, Kind::Name, entry.name)
        };
        let Ok(name) = name else {
            tracing::debug!(
                layer = "crypt",
                "a name of a directory is not ours and is not shown"
            );
            let node = with.map(|entry| entry.node);
            hidden.extend(node.map(|node| Forget { node, count: 1 }));
            continue;
        };
        let name = DirectoryEntry {
            name: &name,
            ..entry
        };
        let mut with = with.unwrap_or_default();
        Inner::shown(&mut with.attr);
        // A name takes less room than it took encrypted, and all of these fitted.
        if !shown.push_entry(&name, &with) && !dots {
            hidden.push(Forget {
                node: with.node,
                count: 1,
            });
        }
    }
    hidden.retain(|forget| forget.node.0 != 0);
    if !hidden.is_empty() {
        inner.lower.0.forget(&hidden);
    }
    let next = shown.is_empty().then_some(end).flatten();
    (shown, next)
}

/// Lists names; asks again where none of those that came can be shown.
pub(crate) fn list(
    inner: &Arc<Inner>,
    cx: DetachedContext,
    wanted: Listing,
    offset: u64,
    fetch: Fetch,
    reply: Reply<Directory>,
) {
    let again = Arc::clone(inner);
    let context = cx.clone();
    let below = Reply::intercept(move |result: Result<Directory, Errno>| {
        let below = match result {
            Ok(below) => below,
            Err(errno) => return reply.error(errno),
        };
        match decrypt(&again, &wanted, &below) {
            (_, Some(next)) if next != offset => {
                run(move || list(&again, cx, wanted, next, fetch, reply));
            }
            (shown, _) => reply.ok(shown),
        }
    });
    fetch(inner, &context, &wanted, offset, below);
}
