package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

class RequestTest {
    private static final byte[] TEXT = "answered later".getBytes(StandardCharsets.UTF_8);

    @Test
    void countsThatCannotBeAreLogged() throws Exception {
        class Wrong extends OneFile {
            @Override
            public int read(Request request, MemorySegment into) {
                return -1;
            }

            @Override
            public int write(Request request) {
                Deferred owed = request.defer();
                owed.complete(9L);
                return 0;
            }
        }

        try (Place place = new Place(); Records records = new Records();
                Mount _ = Mount.inodes(new Wrong(), place.mountpoint, MountOptions.DEFAULT)) {
            var file = place.mountpoint.resolve("file");
            assertThrows(IOException.class, () -> Files.readString(file));
            assertTrue(records.threw("-1 bytes are no answer"));
            assertThrows(IOException.class,
                    () -> Files.writeString(file, "text", java.nio.file.StandardOpenOption.WRITE));
            assertTrue(records.threw("9 bytes are no answer where 4 are to be written"));
        }
    }

    /** The kernel makes EIO of them and says nothing. */
    @Test
    void attributesThatCannotBeAreLogged() throws Exception {
        class Wrong extends OneFile {
            @Override
            public Entry lookup(Request request) throws IOException {
                Attr file = Attr.file(2, 0644, SIZE);
                return switch (request.name()) {
                    case "less" -> Entry.of(2, file.withSize(-5), 0);
                    case "none" -> Entry.of(2, null, 0);
                    case "untyped" -> {
                        Attr attr = new Attr(2, 0644, 1, 0, 0, 0, SIZE, 1, file.accessed(), file.modified(),
                                file.changed());
                        request.defer().complete(Entry.of(2, attr, 0));
                        yield null;
                    }
                    default -> super.lookup(request);
                };
            }
        }

        try (Place place = new Place(); Records records = new Records();
                Mount _ = Mount.inodes(new Wrong(), place.mountpoint, MountOptions.DEFAULT)) {
            assertThrows(IOException.class, () -> Files.size(place.mountpoint.resolve("less")));
            assertTrue(records.threw("a size of -5 bytes"));
            assertThrows(IOException.class, () -> Files.size(place.mountpoint.resolve("none")));
            assertTrue(records.threw("the entry of node 2 has no attributes"));
            assertThrows(IOException.class, () -> Files.size(place.mountpoint.resolve("untyped")));
            assertTrue(records.threw("have the mode 0644, in which no type is: add Attr.S_IFREG"));
            assertEquals(OneFile.SIZE, Files.size(place.mountpoint.resolve("file")));
        }
    }

    @Test
    void namesThatCannotBeListedAreLogged() throws Exception {
        List<String> wrong = List.of("", "a/b", "directory/", "nul\0", "n".repeat(4096));
        AtomicInteger next = new AtomicInteger();

        class Wrong extends OneFile {
            @Override
            public void readdir(Request request, Listing listing) {
                listing.add(wrong.get(next.get()), 2, Attr.S_IFREG, 1);
            }
        }

        for (int i = 0; i < wrong.size(); i++) {
            next.set(i);
            try (Place place = new Place(); Records records = new Records();
                    Mount _ = Mount.inodes(new Wrong(), place.mountpoint, MountOptions.DEFAULT)) {
                assertEquals(0, place.mountpoint.toFile().list().length);
                assertTrue(records.threw("no file has the name \"" + wrong.get(i) + "\""), wrong.get(i));
                assertTrue(records.have("READDIR; the caller gets EIO"));
            }
        }
    }

    @Test
    void answersComeLaterFromVirtualThreads() throws Exception {
        BlockingQueue<Throwable> second = new LinkedBlockingQueue<>();

        class Later extends OneFile {
            @Override
            public int read(Request request, MemorySegment into) {
                long offset = request.offset();
                Deferred owed = request.defer();
                Thread.ofVirtual().start(() -> {
                    MemorySegment buffer = owed.buffer();
                    int length = (int) Math.max(0, Math.min(TEXT.length - offset, buffer.byteSize()));
                    MemorySegment.copy(TEXT, (int) Math.min(TEXT.length, offset), buffer, ValueLayout.JAVA_BYTE, 0,
                            length);
                    owed.complete(length);
                    second.add(assertThrows(IllegalStateException.class, () -> owed.fail(Errno.EIO)));
                    second.add(assertThrows(IllegalStateException.class, () -> buffer.get(ValueLayout.JAVA_BYTE, 0)));
                });
                return -1;
            }

            @Override
            public void unlink(Request request) {
                Deferred owed = request.defer();
                Thread.ofVirtual().start(() -> owed.fail(new java.nio.file.AccessDeniedException("file")));
            }
        }

        try (Place place = new Place();
                Mount _ = Mount.inodes(new Later(), place.mountpoint, MountOptions.DEFAULT)) {
            var file = place.mountpoint.resolve("file");
            assertEquals("answered later", Files.readString(file));
            assertInstanceOf(IllegalStateException.class, second.take());
            assertInstanceOf(IllegalStateException.class, second.take());
            assertThrows(java.nio.file.AccessDeniedException.class, () -> Files.delete(file));
        }
    }

