//! The control socket: statistics and events of a session for other programs.
//!
//! A client connects, writes one line, and reads lines of JSON: `snapshot` answers one
//! [`Snapshot`]; `events` answers an [`Event`] per line as requests end, and `{"dropped":N}` where
//! events were lost, until the client closes. Sockets are named after the number of the connection
//! ([`socket_path`]), so that they are found without touching the mount, even while it hangs; [`find`]
//! finds those of other users.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

mod find;

pub use self::find::{Socket, find};

use super::{Event, Snapshot};
use crate::dispatch::Server;

/// Where root's sockets are.
pub(crate) const OF_ROOT: &str = "/run/bickford";

/// Where sockets are: `/run/bickford` for root, else below `$XDG_RUNTIME_DIR`, or in the directory for temporary files
/// where that is no directory of the user's own: su(1) and the like leave it as it was for another user. User 0 of a user
/// namespace to whom `/run` does not belong is as any other user.
#[must_use]
pub fn socket_directory() -> PathBuf {
    if rustix::process::geteuid().is_root() && belongs_to_root(Path::new(OF_ROOT)) {
        return OF_ROOT.into();
    }
    let user = rustix::process::geteuid().as_raw();
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    base.filter(|base| is_runtime_directory(base, user))
        .or_else(|| Some(std::env::temp_dir()).filter(|base| base.is_absolute()))
        .unwrap_or_else(|| "/tmp".into())
        .join(format!("bickford-{user}"))
}

/// What a relative path names changes with the current directory, and a daemon's is `/`.
fn is_runtime_directory(base: &Path, user: u32) -> bool {
    let found = std::fs::metadata(base);
    base.is_absolute() && found.is_ok_and(|found| found.is_dir() && found.uid() == user)
}

/// A directory, or that above it where it has not been made.
fn belongs_to_root(directory: &Path) -> bool {
    let found = std::fs::symlink_metadata(directory);
    let found = found.or_else(|_| std::fs::metadata(directory.parent().unwrap_or(directory)));
    found.is_ok_and(|found| found.uid() == 0)
}

/// The socket of the session that serves a connection.
#[must_use]
pub fn socket_path(connection: u32) -> PathBuf {
    socket_directory().join(format!("{connection}.sock"))
}

/// A socket that answers until this is dropped.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    /// Device and inode of the socket: a later session may have put its own at the path.
    file: (u64, u64),
    /// Open until the end, so that no other file gets this inode.
    _listener: Arc<UnixListener>,
    ended: Arc<AtomicBool>,
    /// Readable from the end on.
    ending: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// How many clients are served at once.
const CLIENTS_MAX: usize = 8;
/// How often a thread that has a client looks whether it should end.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a client may take to say what it wants, or to read what it gets.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a second reader of events is told.
const TAKEN: &str =
    "another program, such as a second 'bickford trace', reads the events of this session already";
/// How long others that make or remove a socket are waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a client's request at most.
const REQUEST_MAX: usize = 64;
/// More than any session says: another user's daemon is not trusted to come to an end.
const SNAPSHOT_MAX: usize = 64 << 20;
const EVENT_MAX: u64 = 4_096;

#[derive(Serialize, Deserialize)]
struct Dropped {
    dropped: u64,
}

impl Control {
    /// Serves the socket at `path`; one that is there already is taken over.
    ///
    /// # Errors
    /// When the directory or socket cannot be made, or belongs to somebody else.
    pub fn serve(path: &Path, server: Arc<Server>, transport: String) -> io::Result<Self> {
        let made = listen_at(path);
        let (listener, file) = made.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let listener = Arc::new(listener);
        let listening = Arc::clone(&listener);
        let ended = Arc::new(AtomicBool::new(false));
        let ending = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        let told = Arc::clone(&ending);
        let service = Service {
            server,
            transport: transport.into(),
            ended: Arc::clone(&ended),
        };
        let thread = thread::Builder::new()
            .name("bickford-ctl".into())
            .spawn(move || service.listen(&listening, &told))?;
        Ok(Self {
            path: path.into(),
            file,
            _listener: listener,
            ended,
            ending,
            thread: Some(thread),
        })
    }
}

