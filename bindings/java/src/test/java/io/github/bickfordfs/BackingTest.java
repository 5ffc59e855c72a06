package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Files that the kernel reads and writes itself. */
class BackingTest {
    private static final String TEXT = "fourteen bytes";
    private static final MountOptions OPTIONS = MountOptions.DEFAULT.plus("max_stack_depth=1");

    /** One file, which is another one. */
    private static class Through extends OneFile {
        final Path lower;

        Through(Path lower) throws IOException {
            this.lower = lower;
            assertEquals(SIZE, TEXT.length());
            Files.writeString(lower, TEXT);
        }

        /** Leaves it registered until the mount ends. */
        @Override
        public Opened open(Request request) throws IOException {
            return Opened.through(7, request.openBacking(lower));
        }

        @Override
        public int read(Request request, MemorySegment into) {
            throw new IllegalStateException("the kernel reads");
        }

        @Override
        public int write(Request request) {
            throw new IllegalStateException("the kernel writes");
        }
    }

    private static void requireKernel() {
        Transports.requireKernel(6, 9, "kernel pass-through");
    }

    private static void check(Path file, Path lower) throws IOException {
        assertEquals(TEXT, Files.readString(file));
        Files.writeString(file, "FOURTEEN", StandardOpenOption.WRITE);
        assertEquals("FOURTEEN bytes", Files.readString(lower));
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring"})
    void theKernelReadsAndWritesTheFileItself(String transport) throws Exception {
        requireKernel();
        Transports.require(transport);
        try (Place place = new Place()) {
            Through fs = new Through(place.source.resolve("lower"));
            try (Mount _ = Mount.inodes(fs, place.mountpoint, OPTIONS.plus("transport=" + transport))) {
                check(place.mountpoint.resolve("file"), fs.lower);
            }
        }
    }

    @Test
    void anAnswerLaterMayHaveOneToo() throws Exception {
        requireKernel();
        AtomicReference<Backing> registered = new AtomicReference<>();
        try (Place place = new Place()) {
            Through fs = new Through(place.source.resolve("lower")) {
                @Override
                public Opened open(Request request) {
                    Deferred owed = request.defer();
                    Thread.ofPlatform().start(() -> {
                        try {
                            Backing backing = owed.openBacking(lower);
                            registered.set(backing);
                            owed.complete(Opened.through(7, backing));
                        } catch (Throwable e) {
                            owed.fail(e);
                        }
                    });
                    return null;
                }
            };
            try (Mount _ = Mount.inodes(fs, place.mountpoint, OPTIONS)) {
                check(place.mountpoint.resolve("file"), fs.lower);
                registered.get().close();
                registered.get().close();
            }
            registered.get().close();
        }
    }

    @Test
    void aVirtualThreadMayRegisterOneToo() throws Exception {
        requireKernel();
        try (Place place = new Place()) {
            Through fs = new Through(place.source.resolve("lower"));
            try (Mount _ = Mount.inodes(fs, place.mountpoint, OPTIONS.withVirtualThreads())) {
                check(place.mountpoint.resolve("file"), fs.lower);
            }
        }
    }

    @Test
    void whyItCannotBeIsSaid() throws Exception {
        requireKernel();
        try (Place place = new Place(); Records records = new Records()) {
            Through fs = new Through(place.source.resolve("lower"));
            Path file = place.mountpoint.resolve("file");
            try (Mount _ = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
                assertThrows(FileSystemException.class, () -> Files.readString(file));
                assertTrue(records.threw("max_stack_depth=1"), "not told");
            }
            try (Mount _ = Mount.inodes(fs, place.mountpoint, OPTIONS)) {
                Files.delete(fs.lower);
                assertThrows(NoSuchFileException.class, () -> Files.readString(file));
            }
            // Closed before its answer was given: the kernel does not know it any more.
            Through early = new Through(place.source.resolve("lower")) {
                @Override
                public Opened open(Request request) throws IOException {
                    try (Backing backing = request.openBacking(lower)) {
                        return Opened.through(7, backing);
                    }
                }
            };
            try (Mount _ = Mount.inodes(early, place.mountpoint, OPTIONS)) {
                assertThrows(FileSystemException.class, () -> Files.readString(file));
            }
        }
    }
}
