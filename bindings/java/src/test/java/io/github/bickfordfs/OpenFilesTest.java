package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.MemoryFs;
import io.github.bickfordfs.examples.NioFs;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Open files whose names are gone, and their handles. */
class OpenFilesTest {
    /** With the kernel's help: it refuses to open the file, but sends OPEN before that. */
    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring"})
    void aProgramThatRunsIsNotEmptied(String transport) throws Exception {
        Transports.require(transport);
        try (Place place = new Place(60);
                Mount _ = Mount.inodes(new MemoryFs(), place.mountpoint, options(transport))) {
            Path program = Files.copy(Path.of("/bin/sleep"), place.mountpoint.resolve("sleep"));
            long size = Files.size(program);
            assertTrue(program.toFile().setExecutable(true));
            Process running = new ProcessBuilder(program.toString(), "60").start();
            try {
                assertEquals(-1, Libc.open(program.toString().getBytes(), Libc.O_RDONLY | Libc.O_TRUNC));
                assertEquals(size, Files.size(program));
            } finally {
                running.destroyForcibly().waitFor();
            }
            Libc.close(open(program, Libc.O_RDONLY | Libc.O_TRUNC));
            assertEquals(0, Files.size(program));
        }
    }

    private static MountOptions options(String transport) {
        return MountOptions.DEFAULT.withOptions("transport=" + transport);
    }

    private static int open(Path path, int flags) {
        int descriptor = Libc.open(path.toString().getBytes(), flags);
        assertTrue(descriptor >= 0, path.toString());
        return descriptor;
    }

    /** As fstat(2) sees it. */
    private static Map<String, Object> stat(int descriptor) throws IOException {
        return Files.readAttributes(Path.of("/proc/self/fd/" + descriptor), "unix:*");
    }

    private static void isEmptyAndNameless(int descriptor) throws IOException {
        Map<String, Object> stat = stat(descriptor);
        assertEquals(0L, stat.get("size"));
        assertEquals(0, stat.get("nlink"));
    }

    /** What mkstemp(3) is followed by in many programs. */
    private static void useWithoutName(int descriptor) throws IOException {
        isEmptyAndNameless(descriptor);
        assertEquals(3, Libc.write(descriptor, "abc", 0));
        assertEquals(3L, stat(descriptor).get("size"));
        assertEquals(0, Libc.ftruncate(descriptor, 1));
        assertEquals(1L, stat(descriptor).get("size"));
        assertEquals(4, Libc.write(descriptor, "more", 1));
        assertEquals(5L, stat(descriptor).get("size"));
        assertEquals("amore", Libc.read(descriptor));
    }

    private static void changeWithoutName(int descriptor) throws IOException {
        assertEquals(0, Libc.fchmod(descriptor, 0600));
        assertEquals(0, Libc.fchown(descriptor, 12, 34));
        assertEquals(0, Libc.futimens(descriptor, 1_000_000_000));
        Map<String, Object> stat = stat(descriptor);
        assertEquals(Attr.S_IFREG | 0600, stat.get("mode"));
        assertEquals(12, stat.get("uid"));
        assertEquals(34, stat.get("gid"));
        assertEquals("2001-09-09T01:46:40Z", stat.get("lastModifiedTime").toString());
    }

    private static void useUnlinked(Path directory, boolean changes) throws Exception {
        Path file = directory.resolve("unlinked");
        int descriptor = open(file, Libc.O_RDWR | Libc.O_CREAT | Libc.O_EXCL);
        Files.delete(file);
        useWithoutName(descriptor);
        if (changes) {
            changeWithoutName(descriptor);
        }
        Libc.close(descriptor);
        assertFalse(Files.exists(file));
    }

