package io.github.bickfordfs;

import io.github.bickfordfs.PathTree.Claim;
import io.github.bickfordfs.PathTree.Wanted;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** A {@link PathFileSystem} over inodes. */
final class PathAdapter implements InodeFileSystem {
    private static final System.Logger LOG = System.getLogger(PathAdapter.class.getPackageName());
    private static final String[] SETATTR = {"chmod", "chown", "truncate", "setTimes"};
    private static final String[] BY_HANDLE = {"getattr", "chmod", "chown", "truncate", "setTimes"};
    /** FUSE_UNKNOWN_INO: readdir(3) shows something, but not zero. */
    private static final long UNKNOWN_INO = 0xffff_ffffL;

    private final PathFileSystem fs;
    private final boolean setsTimes;
    private final boolean hasHandles;
    private final boolean releases;
    /** Whether a handle of an open file tells anything about it where there is no path. */
    private final boolean lends;
    private final PathTree tree = new PathTree();
    private final OpenFiles files = new OpenFiles();
    private final Map<Long, List<PathFileSystem.Item>> listings = new ConcurrentHashMap<>();
    private final AtomicLong nextListing = new AtomicLong();

    PathAdapter(PathFileSystem fs) {
        this.fs = fs;
        this.setsTimes = overrides("setTimes");
        this.hasHandles = overrides("open") || overrides("create");
        this.releases = overrides("release");
        this.lends = hasHandles && List.of(BY_HANDLE).stream().anyMatch(this::overridesByHandle);
    }

    @Override
    public Set<Operation> operations() {
        Set<Operation> operations = EnumSet.of(Operation.LOOKUP, Operation.GETATTR);
        for (Operation operation : Operation.values()) {
            if (overrides(operation.method())) {
                operations.add(operation);
            }
        }
        for (String name : SETATTR) {
            if (overrides(name)) {
                operations.add(Operation.SETATTR);
            }
        }
        if (operations.contains(Operation.READDIR)) {
            operations.add(Operation.OPENDIR);
            operations.add(Operation.RELEASEDIR);
        }
        if (lends) {
            operations.add(Operation.RELEASE);
        }
        return operations;
    }

    private boolean overrides(String name) {
        return Overrides.has(fs.getClass(), PathFileSystem.class, name, _ -> true);
    }

    private boolean overridesByHandle(String name) {
        // truncate(path, size) has a long there, too.
        int fewest = name.equals("truncate") ? 3 : 2;
        return Overrides.has(fs.getClass(), PathFileSystem.class, name, method ->
                method.getParameterCount() >= fewest && method.getParameterTypes()[1] == long.class);
    }

    /** The path of what a request is about, held until the claim is closed. */
    private Claim about(Request request) throws FuseException {
        return tree.claim(request::interrupted, Wanted.node(request.node()));
    }

    /** For open files: without a path where the name is gone and the handle tells the file; else that is ESTALE. */
    private Claim file(Request request) throws FuseException {
        Claim claim = about(request);
        if (claim.pathOrNull() == null && !hasHandles) {
            claim.close();
            throw new FuseException(Errno.ESTALE);
        }
        return claim;
    }

    /** The path of a name that is made or removed. */
    private Claim change(Request request) throws FuseException {
        return tree.claim(request::interrupted, changed(request));
    }

    private static Wanted changed(Request request) {
        return Wanted.change(request.node(), request.name());
    }

    private Entry entry(Wanted at, String path) throws IOException {
        Attr attr = fs.getattr(path);
        long node = tree.lookup(at.node(), at.name());
        return Entry.of(node, numbered(attr, node), fs.validity());
    }

    private static Attr numbered(Attr attr, long node) {
        return attr.ino() != 0 ? attr : new Attr(node, attr.mode(), attr.links(), attr.uid(), attr.gid(), attr.rdev(),
                attr.size(), attr.blocks(), attr.accessed(), attr.modified(), attr.changed());
    }

    @Override
    public void forget(long node, long count) {
        tree.forget(node, count);
    }

    @Override
    public Entry lookup(Request request) throws IOException {
        Wanted at = Wanted.name(request.node(), request.name());
        try (Claim claim = tree.claim(request::interrupted, at)) {
            return entry(at, claim.path());
        }
    }

    /** The file that attributes are about: by its path, its handle, or both. */
    private final class Subject implements AutoCloseable {
        private final Request request;
        private final Claim claim;
        private final OpenFiles.OpenFile borrowed;

        /** What comes without a handle borrows one where no name is left, until this is closed. */
        Subject(Request request) throws FuseException {
            this.request = request;
            this.claim = request.hasHandle() ? file(request) : about(request);
            boolean isDetached = lends && !request.hasHandle() && claim.pathOrNull() == null;
            borrowed = isDetached ? files.borrow(request.node()) : null;
        }

