package io.github.bickfordfs.examples;

import io.github.bickfordfs.Attr;
import io.github.bickfordfs.Attributes;
import io.github.bickfordfs.Created;
import io.github.bickfordfs.Entry;
import io.github.bickfordfs.Errno;
import io.github.bickfordfs.FuseException;
import io.github.bickfordfs.InodeFileSystem;
import io.github.bickfordfs.Listing;
import io.github.bickfordfs.MountOptions;
import io.github.bickfordfs.Opened;
import io.github.bickfordfs.Program;
import io.github.bickfordfs.Request;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Files in memory, over inodes: {@code MemoryFs MOUNTPOINT}. One lock guards all of it. Data take at most half of the heap:
 * without memory the virtual machine could not serve on.
 */
public final class MemoryFs implements InodeFileSystem {
    private static final int RENAME_NOREPLACE = 1;
    private static final int NAME_MAX = 255;
    private static final int S_ISGID = 02000;
    /** A name is bytes, and need not be UTF-8: here each char is one of them. */
    private static final Charset BYTES = StandardCharsets.ISO_8859_1;
    private static final int FILE_MAX = 1 << 30;

    private static final class Node {
        private Attr attr;
        private byte[] data = {};
        private byte[] target;
        private Map<String, Node> names;
        private Node parent;
        private long lookups;

        private Node(Attr attr) {
            this.attr = attr;
            if (attr.isDirectory()) {
                names = new TreeMap<>();
            }
        }

        private void changed() {
            Instant now = Instant.now();
            attr = attr.withTimes(attr.accessed(), now, now);
        }

        private void inodeChanged() {
            attr = attr.withTimes(attr.accessed(), attr.modified(), Instant.now());
        }
    }

    private final Map<Long, Node> nodes = new HashMap<>();
    private final Map<Long, List<Map.Entry<String, Node>>> listings = new HashMap<>();
    private long next = ROOT;
    private long nextListing;
    private final long room = Runtime.getRuntime().maxMemory() / 2;
    private long used;

    /** An empty file system, of the superuser. */
    public MemoryFs() {
        this(0, 0);
    }

    private MemoryFs(int uid, int gid) {
        Node root = make(Attr.S_IFDIR | 0755, uid, gid);
        root.parent = root;
    }

    /** An empty file system of whom a directory belongs to. */
    public static MemoryFs ownedAs(Path directory) throws IOException {
        return new MemoryFs((int) Files.getAttribute(directory, "unix:uid"),
                (int) Files.getAttribute(directory, "unix:gid"));
    }

    private Node make(int mode, int uid, int gid) {
        Instant now = Instant.now();
        boolean directory = (mode & Attr.S_IFMT) == Attr.S_IFDIR;
        Node node = new Node(new Attr(next, mode, directory ? 2 : 1, uid, gid, 0, 0, 0, now, now, now));
        nodes.put(next++, node);
        return node;
    }

    private Node node(long id) throws FuseException {
        Node node = nodes.get(id);
        if (node == null) {
            throw new FuseException(Errno.ESTALE);
        }
        return node;
    }

    private static String checked(byte[] name) throws FuseException {
        if (name.length > NAME_MAX) {
            throw new FuseException(Errno.ENAMETOOLONG);
        }
        return new String(name, BYTES);
    }

    private static String name(Request request) throws FuseException {
        return checked(request.nameBytes());
    }

    private Node child(Node directory, String name) throws FuseException {
        Node child = directory.names.get(name);
        if (child == null) {
            throw new FuseException(Errno.ENOENT);
        }
        return child;
    }

    private static Entry entry(Node node) {
        node.lookups++;
        return Entry.of(node.attr.ino(), node.attr, Entry.SECOND);
    }

    private void put(Node directory, String name, Node node) throws FuseException {
        if (directory.names.putIfAbsent(name, node) != null) {
            throw new FuseException(Errno.EEXIST);
        }
        adopted(directory, node);
    }

    private static void adopted(Node directory, Node node) {
        directory.changed();
        if (node.attr.isDirectory()) {
            node.parent = directory;
            directory.attr = directory.attr.withLinks(directory.attr.links() + 1);
        }
    }

