package io.github.bickfordfs;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedChannelException;
import java.nio.charset.CharacterCodingException;
import java.nio.file.AccessDeniedException;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemLoopException;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.NotLinkException;
import java.nio.file.ReadOnlyFileSystemException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Error numbers of Linux (errno(3)). */
public final class Errno {
    /** Operation not permitted. */
    public static final int EPERM = 1;
    /** No such file or directory. */
    public static final int ENOENT = 2;
    /** No such process. */
    public static final int ESRCH = 3;
    /** Interrupted. */
    public static final int EINTR = 4;
    /** Input or output error. */
    public static final int EIO = 5;
    /** No such device or address. */
    public static final int ENXIO = 6;
    /** Too much. */
    public static final int E2BIG = 7;
    /** Bad file handle. */
    public static final int EBADF = 9;
    /** Try again. */
    public static final int EAGAIN = 11;
    /** Not enough memory. */
    public static final int ENOMEM = 12;
    /** Permission denied. */
    public static final int EACCES = 13;
    /** Bad address. */
    public static final int EFAULT = 14;
    /** Busy. */
    public static final int EBUSY = 16;
    /** Exists already. */
    public static final int EEXIST = 17;
    /** On another file system. */
    public static final int EXDEV = 18;
    /** No such device. */
    public static final int ENODEV = 19;
    /** Not a directory. */
    public static final int ENOTDIR = 20;
    /** A directory. */
    public static final int EISDIR = 21;
    /** Invalid argument. */
    public static final int EINVAL = 22;
    /** Too many open files in the system. */
    public static final int ENFILE = 23;
    /** Too many open files. */
    public static final int EMFILE = 24;
    /** Not such a device. */
    public static final int ENOTTY = 25;
    /** A program that is running. */
    public static final int ETXTBSY = 26;
    /** File too large. */
    public static final int EFBIG = 27;
    /** No space left. */
    public static final int ENOSPC = 28;
    /** Cannot seek. */
    public static final int ESPIPE = 29;
    /** Read-only file system. */
    public static final int EROFS = 30;
    /** Too many links. */
    public static final int EMLINK = 31;
    /** Broken pipe. */
    public static final int EPIPE = 32;
    /** Does not fit. */
    public static final int ERANGE = 34;
    /** Deadlock. */
    public static final int EDEADLK = 35;
    /** Name too long. */
    public static final int ENAMETOOLONG = 36;
    /** No more locks. */
    public static final int ENOLCK = 37;
    /** Not implemented. */
    public static final int ENOSYS = 38;
    /** Directory not empty. */
    public static final int ENOTEMPTY = 39;
    /** Too many symbolic links. */
    public static final int ELOOP = 40;
    /** No such attribute. */
    public static final int ENODATA = 61;
    /** Protocol error. */
    public static final int EPROTO = 71;
    /** Invalid characters. */
    public static final int EILSEQ = 84;
    /** Not supported. */
    public static final int EOPNOTSUPP = 95;
    /** Timed out. */
    public static final int ETIMEDOUT = 110;
    /** Stale. */
    public static final int ESTALE = 116;
    /** Canceled. */
    public static final int ECANCELED = 125;
    /** Quota exceeded. */
    public static final int EDQUOT = 122;

    private Errno() {}

