package io.github.bickfordfs;

import static io.github.bickfordfs.AllAtOnce.start;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.nio.file.Files;
import java.time.Instant;
import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Answers that are given later. */
class DeferredTest {
    /** One file, whose reads are answered by the test. */
    private static class Owing extends OneFile {
        final BlockingQueue<Deferred> owed = new LinkedBlockingQueue<>();

        Deferred next() throws InterruptedException {
            Deferred next = owed.poll(Place.DEADLINE_SECONDS, TimeUnit.SECONDS);
            assertNotNull(next, "nothing was deferred");
            return next;
        }

        @Override
        public int read(Request request, MemorySegment into) throws IOException {
            if (request.offset() == 0) {
                deferred(request, request.defer());
            }
            return 0;
        }

        void deferred(Request request, Deferred deferred) {
            owed.add(deferred);
        }
    }

    @Test
    void aBufferThatIsInASystemCallKeepsTheAnswerOwed() throws Exception {
        Owing fs = new Owing();
        try (Place place = new Place();
                Mount _ = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
            var text = start(() -> Files.readString(place.mountpoint.resolve("file")));
            Deferred owed = fs.next();
            Pipe pipe = Pipe.open();
            ByteBuffer buffer = owed.buffer().asByteBuffer();
            Thread filling = new Thread(() -> {
                try {
                    pipe.source().read(buffer);
                } catch (IOException e) {
                    throw new java.io.UncheckedIOException(e);
                }
            });
            filling.setDaemon(true);
            filling.start();
            place.until("it is in read(2)", () -> Arrays.stream(filling.getStackTrace())
                    .anyMatch(frame -> frame.isNativeMethod() && frame.getMethodName().equals("read0")));
            for (int i = 0; i < 2; i++) {
                String message = assertThrows(IllegalStateException.class,
                        () -> owed.complete(OneFile.SIZE)).getMessage();
                assertTrue(message.contains("in use"), message);
            }
            pipe.sink().write(ByteBuffer.wrap("from the pipe!".getBytes()));
            filling.join();
            owed.complete(OneFile.SIZE);
            assertEquals("from the pipe!", text.get());
            pipe.source().close();
            pipe.sink().close();
        }
    }