/// A socket at `path`, in a directory of the caller's own, and its identity.
fn listen_at(path: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let found = std::fs::symlink_metadata(directory)?;
        if !found.is_dir() {
            return Err(io::Error::other(format!(
                "{} is no directory; remove it",
                directory.display()
            )));
        }
        let owner = found.uid();
        if owner != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(format!(
                "{} belongs to user {owner}",
                directory.display()
            )));
        }
    }
    let _lock = DirectoryLock::of(path);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok((listener, identity(path)?))
}

impl Drop for Control {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Err(error) = rustix::io::write(&*self.ending, &1u64.to_ne_bytes()) {
            return tracing::error!("ending the control socket: {error}");
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the control socket panicked");
        }
        // The number of a connection is used again at once, and no system call removes a name only if it is of
        // a given file.
        let _lock = DirectoryLock::of(&self.path);
        let removed = match identity(&self.path) {
            Ok(file) if file == self.file => std::fs::remove_file(&self.path),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::debug!(path = %self.path.display(), "removing the control socket: {error}");
        }
    }
}

/// Keeps other programs of ours from making and removing sockets in a directory while this lives.
#[derive(Debug)]
pub struct DirectoryLock(Option<OwnedFd>);

impl DirectoryLock {
    /// Locks the directory that `socket` is in. Who may read a directory may lock it and keep that for ever: after
    /// a second without the lock it is gone without.
    #[must_use]
    pub fn of(socket: &Path) -> Self {
        let directory = socket.parent().map(|directory| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(directory, flags, Mode::empty())
        });
        let Some(Ok(directory)) = directory else {
            return Self(None);
        };
        let end = Instant::now() + LOCK_PATIENCE;
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Self(Some(directory)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < end => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(_) => return Self(None),
            }
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing does not end it where a process that was forked meanwhile has the descriptor, too.
        if let Some(directory) = &self.0 {
            let _ = flock(directory, FlockOperation::Unlock);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

#[derive(Clone)]
struct Service {
    server: Arc<Server>,
    transport: Arc<str>,
    ended: Arc<AtomicBool>,
}

impl Service {
    fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn listen(&self, listener: &UnixListener, ending: &OwnedFd) {
        let mut clients: Vec<JoinHandle<()>> = Vec::new();
        while !self.ended() {
            let mut fds = [
                PollFd::new(listener, PollFlags::IN),
                PollFd::new(ending, PollFlags::IN),
            ];
            let _ = rustix::event::poll(&mut fds, None);
            clients.retain(|client| !client.is_finished());
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Without a free descriptor the client goes on waiting, and poll(2) would return at once.
                    if error.kind() != io::ErrorKind::WouldBlock {
                        thread::sleep(PAUSE);
                    }
                    continue;
                }
            };
            if clients.len() >= CLIENTS_MAX {
                tracing::warn!("more than {CLIENTS_MAX} clients of the control socket");
                continue;
            }
            let service = self.clone();
            let name = "bickford-ctl".into();
            let spawned = thread::Builder::new().name(name).spawn(move || {
                if let Err(error) = service.answer(stream) {
                    tracing::debug!("a client of the control socket: {error}");
                }
            });
            clients.extend(spawned.ok());
        }
        for client in clients {
            let _ = client.join();
        }
    }

    fn answer(&self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        match read_request(&stream)?.trim_end() {
            "snapshot" => {
                let snapshot = Snapshot::of(&self.server, &self.transport);
                write_line(&stream, &snapshot)
            }
            "events" => self.stream_events(&stream),
            other => write_line(&stream, &format!("unknown request {other:?}")),
        }
    }

    fn stream_events(&self, stream: &UnixStream) -> io::Result<()> {
        let events = self.server.events();
        // A reader that has just gone is noticed within a pause.
        let end = Instant::now() + 5 * PAUSE;
        while !events.enable() {
            if self.ended() || Instant::now() > end {
                return write_line(stream, &TAKEN);
            }
            thread::sleep(PAUSE / 10);
        }
        let result = self.pump(stream);
        events.disable();
        result
    }

