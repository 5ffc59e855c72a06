package io.github.bickfordfs;

import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;

/**
 * Who has taken locks of fcntl(2) through which open files. What FLUSH leaves are locks of an open file itself
 * (F_OFD_SETLK): they end with it, and Linux does not tell.
 */
final class LockOwners {
    /** More are not known at once. */
    private static final int MAX = 1 << 16;

    private record Taken(long owner, long handle) {}

    private final Map<Long, Set<Taken>> nodes = new HashMap<>();
    private int known;

    /** An owner takes a lock; ENOLCK where too many are known. */
    synchronized void add(long node, long owner, long handle) throws FuseException {
        Taken taken = new Taken(owner, handle);
        Set<Taken> here = nodes.get(node);
        if (here != null && here.contains(taken)) {
            return;
        }
        if (known >= MAX) {
            throw new FuseException(Errno.ENOLCK);
        }
        nodes.computeIfAbsent(node, _ -> new HashSet<>(2)).add(taken);
        known++;
    }

    /** An owner has closed a descriptor of a node. */
    synchronized void forget(long node, long owner) {
        remove(node, taken -> taken.owner == owner);
    }

    /**
     * The owners that are left of an open file. None while {@code isOpen}, for opens may share a handle; nobody is added
     * between.
     */
    synchronized List<Long> take(long node, long handle, BooleanSupplier isOpen) {
        if (known == 0 || isOpen.getAsBoolean()) {
            return List.of();
        }
        return remove(node, taken -> taken.handle == handle).stream().map(Taken::owner).toList();
    }

    private List<Taken> remove(long node, Predicate<Taken> which) {
        Set<Taken> here = nodes.get(node);
        if (here == null) {
            return List.of();
        }
        List<Taken> found = here.stream().filter(which).toList();
        found.forEach(here::remove);
        known -= found.size();
        if (here.isEmpty()) {
            nodes.remove(node);
        }
        return found;
    }

    /** How many owners are known in open files. */
    synchronized int size() {
        return known;
    }
}
