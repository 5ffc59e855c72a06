package io.github.bickfordfs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.time.Instant;
import java.util.List;

/**
 * A file system over paths: "/" is the root, "/a/b" a name in "/a". Names that are not UTF-8 do not enter it: their
 * callers get EILSEQ. {@link InodeFileSystem} can serve them.
 *
 * <p>Exceptions of java.nio.file and {@link FuseException} have error numbers ({@link Errno#of}), all others are EIO and
 * logged. Calls come from several threads at once, and must not use the mount that they serve. What is not overridden
 * never enters Java.
 *
 * <p>A method answers when it returns, and its thread serves nothing else until then ({@link MountOptions#withWorkers}).
 * Where methods wait, for a server say, mount with {@link MountOptions#withVirtualThreads}.
 *
 * <p>A path is right until the method that got it returns: what would change it (a rename of it or of a directory above,
 * its removal) waits for that, and what comes later for the same path waits for the change. So a method that waits for
 * ever stops renames of its file and of the directories above, and with them what comes later below; who waits for a path
 * keeps its thread, and ends by a signal, with EINTR. Where methods may wait long, mount with
 * {@link MountOptions#withVirtualThreads}. A method must not wait for the end of another one that needs the same path.
 *
 * <p>Methods with a handle are for open files. Their path is null once the name of the file was removed or given to
 * another: then the handle alone tells the file. What the kernel asks without a handle about such a file (fstat(2),
 * fchmod(2), fchown(2), futimens(2)) comes with that of any open of it, which is not released meanwhile. The caller
 * gets ESTALE where the method with a handle is not overridden, where the file is not open any more, where neither
 * {@link #open} nor {@link #create} is overridden, so that there are no handles, and for extended attributes and
 * access(2).
 */
public interface PathFileSystem {
    /**
     * One name of a listing.
     *
     * @param name the name
     * @param mode its type, as the bits of a mode; zero when unknown
     */
    record Item(String name, int mode) {}

    /** Attributes of what is at a path; {@link java.nio.file.NoSuchFileException} where nothing is. */
    Attr getattr(String path) throws IOException;

    /** Attributes of an open file; path may be null. By default those of what is at the path. */
    default Attr getattr(String path, long handle) throws IOException {
        return getattr(named(path));
    }

    /** The names of a directory, without "." and "..". */
    default List<Item> readdir(String path) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** For how many nanoseconds the kernel may use names and attributes without asking. */
    default long validity() {
        return Entry.SECOND;
    }

    /** What a symbolic link says. */
    default String readlink(String path) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Opens a file with flags of open(2); answers a handle. O_TRUNC is not among them: {@link #truncate(String, long)}
     * follows with size zero.
     */
    default long open(String path, int flags) throws IOException {
        return 0;
    }

    /**
     * Makes a regular file and opens it; answers a handle. The mode is the permissions alone, less the umask:
     * {@link Attr#S_IFREG} is to be added for {@link #getattr}.
     */
    default long create(String path, int mode, int flags) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Reads into native memory, see {@link InodeFileSystem#read}; answers how many bytes. The path may be null. */
    default int read(String path, long handle, MemorySegment into, long offset) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Writes data, a view of the request; answers how many bytes. The path may be null. */
    default int write(String path, long handle, MemorySegment data, long offset) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Changes the size of a file. */
    default void truncate(String path, long size) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Changes the size of an open file; path may be null. By default that of what is at the path. */
    default void truncate(String path, long handle, long size) throws IOException {
        truncate(named(path), size);
    }

    /** Changes permissions; the mode is without the type, which stays. */
    default void chmod(String path, int mode) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Changes permissions of an open file; path may be null. By default those of what is at the path. */
    default void chmod(String path, long handle, int mode) throws IOException {
        chmod(named(path), mode);
    }

    /** Changes owner and group; -1 keeps one. */
    default void chown(String path, int uid, int gid) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Changes owner and group of an open file; path may be null. By default those of what is at the path. */
    default void chown(String path, long handle, int uid, int gid) throws IOException {
        chown(named(path), uid, gid);
    }

    /** Changes times; null keeps one. */
    default void setTimes(String path, Instant accessed, Instant modified) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Changes times of an open file; path may be null. By default those of what is at the path. */
    default void setTimes(String path, long handle, Instant accessed, Instant modified) throws IOException {
        setTimes(named(path), accessed, modified);
    }

    private static String named(String path) throws FuseException {
        if (path == null) {
            throw new FuseException(Errno.ESTALE);
        }
        return path;
    }

    /** Makes a directory. The mode is as with {@link #create}, and {@link Attr#S_IFDIR} the type. */
    default void mkdir(String path, int mode) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Removes a name of anything but a directory. */
    default void unlink(String path) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Removes an empty directory. */
    default void rmdir(String path) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Makes a symbolic link at a path. */
    default void symlink(String path, String target) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Gives what is at a path another. */
    default void link(String path, String newPath) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Renames, with flags of renameat2(2); those that are not supported must be refused with EINVAL. */
    default void rename(String path, String newPath, int flags) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * The last descriptor of an open file is gone. The path may be null. No other call has the handle any more or will
     * get it, unless it was answered to several opens.
     */
    default void release(String path, long handle) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** A descriptor of an open file was closed. The path may be null. */
    default void flush(String path, long handle) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Puts a file on stable storage. The path may be null. */
    default void fsync(String path, long handle, boolean dataOnly) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Size and use; the path is "/" for what has no name any more. */
    default StatFs statfs(String path) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** An extended attribute. */
    default byte[] getxattr(String path, String name) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Sets an extended attribute; flags: 1 it must be new, 2 it must exist. Refuse ACLs ("system.posix_acl_access",
     * "system.posix_acl_default") with {@link Errno#EOPNOTSUPP}: the kernel checks the mode alone.
     */
    default void setxattr(String path, String name, byte[] value, int flags) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** The names of extended attributes. */
    default List<String> listxattr(String path) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Removes an extended attribute. */
    default void removexattr(String path, String name) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Whether the caller may use what is at a path as the mask says (access(2)). */
    default void access(String path, int mask) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }
}