    /// Writes a line to a reader of events, for whom the end of the session does not wait.
    fn write_line(&self, mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
        let line = line_of(value)?;
        let mut left = line.as_slice();
        let end = Instant::now() + PATIENCE;
        while !left.is_empty() {
            match stream.write(left) {
                Ok(count) => left = left.get(count..).unwrap_or_default(),
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        && !self.ended()
                        && Instant::now() < end => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn pump(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_millis(1)))?;
        stream.set_write_timeout(Some(PAUSE))?;
        while !self.ended() {
            let (events, dropped) = self.server.events().take(PAUSE);
            let mut over = None;
            for event in &events {
                // What was taken goes to who reads it at once.
                if self.ended() && over.get_or_insert_with(Instant::now).elapsed() > PAUSE {
                    return Ok(());
                }
                self.write_line(stream, event)?;
            }
            if dropped > 0 {
                self.write_line(stream, &Dropped { dropped })?;
            }
            if events.is_empty() && matches!((&*stream).read(&mut [0; 1]), Ok(0)) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The line of a client, which has five seconds for all of it: the end of the session waits for its thread.
fn read_request(mut stream: &UnixStream) -> io::Result<String> {
    let end = Instant::now() + PATIENCE;
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < REQUEST_MAX && !line.ends_with(b"\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => line.extend(byte),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn write_line(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    stream.write_all(&line_of(value)?)
}

fn line_of(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// Connects to whoever listens at `path`, and waits for nobody.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] where as many wait to be accepted as may: a daemon that is stopped accepts nobody,
/// and that of another user need not.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(rustix::io::Errno::AGAIN) => return Err(no_answer()),
        connected => connected?,
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn request(path: &Path, request: &str) -> io::Result<UnixStream> {
    let mut stream = connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{request}")?;
    Ok(stream)
}

fn no_answer() -> io::Error {
    let reason = "the daemon does not answer: it is stopped or very busy";
    io::Error::new(io::ErrorKind::TimedOut, reason)
}

/// Asks a session for its statistics.
///
/// # Errors
/// When nobody answers at `path` for five seconds.
pub fn snapshot(path: &Path) -> io::Result<Snapshot> {
    snapshot_within(path, PATIENCE)
}

/// Asks a session for its statistics, with a patience of one's own.
///
/// # Errors
/// When nobody has answered at `path` after `patience`, or with nonsense.
pub fn snapshot_within(path: &Path, patience: Duration) -> io::Result<Snapshot> {
    let end = Instant::now() + patience;
    let mut stream = request(path, "snapshot")?;
    let (mut line, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    while !line.ends_with(b"\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || line.len() > SNAPSHOT_MAX {
            return Err(no_answer());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => line.extend(chunk.iter().take(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(no_answer()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    serde_json::from_slice(&line).map_err(|error| {
        let reason = format!(
            "its answer is not understood ({error}): the daemon is of another version, whose own 'bickford stat' \
             understands it"
        );
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })
}

/// Reads the events of a session.
#[derive(Debug)]
pub struct EventReader {
    lines: BufReader<UnixStream>,
    partial: String,
    /// How many events were lost so far.
    pub dropped: u64,
}

impl EventReader {
    /// Begins to read.
    ///
    /// # Errors
    /// When nobody answers at `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = request(path, "events")?;
        stream.set_read_timeout(Some(PAUSE))?;
        Ok(Self {
            lines: BufReader::new(stream),
            partial: String::new(),
            dropped: 0,
        })
    }

    /// How long [`Self::next_event`] waits from now on; more than nothing.
    ///
    /// # Errors
    /// When it is nothing.
    pub fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.lines.get_ref().set_read_timeout(Some(patience))
    }

    /// The next event; `Ok(None)` when none came for a tenth of a second, or what
    /// [`Self::set_patience`] was given, and where the session says that events were lost.
    ///
    /// # Errors
    /// When the session has ended, or somebody else reads its events.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        loop {
            let room = EVENT_MAX.saturating_sub(self.partial.len() as u64);
            match (&mut self.lines).take(room).read_line(&mut self.partial) {
                Ok(0) if room == 0 => return Err(io::Error::other("a line without an end")),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) if self.partial.ends_with('\n') => {}
                Ok(_) => continue,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock) => return Ok(None),
                Err(error) => return Err(error),
            }
            let line = std::mem::take(&mut self.partial);
            if let Ok(event) = serde_json::from_str(&line) {
                return Ok(Some(event));
            }
            match serde_json::from_str::<Dropped>(&line) {
                // Whoever calls has limits of its own to look at; a daemon is not trusted to come to an end.
                Ok(lost) => {
                    self.dropped = self.dropped.saturating_add(lost.dropped);
                    return Ok(None);
                }
                Err(_) => {
                    let refusal = serde_json::from_str(&line);
                    return Err(io::Error::other(
                        refusal.unwrap_or_else(|_| line.trim().to_owned()),
                    ));
                }
            }
        }
    }
}
