//! One process as the kernel sees it: sends requests and gets their answers.

use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use bickford::abi::{
    AttrOut, CreateIn, EntryOut, ForgetIn, GetattrIn, InHeader, InterruptIn, LinkIn, MkdirIn,
    MknodIn, Opcode, OpenIn, OpenOut, ReadIn, ReleaseIn, Rename2In,
};
use bickford::dispatch::{Server, Worker};
use bickford::transport::memory::Kernel;
use bickford::transport::{Outgoing, Responder, Ticket};
use zerocopy::{FromBytes, IntoBytes};

/// A session that has seen INIT.
pub fn session(filesystem: impl bickford::FileSystem) -> Kernel {
    let mut kernel = Kernel::new(filesystem);
    assert_eq!(kernel.init().unwrap().error, 0);
    kernel
}

#[derive(Default)]
struct Inbox {
    answer: Mutex<Option<Result<Vec<u8>, i32>>>,
    arrived: Condvar,
}

impl Responder for Inbox {
    fn respond(&self, _: Ticket, answer: &Outgoing<'_>) -> std::io::Result<()> {
        let mut body = answer.fixed.to_vec();
        body.extend(answer.data.clone().into_bytes()?);
        let answer = if answer.error == 0 {
            Ok(body)
        } else {
            Err(answer.error)
        };
        *self.answer.lock().unwrap() = Some(answer);
        self.arrived.notify_all();
        Ok(())
    }
}

pub type Answer<T> = Result<T, i32>;

static UNIQUE: AtomicU64 = AtomicU64::new(1_000_000);

/// Sends requests to a session, from any thread.
#[derive(Clone)]
pub struct Client {
    server: Arc<Server>,
    worker: Worker,
}

pub const ROOT: u64 = 1;

fn named(fixed: &[u8], names: &[&str]) -> Vec<u8> {
    let mut body = fixed.to_vec();
    for name in names {
        body.extend(CString::new(*name).unwrap().as_bytes_with_nul());
    }
    body
}

impl Client {
    pub fn new(kernel: &Kernel, number: usize) -> Self {
        Self {
            server: Arc::clone(kernel.server()),
            worker: kernel.server().worker(number),
        }
    }

    pub fn unique() -> u64 {
        UNIQUE.fetch_add(2, Ordering::Relaxed)
    }

    pub fn call(&self, opcode: Opcode, node: u64, body: &[u8]) -> Answer<Vec<u8>> {
        self.call_as(Self::unique(), opcode, node, body)
    }

    pub fn call_as(&self, unique: u64, opcode: Opcode, node: u64, body: &[u8]) -> Answer<Vec<u8>> {
        let inbox = Arc::new(Inbox::default());
        let responder: Arc<dyn Responder> = inbox.clone();
        self.send(unique, opcode, node, body, &responder);
        let answer = inbox.answer.lock().unwrap();
        inbox
            .arrived
            .wait_while(answer, |answer| answer.is_none())
            .unwrap()
            .take()
            .unwrap()
    }

    fn send(
        &self,
        unique: u64,
        opcode: Opcode,
        node: u64,
        body: &[u8],
        responder: &Arc<dyn Responder>,
    ) {
        let header = InHeader {
            len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
            opcode: opcode as u32,
            unique,
            nodeid: node,
            ..InHeader::default()
        };
        let message = [header.as_bytes(), body].concat();
        self.server.process_bytes(&self.worker, &message, responder);
    }

    fn read<T: FromBytes>(body: &[u8]) -> T {
        T::read_from_prefix(body).unwrap().0
    }

    fn entry(&self, opcode: Opcode, node: u64, body: &[u8]) -> Answer<EntryOut> {
        self.call(opcode, node, body).map(|body| Self::read(&body))
    }

    pub fn lookup(&self, parent: u64, name: &str) -> Answer<EntryOut> {
        self.entry(Opcode::Lookup, parent, &named(&[], &[name]))
    }

    pub fn getattr(&self, node: u64) -> Answer<AttrOut> {
        let body = self.call(Opcode::Getattr, node, GetattrIn::default().as_bytes())?;
        Ok(Self::read(&body))
    }

