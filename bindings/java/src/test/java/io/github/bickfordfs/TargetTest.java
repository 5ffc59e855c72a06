package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.Layout.Ans;
import io.github.bickfordfs.Layout.Req;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.Test;

/** Requests in memory of the test. */
class TargetTest {
    private final MemorySegment request = Arena.ofAuto().allocate(Req.BYTES, 8);
    private final MemorySegment answer = Arena.ofAuto().allocate(Ans.BYTES, 8);
    private final MemorySegment data = Arena.ofAuto().allocate(64, 8);

    private Call begin(Operation operation, Target target) {
        request.set(ValueLayout.JAVA_INT, Req.OPERATION, operation.code());
        answer.set(ValueLayout.JAVA_LONG, Ans.DATA, data.address());
        answer.set(ValueLayout.JAVA_LONG, Ans.DATA_CAPACITY, data.byteSize());
        Call call = new Call();
        call.begin(request.address(), answer.address(), 0, target);
        return call;
    }

    private void name(byte[] name) {
        MemorySegment memory = Arena.ofAuto().allocate(16);
        memory.copyFrom(MemorySegment.ofArray(name));
        request.set(ValueLayout.JAVA_LONG, Req.NAME, memory.address());
        request.set(ValueLayout.JAVA_LONG, Req.NAME_LENGTH, name.length);
        request.set(ValueLayout.JAVA_LONG, Req.NAME2, memory.address());
        request.set(ValueLayout.JAVA_LONG, Req.NAME2_LENGTH, name.length);
    }

    /** The kernel asks neither of mounts like those of the other tests. */
    @Test
    void blocksAndStableStorageAreAskedOverPaths() throws Exception {
        List<String> calls = new ArrayList<>();
        PathTarget target = new PathTarget(new PathFileSystem() {
            @Override
            public Attr getattr(String path) {
                return Attr.directory(0, 0755);
            }

            @Override
            public long bmap(String path, int blockSize, long block) {
                calls.add("bmap " + path + " " + blockSize + " " + block);
                return 77;
            }

            @Override
            public void syncfs() {
                calls.add("syncfs");
            }
        }, false);
        long asked = Operation.mask(EnumSet.of(Operation.GETATTR, Operation.BMAP, Operation.SYNCFS));
        assertEquals(asked | 1L << Target.DESTROY, target.operations());
        MemorySegment path = Arena.ofAuto().allocateFrom("/");
        request.set(ValueLayout.JAVA_LONG, Req.PATH, path.address());
        request.set(ValueLayout.JAVA_LONG, Req.PATH_LENGTH, 1);
        request.set(ValueLayout.JAVA_LONG, Req.OFFSET, 5);
        request.set(ValueLayout.JAVA_LONG, Req.SIZE, 512);
        for (Operation operation : List.of(Operation.BMAP, Operation.SYNCFS)) {
            Call call = begin(operation, target);
            assertEquals(0, target.dispatch(operation.code(), call));
            call.finish();
        }
        assertEquals(77, answer.get(ValueLayout.JAVA_LONG, Ans.COUNT));
        assertEquals(List.of("bmap / 512 5", "syncfs"), calls);
    }

    @Test
    void whatSaysItOfFilesHasItsNumber() {
        var listing = new java.nio.file.DirectoryIteratorException(new java.nio.file.AccessDeniedException("/x"));
        assertEquals(Errno.EACCES, Errno.of(listing));
        assertTrue(Errno.isExpected(listing));
        var future = new CompletionException(new ExecutionException(new FuseException(Errno.EIO)));
        assertEquals(Errno.EIO, Errno.of(future));
        assertTrue(Errno.isExpected(future));
        assertEquals(Errno.EACCES, Errno.of(new ExecutionException(listing)));
        assertEquals(Errno.EIO, Errno.of(new CompletionException("without a cause", null)));
        assertEquals(Errno.EINTR, Errno.of(new java.io.InterruptedIOException()));
        assertEquals(Errno.ETIMEDOUT, Errno.of(new java.net.SocketTimeoutException("Read timed out")));
        assertEquals(Errno.EIO, Errno.of(new IOException("Broken pipe")));
        assertEquals(Errno.EIO, Errno.of(new java.nio.file.FileSystemException("/x")));
    }

    @Test
    void whatThePlatformHasNoExceptionForHasItsNumber() {
        Path tooLong = Path.of("/tmp", "x".repeat(256));
        Exception refused = assertThrows(FileSystemException.class, () -> Files.createFile(tooLong));
        assertEquals(Errno.ENAMETOOLONG, Errno.of(refused));
        assertTrue(Errno.isExpected(refused));
        // Of writing, which does not say to what.
        refused = assertThrows(IOException.class, () -> Files.write(Path.of("/dev/full"), new byte[1]));
        assertEquals(Errno.ENOSPC, Errno.of(refused));
        assertEquals(Errno.EISDIR, Errno.of(assertThrows(IOException.class, () -> Files.readAllBytes(Path.of("/tmp")))));
    }

