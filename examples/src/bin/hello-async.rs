//! Files that a network service answers, each request a task: `hello-async MOUNTPOINT`. The
//! service is a server of this process on a local port; `MOUNTPOINT/N` holds what it says of the
//! number N, after 50 ms. Two threads keep hundreds of requests waiting at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bickford::abi::OpenOutFlags;
use bickford::filesystem::future::{FileSystem, Owned, Spawned, Task};
use bickford::ops::{Attr, Attributes, Data, Entry, Getattr, Kept, Lookup, Open, Opened, Read};
use bickford::{DetachedContext, Errno, NodeId};
use bickford_examples::{Outcome, arguments, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const VALID: Duration = Duration::from_secs(60);
/// Node ids of the files 0, 1, ... begin here; below is the root.
const FIRST: u64 = 2;

/// The service: reads a number of eight bytes, thinks, answers with a line, and hangs up.
async fn service(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let number = stream.read_u64().await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
            let line = format!("the square of {number} is {}\n", u128::from(number).pow(2));
            stream.write_all(line.as_bytes()).await
        });
    }
}

struct Numbers {
    service: SocketAddr,
}

impl Numbers {
    async fn ask(&self, number: u64) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.service).await?;
        stream.write_u64(number).await?;
        let mut answer = Vec::new();
        stream.take(4096).read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

fn attr(node: NodeId) -> Attr {
    match node {
        NodeId::ROOT => Attr::directory(1, 0o755),
        file => Attr::file(file.0, 0o444, 0),
    }
}

impl FileSystem for Numbers {
    async fn lookup(
        self: Arc<Self>,
        _: DetachedContext,
        op: Owned<Lookup<'static>>,
    ) -> Result<Entry, Errno> {
        let name = op.operation().name.to_str().map_err(|_| Errno::NOENT)?;
        let number: u32 = name.parse().map_err(|_| Errno::NOENT)?;
        let node = NodeId(FIRST + u64::from(number));
        Ok(Entry::new(node, attr(node), VALID))
    }

    async fn getattr(
        self: Arc<Self>,
        _: DetachedContext,
        op: Owned<Getattr>,
    ) -> Result<Attributes, Errno> {
        Ok(Attributes {
            attr: attr(op.node),
            valid: VALID,
        })
    }

    /// The size is not known before, so that reads go past the page cache.
    async fn open(self: Arc<Self>, _: DetachedContext, _: Owned<Open>) -> Result<Opened, Errno> {
        Ok(Opened {
            flags: OpenOutFlags::DIRECT_IO,
            ..Opened::default()
        })
    }

    /// When the caller gets a signal, this ends where it waits, and the connection is closed.
    async fn read(self: Arc<Self>, _: DetachedContext, op: Owned<Read>) -> Result<Data, Errno> {
        if op.offset > 0 {
            return Ok(Data::Empty);
        }
        let mut answer = self
            .ask(op.node.0 - FIRST)
            .await
            .map_err(|_| Errno::REMOTEIO)?;
        answer.truncate(op.size as usize);
        Ok(answer.into())
    }
}

fn main() -> Outcome {
    let [mountpoint] = arguments("hello-async MOUNTPOINT")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let numbers = Numbers {
        service: listener.local_addr()?,
    };
    runtime.spawn(service(listener));
    let handle = runtime.handle().clone();
    let filesystem = Spawned::new(numbers, move |task: Task| drop(handle.spawn(task)));
    serve(filesystem, mountpoint, "hello-async")
}
