package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.Hello;
import io.github.bickfordfs.examples.NioFs;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

class MountTest {
    @Test
    void aMountThatCouldNotBeClosedIsClosedLater() throws Exception {
        try (Place place = new Place(); Mount mount = Mount.inodes(new Hello(), place.mountpoint, MountOptions.DEFAULT)) {
            Place.command("mount", "-t", "tmpfs", "cover", place.mountpoint.toString());
            String message;
            try {
                message = assertThrows(IOException.class, mount::close).getMessage();
            } finally {
                Place.command("umount", place.mountpoint.toString());
            }
            assertTrue(message.contains("covered by another mount"), message);
            assertEquals(Set.of("hello"), ExamplesTest.names(place.mountpoint), "it is served as before");
            mount.close();
            assertFalse(place.isMounted());
            mount.close();
        }
    }

    @Test
    void whatIsClosedIsUnmounted() throws Exception {
        try (Place place = new Place()) {
            Mount mount = Mount.inodes(new Hello(), place.mountpoint, MountOptions.DEFAULT);
            assertFalse(mount.await(0));
            mount.close();
            assertTrue(mount.await(0));
            mount.await();
        }
    }

    @Test
    void aPathInAZipFileIsNotTakenForOneOfTheMachine() throws Exception {
        try (Place place = new Place();
                FileSystem zip = FileSystems.newFileSystem(place.directory.resolve("zip"), Map.of("create", "true"))) {
            Path other = zip.getPath(place.mountpoint.toString());
            Path source = zip.getPath(place.source.toString());
            List<Executable> mounts = List.of(
                    () -> Mount.inodes(new Hello(), other, MountOptions.DEFAULT).close(),
                    () -> Mount.paths(new NioFs(place.source), other, MountOptions.DEFAULT).close(),
                    () -> Mount.javaFuse(new JavaFuse() {}, place.source, other, Configuration.DEFAULT,
                            MountOptions.DEFAULT).close(),
                    () -> Mount.javaFuse(new JavaFuse() {}, source, place.mountpoint, Configuration.DEFAULT,
                            MountOptions.DEFAULT).close());
            for (Executable mount : mounts) {
                String message = assertThrows(IOException.class, mount).getMessage();
                assertTrue(message.contains("jar:/"), message);
            }
        }
    }

    /** The library takes the number of a program's session away before it says that it is over. */
    @Test
    void aProgramsMountThatIsOverCanBeClosed() throws Exception {
        try (Place place = new Place()) {
            InodeTarget target = new InodeTarget(new Hello(), "hello", false);
            int number = Bridge.add(target);
            long session = Native.mount(place.mountpoint.toString(), MountOptions.DEFAULT,
                    new Native.CallbackSpec(number, target.operations(), 0, Bridge.DISPATCH));
            Mount mount = Mount.ofProgram(place.mountpoint, target, number, session);
            Native.close(session);
            mount.unmountLazily();
            assertTrue(mount.await(0));
            mount.close();
            mount.close();
            mount.endedByProgram();
        }
    }

    /** Mounts where names are, and are served, in the charset of the locale: {@code Localized DIRECTORY}. */
    public static final class Localized {
        public static void main(String[] args) throws IOException {
            Path mountpoint = Files.createDirectory(Path.of(args[0], "mnt\u00e9"));
            Path source = Files.createDirectory(Path.of(args[0], "source\u00e9"));
            Files.writeString(source.resolve("file"), "text");
            try (Mount _ = Mount.inodes(new Hello(), mountpoint, MountOptions.DEFAULT)) {
                System.out.print(Files.readString(mountpoint.resolve("hello")));
            }
            try (Mount _ = Mount.javaFuse(new JavaFuse() {}, source, mountpoint, Configuration.DEFAULT,
                    MountOptions.DEFAULT)) {
                System.out.println(Files.readString(mountpoint.resolve("file")));
            }
            Native.closeDescriptor(Native.openPath(source.toString()));
        }
    }

    @Test
    void pathsAreInTheCharsetOfTheLocale() throws Exception {
        try (Place place = new Place()) {
            ProcessBuilder machine = place.virtualMachine(Localized.class, place.directory.toString());
            place.localize(machine);
            assertEquals(0, machine.start().waitFor(), place::outputOrError);
            assertEquals("Hello, world!\ntext\n", place.output());
        }
    }

