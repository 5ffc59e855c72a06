package io.github.bickfordfs;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.invoke.VarHandle;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;

/** The functions of bickford.h. */
final class Native {
    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY = Library.load();

    private static final MethodHandle ABI_VERSION = function("bickford_abi_version", JAVA_INT);
    private static final MethodHandle LOG = function("bickford_log", JAVA_INT, JAVA_INT, ADDRESS, ADDRESS);
    private static final MethodHandle LOG_LINE = function("bickford_log_line", JAVA_INT, JAVA_INT, ADDRESS);
    private static final MethodHandle LAST_ERROR = function("bickford_last_error", ADDRESS);
    private static final MethodHandle MOUNT =
            function("bickford_mount", JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
    private static final MethodHandle MOUNT_PATHS =
            function("bickford_mount_paths", JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
    private static final MethodHandle STACKFS_MOUNT =
            function("bickford_stackfs_mount", JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
    private static final MethodHandle WAIT = function("bickford_session_wait", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle UNMOUNT = function("bickford_session_unmount", JAVA_INT, JAVA_LONG, JAVA_INT);
    private static final MethodHandle CLOSE = function("bickford_session_close", JAVA_INT, JAVA_LONG);
    private static final MethodHandle CONNECTION = function("bickford_session_connection", JAVA_LONG, JAVA_LONG);
    private static final MethodHandle DEFER = function("bickford_reply_defer", JAVA_INT, JAVA_LONG, ADDRESS);
    private static final MethodHandle INTERRUPTED = function("bickford_reply_interrupted", JAVA_INT, JAVA_LONG);
    private static final MethodHandle DEFERRED_INTERRUPTED =
            function("bickford_deferred_interrupted", JAVA_INT, JAVA_LONG);
    private static final MethodHandle REPLY_GROUPS =
            function("bickford_reply_groups", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG);
    private static final MethodHandle DEFERRED_GROUPS =
            function("bickford_deferred_groups", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG);
    private static final MethodHandle DEFERRED_ANSWER =
            function("bickford_deferred_answer", JAVA_INT, JAVA_LONG, ADDRESS);
    private static final MethodHandle DEFERRED_COMPLETE =
            function("bickford_deferred_complete", JAVA_INT, JAVA_LONG, JAVA_INT, ADDRESS);
    private static final MethodHandle REPLY_OPEN_BACKING =
            function("bickford_reply_open_backing", JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_LONG);
    private static final MethodHandle REPLY_CHANGED = function("bickford_reply_changed", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle DEFERRED_CHANGED =
            function("bickford_deferred_changed", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle DEFERRED_OPEN_BACKING =
            function("bickford_deferred_open_backing", JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_LONG);
    private static final MethodHandle BACKING_CLOSE = function("bickford_backing_close", JAVA_INT, JAVA_LONG);
    private static final MethodHandle REPLY_LIST =
            function("bickford_reply_list", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG);
    private static final MethodHandle DEFERRED_LIST =
            function("bickford_deferred_list", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG);
    private static final MethodHandle NOTIFY_INODE =
            function("bickford_notify_inode", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle NOTIFY_ATTRIBUTES =
            function("bickford_notify_attributes", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle NOTIFY_ENTRY =
            function("bickford_notify_entry", JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_INT);
    private static final MethodHandle NOTIFY_PATH =
            function("bickford_notify_path", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle NOTIFY_PATH_NAME =
            function("bickford_notify_path_name", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_INT);
    private static final MethodHandle NOTIFY_DELETE =
            function("bickford_notify_delete", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG);
    private static final MethodHandle NOTIFY_STORE =
            function("bickford_notify_store", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG);
    private static final MethodHandle NOTIFY_POLL = function("bickford_notify_poll", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle NOTIFY_FLUSH = function("bickford_notify_flush", JAVA_INT, JAVA_LONG);
    private static final MethodHandle NOTIFY_EPOCH = function("bickford_notify_epoch", JAVA_INT, JAVA_LONG);
    private static final MethodHandle NOTIFY_PRUNE =
            function("bickford_notify_prune", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG);

    private static final StructLayout STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));
    private static final int O_PATH_CLOEXEC = 010000000 | 02000000;
    private static final MethodHandle OPEN = LINKER.downcallHandle(
            LINKER.defaultLookup().find("open").orElseThrow(), FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT),
            Linker.Option.firstVariadicArg(2), Linker.Option.captureCallState("errno"));
    private static final MethodHandle CLOSE_DESCRIPTOR = LINKER.downcallHandle(
            LINKER.defaultLookup().find("close").orElseThrow(), FunctionDescriptor.of(JAVA_INT, JAVA_INT));

    static final int UNMOUNT_NORMAL = 0;
    static final int UNMOUNT_LAZY = 1;
    static final int UNMOUNT_FORCE = 2;
    private static final int ERROR_HANDLE = -12;
    private static final int ERROR_TIMEOUT = -13;

    static {
        int version;
        try {
            version = (int) ABI_VERSION.invokeExact();
        } catch (Throwable e) {
            throw unexpected(e);
        }
        if (version != Layout.ABI_VERSION) {
            throw new UnsatisfiedLinkError("the native library has version " + version
                    + " of the interface, this jar needs version " + Layout.ABI_VERSION
                    + "; use the library that belongs to the jar");
        }
        if (!ProgramRun.isRunning()) {
            // A program of several languages may have told the library already where its log goes.
            code(() -> (int) LOG.invokeExact(NativeLog.wanted(), NativeLog.listener(), MemorySegment.NULL));
        }
    }

    private Native() {}

    static MethodHandle function(String name, MemoryLayout result, MemoryLayout... arguments) {
        MemorySegment symbol = LIBRARY.find(name)
                .orElseThrow(() -> new UnsatisfiedLinkError("the native library has no " + name
                        + "; it does not belong to this jar"));
        return LINKER.downcallHandle(symbol, FunctionDescriptor.of(result, arguments));
    }

    /** A function pointer, for ever, to a static method of this package. */
    static MemorySegment upcall(MethodHandles.Lookup lookup, String name, FunctionDescriptor descriptor) {
        try {
            MethodType type = descriptor.toMethodType();
            MethodHandle method = lookup.findStatic(lookup.lookupClass(), name, type);
            return LINKER.upcallStub(method, descriptor, Arena.global());
        } catch (ReflectiveOperationException e) {
            throw new LinkageError("no method " + name, e);
        }
    }

    private static Error unexpected(Throwable e) {
        if (e instanceof RuntimeException argument) {
            // A null, or memory that was freed.
            throw argument;
        }
        return e instanceof Error error ? error : new AssertionError("a native call threw", e);
    }

    /** A call of one of the functions above. */
    private interface Downcall {
        int call() throws Throwable;
    }

    private static int code(Downcall function) {
        try {
            return function.call();
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    private static void check(Downcall function) throws IOException {
        check(code(function));
    }

    private static void check(int code) throws IOException {
        checked(code);
    }

    private static int checked(int code) throws IOException {
        if (code < 0) {
            throw new IOException(lastError());
        }
        return code;
    }

    /** One that may take long. */
    private static void checkAside(Downcall function) throws IOException {
        aside(() -> {
            check(function);
            return null;
        });
    }

    /** A session without a number is over, as is to be: numbers are not used again. */
    private static void checkUnlessOver(int code) throws IOException {
        if (code != ERROR_HANDLE) {
            check(code);
        }
    }

    /** One that ends a session, and may take long. */
    private static void endAside(Downcall function) throws IOException {
        aside(() -> {
            checkUnlessOver(code(function));
            return null;
        });
    }

    /** Something that waits in native code. */
    private interface Waiting<T> {
        T call() throws IOException;
    }

    /**
     * A virtual thread would keep its carrier while it waits in native code. There are as many carriers as processors, and
     * what it waits for may be a method that needs one: so another thread waits.
     */
    private static <T> T aside(Waiting<T> call) throws IOException {
        if (!Thread.currentThread().isVirtual()) {
            return call.call();
        }
        FutureTask<T> task = new FutureTask<>(call::call);
        Thread.ofPlatform().name("bickford-aside").daemon().start(task);
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    return task.get();
                } catch (InterruptedException e) {
                    // On other threads such a call goes on, too.
                    interrupted = true;
                } catch (ExecutionException e) {
                    if (e.getCause() instanceof IOException cause) {
                        // With the trace of who asked.
                        throw new IOException(cause.getMessage(), cause);
                    }
                    throw unexpected(e.getCause());
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    static String lastError() {
        try {
            MemorySegment text = (MemorySegment) LAST_ERROR.invokeExact();
            return text.reinterpret(Long.MAX_VALUE).getString(0);
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    /** Whose callbacks serve which operations; {@code refused} are flags of INIT that are not to be in force. */
    record CallbackSpec(long user, long operations, long refused, MemorySegment dispatch) {}

    static long mount(String mountpoint, MountOptions options, CallbackSpec spec) throws IOException {
        return aside(() -> mountHere(MOUNT, mountpoint, options, spec));
    }

    static long mountPaths(String mountpoint, MountOptions options, CallbackSpec spec) throws IOException {
        return aside(() -> mountHere(MOUNT_PATHS, mountpoint, options, spec));
    }

    private static long mountHere(MethodHandle mount, String mountpoint, MountOptions options, CallbackSpec spec)
            throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment callbacks = arena.allocate(24, 8);
            fillCallbacks(callbacks, spec);
            MemorySegment session = arena.allocate(8, 8);
            check(() -> (int) mount.invokeExact(SystemText.encoded(mountpoint, arena),
                    arena.allocateFrom(options.options()), config(arena, options, spec.refused()), callbacks, session));
            return session.get(JAVA_LONG, 0);
        }
    }

    static void fillCallbacks(MemorySegment callbacks, CallbackSpec spec) {
        callbacks.set(JAVA_LONG, 0, spec.user());
        callbacks.set(JAVA_LONG, 8, spec.operations());
        callbacks.set(ADDRESS, 16, spec.dispatch());
    }

    static void fillLayer(MemorySegment layer, LayerSpec spec, MemorySegment pre, MemorySegment post) {
        layer.set(JAVA_LONG, 0, spec.user());
        layer.set(JAVA_LONG, 8, spec.pre());
        layer.set(JAVA_LONG, 16, spec.call());
        layer.set(JAVA_LONG, 24, spec.post());
        layer.set(JAVA_INT, 32, spec.metadataOnly() ? 1 : 0);
        layer.set(ADDRESS, 40, pre);
        layer.set(ADDRESS, 48, post);
    }

    /** What a layer over StackFS consists of. */
    record LayerSpec(long user, long pre, long call, long post, boolean metadataOnly) {}

    static long mountStackfs(
            String source, String mountpoint, MountOptions options, LayerSpec spec, MemorySegment pre,
            MemorySegment post) throws IOException {
        return aside(() -> mountStackfsHere(source, mountpoint, options, spec, pre, post));
    }

    private static long mountStackfsHere(
            String source, String mountpoint, MountOptions options, LayerSpec spec, MemorySegment pre,
            MemorySegment post) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment layer = arena.allocate(56, 8);
            fillLayer(layer, spec, pre, post);
            MemorySegment session = arena.allocate(8, 8);
            check(() -> (int) STACKFS_MOUNT.invokeExact(SystemText.encoded(source, arena),
                    SystemText.encoded(mountpoint, arena), arena.allocateFrom(options.options()),
                    config(arena, options, 0), layer, session));
            return session.get(JAVA_LONG, 0);
        }
    }

    private static MemorySegment config(Arena arena, MountOptions options, long refused) {
        MemorySegment config = arena.allocate(32, 8);
        config.set(JAVA_INT, 0, Layout.ABI_VERSION);
        config.set(JAVA_INT, 4, options.workers());
        config.set(JAVA_INT, 8, options.maxWrite());
        config.set(JAVA_LONG, 24, refused);
        return config;
    }

    /** A line of the log of a program; where there is none yet nobody is told. */
    static void logLine(int level, MemorySegment text) {
        code(() -> (int) LOG_LINE.invokeExact(level, text));
    }

    /** Whether the session is over before the timeout; a negative timeout is for ever. */
    static boolean await(long session, long milliseconds) throws IOException {
        return aside(() -> awaitHere(session, milliseconds));
    }

    private static boolean awaitHere(long session, long milliseconds) throws IOException {
        int code = code(() -> (int) WAIT.invokeExact(session, milliseconds));
        if (code == ERROR_TIMEOUT) {
            return false;
        }
        checkUnlessOver(code);
        return true;
    }

    static void unmount(long session, int mode) throws IOException {
        endAside(() -> (int) UNMOUNT.invokeExact(session, mode));
    }

    static void close(long session) throws IOException {
        endAside(() -> (int) CLOSE.invokeExact(session));
    }

    static long connection(long session) {
        try {
            return (long) CONNECTION.invokeExact(session);
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static long defer(long reply) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment handle = arena.allocate(8, 8);
            if ((int) DEFER.invokeExact(reply, handle) < 0) {
                throw new IllegalStateException(lastError());
            }
            return handle.get(JAVA_LONG, 0);
        } catch (RuntimeException e) {
            throw e;
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static boolean interrupted(long reply) {
        try {
            return (int) INTERRUPTED.invokeExact(reply) == 1;
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int[] groups(long reply) {
        return groups((groups, room) -> (int) REPLY_GROUPS.invokeExact(reply, groups, room));
    }

    static int[] deferredGroups(long handle) {
        return groups((groups, room) -> (int) DEFERRED_GROUPS.invokeExact(handle, groups, room));
    }

    /** Puts groups where there is room for so many; how many there are. */
    private interface Grouping {
        int put(MemorySegment groups, long room) throws Throwable;
    }

    private static int[] groups(Grouping grouping) {
        try (Arena memory = Arena.ofConfined()) {
            long room = 32;
            while (true) {
                long size = room;
                MemorySegment groups = memory.allocate(JAVA_INT, size);
                int count = code(() -> grouping.put(groups, size));
                if (count <= size) {
                    return groups.asSlice(0, Math.max(count, 0) * JAVA_INT.byteSize()).toArray(JAVA_INT);
                }
                room = count;
            }
        }
    }

    static void changed(long reply, long node) {
        changed(code(() -> (int) REPLY_CHANGED.invokeExact(reply, node)));
    }

    static void deferredChanged(long handle, long node) {
        changed(code(() -> (int) DEFERRED_CHANGED.invokeExact(handle, node)));
    }

    private static void changed(int code) {
        if (code < 0) {
            throw new IllegalStateException(lastError());
        }
    }

    static boolean deferredInterrupted(long handle) {
        try {
            return (int) DEFERRED_INTERRUPTED.invokeExact(handle) == 1;
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int deferredAnswer(long handle, MemorySegment answer) {
        try {
            return (int) DEFERRED_ANSWER.invokeExact(handle, answer);
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static int deferredComplete(long handle, int errno, MemorySegment answer) {
        try {
            return (int) DEFERRED_COMPLETE.invokeExact(handle, errno, answer);
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    /** Adds a name to a listing over paths; {@code attr} is the address of attributes, or zero. */
    static void list(long reply, long name, long length, int mode, long attr) {
        listed(code(() -> (int) REPLY_LIST.invokeExact(reply, name, length, mode, attr)));
    }

    /** As {@link #list}, for an answer that is owed. */
    static void deferredList(long handle, long name, long length, int mode, long attr) {
        listed(code(() -> (int) DEFERRED_LIST.invokeExact(handle, name, length, mode, attr)));
    }

    private static void listed(int code) {
        if (code < 0) {
            throw new IllegalStateException(lastError());
        }
    }

    static void notifyInode(long session, long node, long offset, long length) throws IOException {
        check(() -> (int) NOTIFY_INODE.invokeExact(session, node, offset, length));
    }

    static void notifyAttributes(long session, long node) throws IOException {
        check(() -> (int) NOTIFY_ATTRIBUTES.invokeExact(session, node));
    }

    static void notifyEntry(long session, long parent, byte[] name, boolean expire) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment bytes = arena.allocateFrom(JAVA_BYTE, name);
            check(() -> (int) NOTIFY_ENTRY.invokeExact(session, parent, bytes, bytes.byteSize(), expire ? 1 : 0));
        }
    }

    /** Of a mount over paths: drops attributes and data of what is at a path. */
    static void notifyPath(long session, String path) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment text = arena.allocateFrom(path);
            check(() -> (int) NOTIFY_PATH.invokeExact(session, text, 0L, 0L));
        }
    }

    /** Of a mount over paths: drops a name. */
    static void notifyPathName(long session, String path) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment text = arena.allocateFrom(path);
            check(() -> (int) NOTIFY_PATH_NAME.invokeExact(session, text, 0));
        }
    }

    static void notifyDelete(long session, long parent, long child, byte[] name) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment bytes = arena.allocateFrom(JAVA_BYTE, name);
            check(() -> (int) NOTIFY_DELETE.invokeExact(session, parent, child, bytes, bytes.byteSize()));
        }
    }

    static void notifyStore(long session, long node, long offset, MemorySegment data) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment bytes = data.isNative() ? data : arena.allocate(data.byteSize()).copyFrom(data);
            check(() -> (int) NOTIFY_STORE.invokeExact(session, node, offset, bytes, bytes.byteSize()));
        }
    }

    static void notifyPoll(long session, long waiter) throws IOException {
        check(() -> (int) NOTIFY_POLL.invokeExact(session, waiter));
    }

    static void notifyEpoch(long session) throws IOException {
        check(() -> (int) NOTIFY_EPOCH.invokeExact(session));
    }

    static void notifyPrune(long session, long[] nodes) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment numbers = arena.allocateFrom(JAVA_LONG, nodes);
            check(() -> (int) NOTIFY_PRUNE.invokeExact(session, numbers, (long) nodes.length));
        }
    }

    /** Opens a file to name it, not to read or write it. */
    static int openPath(String file) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(STATE);
            int descriptor = (int) OPEN.invokeExact(state, SystemText.encoded(file, arena), O_PATH_CLOEXEC);
            if (descriptor < 0) {
                int errno = (int) ERRNO.get(state, 0L);
                throw new FuseException(errno, "open " + file + ": " + Errno.name(errno));
            }
            return descriptor;
        } catch (IOException e) {
            throw e;
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static void closeDescriptor(int descriptor) {
        code(() -> (int) CLOSE_DESCRIPTOR.invokeExact(descriptor));
    }

    static int openBacking(long reply, int descriptor, long number) throws IOException {
        return checked(code(() -> (int) REPLY_OPEN_BACKING.invokeExact(reply, descriptor, number)));
    }

    static int deferredOpenBacking(long handle, int descriptor, long number) throws IOException {
        return checked(code(() -> (int) DEFERRED_OPEN_BACKING.invokeExact(handle, descriptor, number)));
    }

    /** One that was closed, or has ended with its session, is no error. */
    static void closeBacking(long number) {
        code(() -> (int) BACKING_CLOSE.invokeExact(number));
    }

    static void notifyFlush(long session) throws IOException {
        checkAside(() -> (int) NOTIFY_FLUSH.invokeExact(session));
    }
}
