package io.github.bickfordfs;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.github.bickfordfs.Layout.Req;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.util.Arrays;

/**
 * The functions that native threads call. They are made once and live for ever; a number tells the mount.
 *
 * <p>A native thread is attached to the virtual machine by its first call and detached when it ends; sessions
 * keep those that wait for requests, and let go those that many requests at once had started.
 */
final class Bridge {
    private static final MethodHandles.Lookup LOOKUP = MethodHandles.lookup();

    static final MemorySegment DISPATCH = Native.upcall(
            LOOKUP, "dispatch", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG));
    static final MemorySegment PRE =
            Native.upcall(LOOKUP, "pre", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG));
    static final MemorySegment POST = Native.upcall(
            LOOKUP, "post", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT));

    private static final ThreadLocal<Call> CALLS = new ThreadLocal<>();

    private static volatile Target[] targets = new Target[0];

    private Bridge() {}

    /** A number for a target, used again after {@link #remove}. */
    static synchronized int add(Target target) {
        Target[] next = targets;
        int free = Arrays.asList(next).indexOf(null);
        if (free < 0) {
            free = next.length;
            next = Arrays.copyOf(next, free + 1);
        } else {
            next = next.clone();
        }
        next[free] = target;
        targets = next;
        return free;
    }

    static synchronized void remove(int number) {
        Target[] next = targets.clone();
        next[number] = null;
        targets = next;
    }

    /** What this thread serves, or served last; null where it never served. */
    static Call current() {
        return CALLS.get();
    }

    /** A request has this thread to itself. */
    static void serving(Call call) {
        CALLS.set(call);
    }

    private static int operation(long request) {
        return Layout.getInt(request + Req.OPERATION);
    }

    private static int failed(long user, long request, Throwable e) {
        try {
            return targets[(int) user].failed(operation(request), e);
        } catch (Throwable again) {
            return Errno.EIO;
        }
    }

    /** What this thread serves with. */
    private static Call call(Target target) {
        Call call = CALLS.get();
        if (call == null) {
            call = new Call();
            CALLS.set(call);
            Thread thread = Thread.currentThread();
            // A thread that was attached has none: services and resources would not be found.
            if (thread.getContextClassLoader() == null) {
                thread.setContextClassLoader(target.loader());
            }
        }
        return call;
    }

    /** An interrupt ends with the request: the next one of the thread is another caller's. */
    private static void finish(Call call, boolean wasInterrupted) {
        call.finish();
        if (!wasInterrupted) {
            Thread.interrupted();
        }
    }

    private static int dispatch(long user, long request, long answer, long reply) {
        Deferred owed = null;
        try {
            Target target = targets[(int) user];
            Call call = call(target);
            boolean wasInterrupted = Thread.currentThread().isInterrupted();
            call.begin(request, answer, reply, target);
            call.beginWithout();
            try {
                return target.dispatch(operation(request), call);
            } finally {
                owed = call.deferred();
                finish(call, wasInterrupted);
            }
        } catch (Throwable e) {
            int errno = failed(user, request, e);
            return owed == null ? errno : later(owed, errno);
        }
    }

    /** Once an answer is owed the library may not give it: that frees a buffer which a thread may be filling. */
    private static int later(Deferred owed, int errno) {
        try {
            owed.failUnlessAnswered(errno);
        } catch (Throwable e) {
            // No memory, say. The collector finds it unanswered.
        }
        return Layout.LATER;
    }

    private static int pre(long user, long request, long answer) {
        return around(user, request, answer, true, 0);
    }

    private static int post(long user, long request, long answer, int result) {
        return around(user, request, answer, false, result);
    }

    private static int around(long user, long request, long answer, boolean before, int result) {
        try {
            Target target = targets[(int) user];
            Call call = call(target);
            boolean wasInterrupted = Thread.currentThread().isInterrupted();
            call.begin(request, answer, 0, target);
            try {
                int operation = operation(request);
                return before ? target.pre(operation, call) : target.post(operation, call, result);
            } finally {
                finish(call, wasInterrupted);
            }
        } catch (Throwable e) {
            return failed(user, request, e);
        }
    }
}
