package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;

class JavaFuseTest {
    private static Mount mount(JavaFuse fs, Place place, Configuration configuration) throws IOException {
        // The calls must be seen, so the kernel may not answer by itself.
        return Mount.javaFuse(fs, place.source, place.mountpoint, configuration,
                MountOptions.DEFAULT.withOptions("preset=base"));
    }

    @Test
    void whatIsNotOverriddenDoesNotEnterJava() {
        class Some extends JavaFuse {
            @Override
            protected void preLookup(Call call) {}

            @Override
            protected void postCopyFileRange(Call call) {}
        }

        class More extends Some {
            @Override
            protected void preWrite(Call call) {}
        }

        Native.LayerSpec layer = new JavaFuseTarget(new More(), Configuration.DEFAULT).layer(0);
        assertEquals(1L << 1 | 1L << 16, layer.pre());
        assertEquals(1L << 47, layer.post());
        Configuration off = new Configuration(DataMode.NONE, EnumSet.of(Operation.WRITE), Operation.all(), Set.of());
        layer = new JavaFuseTarget(new More(), off).layer(0);
        assertEquals(1L << 16, layer.pre());
        assertEquals(0, layer.post());
        assertTrue(layer.metadataOnly());
    }

    @Test
    void parametersAreChangedBeforeTheSystemCall() throws Exception {
        class Renaming extends JavaFuse {
            @Override
            protected void preLookup(Call call) {
                change(call);
            }

            @Override
            protected void preCreate(Call call) {
                call.mode(call.mode() & ~0077);
                change(call);
            }

            @Override
            protected void preSymlink(Call call) {
                call.otherName("target-of-" + call.name());
            }

            private void change(Call call) {
                if (call.name().startsWith("above")) {
                    call.name("below" + call.name().substring(5));
                }
            }
        }

        try (Place place = new Place(); Mount _ = mount(new Renaming(), place, Configuration.DEFAULT)) {
            Files.writeString(place.mountpoint.resolve("above1"), "content");
            Path below = place.source.resolve("below1");
            assertEquals("content", Files.readString(below));
            assertEquals(0600, (int) Files.getAttribute(below, "unix:mode") & 0777);
            assertEquals("content", Files.readString(place.mountpoint.resolve("above1")));
            Files.createSymbolicLink(place.mountpoint.resolve("link"), Path.of("x"));
            assertEquals(Path.of("target-of-link"), Files.readSymbolicLink(place.source.resolve("link")));
        }
    }

    @Test
    void resultAndParametersReachThePostCall() throws Exception {
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();

        class Watching extends JavaFuse {
            @Override
            protected void postLookup(Call call) {
                seen.add(call.name() + " " + Errno.name(call.result()) + " " + (call.answerNode() != 0));
                if (call.name().equals("hidden")) {
                    call.result(Errno.ENOENT);
                }
                if (call.name().equals("denied")) {
                    call.result(Errno.EACCES);
                }
            }

            @Override
            protected void postGetattr(Call call) {
                if (call.result() == 0 && !call.answerAttr().isDirectory()) {
                    call.answerSize(call.answerSize() * 2);
                    call.answerMode(call.answerMode() & ~0222);
                }
            }
        }

        try (Place place = new Place(); Mount _ = mount(new Watching(), place, Configuration.DEFAULT)) {
            Files.writeString(place.source.resolve("hidden"), "x");
            Files.writeString(place.source.resolve("shown"), "12345");
            assertThrows(NoSuchFileException.class, () -> Files.size(place.mountpoint.resolve("hidden")));
            assertThrows(NoSuchFileException.class, () -> Files.size(place.mountpoint.resolve("missing")));
            assertThrows(java.nio.file.AccessDeniedException.class,
                    () -> Files.size(place.mountpoint.resolve("denied")));
            assertTrue(seen.contains("hidden errno 0 true"), seen.toString());
            assertTrue(seen.stream().anyMatch(line -> line.startsWith("missing ")), seen.toString());
            try (var open = Files.newByteChannel(place.mountpoint.resolve("shown"))) {
                // fstat(2) after the attributes of the lookup are over.
                place.until("the changed size", () -> open.size() == 10);
            }
        }
    }

