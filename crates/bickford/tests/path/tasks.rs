//! File systems with asynchronous methods: each request is a task.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bickford::abi::{AttrOut, InterruptIn, Opcode, OpenIn, ReadIn, Rename2In};
use bickford::ops::{Attr, Data, Opened};
use bickford::path::future::{Adapter, FileSystem, Task, Waiting};
use bickford::path::{FileSystem as _, Listing, Names, New, Open, Options, Subject};
use bickford::transport::memory::Kernel;
use bickford::{Context, Result};
use rustix::fs::RenameFlags;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use zerocopy::IntoBytes;

use crate::client::{Client, ROOT, session};
use crate::mirror::{Mirror, Served};
use crate::support::wait_until;

const EINTR: i32 = 4;

/// How many methods are under way.
#[derive(Default)]
pub struct Inside(AtomicUsize);

struct Guard<'a>(&'a Inside);

impl Inside {
    fn enter(&self) -> Guard<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Guard(self)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The mirror, whose methods let others run; reads, renames and attributes of names that begin with
/// `slow` wait for a permit.
pub struct Slow {
    served: Served,
    permits: Arc<Semaphore>,
    inside: Arc<Inside>,
    /// Where nothing is slow.
    free: bool,
}

impl Slow {
    async fn pass(&self, path: Option<&Path>) {
        yield_now().await;
        let name = path.and_then(Path::file_name);
        let slow = name.is_none_or(|name| name.as_encoded_bytes().starts_with(b"slow"));
        if slow && !self.free {
            let _inside = self.inside.enter();
            self.permits.acquire().await.unwrap().forget();
        }
    }
}

impl FileSystem for Slow {
    async fn getattr(&self, cx: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        let fast = Path::new("/fast");
        let path = subject.path().ok().filter(|path| path.parent().is_some());
        self.pass(path.or(Some(fast))).await;
        self.served.getattr(cx, subject)
    }

    async fn mknod(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        yield_now().await;
        self.served.mknod(cx, path, new)
    }

    async fn mkdir(&self, cx: &Context<'_>, path: &Path, new: New) -> Result<()> {
        yield_now().await;
        self.served.mkdir(cx, path, new)
    }

    async fn create(&self, cx: &Context<'_>, path: &Path, new: New, open: Open) -> Result<Opened> {
        yield_now().await;
        self.served.create(cx, path, new, open)
    }

    async fn unlink(&self, cx: &Context<'_>, path: &Path) -> Result<()> {
        yield_now().await;
        let removed = self.served.unlink(cx, path);
        yield_now().await;
        removed
    }

    async fn rmdir(&self, cx: &Context<'_>, path: &Path) -> Result<()> {
        yield_now().await;
        self.served.rmdir(cx, path)
    }

    async fn rename(
        &self,
        cx: &Context<'_>,
        from: &Path,
        to: &Path,
        flags: RenameFlags,
    ) -> Result<()> {
        self.pass(Some(to)).await;
        let renamed = self.served.rename(cx, from, to, flags);
        yield_now().await;
        renamed
    }

    async fn link(&self, cx: &Context<'_>, existing: Subject<'_>, new: &Path) -> Result<()> {
        yield_now().await;
        self.served.link(cx, existing, new)
    }

    async fn open(&self, cx: &Context<'_>, path: &Path, open: Open) -> Result<Opened> {
        yield_now().await;
        self.served.open(cx, path, open)
    }

    async fn release(&self, cx: &Context<'_>, file: Subject<'_>) -> Result<()> {
        yield_now().await;
        self.served.release(cx, file)
    }

    async fn read(&self, cx: &Context<'_>, file: Subject<'_>, at: u64, size: u32) -> Result<Data> {
        self.pass(None).await;
        self.served.read(cx, file, at, size)
    }