    private static void useReplaced(Path directory, boolean changes) throws Exception {
        Path file = directory.resolve("replaced");
        int old = open(file, Libc.O_RDWR | Libc.O_CREAT | Libc.O_EXCL);
        Path other = directory.resolve("other");
        int replacing = open(other, Libc.O_RDWR | Libc.O_CREAT | Libc.O_EXCL);
        assertEquals(11, Libc.write(replacing, "new content", 0));
        Files.move(other, file, StandardCopyOption.REPLACE_EXISTING);
        assertEquals(11L, stat(replacing).get("size"));
        useWithoutName(old);
        if (changes) {
            changeWithoutName(old);
        }
        assertEquals(11L, stat(replacing).get("size"));
        assertEquals(1, stat(replacing).get("nlink"));
        Libc.close(old);
        assertEquals("new content", Libc.read(replacing));
        assertEquals(Attr.S_IFREG | 0644, stat(replacing).get("mode"));
        Libc.close(replacing);
        assertEquals("new content", Files.readString(file));
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "uring,prompt"})
    void inMemoryOverInodes(String transport) throws Exception {
        Transports.require(transport);
        try (Place place = new Place();
                Mount _ = Mount.inodes(new MemoryFs(), place.mountpoint, options(transport))) {
            useUnlinked(place.mountpoint, true);
            useReplaced(place.mountpoint, true);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "uring,prompt"})
    void inMemoryOverPaths(String transport) throws Exception {
        Transports.require(transport);
        KeptFs fs = new KeptFs();
        try (Place place = new Place();
                Mount _ = Mount.paths(fs, place.mountpoint, options(transport))) {
            useUnlinked(place.mountpoint, true);
            useReplaced(place.mountpoint, true);
            place.until("nothing is open", () -> fs.open() == 0);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "uring,prompt"})
    void inADirectory(String transport) throws Exception {
        Transports.require(transport);
        try (Place place = new Place();
                Mount _ = Mount.paths(new NioFs(place.source), place.mountpoint, options(transport))) {
            useUnlinked(place.mountpoint, false);
            useReplaced(place.mountpoint, false);
        }
    }

    @Test
    void theFileSystemOfAFileWithoutANameIsKnown() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.paths(new KeptFs(), place.mountpoint, options("dev"))) {
            Path file = place.mountpoint.resolve("file");
            int descriptor = open(file, Libc.O_RDWR | Libc.O_CREAT | Libc.O_EXCL);
            Files.delete(file);
            String ours = "/proc/" + ProcessHandle.current().pid() + "/fd/" + descriptor;
            assertEquals("1234\n", Place.command("stat", "-f", "-c", "%b", ours));
            Libc.close(descriptor);
        }
    }

    /** Asked for the attributes of what has no name, it waits. */
    private static final class Slow extends KeptFs {
        final List<String> log = Collections.synchronizedList(new java.util.ArrayList<>());
        final CountDownLatch asked = new CountDownLatch(1);
        final CountDownLatch answer = new CountDownLatch(1);

        @Override
        public Attr getattr(String path, long handle) throws IOException {
            if (path == null) {
                asked.countDown();
                try {
                    answer.await();
                } catch (InterruptedException e) {
                    throw new FuseException(Errno.EINTR);
                }
                log.add("used " + handle);
            }
            return super.getattr(path, handle);
        }

        @Override
        public void release(String path, long handle) throws IOException {
            log.add("released " + handle);
            super.release(path, handle);
        }
    }

    @Test
    void aBorrowedHandleIsReleasedAfterItsUse() throws Exception {
        Slow fs = new Slow();
        try (Place place = new Place();
                Mount _ = Mount.paths(fs, place.mountpoint, options("dev"))) {
            Path file = place.mountpoint.resolve("file");
            int first = open(file, Libc.O_RDWR | Libc.O_CREAT | Libc.O_EXCL);
            int second = open(file, Libc.O_RDWR);
            Files.delete(file);
            FutureTask<Map<String, Object>> stat = AllAtOnce.start(() -> stat(second));
            assertTrue(fs.asked.await(Place.DEADLINE_SECONDS, TimeUnit.SECONDS));
            Libc.close(first);
            // Requests that follow RELEASE: it is served by now, or the test proves less, but does not fail.
            for (int i = 0; i < 100; i++) {
                assertFalse(Files.exists(place.mountpoint.resolve("none-" + i)));
            }
            fs.answer.countDown();
            assertEquals(0L, stat.get(Place.DEADLINE_SECONDS, TimeUnit.SECONDS).get("size"));
            place.until("the first is released", () -> fs.open() == 1);
            assertEquals(List.of("used 1", "released 1"), fs.log);
            assertEquals(0L, stat(second).get("size"));
            Libc.close(second);
            place.until("nothing is open", () -> fs.open() == 0);
            assertEquals(List.of("used 1", "released 1", "used 2", "released 2"), fs.log);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring"})
    void handlesAreBorrowedWhileOthersAreReleased(String transport) throws Exception {
        Transports.require(transport);
        KeptFs fs = new KeptFs();
        try (Place place = new Place();
                Mount _ = Mount.paths(fs, place.mountpoint, options(transport));
                ExecutorService callers = Executors.newFixedThreadPool(2)) {
            for (int i = 0; i < 300; i++) {
                Path file = place.mountpoint.resolve("file-" + i);
                int first = open(file, Libc.O_RDWR | Libc.O_CREAT | Libc.O_EXCL);
                int second = open(file, Libc.O_RDWR);
                Files.delete(file);
                var closing = callers.submit(() -> Libc.close(first));
                var changing = callers.submit(() -> Libc.fchmod(second, 0600));
                isEmptyAndNameless(second);
                closing.get();
                assertEquals(0, changing.get());
                Libc.close(second);
            }
            place.until("nothing is open", () -> fs.open() == 0);
        }
    }
}
