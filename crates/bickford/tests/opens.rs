//! What the kernel makes of open(2) for a file system over paths.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bickford::ops::{Attr, Opened};
use bickford::path::{Adapter, FileSystem, New, Open, Options, Subject};
use bickford::{Context, Errno, Result};

use support::Fixture;

#[derive(Default)]
struct State {
    sizes: HashMap<PathBuf, u64>,
    calls: Vec<String>,
}

/// Files that have a size, and a list of what was called.
#[derive(Clone, Default)]
struct Sizes(Arc<Mutex<State>>);

impl Sizes {
    fn called(&self, call: String) {
        self.0.lock().unwrap().calls.push(call);
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().calls)
    }
}

impl FileSystem for Sizes {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        let path = subject.path()?;
        if path == Path::new("/") {
            return Ok(Attr::directory(1, 0o755));
        }
        let size = self.0.lock().unwrap().sizes.get(path).copied();
        Ok(Attr::file(0, 0o644, size.ok_or(Errno::NOENT)?))
    }

    fn create(&self, _: &Context<'_>, path: &Path, _: New, open: Open) -> Result<Opened> {
        self.called(format!("create {:#o}", open.flags & 0o1777));
        self.0.lock().unwrap().sizes.insert(path.into(), 7);
        Ok(Opened::default())
    }

    fn open(&self, _: &Context<'_>, _: &Path, open: Open) -> Result<Opened> {
        self.called(format!("open {:#o}", open.flags & 0o1777));
        Ok(Opened::default())
    }

    fn truncate(&self, _: &Context<'_>, subject: Subject<'_>, size: u64) -> Result<()> {
        self.called(format!("truncate {:?} to {size}", subject.handle()));
        let path = subject.path()?;
        self.0.lock().unwrap().sizes.insert(path.into(), size);
        Ok(())
    }
}

#[test]
fn flags_are_those_that_are_documented_and_truncation_follows() {
    support::over_each_transport(|config| {
        let sizes = Sizes::default();
        let adapter = Adapter::new(sizes.clone(), Options::default());
        let fixture = Fixture::new(adapter, config);
        let file = fixture.path("file");
        let flags = libc::O_EXCL | libc::O_TRUNC;
        let mut options = OpenOptions::new();
        let made = options.write(true).create(true).custom_flags(flags);
        made.open(&file).unwrap();
        assert_eq!(sizes.calls(), ["create 0o1"]);
        let truncating = OpenOptions::new().write(true).truncate(true).open(&file);
        assert_eq!(truncating.unwrap().metadata().unwrap().len(), 0);
        assert_eq!(sizes.calls(), ["open 0o1", "truncate None to 0"]);
        fixture.finish();
    });
}
