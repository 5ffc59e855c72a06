package io.github.bickfordfs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;

/**
 * A file system over inodes, as the kernel sees it. Nodes are numbers that {@link Entry} hands out; the root is
 * {@link #ROOT}.
 *
 * <p>Every method gets the {@link Request} and answers with its result, or with an exception: {@link FuseException} and
 * those of java.nio.file have error numbers ({@link Errno#of}), all others are EIO and logged. A method that wants to
 * answer later calls {@link Request#defer}. Calls come from several threads at once, and must not use the mount that
 * they serve.
 *
 * <p>What is not overridden never enters Java; it answers ENOSYS where no default is given, after which the kernel
 * mostly does not ask again.
 */
public interface InodeFileSystem {
    /** The node of the root. */
    long ROOT = 1;

    /** The operations that enter Java. By default those whose methods are overridden. */
    default java.util.Set<Operation> operations() {
        return Overrides.of(getClass());
    }

    /** The session has ended; no call follows. */
    default void destroy() {}

    /** The kernel gives back {@code count} lookups of a node. */
    default void forget(long node, long count) {}

    /**
     * Reads at {@link Request#offset}.
     *
     * @param request what is asked
     * @param into native memory of {@link Request#size} bytes: the kernel takes from it over /dev/fuse, and over io_uring
     *     it is copied once, into the ring
     * @return how many bytes; fewer than asked mean the end of the file, where a channel reads -1 and this must be zero
     */
    default int read(Request request, MemorySegment into) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Lists names from {@link Request#offset} on. */
    default void readdir(Request request, Listing listing) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Lists names with entries from {@link Request#offset} on. */
    default void readdirplus(Request request, Listing listing) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * A device-specific command ({@link Request#extraFlags}) with input in {@link Request#data}.
     *
     * @param request what is asked
     * @param output what the caller gets, wholly: zero where it is not filled
     * @return what ioctl(2) returns
     */
    default int ioctl(Request request, MemorySegment output) throws IOException {
        throw new FuseException(Errno.ENOTTY);
    }

    /** Finds {@link Request#name} in the directory {@link Request#node}. */
    default Entry lookup(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Asks for attributes of {@link Request#node}. */
    default Attributes getattr(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Asks for attributes and the time of birth. By default the kernel uses {@link #getattr}. */
    default Statx statx(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Changes what the request has of mode, owner, group, size and times; answers all attributes. */
    default Attributes setattr(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Asks what a symbolic link says. */
    default byte[] readlink(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Makes a symbolic link {@link Request#name} to {@link Request#otherName}. */
    default Entry symlink(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Makes a file or device node. */
    default Entry mknod(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Makes a directory. */
    default Entry mkdir(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Removes a name of anything but a directory. */
    default void unlink(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Removes an empty directory. */
    default void rmdir(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Renames {@link Request#name} to {@link Request#otherName} in {@link Request#otherNode}. Where what it moves has another
     * time of change then, {@link Request#changed} is to be told.
     */
    default void rename(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Gives {@link Request#node} the name {@link Request#name} in {@link Request#otherNode}. */
    default Entry link(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Opens a file. O_TRUNC is not among the flags: {@link #setattr} follows with size zero. By default: with
     * handle zero.
     */
    default Opened open(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Writes {@link Request#data} at {@link Request#offset}; answers how many bytes. */
    default int write(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Asks for size and use. By default nothing is known. */
    default StatFs statfs(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * The last descriptor of an open file is gone. Its flock(2) lock, if {@link #setlk} keeps it, ends here, and so do
     * record locks that were taken through its handle and that no {@link #flush} ended (F_OFD_SETLK).
     */
    default void release(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Puts a file on stable storage. */
    default void fsync(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Sets the extended attribute {@link Request#name} to {@link Request#data}. Refuse ACLs
     * ("system.posix_acl_access", "system.posix_acl_default") with {@link Errno#EOPNOTSUPP}: the kernel checks the mode
     * alone.
     */
    default void setxattr(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Asks for the extended attribute {@link Request#name}. */
    default byte[] getxattr(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Asks for the names of extended attributes, each followed by a NUL byte. */
    default byte[] listxattr(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Removes an extended attribute. */
    default void removexattr(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * A descriptor of an open file was closed. Record locks of {@link Request#lockOwner} end here: override this where
     * {@link #getlk} is.
     */
    default void flush(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Opens a directory. By default: with handle zero. */
    default Opened opendir(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** An open directory ends. */
    default void releasedir(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Puts a directory on stable storage. */
    default void fsyncdir(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Asks for a lock in the way of {@link Request#lock}, or {@link Lock#FREE}. */
    default Lock getlk(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Takes or gives up {@link Request#lock}; {@link Request#extraFlags}: 1 flock(2), 2 wait. The kernel leaves locks of
     * flock(2) to a file system that overrides this, and those of fcntl(2) to one that overrides {@link #getlk}, too.
     */
    default void setlk(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Asks whether the caller may use an inode as {@link Request#flags} says (access(2)). */
    default void access(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Makes a file and opens it. By default the kernel uses mknod and open. */
    default Created create(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Asks which block of the device holds block {@link Request#offset}. */
    default long bmap(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Asks for the events that an open file is ready for. By default it is always ready. */
    default int poll(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Allocates or frees a part of a file. */
    default void fallocate(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Finds data or a hole from {@link Request#offset} on; {@link Request#flags} is the whence. */
    default long lseek(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Copies within the file system; answers how many bytes. */
    default long copyFileRange(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Puts everything on stable storage. */
    default void syncfs(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Makes an unnamed file and opens it. */
    default Created tmpfile(Request request) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }
}
