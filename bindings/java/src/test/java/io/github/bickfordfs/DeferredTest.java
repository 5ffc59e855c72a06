package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.Test;

/** Answers that are given later. */
class DeferredTest {
    private static final int SIZE = 14;

    /** One file, whose reads are answered by the test. */
    private static class Owing implements InodeFileSystem {
        final BlockingQueue<Deferred> owed = new LinkedBlockingQueue<>();

        @Override
        public Entry lookup(Request request) throws IOException {
            if (!request.name().equals("file")) {
                throw new FuseException(Errno.ENOENT);
            }
            return Entry.of(2, Attr.file(2, 0644, SIZE), Entry.SECOND);
        }

        @Override
        public Attributes getattr(Request request) {
            return new Attributes(
                    request.node() == ROOT ? Attr.directory(ROOT, 0755) : Attr.file(2, 0644, SIZE), Entry.SECOND);
        }

        @Override
        public Opened open(Request request) {
            return new Opened(7, Opened.DIRECT_IO);
        }

        @Override
        public int read(Request request, MemorySegment into) throws IOException {
            if (request.offset() > 0) {
                return 0;
            }
            owed.add(request.defer());
            return 0;
        }
    }

    private static <T> FutureTask<T> start(java.util.concurrent.Callable<T> call) {
        FutureTask<T> task = new FutureTask<>(call);
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    @Test
    void aBufferThatIsInASystemCallKeepsTheAnswerOwed() throws Exception {
        Owing fs = new Owing();
        try (Place place = new Place();
                Mount _ = Mount.inodes(fs, place.mountpoint, MountOptions.DEFAULT)) {
            var text = start(() -> Files.readString(place.mountpoint.resolve("file")));
            Deferred owed = fs.owed.take();
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
                String message = assertThrows(IllegalStateException.class, () -> owed.complete(SIZE)).getMessage();
                assertTrue(message.contains("in use"), message);
            }
            pipe.sink().write(ByteBuffer.wrap("from the pipe!".getBytes()));
            filling.join();
            owed.complete(SIZE);
            assertEquals("from the pipe!", text.get());
            pipe.source().close();
            pipe.sink().close();
        }
    }
}
