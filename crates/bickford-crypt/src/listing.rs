//! Listings with decrypted names.

use std::sync::Arc;

use bickford::ops::{Directory, DirectoryEntry, Forget, Readdir, Readdirplus};
use bickford::{Context, DetachedContext, Errno, Reply};

use crate::file::Inner;
use crate::names::{self, Kind};
use crate::queue::run;

/// A listing that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    Plain(Readdir),
    Plus(Readdirplus),
}

impl Wanted {
    fn listing(&self) -> Directory {
        match self {
            Self::Plain(op) => op.listing(),
            Self::Plus(op) => op.listing(),
        }
    }

    fn offset(&mut self) -> &mut u64 {
        match self {
            Self::Plain(op) => &mut op.offset,
            Self::Plus(op) => &mut op.offset,
        }
    }

    fn ask(self, inner: &Inner, cx: &Context<'_>, reply: Reply<Directory>) {
        match self {
            Self::Plain(op) => inner.lower.0.readdir(cx, op, reply),
            Self::Plus(op) => inner.lower.0.readdirplus(cx, op, reply),
        }
    }
}

/// What lies below, decrypted, and where the listing goes on when nothing of it can be shown.
fn decrypt(inner: &Inner, wanted: &Wanted, below: &Directory) -> (Directory, Option<u64>) {
    let mut shown = wanted.listing();
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
        inner.shown(with.node, &mut with.attr, &mut with.attr_valid);
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
    mut wanted: Wanted,
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
            (_, Some(next)) if next != *wanted.offset() => {
                *wanted.offset() = next;
                run(move || list(&again, cx, wanted, reply));
            }
            (shown, _) => reply.ok(shown),
        }
    });
    wanted.ask(inner, &context.context(), below);
}
