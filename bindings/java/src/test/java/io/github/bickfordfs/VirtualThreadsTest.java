package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.NullFs;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserDefinedFileAttributeView;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Mounts whose requests have a virtual thread each. */
class VirtualThreadsTest {
    /** More than there are native threads, over either transport. */
    private static final int CALLERS = 40;

    private static MountOptions options(String transport) {
        return MountOptions.DEFAULT.withWorkers(2).plus("transport=" + transport).withVirtualThreads();
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring"})
    void methodsThatWaitKeepNobodyElse(String transport) throws Exception {
        Transports.require(transport);
        AllAtOnce fs = new AllAtOnce(CALLERS);
        try (Place place = new Place();
                Mount _ = Mount.paths(fs, place.mountpoint, options(transport))) {
            fs.readAll(place.mountpoint);
        }
        assertTrue(fs.virtual.get());
    }

    @Test
    void whatAMethodThrowsIsTheAnswer() throws Exception {
        class Failing extends OneFile {
            @Override
            public int read(Request request, MemorySegment into) {
                throw new ArrayStoreException("a defect");
            }

            @Override
            public void unlink(Request request) throws IOException {
                throw new AccessDeniedException(request.name());
            }

            @Override
            public Entry mkdir(Request request) {
                request.defer();
                throw new ArrayStoreException("a defect later");
            }
        }

        try (Place place = new Place(); Records records = new Records();
                Mount _ = Mount.inodes(new Failing(), place.mountpoint, options("dev"))) {
            Path file = place.mountpoint.resolve("file");
            String message = assertThrows(IOException.class, () -> Files.readString(file)).getMessage();
            assertTrue(message.contains("Input/output error"), message);
            records.check(ArrayStoreException.class, "a defect", "read");
            assertThrows(AccessDeniedException.class, () -> Files.delete(file));
            message = assertThrows(FileSystemException.class,
                    () -> Files.createDirectory(place.mountpoint.resolve("new"))).getMessage();
            assertTrue(message.contains("Input/output error"), message);
            assertEquals(2, records.size());
            assertEquals(OneFile.SIZE, Files.size(file));
        }
    }

    @Test
    void anErrorOfTheVirtualMachineUnmounts() throws Exception {
        class Overflowing extends OneFile {
            @Override
            public int read(Request request, MemorySegment into) throws IOException {
                return 1 + read(request, into);
            }
        }

        try (Place place = new Place(); Records _ = new Records();
                Mount _ = Mount.inodes(new Overflowing(), place.mountpoint, options("dev"))) {
            assertThrows(IOException.class, () -> Files.readString(place.mountpoint.resolve("file")));
            place.until("it is unmounted", () -> !place.isMounted());
        }
    }

    @Test
    void aRequestIsOverWhenItsMethodReturnedAndCanBeDeferred() throws Exception {
        AtomicReference<Request> leaked = new AtomicReference<>();
        AtomicReference<MemorySegment> view = new AtomicReference<>();

        class Later extends OneFile {
            @Override
            public int read(Request request, MemorySegment into) {
                leaked.set(request);
                view.set(into);
                boolean isFirst = request.offset() == 0;
                Deferred owed = request.defer();
                AllAtOnce.start(() -> {
                    owed.buffer().fill((byte) 'x');
                    owed.complete(isFirst ? 4 : 0);
                    return null;
                });
                return -1;
            }
        }

        try (Place place = new Place();
                Mount _ = Mount.inodes(new Later(), place.mountpoint, options("dev"))) {
            assertEquals("xxxx", Files.readString(place.mountpoint.resolve("file")));
            assertThrows(IllegalStateException.class, leaked.get()::node);
            place.until("its view has ended", () -> !view.get().scope().isAlive());
        }
    }

    @Test
    void theEndComesAfterTheLastCall() throws Exception {
        CountDownLatch inside = new CountDownLatch(1);
        CountDownLatch mayReturn = new CountDownLatch(1);
        List<String> order = java.util.Collections.synchronizedList(new ArrayList<>());

        class Slow extends OneFile {
            @Override
            public int read(Request request, MemorySegment into) throws IOException {
                inside.countDown();
                try {
                    mayReturn.await();
                } catch (InterruptedException e) {
                    throw new FuseException(Errno.EINTR);
                }
                order.add("read");
                return 0;
            }

            @Override
            public void destroy() {
                order.add("destroy");
            }
        }

        try (Place place = new Place();
                Mount mount = Mount.inodes(new Slow(), place.mountpoint, options("dev"))) {
            var text = AllAtOnce.start(() -> Files.readString(place.mountpoint.resolve("file")));
            inside.await();
            // The mount is busy, but its connection is aborted.
            Place.outputOf(List.of("umount", "-f", place.mountpoint.toString()));
            assertThrows(java.util.concurrent.ExecutionException.class, text::get);
            assertEquals(false, mount.await(200));
            mayReturn.countDown();
            mount.await();
        }
        assertEquals(List.of("read", "destroy"), order);
    }

    /** There are as many carriers as processors: one that waited for the mount would not serve it. */
    @Test
    void virtualThreadsMayWaitForTheEnd() throws Exception {
        List<Thread> waiting = new ArrayList<>();
        try (Place place = new Place()) {
            Mount mount = Mount.inodes(new OneFile(), place.mountpoint, options("dev"));
            CountDownLatch begun = new CountDownLatch(Runtime.getRuntime().availableProcessors() + 1);
            for (long i = begun.getCount(); i > 0; i--) {
                waiting.add(Thread.startVirtualThread(() -> {
                    begun.countDown();
                    try {
                        mount.await();
                    } catch (IOException e) {
                        throw new java.io.UncheckedIOException(e);
                    }
                }));
            }
            begun.await();
            assertEquals(OneFile.SIZE, Files.size(place.mountpoint.resolve("file")));
            FutureTask<Void> close = new FutureTask<>(() -> {
                mount.close();
                return null;
            });
            Thread.startVirtualThread(close);
            close.get();
            for (Thread thread : waiting) {
                thread.join();
            }
        }
    }

    @Test
    void namesAndValuesComeWhole() throws Exception {
        class Keeping extends OneFile {
            private byte[] value = {};

            @Override
            public void setxattr(Request request) {
                assertEquals("user.name", request.name());
                value = request.dataBytes();
            }

            @Override
            public byte[] getxattr(Request request) throws FuseException {
                if (!request.name().equals("user.name")) {
                    throw new FuseException(Errno.ENODATA);
                }
                return value;
            }

            @Override
            public void rename(Request request) throws IOException {
                assertEquals(List.of("file", "other"), List.of(request.name(), request.otherName()));
                throw new FuseException(Errno.EXDEV);
            }

            @Override
            public void readdir(Request request, Listing listing) {
                if (request.offset() == 0) {
                    listing.add("file", 2, Attr.S_IFREG, 1);
                }
            }
        }

        try (Place place = new Place();
                Mount _ = Mount.inodes(new Keeping(), place.mountpoint, options("dev"))) {
            Path file = place.mountpoint.resolve("file");
            var view = Files.getFileAttributeView(file, UserDefinedFileAttributeView.class);
            byte[] value = new byte[5000];
            for (int i = 0; i < value.length; i++) {
                value[i] = (byte) (i * 31);
            }
            assertEquals(value.length, view.write("name", java.nio.ByteBuffer.wrap(value)));
            var read = java.nio.ByteBuffer.allocate(value.length);
            assertEquals(value.length, view.read("name", read));
            assertArrayEquals(value, read.array());
            assertThrows(java.nio.file.AtomicMoveNotSupportedException.class, () -> Files.move(
                    file, place.mountpoint.resolve("other"), java.nio.file.StandardCopyOption.ATOMIC_MOVE));
            assertEquals(Set.of("file"), ExamplesTest.names(place.mountpoint));
        }
    }

    @Test
    void callsAroundSystemCallsCannotHaveThem() throws Exception {
        try (Place place = new Place()) {
            String message = assertThrows(IllegalArgumentException.class, () -> Mount.javaFuse(new NullFs(),
                    place.source, place.mountpoint, Configuration.DEFAULT, options("dev"))).getMessage();
            assertTrue(message.contains("without virtual threads"), message);
        }
    }
}
