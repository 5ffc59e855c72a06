package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.FutureTask;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What a file system over paths can do beside names, attributes and data: by system calls. */
class PathOperationsTest {
    private static final int O_ACCMODE = 3;

    /** "virtual" is no transport: each request has a virtual thread. */
    static MountOptions options(String transport) throws IOException {
        Transports.require(transport);
        MountOptions options = MountOptions.DEFAULT.plus("transport=" + transport.replace(",virtual", ""));
        return transport.endsWith(",virtual") ? options.withVirtualThreads() : options;
    }

    /** Something to do with a mount. */
    private interface Use {
        void with(PathOperationsFs fs, Place place, Mount mount) throws Exception;
    }

    private static void mounted(String transport, Use use) throws Exception {
        PathOperationsFs fs = new PathOperationsFs();
        try (Place place = new Place(); Mount mount = Mount.paths(fs, place.mountpoint, options(transport))) {
            use.with(fs, place, mount);
        }
    }

    private static int open(Path path, int flags) {
        int descriptor = Libc.open(path.toString().getBytes(StandardCharsets.UTF_8), flags);
        assertTrue(descriptor >= 0, path.toString());
        return descriptor;
    }

    private static int create(Place place, String name) {
        return open(place.mountpoint.resolve(name), Libc.O_RDWR | Libc.O_CREAT | Libc.O_EXCL);
    }

    static Object stat(Path file, String what) throws IOException {
        return Files.getAttribute(file, "unix:" + what, LinkOption.NOFOLLOW_LINKS);
    }

    /** Tells who asks for attributes. */
    private static final class WhoAsks implements PathFileSystem {
        final Map<String, String> askers = new ConcurrentHashMap<>();

