package io.github.bickfordfs;

import java.util.EnumSet;
import java.util.Locale;
import java.util.Set;

/** The operations that the kernel asks for, with their numbers in the kernel's interface. */
public enum Operation {
    /** Finds a name in a directory. */
    LOOKUP(1, "lookup"),
    /** Asks for attributes. */
    GETATTR(3, "getattr"),
    /** Changes attributes. */
    SETATTR(4, "setattr"),
    /** Asks what a symbolic link says. */
    READLINK(5, "readlink"),
    /** Makes a symbolic link. */
    SYMLINK(6, "symlink"),
    /** Makes a file or device node. */
    MKNOD(8, "mknod"),
    /** Makes a directory. */
    MKDIR(9, "mkdir"),
    /** Removes a name. */
    UNLINK(10, "unlink"),
    /** Removes an empty directory. */
    RMDIR(11, "rmdir"),
    /** Renames or exchanges. */
    RENAME(12, "rename"),
    /** Gives an inode another name. */
    LINK(13, "link"),
    /** Opens a file. */
    OPEN(14, "open"),
    /** Reads from an open file. */
    READ(15, "read"),
    /** Writes to an open file. */
    WRITE(16, "write"),
    /** Asks for size and use. */
    STATFS(17, "statfs"),
    /** An open file ends. */
    RELEASE(18, "release"),
    /** Puts a file on stable storage. */
    FSYNC(20, "fsync"),
    /** Sets an extended attribute. */
    SETXATTR(21, "setxattr"),
    /** Asks for an extended attribute. */
    GETXATTR(22, "getxattr"),
    /** Asks for the names of extended attributes. */
    LISTXATTR(23, "listxattr"),
    /** Removes an extended attribute. */
    REMOVEXATTR(24, "removexattr"),
    /** A descriptor of an open file was closed. */
    FLUSH(25, "flush"),
    /** Opens a directory. */
    OPENDIR(27, "opendir"),
    /** Lists names. */
    READDIR(28, "readdir"),
    /** An open directory ends. */
    RELEASEDIR(29, "releasedir"),
    /** Puts a directory on stable storage. */
    FSYNCDIR(30, "fsyncdir"),
    /** Asks for a lock in the way. */
    GETLK(31, "getlk"),
    /** Takes or gives up a lock. */
    SETLK(32, "setlk"),
    /** Asks whether the caller may use an inode so. */
    ACCESS(34, "access"),
    /** Makes a file and opens it. */
    CREATE(35, "create"),
    /** Asks where a block lies. */
    BMAP(37, "bmap"),
    /** A device-specific command. */
    IOCTL(39, "ioctl"),
    /** Asks for what a file is ready for. */
    POLL(40, "poll"),
    /** Allocates or frees parts of a file. */
    FALLOCATE(43, "fallocate"),
    /** Lists names with entries. */
    READDIRPLUS(44, "readdirplus"),
    /** Finds data and holes. */
    LSEEK(46, "lseek"),
    /** Copies within the file system. */
    COPY_FILE_RANGE(47, "copyFileRange"),
    /** Puts everything on stable storage. */
    SYNCFS(50, "syncfs"),
    /** Makes an unnamed file and opens it. */
    TMPFILE(51, "tmpfile"),
    /** Asks for attributes with the time of birth. */
    STATX(52, "statx");

    private static final Operation[] BY_CODE = new Operation[64];

    static {
        for (Operation operation : values()) {
            BY_CODE[operation.code] = operation;
        }
    }

    private final int code;
    private final String method;

    Operation(int code, String method) {
        this.code = code;
        this.method = method;
    }

    int code() {
        return code;
    }

    long bit() {
        return 1L << code;
    }

    /** The name of its method, such as copyFileRange. */
    String method() {
        return method;
    }

    /** The name of its pre-call or post-call, such as preCopyFileRange. */
    String method(String prefix) {
        return prefix + method.substring(0, 1).toUpperCase(Locale.ROOT) + method.substring(1);
    }

    static Operation of(int code) {
        return BY_CODE[code];
    }

    static long mask(Set<Operation> operations) {
        long mask = 0;
        for (Operation operation : operations) {
            mask |= operation.bit();
        }
        return mask;
    }

    static Set<Operation> all() {
        return EnumSet.allOf(Operation.class);
    }
}