    /**
     * The name of an error number.
     *
     * @param errno the number
     * @return its name, or "errno" with the number
     */
    public static String name(int errno) {
        return switch (errno) {
            case EPERM -> "EPERM";
            case ENOENT -> "ENOENT";
            case ESRCH -> "ESRCH";
            case EINTR -> "EINTR";
            case EIO -> "EIO";
            case ENXIO -> "ENXIO";
            case E2BIG -> "E2BIG";
            case EBADF -> "EBADF";
            case EAGAIN -> "EAGAIN";
            case ENOMEM -> "ENOMEM";
            case EACCES -> "EACCES";
            case EFAULT -> "EFAULT";
            case EBUSY -> "EBUSY";
            case EEXIST -> "EEXIST";
            case EXDEV -> "EXDEV";
            case ENODEV -> "ENODEV";
            case ENOTDIR -> "ENOTDIR";
            case EISDIR -> "EISDIR";
            case EINVAL -> "EINVAL";
            case ENFILE -> "ENFILE";
            case EMFILE -> "EMFILE";
            case ENOTTY -> "ENOTTY";
            case ETXTBSY -> "ETXTBSY";
            case EFBIG -> "EFBIG";
            case ENOSPC -> "ENOSPC";
            case ESPIPE -> "ESPIPE";
            case EROFS -> "EROFS";
            case EMLINK -> "EMLINK";
            case EPIPE -> "EPIPE";
            case ERANGE -> "ERANGE";
            case EDEADLK -> "EDEADLK";
            case ENAMETOOLONG -> "ENAMETOOLONG";
            case ENOLCK -> "ENOLCK";
            case ENOSYS -> "ENOSYS";
            case ENOTEMPTY -> "ENOTEMPTY";
            case ELOOP -> "ELOOP";
            case ENODATA -> "ENODATA";
            case EPROTO -> "EPROTO";
            case EILSEQ -> "EILSEQ";
            case EOPNOTSUPP -> "EOPNOTSUPP";
            case ETIMEDOUT -> "ETIMEDOUT";
            case ESTALE -> "ESTALE";
            case ECANCELED -> "ECANCELED";
            case EDQUOT -> "EDQUOT";
            default -> "errno " + errno;
        };
    }

    /**
     * The error number that a caller gets for an exception.
     *
     * @param e the exception
     * @return its number, also where the platform throws its text ("No space left on device") as the reason of a
     *     FileSystemException, the message of an IOException or the end of that of a FileNotFoundException, which is
     *     {@link #ENOENT} without one; {@link #EIO} for exceptions that say nothing of files. {@link #EOPNOTSUPP} for an
     *     {@link UnsupportedOperationException}, which is logged where a file system throws it: a collection that cannot
     *     be changed throws it, too. What only carries another exception, as that of a future does, has that one's number
     */
    public static int of(Throwable e) {
        return switch (cause(e)) {
            case FuseException fuse -> fuse.errno();
            case NoSuchFileException _ -> ENOENT;
            case FileNotFoundException notFound -> ErrorTexts.number(notFound);
            case FileAlreadyExistsException _ -> EEXIST;
            case AccessDeniedException _ -> EACCES;
            case DirectoryNotEmptyException _ -> ENOTEMPTY;
            case NotDirectoryException _ -> ENOTDIR;
            case NotLinkException _ -> EINVAL;
            case FileSystemLoopException _ -> ELOOP;
            case AtomicMoveNotSupportedException _ -> EXDEV;
            case ReadOnlyFileSystemException _ -> EROFS;
            case ClosedChannelException _ -> EBADF;
            case CharacterCodingException _ -> EILSEQ;
            case InvalidPathException _ -> EINVAL;
            // It is interrupted, too, but callers would try again for ever.
            case SocketTimeoutException _ -> ETIMEDOUT;
            case InterruptedIOException _ -> EINTR;
            case UnsupportedOperationException _ -> EOPNOTSUPP;
            case IOException io -> ErrorTexts.number(io);
            default -> EIO;
        };
    }

    /** What was thrown, without what carries it out of a stream, a listing or a future. */
    static Throwable cause(Throwable e) {
        return switch (e) {
            case UncheckedIOException _, DirectoryIteratorException _, CompletionException _, ExecutionException _
                    when e.getCause() != null -> cause(e.getCause());
            default -> e;
        };
    }

    /** Whether an exception tells an error of a file, and not a defect of the program. */
    static boolean isExpected(Throwable e) {
        return switch (cause(e)) {
            case FuseException _, ReadOnlyFileSystemException _ -> true;
            case UnsupportedOperationException _ -> false;
            default -> of(e) != EIO;
        };
    }
}
