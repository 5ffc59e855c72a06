package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** How methods over paths end otherwise than by an answer. */
class PathEndsTest {
    /** One file, whose methods throw. */
    private static class Failing implements PathFileSystem {
        @Override
        public Attr getattr(String path) throws IOException {
            return switch (path) {
                case "/" -> Attr.directory(0, 0755);
                case "/file" -> Attr.file(0, 0644, 5);
                default -> throw new NoSuchFileException(path);
            };
        }

        @Override
        public int read(String path, long handle, MemorySegment into, long offset) throws IOException {
            throw new ArrayStoreException("a defect");
        }

        @Override
        public int write(String path, long handle, MemorySegment data, long offset) {
            return (int) data.byteSize() + 1;
        }

        @Override
        public void unlink(String path) throws IOException {
            throw new AccessDeniedException(path);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual"})
    void whatAMethodThrowsIsTheAnswer(String transport) throws Exception {
        try (Place place = new Place(); Records records = new Records();
                Mount _ = Mount.paths(new Failing(), place.mountpoint, PathOperationsTest.options(transport))) {
            Path file = place.mountpoint.resolve("file");
            String message = assertThrows(IOException.class, () -> Files.readString(file)).getMessage();
            assertTrue(message.contains("Input/output error"), message);
            records.check(ArrayStoreException.class, "a defect", "read");
            int told = records.size();
            assertThrows(AccessDeniedException.class, () -> Files.delete(file));
            assertThrows(FileSystemException.class, () -> Files.createDirectory(place.mountpoint.resolve("new")));
            assertEquals(told, records.size(), "what is no defect is not told");
            int descriptor = Libc.open(file.toString().getBytes(), Libc.O_RDWR);
            assertEquals(-1, Libc.write(descriptor, "text", 0));
            Libc.close(descriptor);
            assertTrue(records.threw("5 bytes are no answer where 4 are to be written"));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual"})
    void namesThatAreNotTextStayOutside(String transport) throws Exception {
        try (Place place = new Place(); Records records = new Records();
                Mount _ = Mount.paths(new Failing(), place.mountpoint, PathOperationsTest.options(transport))) {
            byte[] directory = (place.mountpoint + "/").getBytes();
            byte[] path = Arrays.copyOf(directory, directory.length + 1);
            path[directory.length] = (byte) 0xe9;
            assertEquals(-1, Libc.open(path, Libc.O_RDONLY));
            assertEquals(0, records.size());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual"})
    void anErrorOfTheVirtualMachineUnmounts(String transport) throws Exception {
        class Overflowing extends Failing {
            @Override
            public int read(String path, long handle, MemorySegment into, long offset) throws IOException {
                return 1 + read(path, handle, into, offset);
            }
        }

        try (Place place = new Place(); Records _ = new Records();
                Mount _ = Mount.paths(new Overflowing(), place.mountpoint, PathOperationsTest.options(transport))) {
            assertThrows(IOException.class, () -> Files.readString(place.mountpoint.resolve("file")));
            place.until("it is unmounted", () -> !place.isMounted());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "dev,virtual", "uring,virtual"})
    void theEndComesAfterTheLastCall(String transport) throws Exception {
        CountDownLatch inside = new CountDownLatch(1);
        CountDownLatch mayReturn = new CountDownLatch(1);
        List<String> order = Collections.synchronizedList(new ArrayList<>());

        class Slow extends Failing {
            @Override
            public int read(String path, long handle, MemorySegment into, long offset) throws IOException {
                inside.countDown();
                try {
                    mayReturn.await();
                } catch (InterruptedException e) {
                    throw new FuseException(Errno.EINTR);
                }
                into.fill((byte) 'x');
                order.add("read " + path);
                return 0;
            }

            @Override
            public void destroy() {
                order.add("destroy");
            }
        }

        try (Place place = new Place();
                Mount mount = Mount.paths(new Slow(), place.mountpoint, PathOperationsTest.options(transport))) {
            var text = AllAtOnce.start(() -> Files.readString(place.mountpoint.resolve("file")));
            inside.await();
            // The mount is busy, but its connection is aborted.
            Place.outputOf(List.of("umount", "-f", place.mountpoint.toString()));
            assertThrows(ExecutionException.class, text::get);
            assertFalse(mount.await(200));
            mayReturn.countDown();
            mount.await();
        } finally {
            mayReturn.countDown();
        }
        assertEquals(List.of("read /file", "destroy"), order);
    }
}
