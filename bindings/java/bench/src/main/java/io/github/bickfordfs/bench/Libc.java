package io.github.bickfordfs.bench;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.nio.charset.StandardCharsets;

/**
 * The system calls that the null file systems of the peers pass on, each at the least cost that Java has for it, so that
 * what is compared is the libraries. Results are those of the calls; failures are negative error numbers.
 */
final class Libc {
    static final int PATH_MAX = 4096;

    private static final int AT_FDCWD = -100;
    private static final int AT_SYMLINK_NOFOLLOW = 0x100;
    private static final int STATX_BASIC_STATS = 0x7ff;

    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY = LINKER.defaultLookup();
    private static final MemoryLayout CAPTURED = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO = CAPTURED.varHandle(MemoryLayout.PathElement.groupElement("errno"));

    private static final MethodHandle STATX =
            function("statx", JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT, ADDRESS);
    private static final MethodHandle OPEN = function("open", JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT);
    private static final MethodHandle CLOSE = function("close", JAVA_INT, JAVA_INT);
    private static final MethodHandle PREAD = function("pread", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle PWRITE = function("pwrite", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle TRUNCATE = function("truncate", JAVA_INT, ADDRESS, JAVA_LONG);
    private static final MethodHandle FTRUNCATE = function("ftruncate", JAVA_INT, JAVA_INT, JAVA_LONG);
    private static final MethodHandle FSYNC = function("fsync", JAVA_INT, JAVA_INT);
    private static final MethodHandle MKDIR = function("mkdir", JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle RMDIR = function("rmdir", JAVA_INT, ADDRESS);
    private static final MethodHandle UNLINK = function("unlink", JAVA_INT, ADDRESS);
    private static final MethodHandle RENAME = function("rename", JAVA_INT, ADDRESS, ADDRESS);
    private static final MethodHandle CHMOD = function("chmod", JAVA_INT, ADDRESS, JAVA_INT);

    /** Memory of one thread, made once. */
    private static final class Scratch {
        final MemorySegment errno = Arena.ofAuto().allocate(CAPTURED);
        final MemorySegment path = Arena.ofAuto().allocate(PATH_MAX);
        final MemorySegment otherPath = Arena.ofAuto().allocate(PATH_MAX);
        final MemorySegment attributes = Arena.ofAuto().allocate(256, 8);
    }

    private static final ThreadLocal<Scratch> SCRATCH = ThreadLocal.withInitial(Scratch::new);

    private Libc() {}

    private static MethodHandle function(String name, MemoryLayout result, MemoryLayout... arguments) {
        MemorySegment symbol = LIBRARY.find(name).orElseThrow(() -> new UnsatisfiedLinkError(name));
        return LINKER.downcallHandle(symbol, FunctionDescriptor.of(result, arguments),
                Linker.Option.captureCallState("errno"));
    }

    private static MemorySegment put(MemorySegment into, String directory, String path) {
        byte[] bytes = directory.concat(path).getBytes(StandardCharsets.UTF_8);
        if (bytes.length >= PATH_MAX) {
            throw new IllegalArgumentException("the path is too long: " + path);
        }
        MemorySegment.copy(bytes, 0, into, java.lang.foreign.ValueLayout.JAVA_BYTE, 0, bytes.length);
        into.set(java.lang.foreign.ValueLayout.JAVA_BYTE, bytes.length, (byte) 0);
        return into;
    }

    private static long checked(Scratch scratch, long result) {
        return result < 0 ? -(int) ERRNO.get(scratch.errno, 0L) : result;
    }

    private static AssertionError unexpected(Throwable e) {
        return new AssertionError("a native call threw", e);
    }

    /** Attributes, in a structure of this thread. */
    record Attributes(MemorySegment statx) {
        int links() {
            return statx.get(JAVA_INT, 16);
        }

        int uid() {
            return statx.get(JAVA_INT, 20);
        }

        int gid() {
            return statx.get(JAVA_INT, 24);
        }

        int mode() {
            return Short.toUnsignedInt(statx.get(JAVA_SHORT, 28));
        }

        long ino() {
            return statx.get(JAVA_LONG, 32);
        }

        long size() {
            return statx.get(JAVA_LONG, 40);
        }

        long blocks() {
            return statx.get(JAVA_LONG, 48);
        }

        long accessedSeconds() {
            return statx.get(JAVA_LONG, 64);
        }

        int accessedNanos() {
            return statx.get(JAVA_INT, 72);
        }

        long changedSeconds() {
            return statx.get(JAVA_LONG, 96);
        }

        int changedNanos() {
            return statx.get(JAVA_INT, 104);
        }

        long modifiedSeconds() {
            return statx.get(JAVA_LONG, 112);
        }

        int modifiedNanos() {
            return statx.get(JAVA_INT, 120);
        }
    }

    static Attributes attributes() {
        return new Attributes(SCRATCH.get().attributes);
    }

    /** Fills {@link #attributes} of this thread. */
    static int stat(String directory, String path) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch, (int) STATX.invokeExact(scratch.errno, AT_FDCWD,
                    put(scratch.path, directory, path), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, scratch.attributes));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int open(String directory, String path, int flags, int mode) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch,
                    (int) OPEN.invokeExact(scratch.errno, put(scratch.path, directory, path), flags, mode));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int close(long descriptor) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch, (int) CLOSE.invokeExact(scratch.errno, (int) descriptor));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int read(long descriptor, MemorySegment into, long length, long offset) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch,
                    (long) PREAD.invokeExact(scratch.errno, (int) descriptor, into, length, offset));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int write(long descriptor, MemorySegment from, long length, long offset) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch,
                    (long) PWRITE.invokeExact(scratch.errno, (int) descriptor, from, length, offset));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int truncate(String directory, String path, long length) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch,
                    (int) TRUNCATE.invokeExact(scratch.errno, put(scratch.path, directory, path), length));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int truncate(long descriptor, long length) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch, (int) FTRUNCATE.invokeExact(scratch.errno, (int) descriptor, length));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int fsync(long descriptor) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch, (int) FSYNC.invokeExact(scratch.errno, (int) descriptor));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int mkdir(String directory, String path, int mode) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch, (int) MKDIR.invokeExact(scratch.errno, put(scratch.path, directory, path), mode));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int rmdir(String directory, String path) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch, (int) RMDIR.invokeExact(scratch.errno, put(scratch.path, directory, path)));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int unlink(String directory, String path) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch, (int) UNLINK.invokeExact(scratch.errno, put(scratch.path, directory, path)));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int rename(String directory, String from, String to) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch, (int) RENAME.invokeExact(scratch.errno, put(scratch.path, directory, from),
                    put(scratch.otherPath, directory, to)));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int chmod(String directory, String path, int mode) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch, (int) CHMOD.invokeExact(scratch.errno, put(scratch.path, directory, path), mode));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }
}
