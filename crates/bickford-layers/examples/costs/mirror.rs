//! What StackFS does, over paths: a directory passed through as far as the benches ask.

use std::io;
use std::path::Path;

use bickford::ops::{Attr, Data, Opened};
use bickford::path::lower::{Directory, File};
use bickford::path::{self, Handles, Open, Subject};
use bickford::{Context, Errno};

/// The directory, and open files by handle.
pub(crate) struct Mirror {
    source: Directory,
    open: Handles<File>,
}

impl Mirror {
    pub(crate) fn new(source: &Path) -> io::Result<Self> {
        let source = Directory::new(source)?;
        let open = Handles::default();
        Ok(Self { source, open })
    }

    fn attributes(&self, subject: Subject<'_>) -> Result<Attr, Errno> {
        self.source.find(&self.open, subject)?.attr()
    }

    fn opened(&self, path: &Path, open: Open) -> Result<Opened, Errno> {
        let file = self.source.open(path, open)?;
        Ok(Opened::new(self.open.insert(file)))
    }

    fn range(&self, file: Subject<'_>, offset: u64, size: u32) -> Result<Data, Errno> {
        let file = self.source.find(&self.open, file)?;
        Ok(file.read(offset, size))
    }
}

impl path::FileSystem for Mirror {
    fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
        self.attributes(subject)
    }

    fn open(&self, _: &Context<'_>, path: &Path, open: Open) -> Result<Opened, Errno> {
        self.opened(path, open)
    }

    fn read(&self, _: &Context<'_>, file: Subject<'_>, at: u64, size: u32) -> Result<Data, Errno> {
        self.range(file, at, size)
    }
}

impl path::future::FileSystem for Mirror {
    async fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr, Errno> {
        self.attributes(subject)
    }

    async fn open(&self, _: &Context<'_>, path: &Path, open: Open) -> Result<Opened, Errno> {
        self.opened(path, open)
    }

    async fn read(
        &self,
        _: &Context<'_>,
        file: Subject<'_>,
        at: u64,
        size: u32,
    ) -> Result<Data, Errno> {
        self.range(file, at, size)
    }
}
