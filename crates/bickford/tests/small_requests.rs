//! What is larger than `max_write`: the same over each transport.
//!
//! Over io_uring Linux 6.18 does not survive a request that is larger than an entry. The test of `dispatch/server/init.rs`
//! that comes before this one sees to it that none is.
//!
//! Needs root and /dev/fuse; without them the test says so and ends.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use bickford::ops::{Attr, Attributes, Getattr, Getxattr, Setxattr, XattrAnswer};
use bickford::{Context, Errno, FileSystem, Negotiation, Reply, SessionConfig};
use rustix::fs::XattrFlags;
use support::{Fixture, over_each_transport};

/// `XATTR_SIZE_MAX` of linux/limits.h.
const LARGEST: usize = 65_536;

/// Asks for the smallest requests, and keeps the last value of an extended attribute.
#[derive(Default)]
struct Subject(Mutex<Vec<u8>>);

impl FileSystem for Subject {
    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        negotiation.set_max_write(4096);
        Ok(())
    }

    fn getattr(&self, _: &Context<'_>, _: Getattr, reply: Reply<Attributes>) {
        reply.ok(Attributes {
            attr: Attr::directory(1, 0o755),
            valid: Duration::ZERO,
        });
    }

    fn setxattr(&self, _: &Context<'_>, op: Setxattr<'_>, reply: Reply<()>) {
        op.value.clone_into(&mut self.0.lock().unwrap());
        reply.ok(());
    }

    fn getxattr(&self, _: &Context<'_>, op: Getxattr<'_>, reply: Reply<XattrAnswer>) {
        let value = self.0.lock().unwrap().clone();
        reply.complete(XattrAnswer::fit(value, op.size));
    }
}

fn sent_and_read_back(path: &Path, name: &str, length: usize) {
    let value: Vec<u8> = (0..=250_u8).cycle().take(length).collect();
    rustix::fs::setxattr(path, name, &value, XattrFlags::empty()).unwrap();
    let mut back = vec![0; LARGEST];
    let read = rustix::fs::getxattr(path, name, &mut back[..]).unwrap();
    assert!(back[..read] == value, "{length}");
}

#[test]
fn values_of_extended_attributes_may_be_larger_than_writes() {
    over_each_transport(|config: SessionConfig| {
        let fixture = Fixture::new(Subject::default(), config);
        // 255 bytes.
        let name = format!("user.{}", "x".repeat(250));
        for length in [4096, 16 << 10, LARGEST] {
            sent_and_read_back(&fixture.path(""), &name, length);
        }
        fixture.finish();
    });
}
