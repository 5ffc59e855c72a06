package io.github.bickfordfs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/** A file system behind the callbacks, whose methods run where requests come to, or on a virtual thread each. */
abstract class AnsweringTarget extends Target {
    /** Of threads for one request each; null where methods run on the threads that requests come to. */
    private final ThreadFactory threads;
    private final AtomicInteger running = new AtomicInteger();

    /** {@code name} is that of the user's class. */
    AnsweringTarget(String name, boolean virtualThreads) {
        super(name);
        this.threads = virtualThreads ? Thread.ofVirtual().name("bickford-request-", 0).factory() : null;
    }

    /** Calls the method: zero, an error number, or {@link Layout#LATER}. */
    abstract int call(int operation, Call request) throws IOException;

    /** The session has ended, and with it every method. */
    abstract void ended();

    @Override
    final int dispatch(int operation, Call request) throws IOException {
        if (operation == DESTROY) {
            destroy();
            return 0;
        }
        if (threads != null && operation != FORGET && !request.hasOwnThread()) {
            leave(operation, request);
            return Layout.LATER;
        }
        return call(operation, request);
    }

    /** Gives a request a thread of its own. */
    private void leave(int operation, Call request) {
        RequestCopy copy = request.copy();
        Deferred owed = request.take();
        running.incrementAndGet();
        try {
            threads.newThread(() -> {
                try {
                    serve(operation, copy, owed);
                } finally {
                    running.decrementAndGet();
                }
            }).start();
        } catch (RuntimeException | Error e) {
            running.decrementAndGet();
            throw e;
        }
    }

    /** After the connection was aborted methods may still run, and no call may come after the end. */
    private void destroy() {
        while (running.get() > 0) {
            LockSupport.parkNanos(1_000_000);
        }
        ended();
    }

    private void serve(int operation, RequestCopy copy, Deferred owed) {
        try (Arena memory = Arena.ofConfined()) {
            MemorySegment answer = owed.answer(memory);
            int result = served(operation, copy.in(memory), answer.address(), owed);
            if (result != Layout.LATER) {
                owed.complete(result, answer);
            }
        } catch (Throwable e) {
            owed.failUnlessAnswered(failed(operation, e));
        }
    }

    private int served(int operation, long request, long answer, Deferred owed) throws IOException {
        Call call = new Call();
        call.begin(request, answer, owed, this);
        Bridge.serving(call);
        try {
            return dispatch(operation, call);
        } finally {
            call.finish();
        }
    }
}
