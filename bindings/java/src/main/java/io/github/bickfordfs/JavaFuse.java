package io.github.bickfordfs;

import java.io.IOException;

/**
 * A file system as a class around a directory: StackFS performs the system calls, and for each operation there may be a
 * call before and after.
 *
 * <p>A subclass overrides what it needs; what it does not override never enters Java. A pre-call sees the parameters of
 * the operation and may change them; what it leaves reaches the system call. It may also answer in its place
 * ({@link Call#answered()}, {@link Call#fail(int)}, or an exception), and then the system call and the post-call do not
 * run. A post-call sees the parameters, the result and the answer, and may change both.
 *
 * <p>Data are copied within the file system by COPY_FILE_RANGE, without READ and WRITE. Who changes what is written or
 * read refuses it in {@link #preCopyFileRange} with {@link Errno#EOPNOTSUPP}: the kernel then reads and writes.
 *
 * <p>Where a post-call makes an error of a success, what the system call opened or looked up is given back. A release
 * reaches the system call even where its pre-call fails, and with its call switched off where files are opened: else
 * files would stay open below. Whoever answers an open itself must answer the release of that handle, too.
 *
 * <p>The {@link Call} is used again for the next operation of the thread: keep nothing of it. Calls come from several
 * threads at once, and must not use the mount that they serve. An exception is EIO, unless it has an error number
 * ({@link Errno#of}).
 *
 * <p>Run it with {@code javafuse --class my.Fs SOURCE MOUNTPOINT}, or {@link Mount#javaFuse}. It needs a public
 * constructor without parameters for the former.
 */
public abstract class JavaFuse {
    /** For subclasses. */
    protected JavaFuse() {}

    /** Before LOOKUP. Finds a name in a directory. */
    protected void preLookup(Call call) throws IOException {}

    /** After LOOKUP. Finds a name in a directory. */
    protected void postLookup(Call call) throws IOException {}

    /** Before GETATTR. Asks for attributes. */
    protected void preGetattr(Call call) throws IOException {}

    /** After GETATTR. Asks for attributes. */
    protected void postGetattr(Call call) throws IOException {}

    /** Before SETATTR. Changes attributes. */
    protected void preSetattr(Call call) throws IOException {}

    /** After SETATTR. Changes attributes. */
    protected void postSetattr(Call call) throws IOException {}

    /** Before READLINK. Asks what a symbolic link says. */
    protected void preReadlink(Call call) throws IOException {}

    /** After READLINK. Asks what a symbolic link says. */
    protected void postReadlink(Call call) throws IOException {}

    /** Before SYMLINK. Makes a symbolic link. */
    protected void preSymlink(Call call) throws IOException {}

    /** After SYMLINK. Makes a symbolic link. */
    protected void postSymlink(Call call) throws IOException {}

    /** Before MKNOD. Makes a file or device node. */
    protected void preMknod(Call call) throws IOException {}

    /** After MKNOD. Makes a file or device node. */
    protected void postMknod(Call call) throws IOException {}

    /** Before MKDIR. Makes a directory. */
    protected void preMkdir(Call call) throws IOException {}

    /** After MKDIR. Makes a directory. */
    protected void postMkdir(Call call) throws IOException {}

    /** Before UNLINK. Removes a name. */
    protected void preUnlink(Call call) throws IOException {}

    /** After UNLINK. Removes a name. */
    protected void postUnlink(Call call) throws IOException {}

    /** Before RMDIR. Removes an empty directory. */
    protected void preRmdir(Call call) throws IOException {}

    /** After RMDIR. Removes an empty directory. */
    protected void postRmdir(Call call) throws IOException {}

    /** Before RENAME. Renames or exchanges. */
    protected void preRename(Call call) throws IOException {}

    /** After RENAME. Renames or exchanges. */
    protected void postRename(Call call) throws IOException {}

    /** Before LINK. Gives an inode another name. */
    protected void preLink(Call call) throws IOException {}

    /** After LINK. Gives an inode another name. */
    protected void postLink(Call call) throws IOException {}

    /** Before OPEN. Opens a file. */
    protected void preOpen(Call call) throws IOException {}

    /** After OPEN. Opens a file. */
    protected void postOpen(Call call) throws IOException {}

    /** Before READ. Reads from an open file. */
    protected void preRead(Call call) throws IOException {}

    /** After READ. Reads from an open file. */
    protected void postRead(Call call) throws IOException {}

    /** Before WRITE. Writes to an open file. */
    protected void preWrite(Call call) throws IOException {}

    /** After WRITE. Writes to an open file. */
    protected void postWrite(Call call) throws IOException {}

    /** Before STATFS. Asks for size and use. */
    protected void preStatfs(Call call) throws IOException {}

