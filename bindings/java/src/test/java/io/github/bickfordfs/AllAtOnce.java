package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** Numbered files, each read of which waits for a read of each other. */
final class AllAtOnce implements PathFileSystem {
    /** Whether all reads were on virtual threads. */
    final AtomicBoolean virtual = new AtomicBoolean(true);

    private final int callers;
    private final CountDownLatch inside;

    AllAtOnce(int callers) {
        this.callers = callers;
        this.inside = new CountDownLatch(callers);
    }

    static <T> FutureTask<T> start(Callable<T> call) {
        FutureTask<T> task = new FutureTask<>(call);
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    /** Reads all of them at once. */
    void readAll(Path mountpoint) throws Exception {
        List<FutureTask<String>> texts = new ArrayList<>();
        for (int i = 0; i < callers; i++) {
            Path file = mountpoint.resolve("file" + i);
            texts.add(start(() -> Files.readString(file)));
        }
        for (int i = 0; i < callers; i++) {
            assertEquals("/file" + i, texts.get(i).get());
        }
    }

    @Override
    public Attr getattr(String path) {
        return path.equals("/") ? Attr.directory(0, 0755) : Attr.file(0, 0444, path.length());
    }

    @Override
    public int read(String path, long handle, MemorySegment into, long offset) throws IOException {
        if (!Thread.currentThread().isVirtual()) {
            virtual.set(false);
        }
        inside.countDown();
        try {
            if (!inside.await(Place.DEADLINE_SECONDS, TimeUnit.SECONDS)) {
                throw new IOException(inside.getCount() + " reads did not come");
            }
        } catch (InterruptedException e) {
            throw new FuseException(Errno.EINTR);
        }
        byte[] bytes = path.getBytes();
        MemorySegment.copy(bytes, 0, into, ValueLayout.JAVA_BYTE, 0, bytes.length);
        return bytes.length;
    }
}
