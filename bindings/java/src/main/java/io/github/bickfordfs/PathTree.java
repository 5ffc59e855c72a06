package io.github.bickfordfs;

import java.util.HashMap;
import java.util.Map;

/** The nodes that the kernel knows of a file system over paths, and where they are. */
final class PathTree {
    /** A node. Its fields are guarded by the tree. */
    private static final class Node {
        private final long id;
        private Node parent;
        private String name;
        private long lookups;
        /** Immutable while it is empty, as most nodes are files. */
        private Map<String, Node> children = Map.of();

        Node(long id, Node parent, String name) {
            this.id = id;
            this.parent = parent;
            this.name = name;
        }
    }

    private final Map<Long, Node> nodes = new HashMap<>();
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

    /** A name in a directory. */
    synchronized String path(long parent, String name) throws FuseException {
        String path = path(node(parent));
        return path.length() == 1 ? "/" + name : path + "/" + name;
    }

    /** A lookup of a name: its node, made if need be. */
    synchronized long lookup(long parent, String name) throws FuseException {
        Node directory = node(parent);
        Node child = directory.children.get(name);
        if (child == null) {
            child = new Node(++next, directory, name);
            nodes.put(child.id, child);
            adopt(directory, child);
        }
        child.lookups++;
        return child.id;
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

    /** Forgets a node that is not looked up and has no children, and its parents likewise. */
    private void drop(Node node) {
        Node at = node;
        while (at != null && at.id != InodeFileSystem.ROOT && at.lookups <= 0 && at.children.isEmpty()) {
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