    /** After STATFS. Asks for size and use. */
    protected void postStatfs(Call call) throws IOException {}

    /** Before RELEASE. An open file ends, even if this fails. */
    protected void preRelease(Call call) throws IOException {}

    /** After RELEASE. An open file ends. */
    protected void postRelease(Call call) throws IOException {}

    /** Before FSYNC. Puts a file on stable storage. */
    protected void preFsync(Call call) throws IOException {}

    /** After FSYNC. Puts a file on stable storage. */
    protected void postFsync(Call call) throws IOException {}

    /** Before SETXATTR. Sets an extended attribute. */
    protected void preSetxattr(Call call) throws IOException {}

    /** After SETXATTR. Sets an extended attribute. */
    protected void postSetxattr(Call call) throws IOException {}

    /** Before GETXATTR. Asks for an extended attribute. */
    protected void preGetxattr(Call call) throws IOException {}

    /** After GETXATTR. Asks for an extended attribute. */
    protected void postGetxattr(Call call) throws IOException {}

    /** Before LISTXATTR. Asks for the names of extended attributes. */
    protected void preListxattr(Call call) throws IOException {}

    /** After LISTXATTR. Asks for the names of extended attributes. */
    protected void postListxattr(Call call) throws IOException {}

    /** Before REMOVEXATTR. Removes an extended attribute. */
    protected void preRemovexattr(Call call) throws IOException {}

    /** After REMOVEXATTR. Removes an extended attribute. */
    protected void postRemovexattr(Call call) throws IOException {}

    /** Before FLUSH. A descriptor of an open file was closed. */
    protected void preFlush(Call call) throws IOException {}

    /** After FLUSH. A descriptor of an open file was closed. */
    protected void postFlush(Call call) throws IOException {}

    /** Before OPENDIR. Opens a directory. */
    protected void preOpendir(Call call) throws IOException {}

    /** After OPENDIR. Opens a directory. */
    protected void postOpendir(Call call) throws IOException {}

    /** Before READDIR. Lists names. */
    protected void preReaddir(Call call) throws IOException {}

    /** After READDIR. Lists names. */
    protected void postReaddir(Call call) throws IOException {}

    /** Before RELEASEDIR. An open directory ends, even if this fails. */
    protected void preReleasedir(Call call) throws IOException {}

    /** After RELEASEDIR. An open directory ends. */
    protected void postReleasedir(Call call) throws IOException {}

    /** Before FSYNCDIR. Puts a directory on stable storage. */
    protected void preFsyncdir(Call call) throws IOException {}

    /** After FSYNCDIR. Puts a directory on stable storage. */
    protected void postFsyncdir(Call call) throws IOException {}

    /** Before GETLK. Asks for a lock in the way. */
    protected void preGetlk(Call call) throws IOException {}

    /** After GETLK. Asks for a lock in the way. */
    protected void postGetlk(Call call) throws IOException {}

    /** Before SETLK. Takes or gives up a lock. */
    protected void preSetlk(Call call) throws IOException {}

    /** After SETLK. Takes or gives up a lock. */
    protected void postSetlk(Call call) throws IOException {}

    /** Before ACCESS. Asks whether the caller may use an inode so. */
    protected void preAccess(Call call) throws IOException {}

    /** After ACCESS. Asks whether the caller may use an inode so. */
    protected void postAccess(Call call) throws IOException {}

    /** Before CREATE. Makes a file and opens it. */
    protected void preCreate(Call call) throws IOException {}

    /** After CREATE. Makes a file and opens it. */
    protected void postCreate(Call call) throws IOException {}

    /** Before BMAP. Asks where a block lies. */
    protected void preBmap(Call call) throws IOException {}

    /** After BMAP. Asks where a block lies. */
    protected void postBmap(Call call) throws IOException {}

    /** Before IOCTL. A device-specific command. */
    protected void preIoctl(Call call) throws IOException {}

    /** After IOCTL. A device-specific command. */
    protected void postIoctl(Call call) throws IOException {}

    /** Before POLL. Asks for what a file is ready for. */
    protected void prePoll(Call call) throws IOException {}

    /** After POLL. Asks for what a file is ready for. */
    protected void postPoll(Call call) throws IOException {}

    /** Before FALLOCATE. Allocates or frees parts of a file. */
    protected void preFallocate(Call call) throws IOException {}

    /** After FALLOCATE. Allocates or frees parts of a file. */
    protected void postFallocate(Call call) throws IOException {}

    /** Before READDIRPLUS. Lists names with entries. */
    protected void preReaddirplus(Call call) throws IOException {}

