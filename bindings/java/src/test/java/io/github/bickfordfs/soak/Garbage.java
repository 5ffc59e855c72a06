package io.github.bickfordfs.soak;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** Keeps the collector busy: short-lived objects, some that live longer, large ones, and whole collections. */
final class Garbage {
    private static final int KEPT = 64;
    private static final long WHOLE_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final byte[][] kept = new byte[KEPT][];
    private long turns;
    private long lastWhole = System.nanoTime();

    void once() {
        for (int i = 0; i < 1000; i++) {
            kept[(int) (turns++ % KEPT)] = new byte[(int) (turns * 31 % 8192)];
        }
        kept[0] = new byte[2 << 20];
        if (System.nanoTime() - lastWhole > WHOLE_NANOS) {
            System.gc();
            lastWhole = System.nanoTime();
        }
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(5));
    }
}
