package io.github.bickfordfs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystems;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A mounted file system. {@link #close} unmounts it; so does the end of the virtual machine, unless that is killed: then
 * {@code bickford unmount MOUNTPOINT} cleans up.
 *
 * <pre>{@code
 * try (Mount mount = Mount.inodes(new Hello(), mountpoint, MountOptions.DEFAULT)) {
 *     mount.await();
 * }
 * }</pre>
 */
public final class Mount implements AutoCloseable {
    private static final Set<Mount> LIVE = ConcurrentHashMap.newKeySet();
    /** Mounts that may answer already and are not yet in LIVE. */
    static final AtomicInteger STARTING = new AtomicInteger();
    /** How long requests may take to end when a mount is closed. */
    private static final long CLOSE_MILLISECONDS = 30_000;
    /** How long a mount may stay busy when it is closed, before it is unmounted by force. */
    private static final long BUSY_MILLISECONDS = 1_000;
    /** How long the end of the virtual machine may wait for them. */
    private static final long EXIT_MILLISECONDS = 2_000;
    /** How long it may wait for mounts that begin. */
    private static final long START_MILLISECONDS = 30_000;

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(Mount::unmountAll, "bickford-shutdown"));
    }

    private final Path mountpoint;
    private final Target target;
    private final int number;
    private final long session;
    private final Thread guard;
    /** One at a time closes; the others wait for it. */
    private final ReentrantLock closing = new ReentrantLock();
    private volatile boolean closed;

    /** Starts a session for the number of a target. */
    interface Starter {
        long start(int number) throws IOException;
    }

    private Mount(Path mountpoint, Target target, Starter starter) throws IOException {
        this(mountpoint, target, starter, task -> Thread.ofPlatform().name("bickford-guard").daemon().unstarted(task));
    }

    Mount(Path mountpoint, Target target, Starter starter, ThreadFactory threads) throws IOException {
        this.mountpoint = mountpoint;
        this.target = target;
        this.guard = threads.newThread(this::guard);
        target.guardedBy(guard);
        this.number = Bridge.add(target);
        STARTING.incrementAndGet();
        try {
            this.session = starter.start(number);
            LIVE.add(this);
        } catch (IOException | RuntimeException | Error e) {
            Bridge.remove(number);
            throw e;
        } finally {
            STARTING.decrementAndGet();
        }
        try {
            guard.start();
        } catch (RuntimeException | Error e) {
            // No thread is to be had, say: nobody has the object that could unmount it.
            closeAfter(e);
            throw e;
        }
    }

    private Mount(Path mountpoint, Target target, int number, long session) {
        this.mountpoint = mountpoint;
        this.target = target;
        this.number = number;
        this.session = session;
        this.guard = Thread.ofPlatform().name("bickford-guard").daemon().unstarted(this::guard);
        target.guardedBy(guard);
        guard.start();
        LIVE.add(this);
    }

    /** What a program has mounted, which ends it ({@link #endedByProgram}). */
    static Mount ofProgram(Path mountpoint, Target target, int number, long session) {
        return new Mount(mountpoint, target, number, session);
    }

    /** A mount may answer before it is known: the end of the virtual machine waits until {@link #started}. */
    static void starting() {
        STARTING.incrementAndGet();
    }

    static void started() {
        STARTING.decrementAndGet();
    }

    /** Its session is over, and its number means nothing. */
    void endedByProgram() {
        closing.lock();
        try {
            if (!closed) {
                ended();
            }
        } finally {
            closing.unlock();
        }
    }

    /** No call comes any more. */
    private void ended() {
        closed = true;
        LIVE.remove(this);
        LockSupport.unpark(guard);
        Bridge.remove(number);
    }

    /** Whether the virtual machine was in no state to go on serving it. */
    boolean isFatal() {
        return target.isFatal();
    }

    private void closeAfter(Throwable failure) {
        try {
            close();
        } catch (IOException e) {
            failure.addSuppressed(e);
        }
    }

    /**
     * Mounts a file system over inodes. When this returns, the mount answers.
     *
     * @param fs the file system
     * @param mountpoint an existing directory
     * @param options how to mount
     * @return the mount
     * @throws IOException when it cannot be mounted; the message says why and what to do
     */
    public static Mount inodes(InodeFileSystem fs, Path mountpoint, MountOptions options) throws IOException {
        InodeTarget target = new InodeTarget(fs, fs.getClass().getName(), options.virtualThreads());
        String place = ofMachine(mountpoint);
        return new Mount(mountpoint, target, number -> Native.mount(place, options,
                new Native.CallbackSpec(number, target.operations(), 0, Bridge.DISPATCH)));
    }

    /** The text of a path in a zip file, say, would name something else to the kernel. */
    private static String ofMachine(Path path) throws IOException {
        if (path.getFileSystem() != FileSystems.getDefault()) {
            throw new IOException(path.getFileSystem().provider().getScheme() + ":" + path + " is no path of the machine's own"
                    + " file system, and cannot be a mount point or be served by StackFS; serve it by a PathFileSystem at a"
                    + " path of FileSystems.getDefault()");
        }
        return path.toString();
    }

    /**
     * Mounts a file system over paths. When this returns, the mount answers.
     *
     * @param fs the file system
     * @param mountpoint an existing directory
     * @param options how to mount
     * @return the mount
     * @throws IOException when it cannot be mounted; the message says why and what to do
     */
    public static Mount paths(PathFileSystem fs, Path mountpoint, MountOptions options) throws IOException {
        PathTarget target = new PathTarget(fs, options.virtualThreads());
        MountOptions all = target.options(options);
        String place = ofMachine(mountpoint);
        return new Mount(mountpoint, target, number -> Native.mountPaths(place, all,
                new Native.CallbackSpec(number, target.operations(), target.refused(), Bridge.DISPATCH)));
    }

    /**
     * Mounts a directory with calls around its operations. When this returns, the mount answers.
     *
     * @param fs the calls
     * @param source the directory that StackFS serves
     * @param mountpoint an existing directory
     * @param configuration which calls are made
     * @param options how to mount
     * @return the mount
     * @throws IOException when it cannot be mounted; the message says why and what to do
     * @throws IllegalArgumentException when virtual threads are asked for: each call answers at once
     */
    public static Mount javaFuse(
            JavaFuse fs, Path source, Path mountpoint, Configuration configuration, MountOptions options)
            throws IOException {
        if (options.virtualThreads()) {
            throw new IllegalArgumentException("the calls of a JavaFuse answer at once, on the thread of the system call:"
                    + " mount it without virtual threads");
        }
        JavaFuseTarget target = new JavaFuseTarget(fs, configuration);
        String below = ofMachine(source);
        String place = ofMachine(mountpoint);
        return new Mount(mountpoint, target, number ->
                Native.mountStackfs(below, place, options, target.layer(number), Bridge.PRE, Bridge.POST));
    }

    /** Where it is mounted. */
    public Path mountpoint() {
        return mountpoint;
    }

    /** The number of the connection in /sys/fs/fuse/connections, or -1 where it is not known. */
    public long connection() {
        return Native.connection(session);
    }

    /** Waits until it is unmounted. {@link Thread#interrupt} does not end that; another thread's {@link #close} does. */
    public void await() throws IOException {
        Native.await(session, -1);
    }

    /**
     * Waits until it is unmounted. {@link Thread#interrupt} does not end that.
     *
     * @param milliseconds for how long at most
     * @return whether it is
     */
    public boolean await(long milliseconds) throws IOException {
        return Native.await(session, Math.max(0, milliseconds));
    }

    /** Unmounts now; what is open stays until it is closed, and the session until then. Once it is closed this does nothing. */
    public void unmountLazily() throws IOException {
        Native.unmount(session, Native.UNMOUNT_LAZY);
    }

    /**
     * Unmounts, and waits until every call has returned. Where the mount is in use, its users get errors. Once it is closed,
     * closing it again does nothing. In a method of the file system it would wait for itself, and fail after thirty seconds:
     * use {@link #unmountLazily} there.
     *
     * @throws IOException when it cannot be unmounted, and stays as it was; or when calls do not return, or it is in use and
     *     may not be taken from its users. It may be closed again.
     */
    @Override
    public void close() throws IOException {
        closing.lock();
        try {
            if (closed) {
                return;
            }
            unmountForClose();
            if (!Native.await(session, CLOSE_MILLISECONDS)) {
                // Its number stays taken: calls still use it.
                throw new IOException("close " + mountpoint + ": calls of the file system do not return, or it is still in use");
            }
            Native.close(session);
            ended();
        } finally {
            closing.unlock();
        }
    }

    /** Unmounts; when it stays busy, by force. */
    private void unmountForClose() throws IOException {
        long end = System.nanoTime() + BUSY_MILLISECONDS * 1_000_000;
        while (true) {
            try {
                Native.unmount(session, Native.UNMOUNT_NORMAL);
                return;
            } catch (IOException e) {
                if (System.nanoTime() >= end) {
                    Log.warning("unmounting by force: " + e.getMessage());
                    unmountByForce();
                    return;
                }
            }
            // Over io_uring a process of the session may be in statfs(2) there for some milliseconds.
            LockSupport.parkNanos(5_000_000);
        }
    }

    /** Aborts the connection and unmounts; where it may not be aborted, it goes when its users end. */
    private void unmountByForce() throws IOException {
        try {
            Native.unmount(session, Native.UNMOUNT_FORCE);
        } catch (IOException e) {
            try {
                Native.unmount(session, Native.UNMOUNT_LAZY);
            } catch (IOException lazily) {
                e.addSuppressed(lazily);
                throw e;
            }
            Log.warning("unmounted lazily: " + e.getMessage());
        }
    }

    /** Unmounts when the virtual machine is in no state to go on. */
    private void guard() {
        while (!closed) {
            if (target.isFatal()) {
                try {
                    Native.unmount(session, Native.UNMOUNT_LAZY);
                    Log.error(mountpoint + " is unmounted after a fatal error");
                } catch (Throwable e) {
                    Log.error("unmounting after a fatal error", e);
                }
                return;
            }
            LockSupport.park(this);
        }
    }

    private static void unmountAll() {
        long end = System.nanoTime() + START_MILLISECONDS * 1_000_000;
        while (STARTING.get() > 0 && System.nanoTime() < end) {
            LockSupport.parkNanos(1_000_000);
        }
        for (Mount mount : LIVE) {
            try {
                Native.unmount(mount.session, Native.UNMOUNT_LAZY);
                Native.await(mount.session, EXIT_MILLISECONDS);
            } catch (IOException | RuntimeException e) {
                System.err.println("unmount " + mount.mountpoint + ": " + e.getMessage());
            }
        }
    }

    /**
     * Drops cached attributes of a node, and cached data from an offset on.
     *
     * @param node the node
     * @param offset where to begin in bytes; negative keeps the data
     * @param length how many bytes; zero means to the end
     */
    public void invalidate(long node, long offset, long length) throws IOException {
        Native.notifyInode(session, node, offset, length);
    }

    /**
     * Drops cached attributes of a node before it returns, and has the kernel refuse those that it has asked for before. It is
     * not queued. A method has {@link Request#changed} for what its request has changed.
     *
     * @param node the node
     */
    public void forgetAttributes(long node) throws IOException {
        Native.notifyAttributes(session, node);
    }

    /** Drops a cached name. */
    public void invalidate(long parent, String name) throws IOException {
        invalidate(parent, name.getBytes(StandardCharsets.UTF_8));
    }

    /** Drops a cached name, which need not be UTF-8. */
    public void invalidate(long parent, byte[] name) throws IOException {
        Native.notifyEntry(session, parent, name, false);
    }

    /**
     * Drops cached attributes and data of what is at a path, of a mount over paths. Of what the kernel does not know nothing
     * is to be dropped.
     *
     * @param path as the methods of a {@link PathFileSystem} get it: "/", "/a/b"
     * @throws IllegalStateException where this is no mount over paths
     */
    public void invalidate(String path) throws IOException {
        Native.notifyPath(session, own(path));
    }

    /**
     * Drops a cached name, of a mount over paths: it is looked up again at its next use. Of what the kernel does not know
     * nothing is to be dropped.
     *
     * @param path as the methods of a {@link PathFileSystem} get it, but for "/", which has no name
     * @throws IllegalStateException where this is no mount over paths
     */
    public void invalidateName(String path) throws IOException {
        String known = own(path);
        if (path.endsWith("/")) {
            throw new IllegalArgumentException("\"" + path + "\" ends in no name that could be dropped");
        }
        Native.notifyPathName(session, known);
    }

    /** A path that may be one of this mount's. */
    private String own(String path) {
        if (!(target instanceof PathTarget)) {
            throw new IllegalStateException(mountpoint + " is no mount over paths: name what is to be dropped by its node");
        }
        if (!path.startsWith("/")) {
            throw new IllegalArgumentException("\"" + path + "\" is no path from the root of the mount: begin it with /");
        }
        if (path.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("\"" + path.replace("\0", "\\0") + "\" has a NUL, which no path has");
        }
        return path;
    }

    /** Lets a cached name expire: it is looked up again at its next use. */
    public void expire(long parent, String name) throws IOException {
        expire(parent, name.getBytes(StandardCharsets.UTF_8));
    }

    /** Lets a cached name, which need not be UTF-8, expire. */
    public void expire(long parent, byte[] name) throws IOException {
        Native.notifyEntry(session, parent, name, true);
    }

    /** Lets every cached name expire: each is looked up again at its next use. Does nothing before Linux 6.16. */
    public void expireAll() throws IOException {
        Native.notifyEpoch(session);
    }

    /**
     * Asks the kernel to forget nodes, as far as nobody uses them: {@link InodeFileSystem#forget} tells of those that it forgets.
     * Does nothing before Linux 6.18.
     */
    public void prune(long... nodes) throws IOException {
        Native.notifyPrune(session, nodes);
    }

    /** A name was removed: drops it, and tells those who watch the directory. */
    public void deleted(long parent, long child, String name) throws IOException {
        deleted(parent, child, name.getBytes(StandardCharsets.UTF_8));
    }

    /** A name, which need not be UTF-8, was removed. */
    public void deleted(long parent, long child, byte[] name) throws IOException {
        Native.notifyDelete(session, parent, child, name);
    }

    /** Puts data into the page cache of a node. */
    public void store(long node, long offset, MemorySegment data) throws IOException {
        Native.notifyStore(session, node, offset, data);
    }

    /** Wakes a poller: {@link Request#offset} of the poll that had {@link Request#hasWaiter}. */
    public void wake(long waiter) throws IOException {
        Native.notifyPoll(session, waiter);
    }

    /** Waits until what was sent before has reached the kernel; not to be called by a method of a file system. */
    public void flushNotifications() throws IOException {
        Native.notifyFlush(session);
    }
}
