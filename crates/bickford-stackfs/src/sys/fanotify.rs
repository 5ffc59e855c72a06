//! fanotify(7) on a whole file system.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{
    FAN_EVENT_INFO_TYPE_DFID, FAN_EVENT_INFO_TYPE_DFID_NAME, FAN_EVENT_INFO_TYPE_FID,
    FANOTIFY_METADATA_VERSION,
};
use rustix::io::Errno;

use super::{LowerHandle, last_error};

/// Names were made, removed or renamed; contents or attributes were changed.
///
/// What is written by io_submit(2) or through a mapping is told no sooner than whoever wrote has closed the file.
pub(crate) const MODIFY: u64 = libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE;
pub(crate) const ATTRIB: u64 = libc::FAN_ATTRIB;
pub(crate) const NAMES: u64 =
    libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
/// With names: the object is a directory.
pub(crate) const ONDIR: u64 = libc::FAN_ONDIR;
/// A directory has gone from a name, and nothing has come there.
pub(crate) const DIRECTORY_MOVED: u64 = libc::FAN_MOVED_FROM | ONDIR;
pub(crate) const OVERFLOW: u64 = libc::FAN_Q_OVERFLOW;

/// A group that watches one file system.
#[derive(Debug)]
pub(crate) struct Fanotify(OwnedFd);

impl Fanotify {
    /// Watches the file system that `root` is on. Needs CAP_SYS_ADMIN and a file system with file
    /// handles and a stable identity.
    pub(crate) fn new(root: BorrowedFd<'_>) -> Result<Self, Errno> {
        // The object of a change of names, too.
        let report = libc::FAN_REPORT_DFID_NAME_TARGET;
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | report;
        let events = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE).cast_unsigned();
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::fanotify_init(flags, events) };
        if fd < 0 {
            return Err(last_error());
        }
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        let group = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let mask = MODIFY | ATTRIB | NAMES | ONDIR;
        let how = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        // SAFETY: the path is a C string that lives as long as the program.
        let marked = unsafe { libc::fanotify_mark(fd, how, mask, root.as_raw_fd(), c".".as_ptr()) };
        if marked < 0 {
            Err(last_error())
        } else {
            Ok(group)
        }
    }

    /// Reads events that have arrived into `buffer`; none is EAGAIN.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.0, buffer)
    }
}

impl AsFd for Fanotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A change on the watched file system.
pub(crate) struct Change<'a> {
    pub(crate) mask: u64,
    pub(crate) pid: i32,
    /// The directory, and the name in it where a name is meant.
    pub(crate) directory: Option<(LowerHandle, &'a [u8])>,
    /// The object itself.
    pub(crate) object: Option<LowerHandle>,
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Takes the first event off `events` (`struct fanotify_event_metadata` and its records); `None` at
/// the end, or when what is left is no event.
pub(crate) fn next_change<'a>(events: &mut &'a [u8]) -> Option<Change<'a>> {
    let length = u32::from_ne_bytes(word(events, 0)?) as usize;
    let [version, _] = word(events, 4)?;
    let metadata = usize::from(u16::from_ne_bytes(word(events, 6)?));
    if version != FANOTIFY_METADATA_VERSION || length < metadata || metadata < 24 {
        return None;
    }
    let (event, rest) = events.split_at_checked(length)?;
    *events = rest;
    let mut change = Change {
        mask: u64::from_ne_bytes(word(event, 8)?),
        pid: i32::from_ne_bytes(word(event, 20)?),
        directory: None,
        object: None,
    };
    let mut records = event.get(metadata..)?;
    while let Some([kind, _]) = word(records, 0) {
        let size = usize::from(u16::from_ne_bytes(word(records, 2)?));
        let (record, rest) = records.split_at_checked(size.max(4))?;
        records = rest;
        // After the header come an fsid of eight bytes and a struct file_handle.
        let handle_length = u32::from_ne_bytes(word(record, 12)?) as usize;
        let handle_kind = i32::from_ne_bytes(word(record, 16)?);
        let end = 20usize.checked_add(handle_length)?;
        let Some(handle) = LowerHandle::new(handle_kind, record.get(20..end)?) else {
            continue;
        };
        match kind {
            FAN_EVENT_INFO_TYPE_FID => change.object = Some(handle),
            FAN_EVENT_INFO_TYPE_DFID => change.directory = Some((handle, b".")),
            FAN_EVENT_INFO_TYPE_DFID_NAME => {
                let name = record.get(end..)?;
                let name = name.split(|byte| *byte == 0).next()?;
                change.directory = Some((handle, name));
            }
            _ => {}
        }
    }
    Some(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(records: &[u8]) -> Vec<u8> {
        let mut event = Vec::new();
        event.extend((24 + records.len() as u32).to_ne_bytes());
        event.extend([FANOTIFY_METADATA_VERSION, 0]);
        event.extend(24u16.to_ne_bytes());
        event.extend(libc::FAN_CREATE.to_ne_bytes());
        event.extend((-1i32).to_ne_bytes());
        event.extend(77i32.to_ne_bytes());
        event.extend(records);
        event
    }

    fn record(kind: u8, handle: &[u8], name: &[u8]) -> Vec<u8> {
        let mut body = vec![0; 8];
        body.extend((handle.len() as u32).to_ne_bytes());
        body.extend(1i32.to_ne_bytes());
        body.extend(handle);
        body.extend(name);
        body.resize(body.len().next_multiple_of(4), 0);
        let mut record = vec![kind, 0];
        record.extend((4 + body.len() as u16).to_ne_bytes());
        record.extend(body);
        record
    }

    #[test]
    fn an_event_tells_directory_name_and_object() {
        let records = [record(2, &[1; 8], b"name\0"), record(1, &[2; 8], b"")].concat();
        let bytes = [event(&records), event(&[])].concat();
        let mut rest = bytes.as_slice();
        let change = next_change(&mut rest).unwrap();
        assert_eq!((change.mask, change.pid), (libc::FAN_CREATE, 77));
        let (directory, name) = change.directory.unwrap();
        assert_eq!((directory.bytes(), name), (&[1; 8][..], &b"name"[..]));
        assert_eq!(change.object.unwrap().bytes(), [2; 8]);
        assert!(next_change(&mut rest).unwrap().directory.is_none());
        assert!(next_change(&mut rest).is_none());
    }

    #[test]
    fn what_is_cut_off_is_no_event() {
        let bytes = event(&record(2, &[1; 8], b"name\0"));
        for length in 0..bytes.len() {
            assert!(next_change(&mut &bytes[..length]).is_none(), "{length}");
        }
        let mut wrong = event(&record(2, &[1; 8], b"name\0"));
        wrong[36..40].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(next_change(&mut wrong.as_slice()).is_none());
    }
}
