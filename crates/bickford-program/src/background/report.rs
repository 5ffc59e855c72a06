//! What the process in the background tells the one that waits.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Begins what is told of a mount; its identity and its path follow, each ended by NUL.
const MOUNTED: &[u8] = b"mounted\0";

/// The session has begun; any other text in this place is the reason why it has not.
pub(super) const READY: &[u8] = b"ready\0";

/// Most that is read of a report.
const MAX_REPORT_LEN: u64 = 64 * 1024;

/// A mount that the process in the background has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    path: PathBuf,
    identity: Option<u64>,
}

/// How the start went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ready,
    Failed(String),
    /// The process ended without a word.
    Silent,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) mounted: Option<Place>,
    pub(super) outcome: Outcome,
}

impl Place {
    pub(super) fn new(path: &Path, identity: Option<u64>) -> Self {
        Self {
            path: path.to_owned(),
            identity,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// As [`MountGuard::identity`](bickford::mount::MountGuard::identity).
    pub(super) fn identity(&self) -> Option<u64> {
        self.identity
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let identity = self.identity.map_or_else(String::new, |it| it.to_string());
        let path = self.path.as_os_str().as_bytes();
        [MOUNTED, identity.as_bytes(), b"\0", path, b"\0"].concat()
    }

    /// The place that begins the text, and what comes after it.
    fn decode(text: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = text.strip_prefix(MOUNTED)?.splitn(3, |byte| *byte == 0);
        let identity = std::str::from_utf8(fields.next()?).ok()?;
        let path = Path::new(OsStr::from_bytes(fields.next()?));
        Some((Self::new(path, identity.parse().ok()), fields.next()?))
    }
}

impl Report {
    /// Reads to the end of what is told.
    pub(super) fn read(socket: &UnixStream) -> io::Result<Self> {
        let mut text = Vec::new();
        socket.take(MAX_REPORT_LEN).read_to_end(&mut text)?;
        Ok(Self::decode(&text))
    }

    fn decode(text: &[u8]) -> Self {
        let (mounted, rest) = match Place::decode(text) {
            Some((place, rest)) => (Some(place), rest),
            None => (None, text),
        };
        let outcome = match rest {
            READY => Outcome::Ready,
            b"" => Outcome::Silent,
            reason => Outcome::Failed(String::from_utf8_lossy(reason).trim_end().to_owned()),
        };
        Self { mounted, outcome }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_back_as_they_were_told() {
        let place = Place::new(Path::new("/m x"), Some(7));
        let told = |rest: &[u8]| Report::decode(&[&place.encode(), rest].concat());
        assert_eq!(
            told(READY),
            Report {
                mounted: Some(place.clone()),
                outcome: Outcome::Ready
            }
        );
        assert_eq!(told(b"").outcome, Outcome::Silent);
        assert_eq!(told(b"no\n").outcome, Outcome::Failed("no".to_owned()));
        let unknown = Place::new(Path::new("/m"), None);
        assert_eq!(Report::decode(&unknown.encode()).mounted, Some(unknown));
        assert_eq!(Report::decode(READY).mounted, None);
    }

    #[test]
    fn what_was_cut_off_names_no_mount() {
        let whole = Place::new(Path::new("/m"), Some(7)).encode();
        for end in 0..whole.len() {
            assert_eq!(Report::decode(&whole[..end]).mounted, None, "cut at {end}");
        }
    }
}
