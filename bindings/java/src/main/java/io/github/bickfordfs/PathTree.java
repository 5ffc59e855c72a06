package io.github.bickfordfs;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * The nodes that the kernel knows of a file system over paths, and where they are.
 *
 * <p>An operation claims its paths while it runs: each name of them shared, and exclusively what it makes, renames or
 * removes. It takes all of them together or waits, first come first served, so that no two wait for each other.
 */
final class PathTree {
    /** How long who waits does not hear of a signal. */
    private static final long DEAF_NANOS = 50_000_000;

    /** A node. Its fields are guarded by the tree. */
    private static final class Node {
        private final long id;
        private Node parent;
        private String name;
        private long lookups;
        private int shared;
        private int exclusive;
        /** Immutable while it is empty, as most nodes are files. */
        private Map<String, Node> children = Map.of();

        Node(long id, Node parent, String name) {
            this.id = id;
            this.parent = parent;
            this.name = name;
        }

        private boolean isIdle() {
            return lookups <= 0 && children.isEmpty() && shared == 0 && exclusive == 0;
        }
    }

    /** What an operation needs: a node, wherever it is, or a name in a directory, which it may be going to change. */
    record Wanted(long node, String name, boolean changes) {
        static Wanted node(long node) {
            return new Wanted(node, null, false);
        }

        static Wanted name(long directory, String name) {
            return new Wanted(directory, name, false);
        }

        static Wanted change(long directory, String name) {
            return new Wanted(directory, name, true);
        }
    }

    /** What an operation holds until it is closed, or waits for: guarded by the tree until it is settled. */
    final class Claim implements AutoCloseable {
        private final Thread thread = Thread.currentThread();
        private final Wanted[] wanted;
        /** The ends of what is shared; null where no name is left. */
        private final Node[] ends;
        /** What is held exclusively, or null. */
        private final Node[] changed;
        private final String[] paths;
        private FuseException failure;
        private volatile boolean settled;

        private Claim(Wanted[] wanted) {
            this.wanted = wanted;
            this.ends = new Node[wanted.length];
            this.changed = new Node[wanted.length];
            this.paths = new String[wanted.length];
        }

        /** The first path; ESTALE where its name was removed. */
        String path() throws FuseException {
            if (paths[0] == null) {
                throw new FuseException(Errno.ESTALE);
            }
            return paths[0];
        }

        /** The first path; null where its name was removed. */
        String pathOrNull() {
            return paths[0];
        }

        /** The second path; null where its name was removed. */
        String secondPath() {
            return paths[1];
        }

        private void settle() {
            settled = true;
            LockSupport.unpark(thread);
        }

        @Override
        public void close() {
            giveBack(this);
        }
    }

    private final Map<Long, Node> nodes = new HashMap<>();
    /** In the order in which they came; never more than there are requests. */
    private final Set<Claim> waiting = new LinkedHashSet<>();
    private long next = InodeFileSystem.ROOT;

    PathTree() {
        nodes.put(next, new Node(next, null, ""));
    }

    private Node node(long id) throws FuseException {
        Node node = nodes.get(id);
        if (node == null) {
            throw new FuseException(Errno.ESTALE);
        }
        return node;
    }

    private static String path(Node node) throws FuseException {
        StringBuilder path = new StringBuilder();
        Node at = node;
        while (at.parent != null) {
            path.insert(0, at.name).insert(0, '/');
            at = at.parent;
        }
        if (at.id != InodeFileSystem.ROOT) {
            throw new FuseException(Errno.ESTALE);
        }
        return path.isEmpty() ? "/" : path.toString();
    }

    /** Where a node is; ESTALE where its name was removed. */
    synchronized String path(long id) throws FuseException {
        return path(node(id));
    }

    /** Where a node is; null where its name was removed. Where it was, there may be another by now. */
    synchronized String pathOrNull(long id) throws FuseException {
        Node node = node(id);
        for (Node at = node; at.id != InodeFileSystem.ROOT; at = at.parent) {
            if (at.parent == null) {
                return null;
            }
        }
        return path(node);
    }

