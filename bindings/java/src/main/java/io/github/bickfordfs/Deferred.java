package io.github.bickfordfs;

import io.github.bickfordfs.Layout.Ans;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * An answer that is owed: to be given once, by any thread. A second one is an {@link IllegalStateException}, and so is one
 * while a thread has the {@link #buffer} in a system call, or one of a kind with which the operation is not answered:
 * those were not given.
 *
 * <p>Until the answer is given its caller waits, also after SIGKILL: the kernel waits for what a file system has begun.
 * What the method that called {@link Request#defer} throws afterwards is the answer, if none was given before. An answer
 * that nobody can give any more, as nothing refers to this object or its {@link #buffer}, becomes EIO and is logged, as
 * soon as the garbage collector finds out, which may be late.
 */
public final class Deferred {
    private static final Cleaner CLEANER = Cleaner.create();

    private static final Set<Operation> ENTRIES = EnumSet.of(
            Operation.LOOKUP, Operation.SYMLINK, Operation.MKNOD, Operation.MKDIR, Operation.LINK);
    private static final Set<Operation> ATTRIBUTES = EnumSet.of(Operation.GETATTR, Operation.SETATTR);
    private static final Set<Operation> OPENED = EnumSet.of(Operation.OPEN, Operation.OPENDIR);
    private static final Set<Operation> CREATED = EnumSet.of(Operation.CREATE, Operation.TMPFILE);
    private static final Set<Operation> XATTRS = EnumSet.of(Operation.GETXATTR, Operation.LISTXATTR);
    private static final Set<Operation> BYTES =
            EnumSet.of(Operation.READ, Operation.READLINK, Operation.GETXATTR, Operation.LISTXATTR);
    private static final Set<Operation> COUNTS = EnumSet.of(Operation.WRITE, Operation.BMAP, Operation.POLL,
            Operation.LSEEK, Operation.COPY_FILE_RANGE, Operation.IOCTL);
    private static final Set<Operation> MOVED = EnumSet.of(Operation.WRITE, Operation.COPY_FILE_RANGE);
    private static final Set<Operation> LISTINGS = EnumSet.of(Operation.READDIR, Operation.READDIRPLUS);
    private static final Set<Operation> NOTHING = EnumSet.of(Operation.UNLINK, Operation.RMDIR, Operation.RENAME,
            Operation.RELEASE, Operation.FSYNC, Operation.SETXATTR, Operation.REMOVEXATTR, Operation.FLUSH,
            Operation.RELEASEDIR, Operation.FSYNCDIR, Operation.SETLK, Operation.ACCESS, Operation.FALLOCATE,
            Operation.SYNCFS);

    /** What is left when nothing refers to the answer any more. */
    private static final class Debt implements Runnable {
        private final AtomicBoolean paid = new AtomicBoolean();
        private final String debtor;
        private volatile long handle;

        Debt(String debtor) {
            this.debtor = debtor;
        }

        @Override
        public void run() {
            if (paid.compareAndSet(false, true)) {
                if (Native.deferredComplete(handle, Errno.EIO, MemorySegment.NULL) >= 0) {
                    Log.warning(debtor + " and was dropped unanswered; the caller gets EIO");
                }
            }
        }
    }

    private final Operation operation;
    private final long size;
    private final Target target;
    private final Debt debt;
    private final Cleaner.Cleanable cleanable;
    /** Of the buffer alone: it ends before the native memory does. */
    private Arena arena;
    private MemorySegment buffer;
    private Listing listing;

    private Deferred(Operation operation, long size, Target target) {
        this.operation = operation;
        this.size = size;
        this.target = target;
        this.debt = new Debt(operation + " was deferred by " + target.name());
        this.cleanable = CLEANER.register(this, debt);
    }

    /** Takes the answer out of a callback; last, so that nothing fails once it is owed. */
    static Deferred take(long reply, Operation operation, long size, Target target) {
        Deferred taken = new Deferred(operation, size, target);
        try {
            taken.debt.handle = Native.defer(reply);
        } catch (Throwable e) {
            taken.settle();
            throw e;
        }
        return taken;
    }

    private void settle() {
        debt.paid.set(true);
        cleanable.clean();
    }

    /** Memory for the answer, with its buffer. */
    MemorySegment answer(Arena memory) {
        MemorySegment answer = memory.allocate(Ans.BYTES, 8);
        if (Native.deferredAnswer(debt.handle, answer) < 0) {
            throw new IllegalStateException(Native.lastError());
        }
        return answer;
    }

    /** Writes an answer. */
    private interface Writer {
        void write(long answer) throws IOException;
    }

    /** What is asked. */
    public Operation operation() {
        return operation;
    }

    /** Whether the caller got a signal; such a request should end soon, with EINTR if nothing was done. */
    public synchronized boolean interrupted() {
        return !debt.paid.get() && Native.deferredInterrupted(debt.handle);
    }

    /** The groups of the caller: see {@link Request#groups}. */
    public synchronized int[] groups() {
        open();
        return Native.deferredGroups(debt.handle);
    }

    /**
     * The request has changed attributes of a node that it does not name: see {@link Request#changed}.
     *
     * @param node the node
     */
    public synchronized void changed(long node) {
        open();
        Native.deferredChanged(debt.handle, node);
    }

    /**
     * The memory for the data of the answer, to be filled for a read. After the answer its use is an exception. While a
     * thread has it in a system call (a channel that reads into its byte buffer, say) an answer is an
     * {@link IllegalStateException}, and is owed still: give it when that call has returned.
     */
    public synchronized MemorySegment buffer() {
        open();
        if (buffer == null) {
            try (Arena memory = Arena.ofConfined()) {
                arena = Arena.ofShared();
                // Whoever has the segment may still mean to answer: it refers to this object.
                buffer = Answers.buffer(answer(memory).address(), arena, _ -> Reference.reachabilityFence(this));
            }
        }
        return buffer;
    }

    /**
     * For {@link Operation#READDIR} and {@link Operation#READDIRPLUS}: where names are put before {@link #complete()}. It
     * is in the {@link #buffer}, of which the same holds.
     */
    public synchronized Listing listing() {
        answersWith(LISTINGS, "names");
        open();
        if (listing == null) {
            listing = new Listing(buffer(), operation == Operation.READDIRPLUS);
        }
        return listing;
    }

    /** Adds a name to a listing over paths. */
    synchronized void list(long name, long length, int mode, long attr) {
        open();
        Native.deferredList(debt.handle, name, length, mode, attr);
    }

    /** As {@link Request#openBacking}, before the answer. */
    public synchronized Backing openBacking(Path file) throws IOException {
        open();
        return Backing.open(file, (descriptor, number) -> Native.deferredOpenBacking(debt.handle, descriptor, number));
    }

    private void answersWith(Set<Operation> operations, String what) {
        if (!operations.contains(operation)) {
            throw new IllegalStateException(operation + " is not answered with " + what);
        }
    }

    /** Ends all use of the buffer, which the completion frees. */
    private void endBuffer() {
        if (arena != null) {
            try {
                arena.close();
            } catch (IllegalStateException e) {
                throw new IllegalStateException("the buffer of this answer is in use by a thread; the answer is owed"
                        + " still, give it when that has ended", e);
            }
            arena = null;
        }
    }

    private void open() {
        if (debt.paid.get()) {
            throw new IllegalStateException("this request was answered before");
        }
    }

    private synchronized void send(int errno, Writer writer) {
        open();
        try (Arena memory = Arena.ofConfined()) {
            MemorySegment answer = answer(memory);
            int result = errno;
            if (result == 0) {
                try {
                    writer.write(answer.address());
                } catch (IOException | IllegalArgumentException e) {
                    result = target.failed(operation.code(), e);
                }
            }
            endBuffer();
            complete(result, answer);
        }
    }

    /** Answers success where nothing else is answered, or with the names that are in {@link #listing}. */
    public void complete() {
        if (LISTINGS.contains(operation)) {
            send(0, answer -> Answers.filled(answer, listing == null ? 0 : listing.used()));
        } else {
            answersWith(NOTHING, "nothing");
            send(0, _ -> { });
        }
    }

    /** Answers a name. */
    public void complete(Entry entry) {
        answersWith(ENTRIES, "a name");
        send(0, answer -> Answers.entry(answer, entry));
    }

    /** Answers attributes. */
    public void complete(Attributes attributes) {
        answersWith(ATTRIBUTES, "attributes");
        send(0, answer -> Answers.attributes(answer, attributes));
    }

    /** Answers attributes with the time of birth. */
    public void complete(Statx statx) {
        answersWith(EnumSet.of(Operation.STATX), "attributes with the time of birth");
        send(0, answer -> Answers.statx(answer, statx));
    }

    /** Answers an open file. */
    public void complete(Opened opened) {
        answersWith(OPENED, "an open file");
        send(0, answer -> Answers.opened(answer, opened));
    }

    /** Answers a file that was made and opened. */
    public void complete(Created created) {
        answersWith(CREATED, "a file that was made");
        send(0, answer -> Answers.created(answer, created));
    }

    /** Answers the size of the file system. */
    public void complete(StatFs statfs) {
        answersWith(EnumSet.of(Operation.STATFS), "the size of the file system");
        send(0, answer -> Answers.statfs(answer, statfs));
    }

    /** Answers {@link Operation#GETLK}: the lock that is in the way, or {@link Lock#FREE}. */
    public void complete(Lock lock) {
        answersWith(EnumSet.of(Operation.GETLK), "a lock");
        send(0, answer -> Answers.lock(answer, lock));
    }

    /**
     * Answers a number: where data are answered the bytes of {@link #buffer} that are filled, for a write the bytes that
     * were taken, for others what they return. That of an ioctl is without output, see {@link #complete(int, long)}.
     */
    public void complete(long count) {
        if (BYTES.contains(operation) && !(XATTRS.contains(operation) && size == 0)) {
            send(0, answer -> Answers.filled(answer, count));
        } else if (MOVED.contains(operation)) {
            send(0, answer -> Answers.moved(answer, count, size));
        } else {
            answersWith(BYTES.contains(operation) ? BYTES : COUNTS, "a number");
            send(0, answer -> Answers.count(answer, count));
        }
    }

    /**
     * Answers {@link Operation#IOCTL}.
     *
     * @param result what ioctl(2) returns
     * @param output the bytes of {@link #buffer} that are filled
     */
    public void complete(int result, long output) {
        answersWith(EnumSet.of(Operation.IOCTL), "a result and output");
        send(0, answer -> {
            Answers.count(answer, result);
            Answers.filled(answer, output);
        });
    }

    /** Answers bytes: data that are read, the target of a link, the value of an extended attribute. */
    public void complete(byte[] bytes) {
        answersWith(BYTES, "bytes");
        send(0, answer -> {
            if (XATTRS.contains(operation)) {
                Answers.xattr(answer, size, bytes);
            } else {
                Answers.data(answer, bytes);
            }
        });
    }

    /** Answers an error number. */
    public void fail(int errno) {
        if (errno <= 0) {
            throw new IllegalArgumentException(errno + " is no error number");
        }
        send(errno, null);
    }

    /**
     * Answers the error number of an exception, which is treated as if a method had thrown it: logged where it says
     * nothing of files, and the mount is taken away after a {@link VirtualMachineError}.
     */
    public void fail(Throwable e) {
        send(target.failed(operation.code(), e), null);
    }

    /** Answers with an error number, or with zero and what {@link #answer} gave, filled in. */
    synchronized void complete(int errno, MemorySegment answer) {
        open();
        settle();
        if (Native.deferredComplete(debt.handle, errno, answer) < 0) {
            throw new IllegalStateException(Native.lastError());
        }
    }

    /** The method that deferred has thrown. Where the answer was given, or its buffer is in use, others see to it. */
    void failUnlessAnswered(int errno) {
        try {
            send(errno, null);
        } catch (IllegalStateException e) {
            // As said above.
        }
    }
}