    @Test
    void whatCannotBeToldIsTheCallersException() throws Exception {
        try (Place place = new Place(); Mount mount = Mount.inodes(new Hello(), place.mountpoint, MountOptions.DEFAULT)) {
            assertThrows(NullPointerException.class, () -> mount.store(2, 0, null));
            assertThrows(NullPointerException.class, () -> mount.invalidate(1, (byte[]) null));
            MemorySegment freed;
            try (Arena arena = Arena.ofConfined()) {
                freed = arena.allocate(8);
            }
            assertThrows(IllegalStateException.class, () -> mount.store(2, 0, freed));
            MemorySegment large = MemorySegment.ofArray(new byte[17 << 20]);
            String message = assertThrows(IOException.class, () -> mount.store(2, 0, large)).getMessage();
            assertTrue(message.contains("16777216 bytes"), message);
        }
    }

    @Test
    void optionsAreNotCutShort() {
        String message = assertThrows(IllegalArgumentException.class, () -> MountOptions.DEFAULT.plus("fsname=a\0,ro"))
                .getMessage();
        assertTrue(message.contains("fsname=a\\0,ro"), message);
    }

    @Test
    void attributesAreForgottenAtOnce() throws Exception {
        AtomicLong size = new AtomicLong(1);
        InodeFileSystem fs = new OneFile() {
            @Override
            public Entry lookup(Request request) {
                return Entry.of(2, Attr.file(2, 0644, size.get()), 3600 * Entry.SECOND);
            }

            @Override
            public Attributes getattr(Request request) {
                return request.node() == 2
                        ? new Attributes(Attr.file(2, 0644, size.get()), 3600 * Entry.SECOND)
                        : super.getattr(request);
            }
        };
        try (Place place = new Place(); Mount mount = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
            Path file = place.mountpoint.resolve("file");
            assertEquals(1, Files.size(file));
            size.set(2);
            assertEquals(1, Files.size(file));
            mount.forgetAttributes(2);
            assertEquals(2, Files.size(file));
        }
    }

    @Test
    void namesExpireAndNodesAreForgotten() throws Exception {
        Transports.requireKernel(6, 18, "FUSE_NOTIFY_PRUNE");
        AtomicInteger lookups = new AtomicInteger();
        CountDownLatch forgotten = new CountDownLatch(1);
        InodeFileSystem fs = new OneFile() {
            @Override
            public Entry lookup(Request request) throws IOException {
                lookups.incrementAndGet();
                return Entry.of(2, Attr.file(2, 0644, SIZE), 3600 * Entry.SECOND);
            }

            @Override
            public void forget(long node, long count) {
                forgotten.countDown();
            }
        };
        try (Place place = new Place(); Mount mount = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
            Path file = place.mountpoint.resolve("file");
            for (int expected = 1; expected <= 2; expected++) {
                assertTrue(Files.exists(file) && Files.exists(file));
                assertEquals(expected, lookups.get());
                mount.expireAll();
                mount.flushNotifications();
            }
            mount.prune(4711, 2);
            assertTrue(forgotten.await(Place.DEADLINE_SECONDS, TimeUnit.SECONDS), "not forgotten");
        }
    }

    @Test
    void whatTheNativeLibraryTellsIsLogged() throws Exception {
        InodeFileSystem fs = new OneFile() {
            @Override
            public Entry lookup(Request request) {
                return Entry.of(ROOT, Attr.file(ROOT, 0644, SIZE), 0);
            }
        };
        try (Place place = new Place(); Records records = new Records();
                Mount mount = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
            Path file = place.mountpoint.resolve("file");
            assertThrows(IOException.class, () -> Files.readAttributes(file, BasicFileAttributes.class));
            assertTrue(records.have("its node is 1, which is the root of the mount"), "not told");
        }
    }

    @Test
    void anEndThatThrowsIsLogged() throws Exception {
        InodeFileSystem fs = new InodeFileSystem() {
            @Override
            public void destroy() {
                throw new IllegalStateException("for a test");
            }
        };
        try (Place place = new Place(); Records records = new Records()) {
            Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT).close();
            records.check(IllegalStateException.class, "for a test", "destroy");
            assertTrue(records.have("failed in DESTROY"), "not named");
        }
    }
}
