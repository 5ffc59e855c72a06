//! Where the fields of an event are, as tracefs describes them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use super::KernelRequest;
use super::instance::context;
use super::join::{Answer, Key};

#[derive(Debug, Clone, Default)]
pub(super) struct Format {
    /// What the first two bytes of such an event say.
    pub(super) id: u16,
    offsets: HashMap<String, usize>,
}

/// Which event it is.
pub(super) fn kind(payload: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(payload.get(..2)?.try_into().ok()?))
}

impl Format {
    /// Of the event `event`, such as `fuse/fuse_request_send`.
    pub(super) fn read(tracefs: &Path, event: &str) -> io::Result<Self> {
        let path = tracefs.join("events").join(event).join("format");
        let text = fs::read_to_string(&path).map_err(|error| context(&error, &path))?;
        Ok(Self::parse(&text))
    }

    /// The same of an event of FUSE, which older kernels do not have.
    pub(super) fn of_fuse(tracefs: &Path, event: &str) -> io::Result<Self> {
        Self::read(tracefs, event).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::new(error.kind(), format!("{error}; Linux 6.12 or later has it"))
            }
            _ => error,
        })
    }

    pub(super) fn parse(text: &str) -> Self {
        let mut format = Self::default();
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().unwrap_or(0);
            }
            let mut parts = line.trim().split(';').map(str::trim);
            let declared = parts.next().and_then(|part| part.strip_prefix("field:"));
            let offset = parts
                .next()
                .and_then(|part| part.strip_prefix("offset:")?.parse().ok());
            if let (Some(declared), Some(offset)) = (declared, offset)
                && let Some(name) = declared.split_whitespace().next_back()
            {
                format.offsets.insert(name.to_owned(), offset);
            }
        }
        format
    }

    pub(super) fn word(&self, payload: &[u8], name: &str) -> Option<u32> {
        let at = *self.offsets.get(name)?;
        let bytes = payload.get(at..at.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }

    pub(super) fn long(&self, payload: &[u8], name: &str) -> Option<u64> {
        let at = *self.offsets.get(name)?;
        let bytes = payload.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn key(&self, payload: &[u8]) -> Option<Key> {
        Some((
            self.word(payload, "connection")?,
            self.long(payload, "unique")?,
        ))
    }

    pub(super) fn sent(&self, payload: &[u8], time: u64) -> Option<KernelRequest> {
        let (connection, unique) = self.key(payload)?;
        Some(KernelRequest {
            connection,
            unique,
            opcode: self.word(payload, "opcode")?,
            comm: String::new(),
            pid: self.word(payload, "common_pid")?,
            bytes_in: self.word(payload, "len")?,
            bytes_out: 0,
            error: 0,
            sent_ns: time,
            ended_ns: 0,
            before: false,
        })
    }

    pub(super) fn ended(&self, payload: &[u8], time: u64) -> Option<Answer> {
        Some(Answer {
            key: self.key(payload)?,
            bytes_out: self.word(payload, "len")?,
            error: self.word(payload, "error")?.cast_signed(),
            ended_ns: time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: &str = "name: fuse_request_send
ID: 1293
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:dev_t connection;\toffset:8;\tsize:4;\tsigned:0;
\tfield:uint64_t unique;\toffset:16;\tsize:8;\tsigned:0;
\tfield:enum fuse_opcode opcode;\toffset:24;\tsize:4;\tsigned:0;
\tfield:uint32_t len;\toffset:28;\tsize:4;\tsigned:0;

print fmt: \"connection %u req %llu opcode %u (%s) len %u \", REC->connection
";

    #[test]
    fn fields_are_read_where_the_kernel_says() {
        let format = Format::parse(SEND);
        let words: [u32; 8] = [1293, 77, 42, 0, 7, 0, 15, 80];
        let payload: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        if cfg!(target_endian = "little") {
            assert_eq!(kind(&payload), Some(format.id));
        }
        let request = format.sent(&payload, 5).unwrap();
        assert_eq!((request.connection, request.unique), (42, 7));
        assert_eq!((request.opcode, request.bytes_in), (15, 80));
        assert_eq!((request.pid, request.sent_ns), (77, 5));
        assert_eq!(request.name(), "READ");
    }

    #[test]
    fn what_is_cut_off_or_unknown_is_left_out() {
        let format = Format::parse(SEND);
        for length in 0..32 {
            assert_eq!(format.sent(&vec![0; length], 0), None, "{length}");
        }
        assert_eq!(format.ended(&[0; 64], 0), None);
        let far = Format::parse("field:int connection;\toffset:18446744073709551615;\tsize:4;");
        assert_eq!(far.ended(&[0; 64], 0), None);
    }
}
