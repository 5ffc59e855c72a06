package io.github.bickfordfs;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/** The handles that are open of each node, for what the kernel asks without one when no name is left. */
final class OpenFiles {
    /** A handle. A file system may give one to several opens. Its fields are guarded by the table. */
    static final class OpenFile {
        private final long node;
        private final long handle;
        private int opens;
        private int borrowers;
        private int owed;

        private OpenFile(long node, long handle) {
            this.node = node;
            this.handle = handle;
        }

        long handle() {
            return handle;
        }
    }

    private final Map<Long, Map<Long, OpenFile>> nodes = new HashMap<>();

    /** A node was opened. */
    synchronized void opened(long node, long handle) {
        nodes.computeIfAbsent(node, _ -> new LinkedHashMap<>(2))
                .computeIfAbsent(handle, _ -> new OpenFile(node, handle))
                .opens++;
    }

    /** An open ended. Whether to release its handle now; else who borrows it will be told to. */
    synchronized boolean released(long node, long handle) {
        Map<Long, OpenFile> files = nodes.get(node);
        OpenFile file = files == null ? null : files.get(handle);
        if (file == null || file.opens == 0) {
            return true;
        }
        file.opens--;
        if (file.opens == 0 && file.borrowers > 0) {
            file.owed++;
            return false;
        }
        drop(file);
        return true;
    }

    /** Whether an open of a node has a handle. */
    synchronized boolean isOpen(long node, long handle) {
        OpenFile file = nodes.getOrDefault(node, Map.of()).get(handle);
        return file != null && file.opens > 0;
    }

    /** A handle of a node that stays open until it is given back; null where there is none. */
    synchronized OpenFile borrow(long node) {
        for (OpenFile file : nodes.getOrDefault(node, Map.of()).values()) {
            if (file.opens > 0) {
                file.borrowers++;
                return file;
            }
        }
        return null;
    }

    /** Gives a borrowed handle back; answers how often it is to be released now. */
    synchronized int giveBack(OpenFile file) {
        file.borrowers--;
        if (file.borrowers > 0) {
            return 0;
        }
        int owed = file.owed;
        file.owed = 0;
        drop(file);
        return owed;
    }

    private void drop(OpenFile file) {
        if (file.opens > 0 || file.borrowers > 0) {
            return;
        }
        Map<Long, OpenFile> files = nodes.get(file.node);
        if (files != null && files.remove(file.handle, file) && files.isEmpty()) {
            nodes.remove(file.node);
        }
    }

    /** How many nodes are open. */
    synchronized int size() {
        return nodes.size();
    }
}