    @Test
    void whatCannotBeOpenedHasTheNumberThatItsMessageEndsWith() {
        refused(Errno.EISDIR, () -> new FileOutputStream("/tmp").close());
        refused(Errno.ENOTDIR, () -> new FileInputStream("/dev/null/x").close());
        refused(Errno.ENAMETOOLONG, () -> new FileInputStream("/tmp/" + "x".repeat(256)).close());
        refused(Errno.ENOENT, () -> new FileInputStream("/none (Permission denied)").close());
        assertEquals(Errno.EACCES, Errno.of(new FileNotFoundException("/a (b)/c (Permission denied)")));
        assertEquals(Errno.ENOENT, Errno.of(new FileNotFoundException("a text of the program")));
        assertEquals(Errno.ENOENT, Errno.of(new FileNotFoundException(null)));
    }

    private static void refused(int errno, org.junit.jupiter.api.function.Executable call) {
        Exception refused = assertThrows(IOException.class, call);
        assertEquals(errno, Errno.of(refused), refused.toString());
        assertTrue(Errno.isExpected(refused));
    }

    @Test
    void linksInACircleAndTextsOfOperationsHaveTheirNumbers() throws Exception {
        Path loop = Files.createTempDirectory("bickford-java").resolve("loop");
        Files.createSymbolicLink(loop, loop);
        try {
            refused(Errno.ELOOP, () -> Files.newByteChannel(loop));
            refused(Errno.ELOOP, () -> Files.newByteChannel(loop, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS));
        } finally {
            Files.delete(loop);
            Files.delete(loop.getParent());
        }
        var texts = Map.of(Errno.ENOTEMPTY, "Directory not empty", Errno.EINVAL, "Invalid argument", Errno.ENXIO,
                "No such device or address", Errno.ETXTBSY, "Text file busy", Errno.EACCES, "Permission denied");
        texts.forEach((errno, text) -> assertEquals(errno, Errno.of(new IOException(text))));
    }

    @Test
    void textsOfTheSystemAreInTheCharsetOfThePlatform() {
        byte[] text = {'O', 'p', (byte) 0xe9, 0, 'x'};
        MemorySegment memory = Arena.ofAuto().allocate(text.length).copyFrom(MemorySegment.ofArray(text));
        assertEquals("Op\u00e9", SystemText.decoded(memory, SystemText.charset("ISO-8859-1")));
        assertEquals(Charset.defaultCharset(), SystemText.charset("no such charset"));
        assertEquals(Charset.defaultCharset(), SystemText.charset(null));
    }

    @Test
    void anErrorOfTheMachineInAFutureIsFatal() throws Exception {
        Target target = new InodeTarget(new InodeFileSystem() { }, "fatal", false);
        try (Records records = new Records()) {
            CompletionException failed = new CompletionException(new OutOfMemoryError("for a test"));
            assertEquals(Errno.EIO, target.failed(Operation.READ.code(), failed));
            assertEquals(1, records.size());
        }
        assertTrue(target.isFatal());
    }

    /** As the platform throws it where a mapped file was cut short. */
    @Test
    void anErrorOfAFileIsNotFatal() throws Exception {
        Target target = new InodeTarget(new InodeFileSystem() { }, "cut", false);
        try (Records records = new Records()) {
            assertEquals(Errno.EIO, target.failed(Operation.READ.code(), new InternalError("for a test")));
            assertEquals(1, records.size());
        }
        assertFalse(target.isFatal());
    }

    @Test
    void aForgetThatFailsKeepsNoOtherFromBeingTold() throws Exception {
        List<Long> forgotten = new ArrayList<>();
        InodeTarget target = new InodeTarget(new InodeFileSystem() {
            @Override
            public void forget(long node, long count) {
                forgotten.add(node);
                if (node != 4) {
                    throw new IllegalStateException("node " + node);
                }
            }
        }, "forget", false);
        for (int i = 0; i < 3; i++) {
            data.set(ValueLayout.JAVA_LONG, i * 16, 3 + i);
            data.set(ValueLayout.JAVA_LONG, i * 16 + 8, 1);
        }
        request.set(ValueLayout.JAVA_LONG, Req.DATA, data.address());
        request.set(ValueLayout.JAVA_LONG, Req.DATA_LENGTH, 48);
        request.set(ValueLayout.JAVA_LONG, Req.SIZE, 3);
        try (Records records = new Records()) {
            Call call = new Call();
            call.begin(request.address(), answer.address(), 0, target);
            target.dispatch(InodeTarget.FORGET, call);
            call.finish();
            assertEquals(2, records.size());
            records.check(IllegalStateException.class, "node 5", "forget");
        }
        assertEquals(List.of(3L, 4L, 5L), forgotten);
    }