    async fn readdir(
        &self,
        cx: &Context<'_>,
        directory: Subject<'_>,
        listing: &mut Listing,
    ) -> Result<()> {
        yield_now().await;
        self.served.readdir(cx, directory, listing)
    }
}

pub struct Fixture {
    pub kernel: Kernel,
    pub names: Names,
    pub mirror: Arc<Mirror>,
    permits: Arc<Semaphore>,
    inside: Arc<Inside>,
    _runtime: Runtime,
}

/// Over two threads of tokio.
pub fn fixture(mirror: Arc<Mirror>, options: Options, free: bool) -> Fixture {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let (permits, inside) = (Arc::new(Semaphore::new(0)), Arc::<Inside>::default());
    let slow = Slow {
        served: Served(Arc::clone(&mirror)),
        permits: Arc::clone(&permits),
        inside: Arc::clone(&inside),
        free,
    };
    let handle = runtime.handle().clone();
    let adapter = Adapter::new(slow, options, move |task: Task| drop(handle.spawn(task)));
    Fixture {
        names: adapter.names(),
        kernel: session(adapter),
        mirror,
        permits,
        inside,
        _runtime: runtime,
    }
}

impl Fixture {
    fn client(&self) -> Client {
        Client::new(&self.kernel, 1)
    }

    fn wait_for(&self, inside: usize) {
        let count = || self.inside.0.load(Ordering::SeqCst);
        wait_until("so many methods are waiting", || count() == inside);
    }

    /// Until as many wait for their claims. Requests on their way at once are taken in any order:
    /// who is to wait behind another is sent when that one waits.
    fn wait_for_claims(&self, waiting: usize) {
        let what = format!("{waiting} wait for their claims");
        wait_until(&what, || self.names.sizes().waiting == waiting);
    }

    /// Handles that the file system has open.
    fn opens(&self) -> usize {
        self.mirror.tree().opens()
    }

    fn read(&mut self, node: u64, fh: u64) -> u64 {
        let input = ReadIn {
            fh,
            size: 8,
            ..ReadIn::default()
        };
        self.kernel.send(Opcode::Read, node, input.as_bytes())
    }

    fn rename(&mut self, from: &str, to: &str) -> u64 {
        let input = Rename2In {
            newdir: ROOT,
            ..Rename2In::default()
        };
        let names = format!("{from}\0{to}\0");
        let body = [input.as_bytes(), names.as_bytes()].concat();
        self.kernel.send(Opcode::Rename2, ROOT, &body)
    }

    fn interrupt(&mut self, unique: u64) {
        let input = InterruptIn { unique };
        self.kernel.send(Opcode::Interrupt, 0, input.as_bytes());
    }