    /** After READDIRPLUS. Lists names with entries. */
    protected void postReaddirplus(Call call) throws IOException {}

    /** Before LSEEK. Finds data and holes. */
    protected void preLseek(Call call) throws IOException {}

    /** After LSEEK. Finds data and holes. */
    protected void postLseek(Call call) throws IOException {}

    /** Before COPY_FILE_RANGE. Copies within the file system. */
    protected void preCopyFileRange(Call call) throws IOException {}

    /** After COPY_FILE_RANGE. Copies within the file system. */
    protected void postCopyFileRange(Call call) throws IOException {}

    /** Before SYNCFS. Puts everything on stable storage. */
    protected void preSyncfs(Call call) throws IOException {}

    /** After SYNCFS. Puts everything on stable storage. */
    protected void postSyncfs(Call call) throws IOException {}

    /** Before TMPFILE. Makes an unnamed file and opens it. */
    protected void preTmpfile(Call call) throws IOException {}

    /** After TMPFILE. Makes an unnamed file and opens it. */
    protected void postTmpfile(Call call) throws IOException {}

    /** Before STATX. Asks for attributes with the time of birth. */
    protected void preStatx(Call call) throws IOException {}

    /** After STATX. Asks for attributes with the time of birth. */
    protected void postStatx(Call call) throws IOException {}

    final void pre(int operation, Call call) throws IOException {
        switch (operation) {
            case 1 -> preLookup(call);
            case 3 -> preGetattr(call);
            case 4 -> preSetattr(call);
            case 5 -> preReadlink(call);
            case 6 -> preSymlink(call);
            case 8 -> preMknod(call);
            case 9 -> preMkdir(call);
            case 10 -> preUnlink(call);
            case 11 -> preRmdir(call);
            case 12 -> preRename(call);
            case 13 -> preLink(call);
            case 14 -> preOpen(call);
            case 15 -> preRead(call);
            case 16 -> preWrite(call);
            case 17 -> preStatfs(call);
            case 18 -> preRelease(call);
            case 20 -> preFsync(call);
            case 21 -> preSetxattr(call);
            case 22 -> preGetxattr(call);
            case 23 -> preListxattr(call);
            case 24 -> preRemovexattr(call);
            case 25 -> preFlush(call);
            case 27 -> preOpendir(call);
            case 28 -> preReaddir(call);
            case 29 -> preReleasedir(call);
            case 30 -> preFsyncdir(call);
            case 31 -> preGetlk(call);
            case 32 -> preSetlk(call);
            case 34 -> preAccess(call);
            case 35 -> preCreate(call);
            case 37 -> preBmap(call);
            case 39 -> preIoctl(call);
            case 40 -> prePoll(call);
            case 43 -> preFallocate(call);
            case 44 -> preReaddirplus(call);
            case 46 -> preLseek(call);
            case 47 -> preCopyFileRange(call);
            case 50 -> preSyncfs(call);
            case 51 -> preTmpfile(call);
            case 52 -> preStatx(call);
            default -> { }
        }
    }

    final void post(int operation, Call call) throws IOException {
        switch (operation) {
            case 1 -> postLookup(call);
            case 3 -> postGetattr(call);
            case 4 -> postSetattr(call);
            case 5 -> postReadlink(call);
            case 6 -> postSymlink(call);
            case 8 -> postMknod(call);
            case 9 -> postMkdir(call);
            case 10 -> postUnlink(call);
            case 11 -> postRmdir(call);
            case 12 -> postRename(call);
            case 13 -> postLink(call);
            case 14 -> postOpen(call);
            case 15 -> postRead(call);
            case 16 -> postWrite(call);
            case 17 -> postStatfs(call);
            case 18 -> postRelease(call);
            case 20 -> postFsync(call);
            case 21 -> postSetxattr(call);
            case 22 -> postGetxattr(call);
            case 23 -> postListxattr(call);
            case 24 -> postRemovexattr(call);
            case 25 -> postFlush(call);
            case 27 -> postOpendir(call);
            case 28 -> postReaddir(call);
            case 29 -> postReleasedir(call);
            case 30 -> postFsyncdir(call);
            case 31 -> postGetlk(call);
            case 32 -> postSetlk(call);
            case 34 -> postAccess(call);
            case 35 -> postCreate(call);
            case 37 -> postBmap(call);
            case 39 -> postIoctl(call);
            case 40 -> postPoll(call);
            case 43 -> postFallocate(call);
            case 44 -> postReaddirplus(call);
            case 46 -> postLseek(call);
            case 47 -> postCopyFileRange(call);
            case 50 -> postSyncfs(call);
            case 51 -> postTmpfile(call);
            case 52 -> postStatx(call);
            default -> { }
        }
    }
}