    private void drop(Node directory, String name, Node node) {
        directory.names.remove(name);
        directory.changed();
        if (node.attr.isDirectory()) {
            directory.attr = directory.attr.withLinks(directory.attr.links() - 1);
            node.attr = node.attr.withLinks(0);
        } else {
            node.attr = node.attr.withLinks(node.attr.links() - 1);
        }
        node.inodeChanged();
        reap(node);
    }

    private void reap(Node node) {
        if (node.attr.links() == 0 && node.lookups <= 0 && nodes.remove(node.attr.ino()) != null) {
            used -= node.data.length;
        }
    }

    /** Gives a file another array. While it is copied there are both. */
    private void resize(Node node, int length) throws FuseException {
        if (length > node.data.length && used + length > room) {
            throw new FuseException(Errno.ENOSPC);
        }
        byte[] data;
        try {
            data = Arrays.copyOf(node.data, length);
        } catch (OutOfMemoryError e) {
            throw new FuseException(Errno.ENOSPC);
        }
        used += length - node.data.length;
        node.data = data;
    }

    private void grow(Node node, int end) throws FuseException {
        int ample = (int) Math.min(FILE_MAX, node.data.length * 2L);
        resize(node, ample > end && used + ample <= room ? ample : end);
    }

    private Node make(Request request, int mode) throws FuseException {
        Node directory = node(request.node());
        int setgid = directory.attr.mode() & S_ISGID;
        boolean isDirectory = (mode & Attr.S_IFMT) == Attr.S_IFDIR;
        Node node = make(isDirectory ? mode | setgid : mode, request.uid(),
                setgid != 0 ? directory.attr.gid() : request.gid());
        try {
            put(directory, name(request), node);
        } catch (FuseException e) {
            nodes.remove(node.attr.ino());
            throw e;
        }
        return node;
    }

    @Override
    public synchronized void forget(long id, long count) {
        Node node = nodes.get(id);
        if (node != null && id != ROOT) {
            node.lookups -= count;
            reap(node);
        }
    }

    @Override
    public synchronized Entry lookup(Request request) throws IOException {
        return entry(child(node(request.node()), name(request)));
    }

    @Override
    public synchronized Attributes getattr(Request request) throws IOException {
        return new Attributes(node(request.node()).attr, Entry.SECOND);
    }

    @Override
    public synchronized Attributes setattr(Request request) throws IOException {
        Node node = node(request.node());
        Attr attr = node.attr;
        if (request.hasSize()) {
            resize(node, size(request.size()));
            attr = attr.withSize(request.size());
        }
        if (request.hasMode()) {
            attr = attr.withPermissions(request.mode());
        }
        attr = attr.withOwner(request.hasNewUid() ? request.newUid() : attr.uid(),
                request.hasNewGid() ? request.newGid() : attr.gid());
        Instant now = Instant.now();
        Instant accessed = request.newAccessed();
        Instant modified = request.newModified();
        Instant same = request.hasSize() ? now : attr.modified();
        node.attr = attr.withTimes(
                accessed == null ? attr.accessed() : accessed, modified == null ? same : modified, now);
        return new Attributes(node.attr, Entry.SECOND);
    }

    private static int size(long size) throws FuseException {
        if (size > FILE_MAX) {
            throw new FuseException(Errno.EFBIG);
        }
        return (int) size;
    }

    @Override
    public synchronized Entry mkdir(Request request) throws IOException {
        return entry(make(request, Attr.S_IFDIR | request.mode() & 07777));
    }

    @Override
    public synchronized Entry mknod(Request request) throws IOException {
        Node node = make(request, request.mode());
        node.attr = node.attr.withDevice(request.rdev());
        return entry(node);
    }

    @Override
    public synchronized Created create(Request request) throws IOException {
        return new Created(entry(make(request, Attr.S_IFREG | request.mode() & 07777)), Opened.DEFAULT);
    }

    @Override
    public synchronized Entry symlink(Request request) throws IOException {
        Node node = make(request, Attr.S_IFLNK | 0777);
        node.target = request.otherNameBytes();
        node.attr = node.attr.withSize(node.target.length);
        return entry(node);
    }

    @Override
    public synchronized byte[] readlink(Request request) throws IOException {
        return node(request.node()).target;
    }

