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
import java.util.function.Consumer;

/**
 * The system calls that the null file systems of the peers pass on, each at the least cost that Java has for it, so that
 * what is compared is the libraries. Results are those of the calls; failures are negative error numbers.
 */
final class Libc {
    static final int PATH_MAX = 4096;

    private static final int AT_FDCWD = -100;
    private static final int AT_SYMLINK_NOFOLLOW = 0x100;
    private static final int AT_EMPTY_PATH = 0x1000;
    private static final int STATX_BASIC_STATS = 0x7ff;
    /** Where a name begins in {@code struct dirent}, and the most bytes that one takes. */
    private static final int DIRENT_NAME = 19;
    private static final int DIRENT_SIZE = 280;
    private static final int POLLPRI = 2;
    private static final int MOUNTS_MILLISECONDS = 1000;

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
    private static final MethodHandle LCHOWN = function("lchown", JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT);
    private static final MethodHandle SYMLINK = function("symlink", JAVA_INT, ADDRESS, ADDRESS);
    private static final MethodHandle READLINK = function("readlink", JAVA_LONG, ADDRESS, ADDRESS, JAVA_LONG);
    private static final MethodHandle UTIMENSAT =
            function("utimensat", JAVA_INT, JAVA_INT, ADDRESS, ADDRESS, JAVA_INT);
    private static final MethodHandle OPENDIR = function("opendir", ADDRESS, ADDRESS);
    private static final MethodHandle READDIR = function("readdir", ADDRESS, ADDRESS);
    private static final MethodHandle CLOSEDIR = function("closedir", JAVA_INT, ADDRESS);
    private static final MethodHandle POLL = function("poll", JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT);

    /** Memory of one thread, made once. */
    private static final class Scratch {
        final MemorySegment errno = Arena.ofAuto().allocate(CAPTURED);
        final MemorySegment path = Arena.ofAuto().allocate(PATH_MAX);
        final MemorySegment otherPath = Arena.ofAuto().allocate(PATH_MAX);
        final MemorySegment attributes = Arena.ofAuto().allocate(256, 8);
        final MemorySegment times = Arena.ofAuto().allocate(32, 8);
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

    /** The same of an open file. */
    static int stat(long descriptor) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch, (int) STATX.invokeExact(scratch.errno, (int) descriptor,
                    put(scratch.path, "", ""), AT_EMPTY_PATH, STATX_BASIC_STATS, scratch.attributes));
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

    static int chown(String directory, String path, int uid, int gid) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch,
                    (int) LCHOWN.invokeExact(scratch.errno, put(scratch.path, directory, path), uid, gid));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    /** Makes {@code path} a symbolic link to {@code target}. */
    static int symlink(String target, String directory, String path) {
        Scratch scratch = SCRATCH.get();
        try {
            return (int) checked(scratch, (int) SYMLINK.invokeExact(scratch.errno, put(scratch.otherPath, "", target),
                    put(scratch.path, directory, path)));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    /** Puts the target into {@code into}, with a zero after it; one that is too long is cut. */
    static int readlink(String directory, String path, MemorySegment into, long length) {
        Scratch scratch = SCRATCH.get();
        try {
            long result = checked(scratch, (long) READLINK.invokeExact(scratch.errno,
                    put(scratch.path, directory, path), into, length - 1));
            if (result < 0) {
                return (int) result;
            }
            into.reinterpret(length).set(java.lang.foreign.ValueLayout.JAVA_BYTE, result, (byte) 0);
            return 0;
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    /** Sets the times of access and modification; the nanoseconds may be UTIME_NOW and UTIME_OMIT. */
    static int utimens(String directory, String path, long accessed, long accessedNanos, long modified,
            long modifiedNanos) {
        Scratch scratch = SCRATCH.get();
        scratch.times.set(JAVA_LONG, 0, accessed);
        scratch.times.set(JAVA_LONG, 8, accessedNanos);
        scratch.times.set(JAVA_LONG, 16, modified);
        scratch.times.set(JAVA_LONG, 24, modifiedNanos);
        try {
            return (int) checked(scratch, (int) UTIMENSAT.invokeExact(scratch.errno, AT_FDCWD,
                    put(scratch.path, directory, path), scratch.times, AT_SYMLINK_NOFOLLOW));
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    /** Gives {@code names} the entries of a directory, {@code .} and {@code ..} among them. */
    static int list(String directory, String path, Consumer<String> names) {
        Scratch scratch = SCRATCH.get();
        try {
            MemorySegment stream =
                    (MemorySegment) OPENDIR.invokeExact(scratch.errno, put(scratch.path, directory, path));
            if (stream.address() == 0) {
                return -(int) ERRNO.get(scratch.errno, 0L);
            }
            try {
                while (true) {
                    MemorySegment entry = (MemorySegment) READDIR.invokeExact(scratch.errno, stream);
                    if (entry.address() == 0) {
                        // The end; at which errno stays what it was, so that it tells nothing.
                        return 0;
                    }
                    names.accept(entry.reinterpret(DIRENT_SIZE).getString(DIRENT_NAME));
                }
            } finally {
                int closed = (int) CLOSEDIR.invokeExact(scratch.errno, stream);
                assert closed == 0;
            }
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    /** Waits until the table of mounts, open as {@code descriptor}, has changed; or for a second. */
    static void awaitMounts(long descriptor) {
        Scratch scratch = SCRATCH.get();
        MemorySegment poll = scratch.times;
        poll.set(JAVA_INT, 0, (int) descriptor);
        poll.set(JAVA_INT, 4, POLLPRI);
        try {
            int ready = (int) POLL.invokeExact(scratch.errno, poll, 1L, MOUNTS_MILLISECONDS);
            assert ready <= 1;
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }
}
