//! Names of errors.

use bickford::Errno;
use bickford::layer::nearest;

macro_rules! errors {
    ($($name:literal $constant:ident)+) => {
        const ERRORS: &[(&str, Errno)] = &[$(($name, Errno::$constant),)+];
    };
}

errors! {
    "EPERM" PERM "ENOENT" NOENT "EINTR" INTR "EIO" IO "ENXIO" NXIO "E2BIG" TOOBIG "EBADF" BADF
    "EAGAIN" AGAIN "ENOMEM" NOMEM "EACCES" ACCESS "EFAULT" FAULT "EBUSY" BUSY "EEXIST" EXIST
    "EXDEV" XDEV "ENODEV" NODEV "ENOTDIR" NOTDIR "EISDIR" ISDIR "EINVAL" INVAL "ENFILE" NFILE
    "EMFILE" MFILE "ENOTTY" NOTTY "ETXTBSY" TXTBSY "EFBIG" FBIG "ENOSPC" NOSPC "ESPIPE" SPIPE
    "EROFS" ROFS "EMLINK" MLINK "EPIPE" PIPE "EDOM" DOM "ERANGE" RANGE "EDEADLK" DEADLK
    "ENAMETOOLONG" NAMETOOLONG "ENOLCK" NOLCK "ENOSYS" NOSYS "ENOTEMPTY" NOTEMPTY "ELOOP" LOOP
    "ENODATA" NODATA "ETIME" TIME "EPROTO" PROTO "EOVERFLOW" OVERFLOW "EILSEQ" ILSEQ
    "EOPNOTSUPP" OPNOTSUPP "ENETDOWN" NETDOWN "ENETUNREACH" NETUNREACH "ECONNRESET" CONNRESET
    "ENOTCONN" NOTCONN "ETIMEDOUT" TIMEDOUT "ECONNREFUSED" CONNREFUSED "EHOSTDOWN" HOSTDOWN
    "EHOSTUNREACH" HOSTUNREACH "EALREADY" ALREADY "ESTALE" STALE "EDQUOT" DQUOT
    "ECANCELED" CANCELED "ENOKEY" NOKEY "EKEYEXPIRED" KEYEXPIRED "EKEYREJECTED" KEYREJECTED
    "EMEDIUMTYPE" MEDIUMTYPE "ENOMEDIUM" NOMEDIUM "EREMOTEIO" REMOTEIO "EUCLEAN" UCLEAN
    "EBADMSG" BADMSG "ESHUTDOWN" SHUTDOWN
}

/// The error of a name such as `EIO`.
pub(crate) fn parse(name: &str) -> Result<Errno, String> {
    let upper = name.to_ascii_uppercase();
    if let Some((_, errno)) = ERRORS.iter().find(|(known, _)| *known == upper) {
        return Ok(*errno);
    }
    let known = ERRORS.iter().map(|(known, _)| known.to_ascii_lowercase());
    let known: Vec<_> = known.collect();
    Err(match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("unknown error; did you mean {}?", near.to_ascii_uppercase()),
        None => "the name of an error is meant, such as EIO or ENOSPC".to_owned(),
    })
}

/// The name of an error, or its number.
pub(crate) fn name(errno: Errno) -> String {
    match ERRORS.iter().find(|(_, known)| *known == errno) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("errno {}", errno.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_errors_are_one_to_one() {
        for (text, errno) in ERRORS {
            assert_eq!(parse(text), Ok(*errno));
            assert_eq!(name(*errno), *text);
        }
        assert!(parse("enospace").unwrap_err().contains("ENOSPC"));
        assert!(parse("everything").is_err());
    }
}
