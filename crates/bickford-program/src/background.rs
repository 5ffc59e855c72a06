//! Going into the background, with a truthful exit status of the process that was called.
//!
//! The program runs itself again, with a socket beside what it has open, instead of forking: no thread and no
//! lock of the first process can be lost. The second process opens what is to be served, with the terminal and the
//! standard input of the first, then leaves both, mounts, and writes into the socket what it has mounted, and that the
//! mount answers, or why it does not. The first acknowledges, and ends with it; if it ends without, the second takes
//! its mount away and ends, too.

mod front;
mod report;

use std::ffi::{CString, OsString};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bickford::MountedSession;
use bickford::mount::{MountGuard, Unmount, UnmountError, Via, unmount_only};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::process::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use self::front::Front;
use self::report::{Outcome, Place, Report};
use crate::failure::{Failure, cure};
use crate::status::Status;
use crate::sys::take_socket;
use crate::waiting::Waiting;
use crate::{terminal, words};

/// Set for the process in the background, which leaves its directory: to that.
pub const MARK: &str = "BICKFORD_BACKGROUND";

/// Set for it, too: `NUMBER:INODE:PID` of the descriptor with the socket, and the process that waits. Whatever a
/// daemon itself runs inherits the word, but no such descriptor.
const SOCKET: &str = "BICKFORD_BACKGROUND_SOCKET";

/// What the waiting process writes when it has seen that the mount answers.
const ACKNOWLEDGED: &[u8] = b"a";

/// How long the process in the background may take to end when it is no longer wanted.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a reason is kept from the user, so that what the process had in use is free when it is told.
const PROMPT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

fn failed(error: io::Error) -> Failure {
    Failure::new(format!(
        "go into the background: {error}{}; use -f to stay in the foreground",
        cure(&error)
    ))
}

/// Runs this program again in the background and waits for its report.
///
/// # Errors
/// It could not be run, or the reason why it has mounted nothing.
pub fn detach() -> Result<Status, Failure> {
    open_standard().map_err(failed)?;
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut child = start(theirs).map_err(failed)?;
    let report = Report::read(&ours).map_err(failed)?;
    let place = report.mounted;
    if let Outcome::Failed(reason) = report.outcome {
        // One that goes on sees to its end itself.
        let _ = ended_within(&mut child, PROMPT);
        return Err(Failure::new(reason));
    }
    if let Outcome::Silent = report.outcome {
        // Where whoever started this program had SIGCHLD ignored nobody can tell.
        let how = child
            .wait()
            .map_or_else(|_| "ended".to_owned(), how_it_ended);
        return Err(Failure::new(format!(
            "the background process {how} before the mount answered{}",
            place.as_ref().map_or_else(String::new, take_away)
        )));
    }
    match keep(&ours, place.as_ref()) {
        Ok(()) => Ok(Status::SUCCESS),
        Err(error) => {
            drop(ours);
            let end = end(&mut child);
            let shown = place.as_ref().map_or(Path::new("/dev/fd"), Place::path);
            Err(Failure::new(format!(
                "mount {}: the new mount does not answer: {error}; {end}{}",
                shown.display(),
                place.as_ref().map_or_else(String::new, take_away)
            )))
        }
    }
}

/// Opens to nothing what of standard input, output and error is closed, for the process in the background as well: the
/// socket, its log and its files would have these numbers otherwise, and it leaves these.
fn open_standard() -> io::Result<()> {
    loop {
        let null = null(OFlags::empty())?;
        if null.as_raw_fd() > 2 {
            return Ok(());
        }
        let _ = null.into_raw_fd();
    }
}

fn start(socket: UnixStream) -> io::Result<Child> {
    let mut words = words::own().into_iter();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(
        words
            .next()
            .unwrap_or_else(|| OsString::from(terminal::name())),
    );
    let directory = std::env::current_dir().unwrap_or_default();
    let inode = rustix::fs::fstat(&socket)?.st_ino;
    let told = format!("{}:{inode}:{}", socket.as_raw_fd(), std::process::id());
    command.args(words).env(MARK, directory).env(SOCKET, told);
    rustix::io::fcntl_setfd(&socket, FdFlags::empty())?;
    // Its end of the socket is closed here with the function: without this the end of the report never comes.
    command.spawn()
}

fn how_it_ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("was ended by signal {signal}"),
        None => format!("ended ({status})"),
    }
}

/// Asks the new mount for its root and its statistics, as any user of it would, and has the process in the
/// background keep it.
///
/// Asking is not for the process that serves it: killed while it waits for its own answer, it could not end.
fn keep(mut socket: &UnixStream, place: Option<&Place>) -> io::Result<()> {
    // Without a place it was mounted by whoever passed the descriptor.
    if let Some(place) = place {
        let _waiting = Waiting::on("the new mount to answer", place.path());
        answers(rustix::fs::stat(place.path()))?;
        answers(rustix::fs::statfs(place.path()))?;
    }
    // A signal that comes after the acknowledgement must not make the status one of failure.
    let caught = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&caught))?;
    }
    socket.write_all(ACKNOWLEDGED)
}

