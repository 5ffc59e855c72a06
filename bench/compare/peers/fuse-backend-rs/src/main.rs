//! A directory passed through with fuse-backend-rs and the pass-through file system that it brings, for
//! comparison. With the fastest settings that its documentation offers: a cloned channel per thread, names,
//! attributes and data cached for good, no OPENDIR, and OPEN and write-back as the options say. Below `Vfs`,
//! as its example has it, without which it asks for neither large requests nor parallel ones.

use std::io;
use std::sync::Arc;
use std::thread;

use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::api::{Vfs, VfsOptions};
use fuse_backend_rs::passthrough::{CachePolicy, Config, PassthroughFs};
use fuse_backend_rs::transport::{FuseChannel, FuseSession};
use peer_lower::Options;

type Service = Arc<Server<Arc<Vfs>>>;

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

fn configuration(options: &Options) -> io::Result<Config> {
    let source = options
        .source
        .to_str()
        .ok_or_else(|| other("SOURCE is not UTF-8"))?;
    Ok(Config {
        root_dir: source.to_owned(),
        attr_timeout: options.timeout(),
        entry_timeout: options.timeout(),
        cache_policy: match options.direct {
            true => CachePolicy::Never,
            false => CachePolicy::Always,
        },
        writeback: options.writeback,
        no_open: options.zero_open,
        no_opendir: true,
        killpriv_v2: true,
        xattr: false,
        do_import: false,
        ..Config::default()
    })
}

fn serve(service: &Service, mut channel: FuseChannel) {
    // An error of the channel or of an answer means that the mount is gone.
    while let Ok(Some((reader, writer))) = channel.get_request() {
        if service
            .handle_message(reader, writer.into(), None, None)
            .is_err()
        {
            break;
        }
    }
}

fn main() -> io::Result<()> {
    let options = peer_lower::parse();
    if options.passthrough {
        eprintln!("fuse-backend-rs has no kernel pass-through");
        std::process::exit(3);
    }
    // Every node keeps a descriptor: the limit is raised where the directory is opened.
    drop(peer_lower::Lower::open(&options.source)?);
    let file_system = PassthroughFs::<()>::new(configuration(&options)?)?;
    file_system.import()?;
    let vfs = Vfs::new(VfsOptions {
        no_open: options.zero_open,
        no_opendir: true,
        no_writeback: !options.writeback,
        killpriv_v2: true,
        ..VfsOptions::default()
    });
    vfs.mount(Box::new(file_system), "/").map_err(other)?;
    let service: Service = Arc::new(Server::new(Arc::new(vfs)));
    let mut session = FuseSession::new(
        &options.mountpoint,
        "fuse-backend-rs",
        "fuse-backend-rs",
        false,
    )
    .map_err(other)?;
    session.set_allow_other(false);
    session.mount().map_err(other)?;
    let threads: Vec<_> = (0..options.threads)
        .map(|_| {
            let service = Arc::clone(&service);
            let clone = session.clone_fuse_file().map_err(other)?;
            // It waits for requests by epoll(7).
            rustix::fs::fcntl_setfl(&clone, rustix::fs::OFlags::NONBLOCK)?;
            session.set_fuse_file(clone);
            let channel = session.new_channel().map_err(other)?;
            Ok(thread::spawn(move || serve(&service, channel)))
        })
        .collect::<io::Result<_>>()?;
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}
