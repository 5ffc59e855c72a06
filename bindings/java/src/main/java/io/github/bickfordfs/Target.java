package io.github.bickfordfs;

import java.io.IOException;
import java.util.concurrent.locks.LockSupport;

/** What callbacks of one mount reach. */
abstract class Target {
    /** What is no {@link Operation}: nobody waits for it. */
    static final int FORGET = 2, DESTROY = 38;

    private final String name;
    private final ClassLoader loader = Thread.currentThread().getContextClassLoader();
    private volatile Thread guard;
    private volatile boolean fatal;

    Target(String name) {
        this.name = name;
    }

    final String name() {
        return name;
    }

    /** The context class loader of who mounts, for threads that serve. */
    final ClassLoader loader() {
        return loader;
    }

    /** Whether nothing may be answered after a method has returned. */
    boolean answersOnReturn() {
        return false;
    }

    /** Serves one request: zero, an error number, or {@link Layout#LATER}. */
    int dispatch(int operation, Call call) throws IOException {
        throw new FuseException(Errno.ENOSYS);
    }

    /** A pre-call: zero, an error number, or {@link Layout#ANSWERED}. */
    int pre(int operation, Call call) throws IOException {
        return 0;
    }

    /** A post-call: zero or an error number. */
    int post(int operation, Call call, int result) throws IOException {
        return result;
    }

    /** The thread that {@link #isFatal} concerns. */
    void guardedBy(Thread thread) {
        guard = thread;
    }

    /** Whether the virtual machine is in no state to go on serving. */
    boolean isFatal() {
        return fatal;
    }

    /** The error number for whatever a method threw. Nothing leaves this. */
    int failed(int operation, Throwable e) {
        try {
            // Not InternalError, which is what reading a mapped file throws that somebody has cut short.
            if (Errno.cause(e) instanceof OutOfMemoryError || Errno.cause(e) instanceof StackOverflowError) {
                fatal = true;
                LockSupport.unpark(guard);
            }
            int errno = Errno.of(e);
            if (!Errno.isExpected(e)) {
                String what = switch (operation) {
                    case FORGET -> "FORGET, which nobody waits for";
                    case DESTROY -> "DESTROY, which nobody waits for";
                    default -> Operation.of(operation) + "; the caller gets " + Errno.name(errno);
                };
                Log.error(name + " failed in " + what, e);
            }
            return errno;
        } catch (Throwable again) {
            return Errno.EIO;
        }
    }
}
