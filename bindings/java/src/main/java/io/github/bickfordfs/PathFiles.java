package io.github.bickfordfs;

import io.github.bickfordfs.PathTree.Claim;
import io.github.bickfordfs.PathTree.Wanted;
import java.io.IOException;

/** The files that are open, as far as they are to be known, with their locks and their ends. */
final class PathFiles {
    private static final System.Logger LOG = System.getLogger(PathFiles.class.getPackageName());
    /** Of a SETLK. */
    private static final int FLOCK = 1;

    private final PathFileSystem fs;
    private final PathTree tree;
    private final PathOverrides overrides;
    private final OpenFiles files = new OpenFiles();
    private final LockOwners owners = new LockOwners();

    PathFiles(PathFileSystem fs, PathTree tree, PathOverrides overrides) {
        this.fs = fs;
        this.tree = tree;
        this.overrides = overrides;
    }

    /** A node was opened. */
    void opened(long node, long handle) {
        if (overrides.countsOpens()) {
            files.opened(node, handle);
        }
    }

    /** The kernel does not hear of a handle, and will not release it. */
    void refuse(String path, long handle) {
        quietly("releasing", path, () -> fs.release(path, handle));
    }

    /** A handle of a node that stays open until it is given back; null where there is none. */
    OpenFiles.OpenFile borrow(long node) {
        return files.borrow(node);
    }

    /** Who closed the file meanwhile did not wait: what is owed to the file system is ours to do. */
    void giveBack(long node, OpenFiles.OpenFile borrowed) {
        for (int owed = files.giveBack(borrowed); owed > 0; owed--) {
            quietly("releasing", null, () -> end(node, null, borrowed.handle()));
        }
    }

    /** A part of something whose caller does not wait for it. */
    private interface Step {
        void run() throws IOException;
    }

    private static void quietly(String what, String path, Step step) {
        try {
            step.run();
        } catch (IOException | RuntimeException e) {
            if (Errno.of(e) != Errno.ENOSYS) {
                LOG.log(System.Logger.Level.WARNING, what + " " + (path == null ? "a removed file" : path), e);
            }
        }
    }

    void release(Request request) throws IOException {
        long node = request.node();
        long handle = request.handle();
        if (overrides.locksFiles && (request.extraFlags() & 1) != 0) {
            long owner = request.lockOwner();
            toTheEnd(node, path -> quietly("giving up the lock of", path, () ->
                    fs.flock(path, handle, owner, Lock.NONE, false)));
        }
        boolean isLast = !overrides.countsOpens() || files.released(node, handle);
        if (isLast && (overrides.releases || overrides.locksRecords)) {
            toTheEnd(node, path -> end(node, path, handle));
        }
    }

    /** Something about an open file that is done at any rate. */
    private interface Ending {
        void at(String path) throws IOException;
    }

    /** What comes once, also for callers that got a signal. */
    private void toTheEnd(long node, Ending ending) throws IOException {
        try (Claim claim = tree.claim(() -> false, Wanted.node(node))) {
            if (overrides.hasHandles || claim.pathOrNull() != null) {
                ending.at(claim.pathOrNull());
            }
        }
    }

    /** An open file has ended, and nobody borrows its handle. */
    private void end(long node, String path, long handle) throws IOException {
        for (long owner : owners.take(node, handle, () -> files.isOpen(node, handle))) {
            unlock(path, handle, owner, 0);
        }
        if (overrides.releases) {
            fs.release(path, handle);
        }
    }

    /** Gives up all locks of fcntl(2) of an owner. */
    private void unlock(String path, long handle, long owner, int pid) {
        Lock all = new Lock(0, Long.MAX_VALUE, Lock.NONE, pid);
        quietly("giving up locks of", path, () -> fs.setlk(path, handle, owner, all, false));
    }

    /** The kernel leaves the locks of who closes a descriptor to whoever keeps them. */
    void flush(Request request) throws IOException {
        long node = request.node();
        long handle = request.handle();
        long owner = request.lockOwner();
        int pid = request.pid();
        toTheEnd(node, path -> {
            try {
                if (overrides.flushes) {
                    fs.flush(path, handle);
                }
            } catch (FuseException e) {
                // After ENOSYS it would not come again.
                if (!overrides.locksRecords || e.errno() != Errno.ENOSYS) {
                    throw e;
                }
            } finally {
                if (overrides.locksRecords) {
                    unlock(path, handle, owner, pid);
                    owners.forget(node, owner);
                }
            }
        });
    }

    /** Takes or gives up what a request asks for. */
    void lock(Request request, String path, boolean wait) throws IOException {
        long handle = request.handle();
        long owner = request.lockOwner();
        Lock lock = request.lock();
        if ((request.extraFlags() & FLOCK) != 0) {
            fs.flock(path, handle, owner, lock.kind(), wait);
            return;
        }
        if (lock.kind() != Lock.NONE) {
            owners.add(request.node(), owner, handle);
        }
        fs.setlk(path, handle, owner, lock, wait);
    }
}