    /**
     * Claims paths, to be closed when the operation has returned. What is a node has no path where its name was removed.
     *
     * @param interrupted whether the caller does not want to wait any longer; that is EINTR
     */
    Claim claim(BooleanSupplier interrupted, Wanted... wanted) throws FuseException {
        Claim claim = new Claim(wanted);
        synchronized (this) {
            waiting.add(claim);
            advance();
        }
        while (!claim.settled) {
            if (interrupted.getAsBoolean() && withdraw(claim)) {
                throw new FuseException(Errno.EINTR);
            }
            LockSupport.parkNanos(claim, DEAF_NANOS);
        }
        if (claim.failure != null) {
            throw claim.failure;
        }
        return claim;
    }

    /** Lets go on who waits for nothing that is claimed, or wanted by one before. Names may have changed meanwhile. */
    private void advance() {
        List<Claim> blocked = new ArrayList<>(0);
        for (Iterator<Claim> all = waiting.iterator(); all.hasNext();) {
            Claim claim = all.next();
            try {
                resolve(claim);
            } catch (FuseException e) {
                claim.failure = e;
                all.remove();
                claim.settle();
                continue;
            }
            boolean isFree = isFree(claim);
            // Who is blocked keeps it from those behind until all are seen.
            mark(claim, 1);
            if (isFree) {
                all.remove();
                claim.settle();
            } else {
                blocked.add(claim);
            }
        }
        blocked.forEach(claim -> mark(claim, -1));
    }

    private void resolve(Claim claim) throws FuseException {
        try {
            for (int i = 0; i < claim.wanted.length; i++) {
                Wanted wanted = claim.wanted[i];
                claim.changed[i] = null;
                claim.ends[i] = node(wanted.node);
                if (wanted.name == null) {
                    claim.paths[i] = pathOrNull(wanted.node);
                    claim.ends[i] = claim.paths[i] == null ? null : claim.ends[i];
                    continue;
                }
                String directory = path(wanted.node);
                claim.paths[i] = directory.length() == 1 ? "/" + wanted.name : directory + "/" + wanted.name;
                Node child = child(claim.ends[i], wanted.name);
                if (wanted.changes) {
                    claim.changed[i] = child;
                } else {
                    claim.ends[i] = child;
                }
            }
            for (Node end : claim.ends) {
                refuseWithin(claim.changed, end);
            }
        } catch (FuseException e) {
            dropIdle(claim);
            throw e;
        }
    }

    /** A directory into itself would wait for itself. */
    private static void refuseWithin(Node[] changed, Node end) throws FuseException {
        for (Node at = end; at != null; at = at.parent) {
            for (Node node : changed) {
                if (node == at) {
                    throw new FuseException(Errno.EINVAL);
                }
            }
        }
    }

    private static boolean isFree(Claim claim) {
        for (int i = 0; i < claim.wanted.length; i++) {
            for (Node at = claim.ends[i]; at != null; at = at.parent) {
                if (at.exclusive > 0) {
                    return false;
                }
            }
            Node changed = claim.changed[i];
            if (changed != null && (changed.shared > 0 || changed.exclusive > 0)) {
                return false;
            }
        }
        return true;
    }

    /** The parents of what is shared stay the same while it is. */
    private void mark(Claim claim, int by) {
        for (int i = 0; i < claim.wanted.length; i++) {
            for (Node at = claim.ends[i]; at != null; at = at.parent) {
                at.shared += by;
            }
            if (claim.changed[i] != null) {
                claim.changed[i].exclusive += by;
            }
        }
        if (by < 0) {
            dropIdle(claim);
        }
    }

    /** Names that were only made to be claimed, and what was forgotten meanwhile. */
    private void dropIdle(Claim claim) {
        for (int i = 0; i < claim.wanted.length; i++) {
            drop(claim.changed[i]);
            drop(claim.ends[i]);
        }
    }

    private synchronized void giveBack(Claim claim) {
        mark(claim, -1);
        if (!waiting.isEmpty()) {
            advance();
        }
    }