        boolean hasHandle() {
            return borrowed != null || request.hasHandle();
        }

        long handle() {
            return borrowed != null ? borrowed.handle() : request.handle();
        }

        String path() throws FuseException {
            return hasHandle() ? claim.pathOrNull() : claim.path();
        }

        Attributes attributes() throws IOException {
            Attr attr = hasHandle() ? fs.getattr(path(), handle()) : fs.getattr(path());
            return new Attributes(numbered(attr, request.node()), fs.validity());
        }

        void chmod(int mode) throws IOException {
            if (hasHandle()) {
                fs.chmod(path(), handle(), mode);
            } else {
                fs.chmod(path(), mode);
            }
        }

        void chown(int uid, int gid) throws IOException {
            if (hasHandle()) {
                fs.chown(path(), handle(), uid, gid);
            } else {
                fs.chown(path(), uid, gid);
            }
        }

        void truncate(long size) throws IOException {
            if (hasHandle()) {
                fs.truncate(path(), handle(), size);
            } else {
                fs.truncate(path(), size);
            }
        }

        void setTimes(Instant accessed, Instant modified) throws IOException {
            if (hasHandle()) {
                fs.setTimes(path(), handle(), accessed, modified);
            } else {
                fs.setTimes(path(), accessed, modified);
            }
        }

        /** Who closed the file did not wait for us: what is owed to the file system is ours to do. */
        @Override
        public void close() {
            claim.close();
            if (borrowed != null) {
                for (int owed = files.giveBack(borrowed); owed > 0; owed--) {
                    releaseQuietly(null, borrowed.handle());
                }
            }
        }
    }

    @Override
    public Attributes getattr(Request request) throws IOException {
        try (Subject file = new Subject(request)) {
            return file.attributes();
        }
    }

    @Override
    public Attributes setattr(Request request) throws IOException {
        try (Subject file = new Subject(request)) {
            if (request.hasMode()) {
                file.chmod(request.mode() & 07777);
            }
            if (request.hasNewUid() || request.hasNewGid()) {
                file.chown(request.hasNewUid() ? request.newUid() : -1, request.hasNewGid() ? request.newGid() : -1);
            }
            if (request.hasSize()) {
                file.truncate(request.size());
            }
            Instant accessed = request.newAccessed();
            Instant modified = request.newModified();
            if ((accessed != null || modified != null) && (setsTimes || !request.hasSize())) {
                file.setTimes(accessed, modified);
            }
            return file.attributes();
        }
    }

    @Override
    public byte[] readlink(Request request) throws IOException {
        try (Claim claim = about(request)) {
            return fs.readlink(claim.path()).getBytes(StandardCharsets.UTF_8);
        }
    }

    @Override
    public Entry symlink(Request request) throws IOException {
        try (Claim claim = change(request)) {
            fs.symlink(claim.path(), request.otherName());
            return entry(changed(request), claim.path());
        }
    }

    @Override
    public Entry mkdir(Request request) throws IOException {
        try (Claim claim = change(request)) {
            fs.mkdir(claim.path(), request.mode() & 07777);
            return entry(changed(request), claim.path());
        }
    }

    @Override
    public void unlink(Request request) throws IOException {
        try (Claim claim = change(request)) {
            fs.unlink(claim.path());
            tree.remove(request.node(), request.name());
        }
    }

    @Override
    public void rmdir(Request request) throws IOException {
        try (Claim claim = change(request)) {
            fs.rmdir(claim.path());
            tree.remove(request.node(), request.name());
        }
    }

    @Override
    public void rename(Request request) throws IOException {
        Wanted from = changed(request);
        Wanted to = Wanted.change(request.otherNode(), request.otherName());
        try (Claim claim = tree.claim(request::interrupted, from, to)) {
            fs.rename(claim.path(), claim.secondPath(), request.flags());
            if ((request.flags() & 2) != 0) {
                tree.exchange(from.node(), from.name(), to.node(), to.name());
            } else {
                tree.rename(from.node(), from.name(), to.node(), to.name());
            }
        }
    }

    @Override
    public Entry link(Request request) throws IOException {
        Wanted to = Wanted.change(request.otherNode(), request.name());
        try (Claim claim = tree.claim(request::interrupted, Wanted.node(request.node()), to)) {
            fs.link(claim.path(), claim.secondPath());
            return entry(to, claim.secondPath());
        }
    }

    @Override
    public Opened open(Request request) throws IOException {
        try (Claim claim = about(request)) {
            long handle = fs.open(claim.path(), request.flags());
            opened(request.node(), handle);
            return Opened.of(handle);
        }
    }