    @Test
    void eitherCallMayAnswerInstead() throws Exception {
        class Answering extends JavaFuse {
            @Override
            protected void preReadlink(Call call) {
                call.answerData("from the pre-call".getBytes(StandardCharsets.UTF_8));
                call.answered();
            }

            @Override
            protected void preUnlink(Call call) throws FuseException {
                call.fail(Errno.EPERM);
            }

            @Override
            protected void postStatfs(Call call) {
                call.answer(new StatFs(4096, 1000, 500, 400, 100, 50, 99));
            }

            @Override
            protected void postMkdir(Call call) {
                assertEquals(Errno.ENOSYS, call.result());
                call.result(Errno.EROFS);
            }
        }

        Set<Operation> calls = EnumSet.complementOf(EnumSet.of(Operation.MKDIR));
        Configuration configuration =
                new Configuration(DataMode.SHARED, Operation.all(), calls, Operation.all());
        try (Place place = new Place(); Mount _ = mount(new Answering(), place, configuration)) {
            Files.createSymbolicLink(place.source.resolve("link"), Path.of("x"));
            Path link = place.mountpoint.resolve("link");
            assertEquals(Path.of("from the pre-call"), Files.readSymbolicLink(link));
            String message = assertThrows(FileSystemException.class, () -> Files.delete(link)).getMessage();
            assertTrue(message.contains("not permitted"), message);
            assertEquals(4096 * 1000L, Files.getFileStore(place.mountpoint).getTotalSpace());
            message = assertThrows(FileSystemException.class,
                    () -> Files.createDirectory(place.mountpoint.resolve("new"))).getMessage();
            assertTrue(message.contains("Read-only"), message);
            assertFalse(Files.exists(place.source.resolve("new")));
        }
    }

    /** Turns data around on their way: bytes are inverted below. */
    private static final class Inverting extends JavaFuse {
        private final DataMode mode;
        private final java.io.ByteArrayOutputStream written = new java.io.ByteArrayOutputStream();

        Inverting(DataMode mode) {
            this.mode = mode;
        }

        private static void invert(MemorySegment from, MemorySegment to) {
            for (long i = 0; i < from.byteSize(); i++) {
                to.set(ValueLayout.JAVA_BYTE, i, (byte) ~from.get(ValueLayout.JAVA_BYTE, i));
            }
        }

        private static void invert(Call call) {
            for (int i = 0; i < call.arrayLength(); i++) {
                call.array()[i] = (byte) ~call.array()[i];
            }
            call.arrayChanged();
        }

        @Override
        protected void preWrite(Call call) {
            switch (mode) {
                case COPIED -> invert(call);
                case SHARED -> invert(call.data(), call.replaceData(call.size()));
                case NONE -> assertEquals(0, call.data().byteSize());
            }
        }

        @Override
        protected void postWrite(Call call) {
            byte[] seen = switch (mode) {
                case COPIED -> java.util.Arrays.copyOf(call.array(), call.arrayLength());
                case SHARED -> call.data().toArray(java.lang.foreign.ValueLayout.JAVA_BYTE);
                case NONE -> new byte[0];
            };
            written.writeBytes(seen);
        }

        @Override
        protected void postRead(Call call) {
            switch (mode) {
                case COPIED -> invert(call);
                case SHARED -> invert(call.answerData(), call.answerData());
                case NONE -> assertEquals(0, call.answerData().byteSize());
            }
        }
    }

    @Test
    void dataAreSeenInEachMode() throws Exception {
        byte[] data = new byte[150_000];
        new java.util.Random(1).nextBytes(data);
        byte[] inverted = data.clone();
        for (int i = 0; i < inverted.length; i++) {
            inverted[i] = (byte) ~inverted[i];
        }
        for (DataMode mode : DataMode.values()) {
            Inverting fs = new Inverting(mode);
            try (Place place = new Place();
                    Mount _ = mount(fs, place, Configuration.DEFAULT.withData(mode))) {
                Path above = place.mountpoint.resolve("file");
                Files.write(above, data);
                byte[] below = Files.readAllBytes(place.source.resolve("file"));
                org.junit.jupiter.api.Assertions.assertArrayEquals(mode == DataMode.NONE ? data : inverted, below);
                org.junit.jupiter.api.Assertions.assertArrayEquals(
                        mode == DataMode.NONE ? new byte[0] : inverted, fs.written.toByteArray());
                Path other = place.source.resolve("other");
                Files.write(other, inverted);
                org.junit.jupiter.api.Assertions.assertArrayEquals(
                        mode == DataMode.NONE ? inverted : data, Files.readAllBytes(place.mountpoint.resolve("other")));
            }
        }
    }

    @Test
    void dataThatAreNotSeenAreNotReplaced() throws Exception {
        class Blind extends JavaFuse {
            @Override
            protected void preWrite(Call call) {
                call.replaceData(call.data().byteSize()).copyFrom(call.data());
            }
        }

        class Array extends JavaFuse {
            @Override
            protected void preWrite(Call call) {
                assertEquals(0, call.arrayLength());
                call.arrayChanged();
            }
        }

        assertWritesFail(new Blind(), DataMode.NONE, "data = none");
        assertWritesFail(new Array(), DataMode.SHARED, "data = shared");
    }