    private static void fails(Owing fs, String error, Records records, String logged) throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
            var text = start(() -> Files.readString(place.mountpoint.resolve("file")));
            place.until("the caller has an answer", () -> {
                System.gc();
                return text.isDone();
            });
            String message = assertThrows(ExecutionException.class, text::get).getMessage();
            assertTrue(message.contains(error), message);
            assertTrue(records.have(logged), logged);
        }
    }

    @Test
    void whatAMethodThrowsAfterItDeferredIsTheAnswer() throws Exception {
        Owing fs = new Owing() {
            @Override
            void deferred(Request request, Deferred deferred) {
                super.deferred(request, deferred);
                request.offset();
            }
        };
        try (Records records = new Records()) {
            fails(fs, "Input/output error", records, "failed in READ");
            records.check(IllegalStateException.class,
                    "this request is over: it may not be used after its method returned", "offset");
        }
        assertThrows(IllegalStateException.class, () -> fs.next().complete(0));
    }

    @Test
    void anAnswerThatWasGivenStaysWhenTheMethodThrows() throws Exception {
        Owing fs = new Owing() {
            @Override
            void deferred(Request request, Deferred deferred) {
                deferred.complete("14 bytes of it".getBytes());
                throw new IllegalArgumentException("too late");
            }
        };
        try (Place place = new Place(); Records records = new Records();
                Mount _ = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
            assertEquals("14 bytes of it", Files.readString(place.mountpoint.resolve("file")));
            // The answer came before.
            place.until("it is logged", () -> records.threw("too late"));
            records.check(IllegalArgumentException.class, "too late", "deferred");
        }
    }

    @Test
    void anAnswerThatIsDroppedIsAnErrorAndLogged() throws Exception {
        Owing fs = new Owing() {
            @Override
            void deferred(Request request, Deferred deferred) {
                deferred.buffer().fill((byte) 1);
            }
        };
        try (Records records = new Records()) {
            fails(fs, "Input/output error", records, "dropped unanswered");
        }
    }

    @Test
    void aBufferKeepsItsAnswerOwed() throws Exception {
        AtomicReference<MemorySegment> kept = new AtomicReference<>();
        AtomicReference<WeakReference<Deferred>> weak = new AtomicReference<>();
        Owing fs = new Owing() {
            @Override
            void deferred(Request request, Deferred deferred) {
                kept.set(deferred.buffer());
                weak.set(new WeakReference<>(deferred));
            }
        };
        try (Place place = new Place(); Records records = new Records();
                Mount _ = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
            var text = start(() -> Files.readString(place.mountpoint.resolve("file")));
            WeakReference<Object> other = new WeakReference<>(new Object());
            place.until("the collector has run", () -> {
                System.gc();
                return weak.get() != null && other.get() == null;
            });
            System.gc();
            kept.get().fill((byte) 'x');
            weak.get().get().complete(OneFile.SIZE);
            assertEquals("x".repeat(OneFile.SIZE), text.get());
            assertEquals(0, records.size());
        }
    }

    @Test
    void aDefectGivenAsTheAnswerIsLogged() throws Exception {
        Owing fs = new Owing() {
            @Override
            void deferred(Request request, Deferred deferred) {
                deferred.fail(new ArrayStoreException("a defect later"));
            }
        };
        try (Records records = new Records()) {
            fails(fs, "Input/output error", records, "failed in READ");
            records.check(ArrayStoreException.class, "a defect later", "deferred");
        }
    }

    @Test
    void anErrorOfTheVirtualMachineGivenAsTheAnswerUnmounts() throws Exception {
        Owing fs = new Owing() {
            @Override
            void deferred(Request request, Deferred deferred) {
                deferred.fail(new StackOverflowError("for a test"));
            }
        };
        try (Place place = new Place(); Records _ = new Records();
                Mount _ = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
            assertThrows(IOException.class, () -> Files.readString(place.mountpoint.resolve("file")));
            place.until("it is unmounted", () -> !place.isMounted());
        }
    }

    @Test
    void everyKindOfAnswerCanComeLater() throws Exception {
        Owing fs = new Owing() {
            @Override
            public Lock getlk(Request request) {
                owed.add(request.defer());
                return null;
            }

            @Override
            public void setlk(Request request) {}

            @Override
            public int ioctl(Request request, MemorySegment output) {
                owed.add(request.defer());
                return 0;
            }

            @Override
            public void readdir(Request request, Listing listing) {
                if (request.offset() == 0) {
                    owed.add(request.defer());
                }
            }
        };
        try (Place place = new Place();
                Mount _ = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
            var names = start(() -> ExamplesTest.names(place.mountpoint));
            Deferred owed = fs.next();
            assertThrows(IllegalStateException.class, () -> owed.complete(0));
            assertTrue(owed.listing().add("file", 2, Attr.S_IFREG, 1));
            assertTrue(owed.listing().add("other", 3, Attr.S_IFREG, 2));
            assertThrows(IllegalStateException.class, () -> owed.complete(Lock.FREE));
            owed.complete();
            assertEquals(Set.of("file", "other"), names.get());

            int descriptor = Libc.open((place.mountpoint + "/file").getBytes(), Libc.O_RDWR);
            assertTrue(descriptor >= 0);
            var lock = start(() -> Libc.lockInTheWay(descriptor));
            fs.next().complete(new Lock(0, 9, Lock.READ, 1));
            assertArrayEquals(new int[] {Lock.READ, 1}, lock.get());

            byte[] output = new byte[8];
            var ioctl = start(() -> Libc.ioctl(descriptor, output));
            Deferred command = fs.next();
            assertThrows(IllegalStateException.class, () -> command.complete());
            command.buffer().fill((byte) 7);
            command.complete(42, 8);
            assertEquals(42, ioctl.get());
            assertArrayEquals(new byte[] {7, 7, 7, 7, 7, 7, 7, 7}, output);
            Libc.close(descriptor);
        }
    }

    @Test
    void theTimeOfBirthCanComeLater() throws Exception {
        Transports.requireKernel(6, 6, "FUSE_STATX");
        Owing fs = new Owing() {
            @Override
            public Statx statx(Request request) {
                if (request.node() == ROOT) {
                    return new Statx(getattr(request), null);
                }
                owed.add(request.defer());
                return null;
            }
        };
        try (Place place = new Place();
                Mount _ = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
            assertEquals("0\n", Place.command("stat", "-c", "%W", place.mountpoint.toString()));
            var born = start(() -> Place.command("stat", "-c", "%W", place.mountpoint + "/file"));
            Deferred owed = fs.next();
            Attributes attributes = new Attributes(Attr.file(2, 0644, OneFile.SIZE), 0);
            assertThrows(IllegalStateException.class, () -> owed.complete(attributes));
            owed.complete(new Statx(attributes, Instant.ofEpochSecond(1234, 5)));
            assertEquals("1234\n", born.get());
        }
    }
}