    private void opened(long node, long handle) {
        if (lends) {
            files.opened(node, handle);
        }
    }

    @Override
    public Created create(Request request) throws IOException {
        try (Claim claim = change(request)) {
            long handle = fs.create(claim.path(), request.mode() & 07777, request.flags());
            Entry entry;
            try {
                entry = entry(changed(request), claim.path());
            } catch (IOException | RuntimeException | Error e) {
                // The kernel does not hear of the handle, and will not release it.
                releaseQuietly(claim.path(), handle);
                throw e;
            }
            opened(entry.node(), handle);
            return new Created(entry, Opened.of(handle));
        }
    }

    /** Where the caller waits for the answer to something else. */
    private void releaseQuietly(String path, long handle) {
        try {
            fs.release(path, handle);
        } catch (IOException | RuntimeException e) {
            if (Errno.of(e) != Errno.ENOSYS) {
                LOG.log(System.Logger.Level.WARNING, "releasing " + (path == null ? "a removed file" : path), e);
            }
        }
    }

    @Override
    public int read(Request request, MemorySegment into) throws IOException {
        try (Claim claim = file(request)) {
            return fs.read(claim.pathOrNull(), request.handle(), into, request.offset());
        }
    }

    @Override
    public int write(Request request) throws IOException {
        try (Claim claim = file(request)) {
            return fs.write(claim.pathOrNull(), request.handle(), request.data(), request.offset());
        }
    }

    @Override
    public void release(Request request) throws IOException {
        boolean isLast = !lends || files.released(request.node(), request.handle());
        if (!isLast || !releases) {
            return;
        }
        // It comes once, also for callers that got a signal.
        try (Claim claim = tree.claim(() -> false, Wanted.node(request.node()))) {
            if (hasHandles || claim.pathOrNull() != null) {
                fs.release(claim.pathOrNull(), request.handle());
            }
        }
    }

    @Override
    public void flush(Request request) throws IOException {
        // As for release.
        try (Claim claim = tree.claim(() -> false, Wanted.node(request.node()))) {
            if (hasHandles || claim.pathOrNull() != null) {
                fs.flush(claim.pathOrNull(), request.handle());
            }
        }
    }

    @Override
    public void fsync(Request request) throws IOException {
        try (Claim claim = file(request)) {
            fs.fsync(claim.pathOrNull(), request.handle(), request.extraFlags() != 0);
        }
    }

    @Override
    public StatFs statfs(Request request) throws IOException {
        try (Claim claim = about(request)) {
            return fs.statfs(claim.pathOrNull() == null ? "/" : claim.pathOrNull());
        }
    }

    @Override
    public byte[] getxattr(Request request) throws IOException {
        try (Claim claim = about(request)) {
            return fs.getxattr(claim.path(), request.name());
        }
    }

    @Override
    public void setxattr(Request request) throws IOException {
        try (Claim claim = about(request)) {
            fs.setxattr(claim.path(), request.name(), request.dataBytes(), request.flags());
        }
    }

    @Override
    public byte[] listxattr(Request request) throws IOException {
        ByteArrayOutputStream names = new ByteArrayOutputStream();
        try (Claim claim = about(request)) {
            for (String name : fs.listxattr(claim.path())) {
                names.writeBytes(name.getBytes(StandardCharsets.UTF_8));
                names.write(0);
            }
        }
        return names.toByteArray();
    }

    @Override
    public void removexattr(Request request) throws IOException {
        try (Claim claim = about(request)) {
            fs.removexattr(claim.path(), request.name());
        }
    }

    @Override
    public void access(Request request) throws IOException {
        try (Claim claim = about(request)) {
            fs.access(claim.path(), request.flags());
        }
    }

    @Override
    public Opened opendir(Request request) {
        return Opened.of(nextListing.incrementAndGet());
    }

    /** The names as they were when the listing began: offsets are positions in it. */
    @Override
    public void readdir(Request request, Listing listing) throws IOException {
        List<PathFileSystem.Item> items = listings.get(request.handle());
        if (items == null || request.offset() == 0) {
            try (Claim claim = about(request)) {
                items = List.copyOf(fs.readdir(claim.path()));
            }
            listings.put(request.handle(), items);
        }
        for (long i = request.offset(); i < items.size() + 2; i++) {
            String name = i == 0 ? "." : i == 1 ? ".." : items.get((int) i - 2).name();
            int mode = i < 2 ? Attr.S_IFDIR : items.get((int) i - 2).mode();
            if (!listing.add(name, UNKNOWN_INO, mode, i + 1)) {
                break;
            }
        }
    }

    @Override
    public void releasedir(Request request) {
        listings.remove(request.handle());
    }
}