    pub fn mkdir(&self, parent: u64, name: &str) -> Answer<EntryOut> {
        let input = MkdirIn {
            mode: 0o755,
            umask: 0,
        };
        self.entry(Opcode::Mkdir, parent, &named(input.as_bytes(), &[name]))
    }

    pub fn mknod(&self, parent: u64, name: &str) -> Answer<EntryOut> {
        let input = MknodIn {
            mode: 0o100_644,
            ..MknodIn::default()
        };
        self.entry(Opcode::Mknod, parent, &named(input.as_bytes(), &[name]))
    }

    pub fn create(&self, parent: u64, name: &str) -> Answer<(EntryOut, OpenOut)> {
        self.create_with(parent, name, 0)
    }

    pub fn create_with(&self, parent: u64, name: &str, flags: i32) -> Answer<(EntryOut, OpenOut)> {
        let input = CreateIn {
            flags: flags.cast_unsigned(),
            mode: 0o100_644,
            ..CreateIn::default()
        };
        let body = self.call(Opcode::Create, parent, &named(input.as_bytes(), &[name]))?;
        Ok((
            Self::read(&body),
            Self::read(&body[size_of::<EntryOut>()..]),
        ))
    }

    pub fn unlink(&self, parent: u64, name: &str) -> Answer<()> {
        self.call(Opcode::Unlink, parent, &named(&[], &[name]))
            .map(drop)
    }

    pub fn rmdir(&self, parent: u64, name: &str) -> Answer<()> {
        self.call(Opcode::Rmdir, parent, &named(&[], &[name]))
            .map(drop)
    }

    pub fn rename(&self, from: (u64, &str), to: (u64, &str), flags: u32) -> Answer<()> {
        self.rename_as(Self::unique(), from, to, flags)
    }

    pub fn rename_as(
        &self,
        unique: u64,
        from: (u64, &str),
        to: (u64, &str),
        flags: u32,
    ) -> Answer<()> {
        let input = Rename2In {
            newdir: to.0,
            flags,
            padding: 0,
        };
        let body = named(input.as_bytes(), &[from.1, to.1]);
        self.call_as(unique, Opcode::Rename2, from.0, &body)
            .map(drop)
    }

    pub fn link(&self, node: u64, parent: u64, name: &str) -> Answer<EntryOut> {
        let input = LinkIn { oldnodeid: node };
        self.entry(Opcode::Link, parent, &named(input.as_bytes(), &[name]))
    }

    pub fn open(&self, node: u64) -> Answer<OpenOut> {
        let body = self.call(Opcode::Open, node, OpenIn::default().as_bytes())?;
        Ok(Self::read(&body))
    }

    pub fn opendir(&self, node: u64) -> Answer<OpenOut> {
        let body = self.call(Opcode::Opendir, node, OpenIn::default().as_bytes())?;
        Ok(Self::read(&body))
    }

    pub fn read_at(
        &self,
        opcode: Opcode,
        node: u64,
        handle: u64,
        offset: u64,
        size: u32,
    ) -> Answer<Vec<u8>> {
        let input = ReadIn {
            fh: handle,
            offset,
            size,
            ..ReadIn::default()
        };
        self.call(opcode, node, input.as_bytes())
    }

    pub fn release(&self, opcode: Opcode, node: u64, handle: u64) -> Answer<()> {
        let input = ReleaseIn {
            fh: handle,
            ..ReleaseIn::default()
        };
        self.call(opcode, node, input.as_bytes()).map(drop)
    }

    /// Gives lookups back; nothing answers.
    pub fn forget(&self, node: u64, count: u64) {
        let responder: Arc<dyn Responder> = Arc::new(Inbox::default());
        let input = ForgetIn { nlookup: count };
        self.send(0, Opcode::Forget, node, input.as_bytes(), &responder);
    }

    pub fn interrupt(&self, unique: u64) {
        let responder: Arc<dyn Responder> = Arc::new(Inbox::default());
        let input = InterruptIn { unique };
        self.send(0, Opcode::Interrupt, 0, input.as_bytes(), &responder);
    }
}