    fn error(&mut self, unique: u64) -> i32 {
        -self.kernel.answer(unique).unwrap().error
    }
}

#[test]
fn hundreds_wait_at_once_on_two_threads() {
    let mut fixture = fixture(Arc::default(), Options::default(), false);
    let (entry, opened) = fixture.client().create(ROOT, "file").unwrap();
    let sent: Vec<u64> = (0..500)
        .map(|_| fixture.read(entry.nodeid, opened.fh))
        .collect();
    fixture.wait_for(500);
    // A rename waits for them, and who comes after the rename for that; none of them on a thread.
    let rename = fixture.rename("file", "other");
    fixture.wait_for_claims(1);
    let after = fixture.read(entry.nodeid, opened.fh);
    fixture.wait_for_claims(2);
    // Another name is free.
    fixture.client().mknod(ROOT, "another").unwrap();
    assert!(fixture.mirror.find("/file".as_ref()).is_some());
    fixture.permits.add_permits(501);
    for unique in sent.into_iter().chain([after]) {
        let answer = fixture.kernel.answer(unique).unwrap();
        assert_eq!(answer.body, entry.attr.size.to_ne_bytes());
    }
    assert_eq!(fixture.error(rename), 0);
    assert!(fixture.mirror.find("/other".as_ref()).is_some());
    assert_eq!(fixture.mirror.moved.load(Ordering::SeqCst), 0);
}

#[test]
fn an_interrupt_drops_what_waits() {
    let mut fixture = fixture(Arc::default(), Options::default(), false);
    let (entry, opened) = fixture.client().create(ROOT, "file").unwrap();
    let read = fixture.read(entry.nodeid, opened.fh);
    fixture.wait_for(1);
    let rename = fixture.rename("file", "other");
    fixture.wait_for_claims(1);
    // One that waits for its claims has done nothing yet, whatever it would do.
    fixture.interrupt(rename);
    assert_eq!(fixture.error(rename), EINTR);
    fixture.wait_for_claims(0);
    let queued = fixture.rename("file", "other");
    fixture.wait_for_claims(1);
    let behind = fixture.read(entry.nodeid, opened.fh);
    fixture.wait_for_claims(2);
    fixture.interrupt(behind);
    assert_eq!(fixture.error(behind), EINTR);
    // What the read had claimed is free when it is dropped.
    fixture.interrupt(read);
    assert_eq!(fixture.error(read), EINTR);
    fixture.wait_for(0);
    assert_eq!(fixture.error(queued), 0);
    assert!(fixture.mirror.find("/other".as_ref()).is_some());
    fixture.wait_for_claims(0);
}

#[test]
fn a_rename_that_has_begun_runs_to_its_end() {
    let mut fixture = fixture(Arc::default(), Options::default(), false);
    let made = fixture.client().mknod(ROOT, "file").unwrap();
    let rename = fixture.rename("file", "slow");
    fixture.wait_for(1);
    fixture.interrupt(rename);
    let getattr = fixture.kernel.send(Opcode::Getattr, made.nodeid, &[0; 16]);
    fixture.wait_for_claims(1);
    fixture.permits.add_permits(2);
    assert_eq!(fixture.error(rename), 0);
    assert!(fixture.mirror.find("/slow".as_ref()).is_some());
    let answer = fixture.kernel.answer(getattr).unwrap();
    let attr: AttrOut = answer.read().unwrap();
    assert_eq!(attr.attr.size, made.attr.size, "not the file that it was");
}

#[test]
fn what_was_opened_for_nobody_is_released() {
    let options = Options {
        auto_cache: true,
        ..Options::default()
    };
    let mut fixture = fixture(Arc::default(), options, false);
    fixture.permits.add_permits(1);
    let made = fixture.client().mknod(ROOT, "slow").unwrap();
    let open = fixture
        .kernel
        .send(Opcode::Open, made.nodeid, OpenIn::default().as_bytes());
    // It is open, and its attributes are being asked for.
    fixture.wait_for(1);
    assert_eq!(fixture.opens(), 1);
    fixture.interrupt(open);
    assert_eq!(fixture.error(open), EINTR);
    wait_until("released", || fixture.opens() == 0);
    fixture.client().forget(made.nodeid, 1);
    wait_until("forgotten", || fixture.names.sizes().nodes == 1);
}

#[test]
fn where_requests_are_no_tasks_a_method_that_waits_keeps_its_thread() {
    let (permits, inside) = (Arc::new(Semaphore::new(1)), Arc::<Inside>::default());
    let slow = Slow {
        served: Served(Arc::default()),
        permits: Arc::clone(&permits),
        inside: Arc::clone(&inside),
        free: false,
    };
    let waiting = Waiting::new(slow, Options::default());
    let names = waiting.names();
    let kernel = session(waiting);
    let client = Client::new(&kernel, 1);
    client.mknod(ROOT, "slow").unwrap();
    client.mknod(ROOT, "quick").unwrap();
    thread::scope(|scope| {
        let looks = scope.spawn(|| Client::new(&kernel, 2).lookup(ROOT, "slow"));
        wait_until("it waits", || inside.0.load(Ordering::SeqCst) == 1);
        assert!(client.lookup(ROOT, "quick").is_ok(), "others go on");
        assert!(!looks.is_finished());
        permits.add_permits(1);
        assert!(looks.join().unwrap().is_ok());
    });
    assert_eq!(names.sizes().nodes, 3);
}
