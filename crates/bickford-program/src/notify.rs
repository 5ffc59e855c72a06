//! sd_notify(3): tells the service manager what state the daemon is in.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

/// How long a service manager that reads nothing is waited for: the mount has to be served, and to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sends `state` (lines of KEY=VALUE) to the socket named by NOTIFY_SOCKET; nothing to do without it.
pub fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(name.as_bytes(), state) {
        tracing::warn!("NOTIFY_SOCKET={}: {error}", name.display());
    }
}

fn send(name: &[u8], state: &str) -> io::Result<()> {
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(name)))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sockets_get_the_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("bickford-test-{}", std::process::id());
        let by_name =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (socket, address) in [
            (by_path, path.as_os_str().as_bytes().to_vec()),
            (by_name, format!("@{name}").into_bytes()),
        ] {
            send(&address, "READY=1").unwrap();
            let mut buffer = [0_u8; 16];
            let len = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], b"READY=1");
        }
        assert!(send(b"/nonexistent/socket", "READY=1").is_err());
    }

    #[test]
    fn a_socket_that_nobody_reads_is_given_up() {
        let name = format!("bickford-test-full-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _unread = UnixDatagram::bind_addr(&address).unwrap();
        let full = UnixDatagram::unbound().unwrap();
        full.set_nonblocking(true).unwrap();
        while full.send_to_addr(b"READY=1", &address).is_ok() {}
        let error = send(format!("@{name}").as_bytes(), "STOPPING=1").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
