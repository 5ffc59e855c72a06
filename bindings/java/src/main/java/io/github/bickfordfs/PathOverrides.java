package io.github.bickfordfs;

import java.util.EnumSet;
import java.util.List;
import java.util.Set;

/** What a {@link PathFileSystem} overrides, and what the library is to ask for therefore. */
final class PathOverrides {
    private static final List<String> SETATTR = List.of("chmod", "chown", "truncate", "setTimes");
    /** FUSE_FLOCK_LOCKS. */
    private static final long FLOCK_LOCKS = 1 << 10;

    final boolean hasHandles;
    final boolean hasDirectoryHandles;
    /** Whether locks of fcntl(2) are the file system's. */
    private final boolean locksRecords;
    /** Whether locks of flock(2) are. */
    private final boolean locksFiles;
    private final Class<?> type;

    PathOverrides(Class<? extends PathFileSystem> type) {
        this.type = type;
        this.hasHandles = has("open") || has("create") || has("tmpfile");
        this.hasDirectoryHandles = has("opendir");
        this.locksRecords = hasHandles && has("getlk") && has("setlk");
        this.locksFiles = hasHandles && has("flock");
    }

    private boolean has(String name) {
        return Overrides.has(type, PathFileSystem.class, name, _ -> true);
    }

    Set<Operation> operations() {
        Set<Operation> operations = EnumSet.of(Operation.GETATTR);
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
        operations.remove(Operation.GETLK);
        operations.remove(Operation.SETLK);
        if (locksRecords) {
            operations.add(Operation.GETLK);
        }
        if (locksRecords || locksFiles) {
            operations.add(Operation.SETLK);
        }
        return operations;
    }

    /** Flags of INIT that are not to be in force. With SETLK the kernel leaves locks of flock(2) to us, too. */
    long refused() {
        return locksRecords && !locksFiles ? FLOCK_LOCKS : 0;
    }
}
