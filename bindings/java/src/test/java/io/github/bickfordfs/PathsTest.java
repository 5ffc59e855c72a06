package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.NioFs;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.SecureDirectoryStream;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** File systems over paths whose names change below open files. */
class PathsTest {
    /** A directory of the machine, without handles. */
    private static class ByPath implements PathFileSystem {
        final Path root;

        ByPath(Path root) {
            this.root = root;
        }

        final Path at(String path) {
            return root.resolve(path.substring(1));
        }

        @Override
        public long validity() {
            return 0;
        }

        @Override
        public Attr getattr(String path) throws IOException {
            var all = Files.readAttributes(at(path), "unix:mode,size", LinkOption.NOFOLLOW_LINKS);
            int mode = (int) all.get("mode");
            return (mode & Attr.S_IFMT) == Attr.S_IFDIR
                    ? Attr.directory(0, mode & 07777)
                    : Attr.file(0, mode & 07777, (long) all.get("size"));
        }

        @Override
        public List<Item> readdir(String path) throws IOException {
            List<Item> items = new ArrayList<>();
            try (Stream<Path> names = Files.list(at(path))) {
                names.forEach(name -> items.add(new Item(name.getFileName().toString(), 0)));
            }
            return items;
        }

        @Override
        public int read(String path, long handle, MemorySegment into, long offset) throws IOException {
            byte[] bytes = Files.readAllBytes(at(path));
            int length = (int) Math.clamp(bytes.length - offset, 0, into.byteSize());
            MemorySegment.copy(bytes, (int) offset, into, ValueLayout.JAVA_BYTE, 0, length);
            return length;
        }

        @Override
        public int write(String path, long handle, MemorySegment data, long offset) throws IOException {
            try (var channel = Files.newByteChannel(at(path), StandardOpenOption.WRITE)) {
                return channel.position(offset).write(data.asByteBuffer());
            }
        }

        @Override
        public void truncate(String path, long size) throws IOException {
            try (var channel = Files.newByteChannel(at(path), StandardOpenOption.WRITE)) {
                channel.truncate(size);
            }
        }

        @Override
        public void chmod(String path, int mode) throws IOException {
            Files.setAttribute(at(path), "unix:mode", mode);
        }

        @Override
        public void unlink(String path) throws IOException {
            Files.delete(at(path));
        }

        @Override
        public void rename(String path, String newPath, int flags) throws IOException {
            if (flags == 0) {
                Files.move(at(path), at(newPath), StandardCopyOption.REPLACE_EXISTING);
            } else {
                Libc.exchange(at(path), at(newPath));
            }
        }
    }

    /** What this process has open, as fchmod(2) sees it: without a name. */
    private static Path descriptor(String end) throws IOException {
        try (Stream<Path> all = Files.list(Path.of("/proc/self/fd"))) {
            for (Path descriptor : all.toList()) {
                if (Files.isSymbolicLink(descriptor)
                        && Files.readSymbolicLink(descriptor).toString().endsWith(end)) {
                    return descriptor;
                }
            }
        }
        throw new AssertionError("nothing is open that ends in " + end);
    }

    private static void isGone(org.junit.jupiter.api.function.Executable call) {
        String gone = assertThrows(IOException.class, call).toString();
        assertTrue(gone.contains("No such file or directory") || gone.contains("NoSuchFileException"), gone);
    }

    @Test
    void whatOpenEmptiesIsTruncatedAfterIt() throws Exception {
        List<String> calls = Collections.synchronizedList(new ArrayList<>());
        final int truncate = 01000;

        class Recording extends ByPath {
            Recording(Path root) {
                super(root);
            }

            @Override
            public Opened open(String path, int flags) {
                calls.add("open " + (flags & truncate));
                return Opened.of(7);
            }

            @Override
            public void truncate(String path, long size) {
                calls.add("truncate " + path + " " + size);
            }
        }

        try (Place place = new Place();
                Mount _ = Mount.paths(new Recording(place.source), place.mountpoint, MountOptions.DEFAULT)) {
            Files.writeString(place.source.resolve("file"), "text");
            Files.newOutputStream(place.mountpoint.resolve("file")).close();
        }
        assertEquals(List.of("open 0", "truncate /file 0"), calls);
    }

