package io.github.bickfordfs;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;

/** System calls that Java has not. They answer -1 for an error. */
final class Libc {
    static final int O_RDONLY = 0, O_RDWR = 2, O_CREAT = 0100, O_EXCL = 0200, O_TRUNC = 01000;
    static final int O_DIRECTORY = 0200000, O_TMPFILE = 020200000;
    /** Of fcntl(2): locks of the process, and of the open file. */
    static final int F_SETLK = 6, F_OFD_SETLK = 37;
    /** Kinds of locks of fcntl(2). */
    static final short F_RDLCK = 0, F_WRLCK = 1, F_UNLCK = 2;
    /** Of flock(2). */
    static final int LOCK_EX = 2, LOCK_NB = 4, LOCK_UN = 8;
    static final int SEEK_DATA = 3, SEEK_HOLE = 4;
    static final int POLLIN = 1;
    private static final int F_GETLK = 5, AT_FDCWD = -100, RENAME_EXCHANGE = 2;

    private static final MethodHandle OPEN = function("open", 2, JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT);
    private static final MethodHandle CLOSE = function("close", 1, JAVA_INT, JAVA_INT);
    private static final MethodHandle FCNTL = function("fcntl", 2, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS);
    private static final MethodHandle IOCTL = function("ioctl", 2, JAVA_INT, JAVA_INT, JAVA_LONG, ADDRESS);
    private static final MethodHandle FCHMOD = function("fchmod", 2, JAVA_INT, JAVA_INT, JAVA_INT);
    private static final MethodHandle FCHOWN = function("fchown", 3, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT);
    private static final MethodHandle FUTIMENS = function("futimens", 2, JAVA_INT, JAVA_INT, ADDRESS);
    private static final MethodHandle FTRUNCATE = function("ftruncate", 2, JAVA_INT, JAVA_INT, JAVA_LONG);
    private static final MethodHandle PREAD =
            function("pread", 4, JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle PWRITE =
            function("pwrite", 4, JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle FALLOCATE =
            function("fallocate", 4, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle LSEEK = function("lseek", 3, JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_INT);
    private static final MethodHandle COPY_FILE_RANGE = function("copy_file_range", 6, JAVA_LONG, JAVA_INT, ADDRESS,
            JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT);
    private static final MethodHandle FLOCK = function("flock", 2, JAVA_INT, JAVA_INT, JAVA_INT);
    private static final MethodHandle POLL = function("poll", 3, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT);
    private static final MethodHandle RENAMEAT2 =
            function("renameat2", 5, JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle OPENDIR = function("opendir", 1, ADDRESS, ADDRESS);
    private static final MethodHandle READDIR = function("readdir", 1, ADDRESS, ADDRESS);
    private static final MethodHandle REWINDDIR = Linker.nativeLinker().downcallHandle(
            Linker.nativeLinker().defaultLookup().find("rewinddir").orElseThrow(), FunctionDescriptor.ofVoid(ADDRESS));
    private static final MethodHandle CLOSEDIR = function("closedir", 1, JAVA_INT, ADDRESS);
    private static final int D_NAME = 19;

    private Libc() {}

    private static MethodHandle function(String name, int fixed, MemoryLayout result, MemoryLayout... arguments) {
        Linker linker = Linker.nativeLinker();
        FunctionDescriptor descriptor = FunctionDescriptor.of(result, arguments);
        MemorySegment symbol = linker.defaultLookup().find(name).orElseThrow();
        return fixed < arguments.length
                ? linker.downcallHandle(symbol, descriptor, Linker.Option.firstVariadicArg(fixed))
                : linker.downcallHandle(symbol, descriptor);
    }

    static int open(byte[] path, int flags) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment name = arena.allocate(path.length + 1L);
            name.copyFrom(MemorySegment.ofArray(path));
            return (int) OPEN.invokeExact(name, flags, 0644);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static void close(int descriptor) {
        try {
            if ((int) CLOSE.invokeExact(descriptor) != 0) {
                throw new AssertionError("close failed");
            }
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static int fchmod(int descriptor, int mode) {
        try {
            return (int) FCHMOD.invokeExact(descriptor, mode);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static int fchown(int descriptor, int uid, int gid) {
        try {
            return (int) FCHOWN.invokeExact(descriptor, uid, gid);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    /** Sets both times to these seconds. */
    static int futimens(int descriptor, long seconds) {
        try (Arena arena = Arena.ofConfined()) {
            return (int) FUTIMENS.invokeExact(descriptor, arena.allocateFrom(JAVA_LONG, seconds, 0, seconds, 0));
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static int ftruncate(int descriptor, long size) {
        try {
            return (int) FTRUNCATE.invokeExact(descriptor, size);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static long write(int descriptor, String text, long offset) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment memory = arena.allocateFrom(text);
            return (long) PWRITE.invokeExact(descriptor, memory, memory.byteSize() - 1, offset);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    /** The first bytes of a file. */
    static String read(int descriptor) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment memory = arena.allocate(100);
            if ((long) PREAD.invokeExact(descriptor, memory, 99L, 0L) < 0) {
                throw new AssertionError("pread failed");
            }
            return memory.getString(0);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static int fallocate(int descriptor, int mode, long offset, long length) {
        try {
            return (int) FALLOCATE.invokeExact(descriptor, mode, offset, length);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static long seek(int descriptor, long offset, int whence) {
        try {
            return (long) LSEEK.invokeExact(descriptor, offset, whence);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static long copyFileRange(int from, long offset, int to, long toOffset, long length) {
        try (Arena arena = Arena.ofConfined()) {
            return (long) COPY_FILE_RANGE.invokeExact(from, arena.allocateFrom(JAVA_LONG, offset), to,
                    arena.allocateFrom(JAVA_LONG, toOffset), length, 0);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static int flock(int descriptor, int operation) {
        try {
            return (int) FLOCK.invokeExact(descriptor, operation);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    /** Locks bytes of a file, or gives them up. */
    static int lock(int descriptor, int command, short kind, long start, long length) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment flock = arena.allocate(32, 8);
            flock.set(ValueLayout.JAVA_SHORT, 0, kind);
            flock.set(JAVA_LONG, 8, start);
            flock.set(JAVA_LONG, 16, length);
            return (int) FCNTL.invokeExact(descriptor, command, flock);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    /** What a file is ready for of some events, after some milliseconds at most. */
    static int poll(int descriptor, int events, int milliseconds) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment pollfd = arena.allocate(8, 4);
            pollfd.set(JAVA_INT, 0, descriptor);
            pollfd.set(ValueLayout.JAVA_SHORT, 4, (short) events);
            if ((int) POLL.invokeExact(pollfd, 1L, milliseconds) < 0) {
                throw new AssertionError("poll failed");
            }
            return pollfd.get(ValueLayout.JAVA_SHORT, 6);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    /** The kind of the lock that is in the way of an exclusive one on all of a file, and who holds it. */
    static int[] lockInTheWay(int descriptor) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment flock = arena.allocate(32, 8);
            flock.set(ValueLayout.JAVA_SHORT, 0, (short) 1);
            if ((int) FCNTL.invokeExact(descriptor, F_GETLK, flock) != 0) {
                throw new AssertionError("fcntl failed");
            }
            return new int[] {flock.get(ValueLayout.JAVA_SHORT, 0), flock.get(JAVA_INT, 24)};
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    /** A command with this much output, which begins as bytes of 0x55. */
    static int ioctl(int descriptor, byte[] output) {
        Arrays.fill(output, (byte) 0x55);
        return ioctl(descriptor, 2, output);
    }

    /** A command; the direction is 1 where the bytes are read, 2 where they are written, 3 for both. */
    static int ioctl(int descriptor, int direction, byte[] bytes) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment memory = arena.allocate(bytes.length).copyFrom(MemorySegment.ofArray(bytes));
            long command = (long) direction << 30 | (long) bytes.length << 16 | 'B' << 8 | 1;
            int code = (int) IOCTL.invokeExact(descriptor, command, memory);
            MemorySegment.ofArray(bytes).copyFrom(memory);
            return code;
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static void exchange(Path a, Path b) {
        try (Arena arena = Arena.ofConfined()) {
            if ((int) RENAMEAT2.invokeExact(AT_FDCWD, arena.allocateFrom(a.toString()), AT_FDCWD,
                    arena.allocateFrom(b.toString()), RENAME_EXCHANGE) != 0) {
                throw new AssertionError("renameat2 failed");
            }
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    /** The names of a directory before and after a change, by one open of it. */
    static List<List<String>> listTwice(Path directory, Callable<?> change) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment stream = (MemorySegment) OPENDIR.invokeExact(arena.allocateFrom(directory.toString()));
            List<String> before = names(stream);
            change.call();
            REWINDDIR.invokeExact(stream);
            List<String> after = names(stream);
            if ((int) CLOSEDIR.invokeExact(stream) != 0) {
                throw new AssertionError("closedir failed");
            }
            return List.of(before, after);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    /** The names of a directory, with their inode numbers as readdir(3) shows them. */
    static Map<String, Long> list(Path directory) {
        Map<String, Long> numbers = new TreeMap<>();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment stream = (MemorySegment) OPENDIR.invokeExact(arena.allocateFrom(directory.toString()));
            while (true) {
                MemorySegment entry = (MemorySegment) READDIR.invokeExact(stream);
                if (entry.equals(MemorySegment.NULL)) {
                    break;
                }
                MemorySegment all = entry.reinterpret(Long.MAX_VALUE);
                numbers.put(all.getString(D_NAME), all.get(JAVA_LONG, 0));
            }
            if ((int) CLOSEDIR.invokeExact(stream) != 0) {
                throw new AssertionError("closedir failed");
            }
            return numbers;
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    private static List<String> names(MemorySegment stream) throws Throwable {
        List<String> names = new ArrayList<>();
        while (true) {
            MemorySegment entry = (MemorySegment) READDIR.invokeExact(stream);
            if (entry.equals(MemorySegment.NULL)) {
                return names;
            }
            names.add(entry.reinterpret(Long.MAX_VALUE).getString(D_NAME));
        }
    }
}