    @Test
    void dataThatWereReadUnseenAreNotReplaced() throws Exception {
        AtomicBoolean answers = new AtomicBoolean(true);

        class Blind extends JavaFuse {
            @Override
            protected void preRead(Call call) {
                if (answers.get()) {
                    call.answerData("answered".getBytes());
                    call.answered();
                }
            }

            @Override
            protected void postRead(Call call) {
                call.answerData("replaced".getBytes());
            }
        }

        try (Place place = new Place(); Records records = new Records();
                Mount _ = mount(new Blind(), place, Configuration.DEFAULT.withData(DataMode.NONE))) {
            Files.writeString(place.source.resolve("file"), "original");
            Path file = place.mountpoint.resolve("file");
            assertEquals("answered", Files.readString(file));
            answers.set(false);
            assertThrows(IOException.class, () -> Files.readString(file));
            assertTrue(records.threw("were read"));
        }
    }

    /** That a write is an error, instead of empty. */
    private static void assertWritesFail(JavaFuse fs, DataMode mode, String logged) throws Exception {
        try (Place place = new Place(); Records records = new Records();
                Mount _ = mount(fs, place, Configuration.DEFAULT.withData(mode))) {
            Path file = place.mountpoint.resolve("file");
            assertThrows(IOException.class, () -> Files.writeString(file, "text"));
            assertTrue(records.threw(logged), logged);
        }
    }

    @Test
    void aThreadBeginsEachRequestAfresh() throws Exception {
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        ClassLoader own = Thread.currentThread().getContextClassLoader();

        class Interrupting extends JavaFuse {
            @Override
            protected void preMkdir(Call call) {
                Thread thread = Thread.currentThread();
                seen.add(call.name() + " " + thread.isInterrupted());
                assertEquals(own, thread.getContextClassLoader());
                thread.interrupt();
            }
        }

        try (Place place = new Place();
                Mount _ = Mount.javaFuse(new Interrupting(), place.source, place.mountpoint, Configuration.DEFAULT,
                        MountOptions.DEFAULT.withOptions("preset=base,transport=dev").withWorkers(1))) {
            Files.createDirectory(place.mountpoint.resolve("first"));
            Files.createDirectory(place.mountpoint.resolve("second"));
            assertEquals("[first false, second false]", seen.toString());
        }
    }

    @Test
    void parametersAreFixedOnceTheSystemCallWasMade() throws Exception {
        ConcurrentLinkedQueue<String> refused = new ConcurrentLinkedQueue<>();

        class Late extends JavaFuse {
            @Override
            protected void postMkdir(Call call) {
                refuse("node", () -> call.node(1));
                refuse("mode", () -> call.mode(0));
                refuse("name", () -> call.name("other"));
                refuse("data", () -> call.replaceData(1));
                assertEquals("directory", call.name());
            }

            private void refuse(String what, Runnable change) {
                try {
                    change.run();
                } catch (IllegalStateException e) {
                    refused.add(what);
                }
            }
        }

        try (Place place = new Place(); Mount _ = mount(new Late(), place, Configuration.DEFAULT)) {
            Files.createDirectory(place.mountpoint.resolve("directory"));
            assertEquals("[node, mode, name, data]", refused.toString());
        }
    }

    @Test
    void anAnswerDoesNotTouchTheDataThatAreWritten() throws Exception {
        class Both extends JavaFuse {
            @Override
            protected void preWrite(Call call) {
                call.replaceData(call.size()).fill((byte) 'r');
                // Larger than what was replaced, too: memory for the data must stay.
                call.answerData(new byte[64]);
                call.answerData(new byte[1 << 20]);
                System.gc();
            }
        }

        try (Place place = new Place(); Mount _ = mount(new Both(), place, Configuration.DEFAULT)) {
            Files.writeString(place.mountpoint.resolve("file"), "w".repeat(200));
            assertEquals("r".repeat(200), Files.readString(place.source.resolve("file")));
        }
    }

    @Test
    void anExceptionIsAnErrorAndTheMountGoesOn() throws Exception {
        class Failing extends JavaFuse {
            @Override
            protected void preMkdir(Call call) throws IOException {
                switch (call.name()) {
                    case "defect" -> throw new IllegalStateException("a defect of the file system");
                    case "exists" -> throw new java.nio.file.FileAlreadyExistsException("exists");
                    case "assertion" -> throw new AssertionError("an assertion of the file system");
                    default -> { }
                }
            }
        }

        try (Place place = new Place(); Records records = new Records();
                Mount _ = mount(new Failing(), place, Configuration.DEFAULT)) {
            for (String name : new String[] {"defect", "assertion"}) {
                String message = assertThrows(FileSystemException.class,
                        () -> Files.createDirectory(place.mountpoint.resolve(name))).getMessage();
                assertTrue(message.contains("Input/output error"), message);
            }
            records.check(IllegalStateException.class, "a defect of the file system", "preMkdir");
            records.check(AssertionError.class, "an assertion of the file system", "preMkdir");
            assertThrows(java.nio.file.FileAlreadyExistsException.class,
                    () -> Files.createDirectory(place.mountpoint.resolve("exists")));
            Files.createDirectory(place.mountpoint.resolve("fine"));
            assertTrue(Files.isDirectory(place.source.resolve("fine")));
        }
    }
}