/// Any error is an answer, as of a layer that injects them, but what the kernel says of a connection that has ended
/// and of a wait that was broken off.
fn answers<T>(asked: rustix::io::Result<T>) -> io::Result<()> {
    match asked {
        Err(
            error @ (Errno::NOTCONN
            | Errno::CONNABORTED
            | Errno::CONNREFUSED
            | Errno::CANCELED
            | Errno::INTR),
        ) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Waits for the end of the process that nobody waits for any more, and says how it went.
fn end(child: &mut Child) -> &'static str {
    if ended_within(child, PATIENCE) {
        return "it was taken away again";
    }
    // It hangs, and nobody waits for it any more.
    let _ = child.kill();
    "its process was killed"
}

fn ended_within(child: &mut Child, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while let Ok(None) = child.try_wait() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Takes away what the process in the background has mounted and not kept; says what is left, if anything.
fn take_away(place: &Place) -> String {
    let shown = place.path().display();
    let left = match place.identity() {
        Some(_) => match unmount_only(place.path(), place.identity(), Unmount::Lazy) {
            Ok(())
            | Err(
                UnmountError::NotMounted { .. }
                | UnmountError::NotFuse { .. }
                | UnmountError::Another { .. },
            ) => return String::new(),
            Err(error) => error.to_string(),
        },
        None => "it cannot be told from others".to_owned(),
    };
    format!("; its mount may be left ({left}): run 'bickford unmount {shown}'")
}

/// The background process's side.
pub struct Background {
    report: UnixStream,
    front: Front,
}

/// The socket that `told` is about, with the process that waits; `None` where it is of another process.
fn passed(told: &str) -> io::Result<Option<OwnedFd>> {
    let parse = || -> Option<(RawFd, u64, i32)> {
        let mut fields = told.splitn(3, ':');
        let (number, inode) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some((number, inode, fields.next()?.parse().ok()?))
    };
    let Some((number, inode, front)) = parse() else {
        return Ok(None);
    };
    let socket = take_socket(number, inode);
    let is_of_front = || Pid::from_raw(front) == rustix::process::getppid();
    if socket.is_none() && is_of_front() {
        // Otherwise it would run itself again, and that one, too, and so on.
        return Err(io::Error::other(format!(
            "the program has closed descriptor {number}, which it was started with"
        )));
    }
    Ok(socket)
}

impl Background {
    /// The side of this process, if it is the one in the background.
    ///
    /// # Errors
    /// The system has no more of what it takes, or the program has closed what it was started with.
    pub fn take() -> Result<Option<Self>, Failure> {
        let told = std::env::var(SOCKET).unwrap_or_default();
        let Some(socket) = passed(&told).map_err(failed)? else {
            return Ok(None);
        };
        let taken = || -> io::Result<Self> {
            let report = UnixStream::from(socket);
            // It was started as /proc/self/exe, which would be its name otherwise.
            let name = CString::new(terminal::name()).unwrap_or_default();
            rustix::thread::set_name(&name)?;
            let front = Front::watch(report.try_clone()?)?;
            Ok(Self { report, front })
        };
        taken().map(Some).map_err(failed)
    }

    /// Leaves terminal and standard input of whoever called the program: what is served is open. The process leads
    /// its own session then.
    ///
    /// # Errors
    /// The program has made its process the leader of a group.
    pub fn leave(&self) -> Result<(), Failure> {
        leave().map_err(failed)
    }

    /// Tells what has been mounted, before anybody serves it.
    pub fn mounted(&self, guard: &MountGuard) {
        if guard.via() == Via::Descriptor {
            return;
        }
        let place = Place::new(guard.mountpoint(), guard.identity());
        // Where nobody waits there is nobody to tell; the end of the front says so, too.
        let _ = (&self.report).write_all(&place.encode());
        self.front.mounted(place);
    }

    /// Leaves directory and output, and what [`Background::leave`] does where it was not called; then lets the waiting process
    /// end with success if the mount answers.
    ///
    /// # Errors
    /// Nobody waits any more, or the program has made its process the leader of a group.
    pub fn ready(mut self, session: &Arc<MountedSession>) -> io::Result<()> {
        let leads = rustix::process::getsid(None)? == rustix::process::getpid();
        if !leads {
            leave()?;
        }
        std::env::set_current_dir(Path::new("/"))?;
        let null = null(OFlags::CLOEXEC)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        self.front.serving(Arc::clone(session));
        self.report.write_all(report::READY)?;
        self.report.shutdown(Shutdown::Write)
    }

    /// Lets the waiting process end with this failure. This one has ten seconds from then on.
    pub fn failed(mut self, failure: &Failure) {
        self.front.failed();
        // Where nobody waits there is nobody to tell.
        let _ = self.report.write_all(failure.to_string().as_bytes());
        // The report ends with this, and not when nobody has the socket any more: the front goes on reading from it,
        // and what the program started before may have inherited it.
        let _ = self.report.shutdown(Shutdown::Write);
    }
}

fn leave() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(rustix::stdio::dup2_stdin(null(OFlags::CLOEXEC)?)?)
}

fn null(more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | more;
    Ok(rustix::fs::open("/dev/null", flags, Mode::empty())?)
}