    /** Whether one that waited does not any longer; else it has what it wants. */
    private synchronized boolean withdraw(Claim claim) {
        boolean waited = waiting.remove(claim);
        if (waited) {
            advance();
        }
        return waited;
    }

    /** How many wait for what others have claimed. */
    synchronized int waiting() {
        return waiting.size();
    }

    /** A lookup of a name: its node, made if need be. */
    synchronized long lookup(long parent, String name) throws FuseException {
        Node child = child(node(parent), name);
        child.lookups++;
        return child.id;
    }

    /** A lookup of a name that is not claimed; zero where somebody is changing it. */
    synchronized long lookupUnlessChanged(long parent, String name) throws FuseException {
        Node known = node(parent).children.get(name);
        return known != null && known.exclusive > 0 ? 0 : lookup(parent, name);
    }

    /** The node at a path; zero where none is known. */
    synchronized long find(String path) {
        Node at = nodes.get(InodeFileSystem.ROOT);
        for (String name : path.split("/")) {
            if (at != null && !name.isEmpty()) {
                at = at.children.get(name);
            }
        }
        return at == null ? 0 : at.id;
    }

    /** A node that has no name, looked up once. */
    synchronized long unnamed() {
        Node node = new Node(++next, null, "");
        node.lookups++;
        nodes.put(node.id, node);
        return node.id;
    }

    /** A node that has no name gets one. */
    synchronized void name(long id, long parent, String name) {
        Node node = nodes.get(id);
        Node directory = nodes.get(parent);
        if (node != null && directory != null && node.parent == null) {
            remove(parent, name);
            move(node, directory, name);
        }
    }

    private Node child(Node directory, String name) {
        Node child = directory.children.get(name);
        if (child == null) {
            child = new Node(++next, directory, name);
            nodes.put(child.id, child);
            adopt(directory, child);
        }
        return child;
    }

    private static void adopt(Node directory, Node child) {
        if (directory.children.isEmpty()) {
            directory.children = new HashMap<>();
        }
        directory.children.put(child.name, child);
    }

    /** A name was removed. */
    synchronized void remove(long parent, String name) {
        Node directory = nodes.get(parent);
        Node child = directory == null ? null : orphan(directory, name);
        if (child != null) {
            child.parent = null;
        }
    }

    /** Takes a name out of a directory; null where it is not known. */
    private static Node orphan(Node directory, String name) {
        return directory.children.isEmpty() ? null : directory.children.remove(name);
    }

    /** A name was renamed; what was there before is gone. */
    synchronized void rename(long parent, String name, long newParent, String newName) {
        Node from = nodes.get(parent);
        Node to = nodes.get(newParent);
        if (from == null || to == null) {
            return;
        }
        Node child = orphan(from, name);
        remove(newParent, newName);
        move(child, to, newName);
    }

    /** Two names were exchanged: the kernel goes on with both nodes. */
    synchronized void exchange(long parent, String name, long newParent, String newName) {
        Node from = nodes.get(parent);
        Node to = nodes.get(newParent);
        if (from == null || to == null) {
            return;
        }
        Node child = orphan(from, name);
        Node other = orphan(to, newName);
        move(child, to, newName);
        move(other, from, name);
    }

    private static void move(Node child, Node directory, String name) {
        if (child != null) {
            child.parent = directory;
            child.name = name;
            adopt(directory, child);
        }
    }

    /** The kernel gives lookups back. */
    synchronized void forget(long id, long count) {
        Node node = nodes.get(id);
        if (node == null || id == InodeFileSystem.ROOT) {
            return;
        }
        node.lookups -= count;
        drop(node);
    }

    /** Forgets a node that is not looked up, has no children and is not claimed, and its parents likewise. */
    private void drop(Node node) {
        Node at = node;
        while (at != null && at.id != InodeFileSystem.ROOT && at.isIdle()) {
            nodes.remove(at.id);
            Node parent = at.parent;
            if (parent != null) {
                parent.children.remove(at.name, at);
            }
            at = parent;
        }
    }

    /** How many nodes there are, with the root. */
    synchronized int size() {
        return nodes.size();
    }
}