        @Override
        public Attr getattr(String path) throws IOException {
            if (path.equals("/")) {
                return Attr.directory(0, 0755);
            }
            Request request = Request.current();
            assertFalse(request.interrupted());
            assertThrows(IllegalStateException.class, request::defer);
            askers.put(path, request.uid() + ":" + request.gid() + " " + request.pid() + " "
                    + Arrays.toString(request.groups()));
            return Attr.file(0, 0444, 0);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual", "uring,virtual"})
    void aMethodKnowsWhoCalls(String transport) throws Exception {
        WhoAsks fs = new WhoAsks();
        try (Place place = new Place(); Mount _ = Mount.paths(fs, place.mountpoint, options(transport).plus("allow_other"))) {
            Files.setPosixFilePermissions(place.directory, PosixFilePermissions.fromString("rwxr-xr-x"));
            int[] groups = IntStream.concat(IntStream.of(2345), IntStream.range(3000, 3040)).toArray();
            String others = Arrays.stream(groups).skip(1).mapToObj(String::valueOf).collect(Collectors.joining(","));
            Process stat = new ProcessBuilder("chroot", "--userspec=1234:2345", "--groups=" + others, "/", "stat",
                    place.mountpoint.resolve("name").toString()).redirectErrorStream(true).start();
            String output = new String(stat.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertEquals(0, stat.waitFor(), output);
            String asker = "1234:2345 " + stat.pid() + " " + Arrays.toString(groups);
            assertEquals(Map.of("/name", asker), fs.askers);
        }
        String message = assertThrows(IllegalStateException.class, Request::current).getMessage();
        assertTrue(message.contains(Thread.currentThread().getName()), message);
    }

    /** One file, which the kernel is to treat in a certain way. */
    private abstract static class Treated implements PathFileSystem {
        final List<Long> released = Collections.synchronizedList(new ArrayList<>());

        @Override
        public Attr getattr(String path) throws IOException {
            if (path.equals("/file")) {
                return Attr.file(0, 0644, size());
            }
            return path.equals("/") ? Attr.directory(0, 0755) : none();
        }

        private static Attr none() throws FuseException {
            throw new FuseException(Errno.ENOENT);
        }

        abstract long size() throws IOException;

        @Override
        public void release(String path, long handle) {
            released.add(handle);
        }
    }

    /** A file that is another one, for both calls that open. */
    private static final class Through extends Treated {
        private final Path lower;
        private final Map<Long, Backing> backings = new ConcurrentHashMap<>();

        Through(Path lower) {
            this.lower = lower;
        }

        @Override
        long size() throws IOException {
            if (!Files.exists(lower)) {
                throw new FuseException(Errno.ENOENT);
            }
            return Files.size(lower);
        }

        @Override
        public long validity() {
            return 0;
        }

        private Opened through(long handle) throws IOException {
            Backing backing = Request.current().openBacking(lower);
            backings.put(handle, backing);
            return Opened.through(handle, backing);
        }

        @Override
        public Opened open(String path, int flags) throws IOException {
            return through(1);
        }

        @Override
        public Opened create(String path, int mode, int flags) throws IOException {
            Files.createFile(lower);
            return through(2);
        }

        @Override
        public int read(String path, long handle, MemorySegment into, long offset) {
            throw new IllegalStateException("the kernel reads");
        }

        @Override
        public int write(String path, long handle, MemorySegment data, long offset) {
            throw new IllegalStateException("the kernel writes");
        }

        @Override
        public void release(String path, long handle) {
            backings.remove(handle).close();
            super.release(path, handle);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual"})
    void theKernelReadsAndWritesAFileThatIsAnother(String transport) throws Exception {
        Transports.requireKernel(6, 9, "kernel pass-through");
        try (Place place = new Place()) {
            Through fs = new Through(place.source.resolve("lower"));
            try (Mount _ = Mount.paths(fs, place.mountpoint, options(transport).plus("max_stack_depth=1"))) {
                Path file = place.mountpoint.resolve("file");
                Files.writeString(file, "written", StandardOpenOption.CREATE_NEW);
                assertEquals("written", Files.readString(fs.lower));
                place.until("it is released", () -> fs.released.equals(List.of(2L)));
                assertEquals("written", Files.readString(file));
                place.until("it is released", () -> fs.released.equals(List.of(2L, 1L)));
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring"})
    void aFileOfUnknownSizeIsReadDirectly(String transport) throws Exception {
        byte[] text = "more than zero bytes".getBytes();
        Treated fs = new Treated() {
            @Override
            long size() {
                return 0;
            }

            @Override
            public Opened open(String path, int flags) throws IOException {
                if ((flags & O_ACCMODE) != Libc.O_RDONLY) {
                    throw new FuseException(Errno.EACCES);
                }
                return new Opened(3, Opened.DIRECT_IO);
            }

            @Override
            public int read(String path, long handle, MemorySegment into, long offset) {
                int length = (int) Math.clamp(text.length - offset, 0, into.byteSize());
                into.asSlice(0, length).copyFrom(MemorySegment.ofArray(text).asSlice(offset, length));
                return length;
            }
        };
        try (Place place = new Place(); Mount _ = Mount.paths(fs, place.mountpoint, options(transport))) {
            int descriptor = open(place.mountpoint.resolve("file"), Libc.O_RDONLY);
            assertEquals(new String(text), Libc.read(descriptor));
            Libc.close(descriptor);
            place.until("it is released", () -> fs.released.equals(List.of(3L)));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring"})
    void pipesAndDevicesAreMade(String transport) throws Exception {
        mounted(transport, (fs, place, mount) -> {
            Path pipe = place.mountpoint.resolve("pipe");
            Place.command("sh", "-c", "umask 027 && mkfifo \"$0\"", pipe.toString());
            assertEquals(0010640, stat(pipe, "mode"));
            Path device = place.mountpoint.resolve("device");
            Place.command("sh", "-c", "umask 077 && mknod \"$0\" c 5 1", device.toString());
            assertEquals(0020600, stat(device, "mode"));
            assertEquals("5:1\n", Place.command("stat", "-c", "%Hr:%Lr", device.toString()));
        });
    }

    private static String descriptor(int descriptor) {
        return "/proc/" + ProcessHandle.current().pid() + "/fd/" + descriptor;
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual", "dev,at_once", "dev,at_once,virtual"})
    void aFileWithoutANameGetsOne(String transport) throws Exception {
        mounted(transport, (fs, place, mount) -> {
            int descriptor = open(place.mountpoint, Libc.O_TMPFILE | Libc.O_RDWR);
            assertEquals(4, Libc.write(descriptor, "text", 0));
            assertEquals(0, Libc.fchmod(descriptor, 0600));
            assertEquals("0 4 600\n", Place.command("stat", "-L", "-c", "%h %s %a", descriptor(descriptor)));
            Path file = place.mountpoint.resolve("named");
            Place.command("ln", "-L", descriptor(descriptor), file.toString());
            assertEquals("text", Files.readString(file));
            Files.writeString(file, "more", StandardOpenOption.APPEND);
            assertEquals("textmore", Libc.read(descriptor));
            String ino = Place.command("stat", "-c", "%i", file.toString());
            assertEquals(ino, Place.command("stat", "-L", "-c", "%i", descriptor(descriptor)));
            assertEquals(1, stat(file, "nlink"));
            Libc.close(descriptor);
            place.until("nothing is open", () -> fs.open() == 0);
            assertEquals("textmore", Files.readString(file));
        });
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual"})
    void theTimeOfBirthIsTold(String transport) throws Exception {
        Transports.requireKernel(6, 6, "FUSE_STATX");
        mounted(transport, (fs, place, mount) -> {
            int descriptor = create(place, "file");
            Path file = place.mountpoint.resolve("file");
            long born = PathOperationsFs.BORN.getEpochSecond();
            assertEquals(born + " 0\n", Place.command("stat", "-c", "%W %s", file.toString()));
            Files.delete(file);
            assertEquals(born + 1 + "\n", Place.command("stat", "-L", "-c", "%W", descriptor(descriptor)));
            Libc.close(descriptor);
        });
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual"})
    void anOpenDirectoryHasAHandle(String transport) throws Exception {
        mounted(transport, (fs, place, mount) -> {
            int descriptor = open(place.mountpoint, Libc.O_DIRECTORY);
            byte[] both = {1, 2, 3};
            assertEquals(PathOperationsFs.CODE, Libc.ioctl(descriptor, 3, both));
            assertArrayEquals(new byte[] {2, 3, 4}, both);
            Libc.close(descriptor);
            try (FileChannel directory = FileChannel.open(place.mountpoint)) {
                directory.force(false);
                directory.force(true);
            }
            Map<String, Long> numbers = Libc.list(place.mountpoint);
            assertEquals(Set.of(".", "..", "unknown", "known"), numbers.keySet());
            place.until("all are released", () -> Collections.frequency(fs.calls, "releasedir /") == 3);
            assertEquals(List.of("opendir /", "fsyncdir / true", "fsyncdir / false", "opendir /", "readdir /"),
                    fs.calls.stream().filter(call -> !call.startsWith("releasedir")).skip(1).toList());
        });
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring"})
    void aHandleThatTheKernelDoesNotGetIsReleased(String transport) throws Exception {
        List<String> calls = Collections.synchronizedList(new ArrayList<>());

        class Refusing implements PathFileSystem {
            @Override
            public Attr getattr(String path) throws IOException {
                if (path.equals("/")) {
                    return Attr.directory(0, 0755);
                }
                throw new FuseException(calls.contains("create " + path) ? Errno.EDQUOT : Errno.ENOENT);
            }

            @Override
            public Opened create(String path, int mode, int flags) {
                calls.add("create " + path);
                return Opened.of(77);
            }

            @Override
            public void release(String path, long handle) {
                calls.add("release " + handle);
            }
        }

        try (Place place = new Place(); Mount _ = Mount.paths(new Refusing(), place.mountpoint, options(transport))) {
            IOException refused = assertThrows(IOException.class, () -> Files.createFile(place.mountpoint.resolve("new")));
            assertEquals(Errno.EDQUOT, Errno.of(refused), refused.toString());
            place.until("it is released", () -> calls.size() > 1);
            assertEquals(List.of("create /new", "release 77"), calls);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual"})
    void rangesOfFilesAreAllocatedFoundAndCopied(String transport) throws Exception {
        mounted(transport, (fs, place, mount) -> {
            int descriptor = create(place, "file");
            assertEquals(0, Libc.fallocate(descriptor, 0, 1000, 9000));
            assertEquals(10_000, Files.size(place.mountpoint.resolve("file")));
            assertEquals(-1, Libc.fallocate(descriptor, 8, 0, 4096));
            assertEquals(10, Libc.seek(descriptor, 10, Libc.SEEK_DATA));
            assertEquals(PathOperationsFs.HOLE, Libc.seek(descriptor, 10, Libc.SEEK_HOLE));
            assertEquals(-1, Libc.seek(descriptor, 5000, Libc.SEEK_DATA));
            assertEquals(4, Libc.write(descriptor, "text", 20));
            int other = create(place, "other");
            assertEquals(4, Libc.copyFileRange(descriptor, 20, other, 1, 4));
            assertTrue(fs.calls.contains("copy /file to /other"), fs.calls.toString());
            assertEquals("\0text", Files.readString(place.mountpoint.resolve("other")));
            Files.delete(place.mountpoint.resolve("other"));
            assertEquals(2, Libc.copyFileRange(descriptor, 22, other, 0, 2));
            assertTrue(fs.calls.contains("copy /file to null"), fs.calls.toString());
            assertEquals(-1, Libc.ioctl(-1, new byte[1]));
            byte[] output = new byte[16];
            assertEquals(PathOperationsFs.CODE, Libc.ioctl(descriptor, output));
            byte[] expected = new byte[16];
            Arrays.fill(expected, (byte) "/file".length());
            assertArrayEquals(expected, output);
            Libc.close(other);
            Libc.close(descriptor);
        });
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual"})
    void whoPollsIsWoken(String transport) throws Exception {
        mounted(transport, (fs, place, mount) -> {
            int descriptor = create(place, "file");
            assertEquals(0, Libc.poll(descriptor, Libc.POLLIN, 0));
            FutureTask<Integer> polling = AllAtOnce.start(() -> Libc.poll(descriptor, Libc.POLLIN, -1));
            place.until("somebody waits", () -> fs.waiter.get() != 0);
            fs.ready = Libc.POLLIN;
            mount.wake(fs.waiter.get());
            assertEquals(Libc.POLLIN, polling.get());
            Libc.close(descriptor);
        });
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual"})
    void recordLocksEndWithTheirOwner(String transport) throws Exception {
        mounted(transport, (fs, place, mount) -> {
            int first = create(place, "file");
            int second = open(place.mountpoint.resolve("file"), Libc.O_RDWR);
            // Of the open file itself: they end with it alone.
            assertEquals(0, Libc.lock(first, Libc.F_OFD_SETLK, Libc.F_WRLCK, 10, 5));
            assertEquals(-1, Libc.lock(second, Libc.F_OFD_SETLK, Libc.F_RDLCK, 14, 1));
            assertEquals(0, Libc.lock(second, Libc.F_OFD_SETLK, Libc.F_RDLCK, 15, 1));
            assertEquals(Libc.F_WRLCK, (short) Libc.lockInTheWay(second)[0]);
            assertEquals(0, Libc.lock(second, Libc.F_OFD_SETLK, Libc.F_UNLCK, 15, 1));
            assertEquals(1, fs.locks());
            Libc.close(first);
            place.until("its locks end", () -> fs.locks() == 0);
            assertEquals(Libc.F_UNLCK, (short) Libc.lockInTheWay(second)[0]);
            // Of the process: they end with any descriptor of the file, open as it may be elsewhere.
            assertEquals(0, Libc.lock(second, Libc.F_SETLK, Libc.F_WRLCK, 0, 0));
            assertEquals(1, fs.locks());
            Libc.close(open(place.mountpoint.resolve("file"), Libc.O_RDWR));
            assertEquals(0, fs.locks());
            Libc.close(second);
        });
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual"})
    void whoWaitsForAFileGetsItWhenItIsClosed(String transport) throws Exception {
        mounted(transport, (fs, place, mount) -> {
            int first = create(place, "file");
            Path file = place.mountpoint.resolve("file");
            int second = open(file, Libc.O_RDWR);
            assertEquals(0, Libc.flock(first, Libc.LOCK_EX));
            assertEquals(-1, Libc.flock(second, Libc.LOCK_EX | Libc.LOCK_NB));
            // One that gets a signal does not wait any longer.
            Process killed = new ProcessBuilder("flock", file.toString(), "true").start();
            place.until("it waits", () -> fs.calls.contains("waiting"));
            killed.destroy();
            killed.waitFor();
            place.until("it was told", () -> fs.calls.contains("interrupted"));
            FutureTask<Integer> waiting = AllAtOnce.start(() -> Libc.flock(second, Libc.LOCK_EX));
            // No path is claimed meanwhile.
            Files.move(file, place.mountpoint.resolve("moved"));
            Libc.close(first);
            assertEquals(0, waiting.get());
            assertEquals(1, fs.locks());
            assertEquals(0, Libc.flock(second, Libc.LOCK_UN));
            assertEquals(0, fs.locks());
            Libc.close(second);
        });
    }

    @ParameterizedTest
    @ValueSource(strings = {"flock", "setlk"})
    void locksThatAreNotTheFileSystemsAreTheKernels(String kept) throws Exception {
        class Records extends KeptFs {
            @Override
            public Lock getlk(String path, long handle, long owner, Lock lock) throws IOException {
                throw new FuseException(Errno.ENOTTY);
            }

            @Override
            public void setlk(String path, long handle, long owner, Lock lock, boolean wait) throws IOException {
                throw new FuseException(Errno.ENOTTY);
            }
        }

        class Flocks extends KeptFs {
            @Override
            public void flock(String path, long handle, long owner, int kind, boolean wait) throws IOException {
                throw new FuseException(Errno.ENOTTY);
            }
        }

        boolean isFlock = kept.equals("flock");
        try (Place place = new Place();
                Mount _ = Mount.paths(isFlock ? new Flocks() : new Records(), place.mountpoint, options("dev"))) {
            int descriptor = create(place, "file");
            assertEquals(isFlock ? -1 : 0, Libc.flock(descriptor, Libc.LOCK_EX));
            assertEquals(isFlock ? 0 : -1, Libc.lock(descriptor, Libc.F_SETLK, Libc.F_WRLCK, 0, 1));
            Libc.close(descriptor);
        }
    }

    @Test
    void theEndOfTheSessionIsTold() throws Exception {
        PathOperationsFs fs = new PathOperationsFs();
        try (Place place = new Place()) {
            Mount.paths(fs, place.mountpoint, options("dev")).close();
        }
        assertEquals(List.of("destroy false"), fs.calls);
    }
}