    @Override
    public synchronized Entry link(Request request) throws IOException {
        Node node = node(request.node());
        put(node(request.otherNode()), name(request), node);
        node.attr = node.attr.withLinks(node.attr.links() + 1);
        node.inodeChanged();
        return entry(node);
    }

    @Override
    public synchronized void unlink(Request request) throws IOException {
        Node directory = node(request.node());
        Node node = child(directory, name(request));
        if (node.attr.isDirectory()) {
            throw new FuseException(Errno.EISDIR);
        }
        drop(directory, name(request), node);
    }

    @Override
    public synchronized void rmdir(Request request) throws IOException {
        Node directory = node(request.node());
        Node node = child(directory, name(request));
        if (!node.attr.isDirectory()) {
            throw new FuseException(Errno.ENOTDIR);
        }
        if (!node.names.isEmpty()) {
            throw new FuseException(Errno.ENOTEMPTY);
        }
        drop(directory, name(request), node);
    }

    @Override
    public synchronized void rename(Request request) throws IOException {
        if ((request.flags() & ~RENAME_NOREPLACE) != 0) {
            throw new FuseException(Errno.EINVAL);
        }
        Node from = node(request.node());
        Node to = node(request.otherNode());
        Node moved = child(from, name(request));
        String newName = checked(request.otherNameBytes());
        Node there = to.names.get(newName);
        if (there == moved) {
            return;
        }
        if (there != null) {
            if ((request.flags() & RENAME_NOREPLACE) != 0) {
                throw new FuseException(Errno.EEXIST);
            }
            if (there.names != null && !there.names.isEmpty()) {
                throw new FuseException(Errno.ENOTEMPTY);
            }
            drop(to, newName, there);
        }
        from.names.remove(name(request));
        from.changed();
        if (moved.attr.isDirectory()) {
            from.attr = from.attr.withLinks(from.attr.links() - 1);
        }
        to.names.put(newName, moved);
        adopted(to, moved);
        moved.inodeChanged();
        request.changed(moved.attr.ino());
    }

    @Override
    public synchronized int read(Request request, MemorySegment into) throws IOException {
        Node node = node(request.node());
        long size = node.attr.size();
        int length = (int) Math.max(0, Math.min(into.byteSize(), size - request.offset()));
        MemorySegment.copy(MemorySegment.ofArray(node.data), Math.min(request.offset(), size), into, 0, length);
        return length;
    }

    @Override
    public synchronized int write(Request request) throws IOException {
        Node node = node(request.node());
        MemorySegment data = request.data();
        int end = size(request.offset() + data.byteSize());
        if (end > node.data.length) {
            grow(node, end);
        }
        MemorySegment.copy(data, 0, MemorySegment.ofArray(node.data), request.offset(), data.byteSize());
        node.attr = node.attr.withSize(Math.max(node.attr.size(), end));
        node.changed();
        return (int) data.byteSize();
    }

    @Override
    public synchronized Opened opendir(Request request) {
        return Opened.of(++nextListing);
    }

    private static List<Map.Entry<String, Node>> list(Node directory) {
        List<Map.Entry<String, Node>> listing = new ArrayList<>();
        listing.add(Map.entry(".", directory));
        listing.add(Map.entry("..", directory.parent));
        directory.names.forEach((name, node) -> listing.add(Map.entry(name, node)));
        return listing;
    }

    /** The names as they were when the listing began: offsets are positions in it. */
    @Override
    public synchronized void readdir(Request request, Listing listing) throws IOException {
        List<Map.Entry<String, Node>> names = listings.get(request.handle());
        if (names == null || request.offset() == 0) {
            names = list(node(request.node()));
            listings.put(request.handle(), names);
        }
        for (int i = (int) request.offset(); i < names.size(); i++) {
            Attr attr = names.get(i).getValue().attr;
            if (!listing.add(names.get(i).getKey().getBytes(BYTES), attr.ino(), attr.mode(), i + 1)) {
                return;
            }
        }
    }

    @Override
    public synchronized void releasedir(Request request) {
        listings.remove(request.handle());
    }

    /** The command. */
    public static void main(String[] args) {
        Program program = new Program("memory")
                .about("Files in memory, which are gone when it is unmounted")
                .options(MountOptions.DEFAULT.plus("default_permissions"));
        System.exit(program.inodes(args, given -> ownedAs(Path.of(given.mountpoint()))));
    }
}