    @Test
    void whatIsOverIsAnExceptionAndNotACrash() throws Exception {
        AtomicReference<Request> request = new AtomicReference<>();
        AtomicReference<MemorySegment> buffer = new AtomicReference<>();
        AtomicReference<MemorySegment> data = new AtomicReference<>();

        class Leaking extends OneFile {
            @Override
            public int read(Request leaked, MemorySegment into) {
                request.set(leaked);
                buffer.set(into);
                return 0;
            }

            @Override
            public int write(Request request) {
                data.set(request.data());
                assertThrows(IllegalArgumentException.class, () -> writeInto(request.data()));
                return (int) request.data().byteSize();
            }

            private void writeInto(MemorySegment readOnly) {
                readOnly.set(ValueLayout.JAVA_BYTE, 0, (byte) 0);
            }
        }

        try (Place place = new Place();
                Mount _ = Mount.inodes(new Leaking(), place.mountpoint, MountOptions.DEFAULT)) {
            var file = place.mountpoint.resolve("file");
            assertEquals("", Files.readString(file));
            assertNotNull(buffer.get());
            assertOver(buffer.get());
            try (var out = Files.newByteChannel(file, java.nio.file.StandardOpenOption.WRITE)) {
                assertEquals(3, out.write(java.nio.ByteBuffer.wrap(new byte[3])));
            }
            assertOver(data.get());
        }
        assertThrows(IllegalStateException.class, request.get()::node);
    }

    /** Its thread has closed it, and no other may use it. */
    private static void assertOver(MemorySegment segment) {
        assertFalse(segment.scope().isAlive());
        assertThrows(WrongThreadException.class, () -> segment.get(ValueLayout.JAVA_BYTE, 0));
    }

    @Test
    void anExceptionIsAnErrorAndTheMountGoesOn() throws Exception {
        class Failing extends OneFile {
            @Override
            public int read(Request request, MemorySegment into) {
                throw new ArrayIndexOutOfBoundsException("a defect of the file system");
            }
        }

        try (Place place = new Place(); Records records = new Records();
                Mount _ = Mount.inodes(new Failing(), place.mountpoint, MountOptions.DEFAULT)) {
            var file = place.mountpoint.resolve("file");
            String message = assertThrows(IOException.class, () -> Files.readString(file)).getMessage();
            assertTrue(message.contains("Input/output error"), message);
            records.check(ArrayIndexOutOfBoundsException.class, "a defect of the file system", "read");
            assertEquals(OneFile.SIZE, Files.size(file));
        }
    }

    @Test
    void whatAListRefusesIsLogged() throws Exception {
        class Failing extends OneFile {
            @Override
            public int read(Request request, MemorySegment into) {
                java.util.List.of().add(null);
                return 0;
            }

            @Override
            public void unlink(Request request) {
                throw new java.nio.file.ReadOnlyFileSystemException();
            }
        }

        try (Place place = new Place(); Records records = new Records();
                Mount _ = Mount.inodes(new Failing(), place.mountpoint, MountOptions.DEFAULT)) {
            var file = place.mountpoint.resolve("file");
            String message = assertThrows(IOException.class, () -> Files.readString(file)).getMessage();
            assertTrue(message.contains("not supported"), message);
            records.check(UnsupportedOperationException.class, null, "read");
            message = assertThrows(IOException.class, () -> Files.delete(file)).getMessage();
            assertTrue(message.contains("Read-only"), message);
            assertEquals(1, records.size());
        }
    }

    @Test
    void anAnswerThatIsTooLongIsAnError() throws Exception {
        class TooLong extends OneFile {
            @Override
            public int read(Request request, MemorySegment into) {
                return (int) into.byteSize() + 1;
            }

            @Override
            public byte[] getxattr(Request request) {
                return new byte[100];
            }
        }

        try (Place place = new Place();
                Mount _ = Mount.inodes(new TooLong(), place.mountpoint, MountOptions.DEFAULT)) {
            var file = place.mountpoint.resolve("file");
            assertThrows(IOException.class, () -> Files.readString(file));
            assertEquals(100, Files.getFileAttributeView(file, java.nio.file.attribute.UserDefinedFileAttributeView.class)
                    .size("any"));
        }
    }

    @Test
    void cachedAttributesAreDroppedByANotification() throws Exception {
        AtomicReference<Long> size = new AtomicReference<>(1L);

        class Growing extends OneFile {
            @Override
            public Entry lookup(Request request) throws IOException {
                return Entry.of(2, Attr.file(2, 0644, size.get()), 3600 * Entry.SECOND);
            }

            @Override
            public Attributes getattr(Request request) {
                return request.node() == ROOT
                        ? super.getattr(request)
                        : new Attributes(Attr.file(2, 0644, size.get()), 3600 * Entry.SECOND);
            }
        }

        try (Place place = new Place();
                Mount mount = Mount.inodes(new Growing(), place.mountpoint, MountOptions.DEFAULT)) {
            var file = place.mountpoint.resolve("file");
            // Again where the kernel had to give memory back in between.
            place.until("the kernel remembers what is no longer so", () -> {
                size.set(1L);
                mount.invalidate(2, 0, 0);
                mount.invalidate(InodeFileSystem.ROOT, "file");
                mount.flushNotifications();
                assertEquals(1, Files.size(file));
                size.set(2L);
                return Files.size(file) == 1;
            });
            mount.invalidate(2, 0, 0);
            mount.invalidate(InodeFileSystem.ROOT, "file");
            mount.flushNotifications();
            assertEquals(2, Files.size(file));
        }
    }

    @Test
    void whatCannotBeMountedSaysWhy() throws Exception {
        try (Place place = new Place()) {
            var missing = place.directory.resolve("missing");
            String message = assertThrows(IOException.class,
                    () -> Mount.inodes(new OneFile(), missing, MountOptions.DEFAULT)).getMessage();
            assertTrue(message.contains("missing") && message.contains("does not exist"), message);
            message = assertThrows(IOException.class, () -> Mount.inodes(new OneFile(), place.mountpoint,
                    MountOptions.DEFAULT.withOptions("colour=blue"))).getMessage();
            assertTrue(message.contains("colour"), message);
            assertThrows(FileSystemException.class, () -> Files.delete(missing));
        }
    }
}
