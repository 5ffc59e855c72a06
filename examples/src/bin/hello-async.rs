//! Files that a network service answers, each request a task: `hello-async MOUNTPOINT`. The
//! service is a server of this process on a local port; `MOUNTPOINT/N` holds what it says of the
//! number N, after 50 ms. Two threads keep hundreds of requests waiting at once.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bickford::ops::{Attr, Data};
use bickford::path::future::{Adapter, FileSystem, Task};
use bickford::path::{Options, Subject};
use bickford::{Context, Errno, Result};
use bickford_program::Program;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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

/// The number that a path names.
fn number(path: &Path) -> Result<u64> {
    let name = path.strip_prefix("/").ok().and_then(Path::to_str);
    let number = name.and_then(|name| name.parse::<u32>().ok());
    number.map(u64::from).ok_or(Errno::NOENT)
}

// ANCHOR: filesystem
impl FileSystem for Numbers {
    async fn getattr(&self, _: &Context<'_>, subject: Subject<'_>) -> Result<Attr> {
        let path = subject.path()?;
        if path == Path::new("/") {
            return Ok(Attr::directory(1, 0o755));
        }
        number(path).map(|_| Attr::file(0, 0o444, 0))
    }

    /// When the caller gets a signal, this ends where it waits, and the connection is closed.
    async fn read(
        &self,
        _: &Context<'_>,
        file: Subject<'_>,
        offset: u64,
        size: u32,
    ) -> Result<Data> {
        if offset > 0 {
            return Ok(Data::Empty);
        }
        let answer = self.ask(number(file.path()?)?).await;
        let answer = answer.map_err(|_| Errno::REMOTEIO)?;
        Ok(Data::part(answer, 0, size))
    }
}
// ANCHOR_END: filesystem

fn main() -> ExitCode {
    // Sizes are not known before, so that reads go past the page cache.
    let options = Options {
        direct_io: true,
        ..Options::default()
    };
    Program::new("hello-async")
        .about("What a network service says of numbers")
        .path_options(options)
        .run(|given| {
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
            given.keep(runtime);
            let spawner = move |task: Task| drop(handle.spawn(task));
            Ok(Adapter::new(numbers, given.path_options, spawner))
        })
}