    @Test
    void anOpenFileIsNotTheOneThatTookItsName() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.paths(new ByPath(place.source), place.mountpoint, MountOptions.DEFAULT)) {
            Path log = place.mountpoint.resolve("log");
            Files.writeString(place.source.resolve("log"), "old");
            Files.writeString(place.source.resolve("new"), "new content");
            Files.setPosixFilePermissions(place.source.resolve("new"), PosixFilePermissions.fromString("rw-r--r--"));
            try (RandomAccessFile open = new RandomAccessFile(log.toFile(), "rw")) {
                Path descriptor = descriptor("mnt/log");
                Files.move(place.mountpoint.resolve("new"), log, StandardCopyOption.REPLACE_EXISTING);
                isGone(() -> open.setLength(0));
                isGone(() -> Files.setPosixFilePermissions(descriptor, Set.of()));
                isGone(open::read);
                isGone(() -> open.write(1));
            }
            assertEquals("new content", Files.readString(place.source.resolve("log")));
            assertEquals("rw-r--r--", PosixFilePermissions.toString(Files.getPosixFilePermissions(log)));
        }
    }

    @Test
    void aHandleTellsTheFileWhoseNameIsGone() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.paths(new NioFs(place.source), place.mountpoint, MountOptions.DEFAULT)) {
            Path log = place.mountpoint.resolve("log");
            Files.writeString(place.source.resolve("log"), "old");
            Files.writeString(place.source.resolve("new"), "new content");
            try (RandomAccessFile open = new RandomAccessFile(log.toFile(), "rw")) {
                Files.move(place.mountpoint.resolve("new"), log, StandardCopyOption.REPLACE_EXISTING);
                open.setLength(1);
                open.seek(1);
                open.write("ther".getBytes());
                open.getFD().sync();
                open.seek(0);
                assertEquals("other", open.readLine());
            }
            assertEquals("new content", Files.readString(place.source.resolve("log")));
        }
    }

    @Test
    void exchangedDirectoriesStayInUse() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.paths(new ByPath(place.source), place.mountpoint, MountOptions.DEFAULT)) {
            for (String name : List.of("a", "b")) {
                Files.createDirectory(place.source.resolve(name));
                Files.writeString(place.source.resolve(name).resolve("file"), "in " + name);
            }
            var before = Files.getPosixFilePermissions(place.source);
            Path a = place.mountpoint.resolve("a");
            try (var stream = (SecureDirectoryStream<Path>) Files.newDirectoryStream(a);
                    RandomAccessFile open = new RandomAccessFile(a.resolve("file").toFile(), "r")) {
                Path descriptor = descriptor("mnt/a/file");
                Libc.exchange(a, place.mountpoint.resolve("b"));
                assertEquals("in b", Files.readString(a.resolve("file")));
                try (var file = stream.newByteChannel(Path.of("file"), Set.of(StandardOpenOption.READ))) {
                    var buffer = java.nio.ByteBuffer.allocate(100);
                    file.read(buffer);
                    assertEquals("in a", new String(buffer.array(), 0, buffer.position()));
                }
                assertEquals("in a", open.readLine());
                Files.setPosixFilePermissions(descriptor, PosixFilePermissions.fromString("r--------"));
            }
            assertEquals("r--------", PosixFilePermissions.toString(
                    Files.getPosixFilePermissions(place.source.resolve("b/file"))));
            assertEquals(before, Files.getPosixFilePermissions(place.source));
            assertThrows(FileSystemException.class, () -> Files.delete(place.mountpoint.resolve("none")));
        }
    }

    /** Waits until a renaming waits for the method that runs, if it does: a lookup would have its answer by then. */
    private static void untilItWaits(Place place, Mount mount, Place.Condition isOver) throws Exception {
        Path waiting = Place.CONNECTIONS.resolve(Path.of(Long.toString(mount.connection()), "waiting"));
        int[] times = {0};
        place.until("the renaming waits", () -> {
            boolean isBusy = Integer.parseInt(Files.readString(waiting).strip()) > 1;
            times[0] = isBusy ? times[0] + 1 : 0;
            return times[0] == 20 || isOver.holds();
        });
    }

    @ParameterizedTest
    @ValueSource(strings = {"open", "unlink"})
    void aDirectoryIsNotRenamedBelowAMethod(String below) throws Exception {
        List<String> order = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch inside = new CountDownLatch(1);
        CountDownLatch mayReturn = new CountDownLatch(1);

        class Slow extends ByPath {
            Slow(Path root) {
                super(root);
            }

            private void stay() throws FuseException {
                inside.countDown();
                try {
                    mayReturn.await();
                } catch (InterruptedException e) {
                    throw new FuseException(Errno.EINTR);
                }
                order.add(below);
            }

            @Override
            public Opened open(String path, int flags) throws IOException {
                if (below.equals("open")) {
                    stay();
                }
                assertTrue(Files.exists(at(path)), path);
                return Opened.DEFAULT;
            }

            @Override
            public void unlink(String path) throws IOException {
                stay();
                super.unlink(path);
            }

            @Override
            public void rename(String path, String newPath, int flags) throws IOException {
                order.add("rename " + path);
                super.rename(path, newPath, flags);
            }
        }

        try (Place place = new Place(); Mount mount = Mount.paths(
                new Slow(place.source), place.mountpoint, MountOptions.DEFAULT.plus("transport=dev").withWorkers(8))) {
            Files.createDirectories(place.source.resolve("directory"));
            Files.createDirectories(place.source.resolve("aside/other"));
            Files.writeString(place.source.resolve("directory/file"), "text");
            Path directory = place.mountpoint.resolve("directory");
            var using = AllAtOnce.start(() -> {
                if (below.equals("open")) {
                    assertEquals("text", Files.readString(directory.resolve("file")));
                } else {
                    Files.delete(directory.resolve("file"));
                }
                return null;
            });
            inside.await();
            Path aside = place.mountpoint.resolve("aside");
            // The kernel looks nothing up for the first time in a directory in which it renames.
            assertTrue(Files.isDirectory(aside));
            Process killed = new ProcessBuilder("mv", "-T", directory.toString(), place.mountpoint + "/gone").start();
            untilItWaits(place, mount, () -> !order.isEmpty());
            Files.move(aside.resolve("other"), aside.resolve("moved"));
            killed.destroy();
            killed.waitFor();
            var renaming = AllAtOnce.start(() -> Files.move(directory, place.mountpoint.resolve("new")));
            untilItWaits(place, mount, () -> order.size() > 1);
            mayReturn.countDown();
            using.get();
            renaming.get();
            assertEquals(List.of("rename /aside/other", below, "rename /directory"), order);
        } finally {
            mayReturn.countDown();
        }
    }

    @Test
    void namesThatTheMountHasGivenAFileAreOneInode() throws Exception {
        class Linking extends ByPath {
            Linking(Path root) {
                super(root);
            }

            @Override
            public void link(String path, String newPath) throws IOException {
                Files.createLink(at(newPath), at(path));
            }
        }

        try (Place place = new Place();
                Mount _ = Mount.paths(new Linking(place.source), place.mountpoint, MountOptions.DEFAULT)) {
            Files.writeString(place.source.resolve("first"), "text");
            Path first = place.mountpoint.resolve("first");
            Path second = Files.createLink(place.mountpoint.resolve("second"), first);
            assertEquals(Files.getAttribute(first, "unix:ino"), Files.getAttribute(second, "unix:ino"));
            try (RandomAccessFile open = new RandomAccessFile(first.toFile(), "r")) {
                Files.delete(first);
                assertEquals("text", open.readLine(), "by the other name");
            }
        }
    }

    @Test
    void aRemovedFileThatIsOpenCanBeHidden() throws Exception {
        try (Place place = new Place(); Mount _ = Mount.paths(
                new ByPath(place.source), place.mountpoint, MountOptions.DEFAULT.plus("hide_removed"))) {
            Files.writeString(place.source.resolve("file"), "text");
            Path file = place.mountpoint.resolve("file");
            try (RandomAccessFile open = new RandomAccessFile(file.toFile(), "rw")) {
                Files.delete(file);
                assertEquals(List.of(), names(place.source).filter("file"::equals).toList());
                assertEquals("text", open.readLine());
            }
            place.until("nothing is left", () -> names(place.source).toList().isEmpty());
        }
    }

    private static Stream<String> names(Path directory) throws IOException {
        try (Stream<Path> names = Files.list(directory)) {
            return names.map(name -> name.getFileName().toString()).toList().stream();
        }
    }

    @Test
    void whatIsOpenCanComeByItsHandleAlone() throws Exception {
        List<String> paths = Collections.synchronizedList(new ArrayList<>());

        class ByHandle extends ByPath {
            ByHandle(Path root) {
                super(root);
            }

            @Override
            public Opened open(String path, int flags) {
                return Opened.of(7);
            }

            @Override
            public int read(String path, long handle, MemorySegment into, long offset) throws IOException {
                paths.add(path + " " + handle);
                return super.read("/file", handle, into, offset);
            }
        }

        try (Place place = new Place(); Mount _ = Mount.paths(
                new ByHandle(place.source), place.mountpoint, MountOptions.DEFAULT.plus("handles_only"))) {
            Files.writeString(place.source.resolve("file"), "text");
            assertEquals("text", Files.readString(place.mountpoint.resolve("file")));
        }
        assertEquals(Set.of("null 7"), Set.copyOf(paths));
    }
}
