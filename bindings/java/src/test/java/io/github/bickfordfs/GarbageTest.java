package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.github.bickfordfs.examples.Hello;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.Test;

/** What threads allocate between requests, by the virtual machine's own count. */
class GarbageTest {
    private static final int REQUESTS = 4_000;
    /** Requests of a thread before they count: classes are loaded, objects of the thread made. */
    private static final int FIRST = 500;
    /** Bytes for a request, which is less than one object with two fields and its header each time. */
    private static final long BYTES = 16;
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    /** Allocation of one thread since its first requests. */
    private static final class Meter {
        private long requests;
        private long counted;
        private long start;
        private long bytes;

        /** Asking allocates too, so it is asked rarely. */
        void request() {
            requests++;
            if (requests % FIRST == 0) {
                long now = THREADS.getCurrentThreadAllocatedBytes();
                start = requests == FIRST ? now : start;
                bytes = now - start;
                counted = requests - FIRST;
            }
        }
    }

    private static final class Meters {
        private final ConcurrentHashMap<Thread, Meter> meters = new ConcurrentHashMap<>();

        void request() {
            meters.computeIfAbsent(Thread.currentThread(), _ -> new Meter()).request();
        }

        void check() {
            long requests = 0;
            long bytes = 0;
            for (Meter meter : meters.values()) {
                requests += meter.counted;
                bytes += meter.bytes;
            }
            assertTrue(requests >= FIRST, requests + " requests were counted");
            assertTrue(bytes <= BYTES * requests, bytes + " bytes for " + requests + " requests");
        }
    }

    private static void lookUp(Path directory) {
        for (int i = 0; i < REQUESTS; i++) {
            assertTrue(Files.notExists(directory.resolve("missing" + i)));
        }
    }

    @Test
    void callsAroundStackfsMakeNoGarbage() throws Exception {
        Meters meters = new Meters();

        class Metered extends JavaFuse {
            @Override
            protected void preLookup(Call call) {
                call.mode(call.mode() + call.nameLength());
                meters.request();
            }

            @Override
            protected void postLookup(Call call) {
                if (call.result() == 0) {
                    call.answerSize(call.answerSize());
                }
            }
        }

        try (Place place = new Place();
                Mount _ = Mount.javaFuse(new Metered(), place.source, place.mountpoint, Configuration.DEFAULT,
                        MountOptions.DEFAULT.withOptions("preset=base").withWorkers(1))) {
            lookUp(place.mountpoint);
        }
        meters.check();
    }

    @Test
    void aFileSystemThatKeepsItsEntriesMakesNoGarbage() throws Exception {
        Meters meters = new Meters();
        FuseException missing = new FuseException(Errno.ENOENT);

        class Metered implements InodeFileSystem {
            private final Hello hello = new Hello();

            @Override
            public Attributes getattr(Request request) {
                return hello.getattr(request);
            }

            @Override
            public Entry lookup(Request request) throws FuseException {
                meters.request();
                throw missing;
            }
        }

        try (Place place = new Place();
                Mount _ = Mount.inodes(new Metered(), place.mountpoint,
                        MountOptions.DEFAULT.withOptions("transport=dev").withWorkers(1))) {
            lookUp(place.mountpoint);
        }
        meters.check();
    }
}