    /** The compiler gives it methods that call those of the class that others do not see. */
    public static class Visible extends OneFile {}

    @Test
    void whatIsInheritedFromAClassThatIsNotPublicIsItsOwn() {
        assertEquals(Overrides.of(OneFile.class), Overrides.of(Visible.class));
    }

    /** As a difference of two times may be. In C the numbers have no sign. */
    @Test
    void whatIsOverIsNotValidForEver() {
        assertEquals(new Entry(0, 0, null, 0, 0), new Entry(0, 0, null, -1, -2));
        assertEquals(new Attributes(null, 0), new Attributes(null, Long.MIN_VALUE));
        assertEquals(7, Entry.none(7).entryValid());
    }

    @Test
    void bytesForWhichThereIsNoRoomAreNamed() throws Exception {
        InodeTarget target = new InodeTarget(new InodeFileSystem() {
            @Override
            public byte[] readlink(Request request) {
                return new byte[65];
            }

            @Override
            public byte[] getxattr(Request request) {
                return new byte[65];
            }
        }, "long", false);
        Call call = begin(Operation.READLINK, target);
        IOException wrong =
                assertThrows(IOException.class, () -> target.dispatch(Operation.READLINK.code(), call));
        assertEquals("65 bytes are no answer for a buffer of 64", wrong.getMessage());
        assertEquals(Errno.EIO, Errno.of(wrong));
        call.finish();
        request.set(ValueLayout.JAVA_LONG, Req.SIZE, 64);
        Call small = begin(Operation.GETXATTR, target);
        wrong = assertThrows(IOException.class, () -> target.dispatch(Operation.GETXATTR.code(), small));
        assertEquals(Errno.ERANGE, Errno.of(wrong));
        small.finish();
    }

    @Test
    void whatAnIoctlDoesNotFillIsZero() throws Exception {
        InodeTarget target = new InodeTarget(new InodeFileSystem() {
            @Override
            public int ioctl(Request request, MemorySegment output) {
                output.set(ValueLayout.JAVA_BYTE, 1, (byte) 1);
                return 0;
            }
        }, "ioctl", false);
        data.fill((byte) 0xaa);
        request.set(ValueLayout.JAVA_LONG, Req.SIZE, 64);
        Call call = begin(Operation.IOCTL, target);
        assertEquals(0, target.dispatch(Operation.IOCTL.code(), call));
        call.finish();
        byte[] expected = new byte[64];
        expected[1] = 1;
        assertArrayEquals(expected, data.toArray(ValueLayout.JAVA_BYTE));
        assertEquals(64, answer.get(ValueLayout.JAVA_LONG, Ans.DATA_LENGTH));
    }

    @Test
    void anotherThreadCannotUseTheRequestThatRuns() throws Exception {
        Call call = begin(Operation.READ, null);
        var other = new FutureTask<>(() -> {
            assertThrows(IllegalStateException.class, call::node);
            assertThrows(IllegalStateException.class, call::data);
            assertThrows(IllegalStateException.class, call::arena);
            assertThrows(IllegalStateException.class, () -> call.result(Errno.EIO));
            return null;
        });
        Thread thread = new Thread(other);
        thread.start();
        thread.join();
        other.get();
        assertEquals(0, call.result());
        call.data();
        call.finish();
    }

    @Test
    void aNameIsNotReadAsAnother() {
        name("café".getBytes(StandardCharsets.ISO_8859_1));
        Call call = begin(Operation.RENAME, null);
        for (org.junit.jupiter.api.function.Executable read
                : new org.junit.jupiter.api.function.Executable[] {call::name, call::otherName}) {
            assertEquals(Errno.EILSEQ, Errno.of(assertThrows(java.io.UncheckedIOException.class, read)));
        }
        assertEquals(4, call.nameBytes().length);
        call.finish();
        name("café\ufffd".getBytes(StandardCharsets.UTF_8));
        call = begin(Operation.RENAME, null);
        assertEquals("café\ufffd", call.name());
        call.beginBefore(DataMode.SHARED);
        call.name(new byte[] {(byte) 0xe9});
        call.otherName(new byte[] {(byte) 0xe8});
        assertArrayEquals(new byte[] {(byte) 0xe9}, call.nameBytes());
        assertArrayEquals(new byte[] {(byte) 0xe8}, call.otherNameBytes());
        call.finish();
    }
}
