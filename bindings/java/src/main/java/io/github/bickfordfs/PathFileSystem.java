package io.github.bickfordfs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.time.Instant;
import java.util.List;
import java.util.Objects;

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
 * its removal) waits for that, without keeping a thread, and what comes later for the same path waits for the change, first
 * come first served. Who waits for a path ends by a signal, with EINTR. So a method with a path must not wait for ever: it
 * stops renames of its file and of the directories above, and with them what comes later below; and it must not wait for the
 * end of another one that needs the same path. What was renamed or removed behind the mount's back is not waited for.
 *
 * <p>Hard links that are made through the mount are one inode, whose path is any of its names. With the option
 * {@code use_ino} the numbers in {@link Attr} are shown, and names of files with several links that have the same number are
 * one inode, so that numbers must be unique, or zero; otherwise they are made up. With {@code hide_removed} an open file whose last name is to be removed is
 * renamed instead ({@link #rename}), and removed when it is closed, for file systems that know open files by their paths
 * alone. With {@code handles_only} methods for open files get no path and keep no rename waiting, unless the handle is zero.
 * See {@link MountOptions} for more.
 *
 * <p>Methods with a handle are for open files. Their path is null once the last name of the file was removed or given to
 * another, and with {@code handles_only}: then the handle alone tells the file. What the kernel asks without a handle about
 * such a file (fstat(2), fchmod(2), fchown(2), futimens(2)) comes with that of any open of it, which is not released
 * meanwhile. The caller gets ENOENT where the method with a handle is not overridden, where the file is not open any more,
 * where none of {@link #open}, {@link #create} and {@link #tmpfile} is overridden, so that there are no handles, and for
 * extended attributes and access(2). Likewise for directories, where {@link #opendir} makes handles.
 *
 * <p>{@link Request#current} says who calls, and whether the caller got a signal.
 *
 * <p>Locks come to a file system that has handles: those of fcntl(2) where both {@link #getlk} and {@link #setlk} are
 * overridden, those of flock(2) where {@link #flock} is. Others are the kernel's, which keeps them for this mount alone.
 */
public interface PathFileSystem {
    /**
     * One name of a listing.
     *
     * @param name the name
     * @param mode its type, as the bits of a mode; zero when unknown
     * @param attr its attributes, or null: with them the kernel need not look the name up
     */
    record Item(String name, int mode, Attr attr) {
        /** A name of which no more than the type is known, if that is. */
        public Item(String name, int mode) {
            this(name, mode, null);
        }

        /** A name with its attributes. */
        public static Item of(String name, Attr attr) {
            return new Item(name, attr.mode(), Objects.requireNonNull(attr));
        }
    }

    /**
     * A device-specific command.
     *
     * @param command its number, which also tells how many bytes go which way
     * @param argument the third argument of ioctl(2) as the caller passed it
     * @param flags {@link #DIRECTORY} and so on
     * @param input what the argument points to, where the command says that it is read: a view, read-only
     * @param output what the caller gets, wholly: zero where it is not filled
     */
    record Ioctl(int command, long argument, int flags, MemorySegment input, MemorySegment output) {
        /** The caller is a 32-bit program. */
        public static final int COMPAT = 1;
        /** It is about an open directory. */
        public static final int DIRECTORY = 1 << 4;
    }

    /**
     * Attributes of what is at a path; {@link java.nio.file.NoSuchFileException} where nothing is. This finds names, too: it
     * is asked for each one that the kernel does not know, and for what was just made. The inode number counts with the
     * option {@code use_ino} alone.
     */
    Attr getattr(String path) throws IOException;

    /**
     * Attributes of an open file; path may be null. By default those of what is at the path. It is asked for what
     * {@link #create} and {@link #tmpfile} have made, of the latter with a path that is null.
     */
    default Attr getattr(String path, long handle) throws IOException {
        return getattr(named(path));
    }

    /** When what is at a path was made (STATX_BTIME of statx(2)); null where that is not known. */
    default Instant born(String path) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** When an open file was made; path may be null. By default that of what is at the path. */
    default Instant born(String path, long handle) throws IOException {
        return born(named(path));
    }

    /**
     * All names of a directory, without "." and "..". They are kept until the directory is closed, and asked for again
     * when it is rewound; more than 256 MiB of them are EOVERFLOW. A name that no file has is EIO and logged, and so are
     * attributes that cannot be.
     */
    default List<Item> readdir(String path) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** The names of an open directory; path may be null. By default those of what is at the path. */
    default List<Item> readdir(String path, long handle) throws IOException {
        return readdir(named(path));
    }

    /** Opens a directory; answers a handle, and flags. By default with handle zero. */
    default Opened opendir(String path) throws IOException {
        return Opened.DEFAULT;
    }

    /** An open directory ends. The path may be null. What this throws, no caller gets. */
    default void releasedir(String path, long handle) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Puts a directory on stable storage. The path may be null. */
    default void fsyncdir(String path, long handle, boolean dataOnly) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * For how many nanoseconds the kernel may use names and attributes without asking. It is asked once, when the file
     * system is mounted; the options {@code entry_timeout} and {@code attr_timeout} take its place.
     */
    default long validity() {
        return Entry.SECOND;
    }

    /** What a symbolic link says. */
    default String readlink(String path) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Opens a file with flags of open(2); answers a handle, how the kernel is to treat the file, and what it is to read and
     * write in its place ({@link Request#openBacking}). O_CREAT, O_EXCL and O_TRUNC are not among the flags: for the latter
     * {@link #truncate(String, long)} follows, with size zero. By default with handle zero, and the kernel keeps contents
     * from one open to the next until size or modification time change.
     */
    default Opened open(String path, int flags) throws IOException {
        return Opened.DEFAULT;
    }

    /**
     * Makes a regular file and opens it, as {@link #open} does. The mode is the permissions alone, less the umask:
     * {@link Attr#S_IFREG} is to be added for {@link #getattr}. There was no file of the name when {@link #getattr} was
     * asked last; one that is there by now is EEXIST, and who did not say O_EXCL then gets it by {@link #open}. By default
     * the kernel uses {@link #mknod} and {@link #open}.
     */
    default Opened create(String path, int mode, int flags) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Makes a regular file without a name, and opens it, as {@link #create} does (O_TMPFILE). It is known by its handle
     * alone: {@link #getattr(String, long)} is to be overridden, and {@link #link(String, long, String)} where it may get a
     * name.
     *
     * @param path the directory whose file system it is to be in
     * @param mode the permissions, less the umask
     * @param flags of open(2)
     * @return the open file
     */
    default Opened tmpfile(String path, int mode, int flags) throws IOException {
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

    /**
     * Changes the size of a file. Where a system call changes more than that, mode and owner are changed before, times
     * after it.
     */
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

    /** Changes times; null keeps one. Where it is not overridden, sizes can be changed all the same. */
    default void setTimes(String path, Instant accessed, Instant modified) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Changes times of an open file; path may be null. By default those of what is at the path. */
    default void setTimes(String path, long handle, Instant accessed, Instant modified) throws IOException {
        setTimes(named(path), accessed, modified);
    }

    private static String named(String path) throws FuseException {
        if (path == null) {
            throw PathTarget.nameless();
        }
        return path;
    }

    /**
     * Makes a regular file, device node, FIFO or socket. The mode has its type, and the permissions less the umask.
     *
     * @param path where
     * @param mode type and permissions
     * @param rdev the number of a device node, in the kernel's 32-bit form
     */
    default void mknod(String path, int mode, int rdev) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Makes a directory. The mode is as with {@link #create}, and {@link Attr#S_IFDIR} the type. */
    default void mkdir(String path, int mode) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Removes a name of anything but a directory. What is open goes on being used by its handles. */
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

    /** Gives what is at a path another, which is one of the same inode then. */
    default void link(String path, String newPath) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Gives an open file without a name its first ({@link #tmpfile}); path is null. By default that is ENOENT. */
    default void link(String path, long handle, String newPath) throws IOException {
        link(named(path), newPath);
    }

    /** Renames, with flags of renameat2(2); those that are not supported must be refused with EINVAL. */
    default void rename(String path, String newPath, int flags) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * The last descriptor of an open file is gone. The path may be null. No other call has the handle any more or will
     * get it, unless it was answered to several opens. What this throws, no caller gets.
     */
    default void release(String path, long handle) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** A descriptor of an open file was closed, whose close(2) gets the error. The path may be null. */
    default void flush(String path, long handle) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Puts a file on stable storage. The path may be null. */
    default void fsync(String path, long handle, boolean dataOnly) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Size and use; the path is "/" for what has no name any more. By default nothing is known. */
    default StatFs statfs(String path) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** An extended attribute, of 65,536 bytes at most; {@link Errno#ENODATA} where it is not there. */
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

    /**
     * Allocates, frees, zeroes or shifts a range of an open file (fallocate(2)). The path may be null.
     *
     * @param path where the file is, or null
     * @param handle the open file
     * @param mode flags of fallocate(2); those that are not supported must be refused with EOPNOTSUPP
     * @param offset where the range begins, in bytes
     * @param length how many bytes
     */
    default void fallocate(String path, long handle, int mode, long offset, long length) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Finds data (SEEK_DATA, 3) or a hole (SEEK_HOLE, 4) in an open file. The path may be null. By default a file is all
     * data.
     *
     * @param path where the file is, or null
     * @param handle the open file
     * @param offset where to begin, in bytes
     * @param whence what to find
     * @return where it begins, in bytes; {@link Errno#ENXIO} where there is none, or the offset is not in the file
     */
    default long lseek(String path, long handle, long offset, int whence) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Copies between open files (copy_file_range(2)). The paths may be null. By default the kernel reads and writes.
     *
     * @param path where the file is that is read, or null
     * @param handle the open file that is read
     * @param offset where to read, in bytes
     * @param toPath where the file is that is written, or null
     * @param toHandle the open file that is written
     * @param toOffset where to write, in bytes
     * @param length how many bytes
     * @return how many were copied; zero at the end of the file
     */
    default long copyFileRange(
            String path, long handle, long offset, String toPath, long toHandle, long toOffset, long length)
            throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** A device-specific command on an open file or directory; answers what ioctl(2) returns. The path may be null. */
    default int ioctl(String path, long handle, Ioctl ioctl) throws IOException {
        throw new FuseException(Errno.ENOTTY);
    }

    /**
     * What an open file is ready for, as POLLIN (1), POLLOUT (4) and so on of poll(2). The path may be null. By default
     * files are always ready.
     *
     * @param path where the file is, or null
     * @param handle the open file
     * @param events what the caller waits for
     * @param waiter whom {@link Mount#wake} is to wake when that has changed; zero for nobody
     * @return what it is ready for
     */
    default int poll(String path, long handle, int events, long waiter) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * The lock of fcntl(2) that stands in the way of one, or {@link Lock#FREE}. The path may be null.
     *
     * @param path where the file is, or null
     * @param handle the open file
     * @param owner who asks
     * @param lock what would be taken
     * @return what is in the way
     */
    default Lock getlk(String path, long handle, long owner, Lock lock) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Takes or gives up a lock of fcntl(2); {@link Errno#EAGAIN} where another owner's is in the way. When a descriptor is
     * closed, this gives up those of its owner, after {@link #flush}, whether there are any or not; and those of an open file
     * itself (F_OFD_SETLK) before the {@link #release} of its handle, with the last open where opens share one. More than
     * 65,536 open files through which locks were taken are {@link Errno#ENOLCK}.
     *
     * @param path where the file is; null also where this may wait
     * @param handle the open file
     * @param owner whose lock
     * @param lock which: {@link Lock#NONE} gives up
     * @param wait whether to wait for it (F_SETLKW), until {@link Request#interrupted}
     */
    default void setlk(String path, long handle, long owner, Lock lock, boolean wait) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /**
     * Takes or gives up the lock of an open file as a whole (flock(2)); {@link Errno#EAGAIN} where another's is in the way.
     * It is given up before the {@link #release} of a file that had one.
     *
     * @param path where the file is; null also where this may wait
     * @param handle the open file
     * @param owner whose lock
     * @param kind {@link Lock#READ}, {@link Lock#WRITE} or {@link Lock#NONE}
     * @param wait whether to wait for it, until {@link Request#interrupted}
     */
    default void flock(String path, long handle, long owner, int kind, boolean wait) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** The block of the device that holds a block of a file (FIBMAP), zero for none. Asked of mounts of a device alone. */
    default long bmap(String path, int blockSize, long block) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** Puts everything on stable storage (syncfs(2)). */
    default void syncfs() throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** The session has ended; no call follows. There is no {@link Request#current} here. */
    default void destroy() {}
}
