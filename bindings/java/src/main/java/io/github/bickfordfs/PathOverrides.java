package io.github.bickfordfs;

import java.util.EnumSet;
import java.util.List;
import java.util.Set;

/** What a {@link PathFileSystem} overrides, and what the kernel is to ask for therefore. */
final class PathOverrides {
    private static final List<String> SETATTR = List.of("chmod", "chown", "truncate", "setTimes");
    private static final List<String> BY_HANDLE = List.of("getattr", "born", "link", "chmod", "chown", "truncate", "setTimes");
    /** What is asked of open directories. */
    private static final Set<Operation> OF_DIRECTORIES = EnumSet.of(
            Operation.READDIR, Operation.OPENDIR, Operation.RELEASEDIR, Operation.FSYNCDIR, Operation.IOCTL);
    /** FUSE_FLOCK_LOCKS. */
    private static final long FLOCK_LOCKS = 1 << 10;

    final boolean setsTimes;
    final boolean hasHandles;
    final boolean hasDirectoryHandles;
    final boolean flushes;
    final boolean releases;
    final boolean releasesDirectories;
    /** Whether a handle of an open file tells anything about it where there is no path. */
    final boolean lends;
    /** Whether locks of fcntl(2) are the file system's. */
    final boolean locksRecords;
    /** Whether locks of flock(2) are. */
    final boolean locksFiles;

    private final Class<?> type;

    PathOverrides(Class<? extends PathFileSystem> type) {
        this.type = type;
        this.setsTimes = has("setTimes");
        this.hasHandles = has("open") || has("create") || has("tmpfile");
        this.hasDirectoryHandles = has("opendir");
        this.flushes = has("flush");
        this.releases = has("release");
        this.releasesDirectories = has("releasedir");
        this.lends = hasHandles && BY_HANDLE.stream().anyMatch(this::hasByHandle);
        this.locksRecords = hasHandles && has("getlk") && has("setlk");
        this.locksFiles = hasHandles && has("flock");
    }

    private boolean has(String name) {
        return Overrides.has(type, PathFileSystem.class, name, _ -> true);
    }

    private boolean hasByHandle(String name) {
        // truncate(path, size) has a long there, too.
        int fewest = name.equals("truncate") ? 3 : 2;
        return Overrides.has(type, PathFileSystem.class, name, method ->
                method.getParameterCount() >= fewest && method.getParameterTypes()[1] == long.class);
    }

    /** Whether ends of open files matter to more than the file system. */
    boolean countsOpens() {
        return lends || locksRecords;
    }

    Set<Operation> operations() {
        Set<Operation> operations = EnumSet.of(Operation.LOOKUP, Operation.GETATTR);
        for (Operation operation : Operation.values()) {
            if (has(operation.method())) {
                operations.add(operation);
            }
        }
        if (has("born")) {
            operations.add(Operation.STATX);
        }
        if (SETATTR.stream().anyMatch(this::has)) {
            operations.add(Operation.SETATTR);
        }
        if (operations.contains(Operation.READDIR)) {
            operations.add(Operation.READDIRPLUS);
        }
        if (operations.stream().anyMatch(OF_DIRECTORIES::contains)) {
            operations.add(Operation.OPENDIR);
            operations.add(Operation.RELEASEDIR);
        }
        if (countsOpens() || locksFiles) {
            operations.add(Operation.RELEASE);
        }
        addLocks(operations);
        return operations;
    }

    private void addLocks(Set<Operation> operations) {
        operations.remove(Operation.GETLK);
        operations.remove(Operation.SETLK);
        if (locksRecords) {
            operations.addAll(EnumSet.of(Operation.GETLK, Operation.SETLK, Operation.FLUSH));
        }
        if (locksFiles) {
            operations.add(Operation.SETLK);
        }
    }

    /** Flags of INIT that are not to be in force. With SETLK the kernel leaves locks of flock(2) to us, too. */
    long refused() {
        return locksRecords && !locksFiles ? FLOCK_LOCKS : 0;
    }
}
