package io.github.bickfordfs;

import io.github.bickfordfs.PathTree.Claim;
import io.github.bickfordfs.PathTree.Wanted;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Set;

/** A {@link PathFileSystem} over inodes. */
final class PathAdapter implements InodeFileSystem {
    private static final int RENAME_EXCHANGE = 2;
    /** Of a SETLK. */
    private static final int WAIT = 2;

    private final PathFileSystem fs;
    private final PathOverrides overrides;
    private final PathTree tree = new PathTree();
    private final PathFiles files;
    private final PathDirectories directories;

    PathAdapter(PathFileSystem fs) {
        this.fs = fs;
        this.overrides = new PathOverrides(fs.getClass());
        this.files = new PathFiles(fs, tree, overrides);
        this.directories = new PathDirectories(fs, tree, overrides);
    }

    @Override
    public Set<Operation> operations() {
        return overrides.operations();
    }

    /** Flags of INIT that are not to be in force. */
    long refused() {
        return overrides.refused();
    }

    /** The names that the kernel knows. */
    PathTree tree() {
        return tree;
    }

    @Override
    public void destroy() {
        fs.destroy();
    }

    /** The path of what a request is about, held until the claim is closed. */
    private Claim about(Request request) throws FuseException {
        return tree.claim(request::interrupted, Wanted.node(request.node()));
    }

    /** For open files: without a path where the name is gone and the handle tells the file; else that is ESTALE. */
    private Claim file(Request request) throws FuseException {
        Claim claim = about(request);
        if (claim.pathOrNull() == null && !overrides.hasHandles) {
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

    static Attr numbered(Attr attr, long node) {
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
            boolean isDetached = overrides.lends && !request.hasHandle() && claim.pathOrNull() == null;
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

        Instant born() throws IOException {
            return hasHandle() ? fs.born(path(), handle()) : fs.born(path());
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

        @Override
        public void close() {
            claim.close();
            if (borrowed != null) {
                files.giveBack(request.node(), borrowed);
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
    public Statx statx(Request request) throws IOException {
        try (Subject file = new Subject(request)) {
            return new Statx(file.attributes(), file.born());
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
            if ((accessed != null || modified != null) && (overrides.setsTimes || !request.hasSize())) {
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
    public Entry mknod(Request request) throws IOException {
        try (Claim claim = change(request)) {
            fs.mknod(claim.path(), request.mode(), request.rdev());
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
            if ((request.flags() & RENAME_EXCHANGE) != 0) {
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
            if (claim.pathOrNull() == null) {
                name(request.node(), to, claim.secondPath());
            } else {
                fs.link(claim.path(), claim.secondPath());
            }
            return entry(to, claim.secondPath());
        }
    }

    /** Gives an open file without a name one, by whatever handle of it there is. */
    private void name(long node, Wanted to, String path) throws IOException {
        OpenFiles.OpenFile borrowed = overrides.lends ? files.borrow(node) : null;
        if (borrowed == null) {
            throw new FuseException(Errno.ESTALE);
        }
        try {
            fs.link(null, borrowed.handle(), path);
            tree.name(node, to.node(), to.name());
        } finally {
            files.giveBack(node, borrowed);
        }
    }

    @Override
    public Opened open(Request request) throws IOException {
        try (Claim claim = about(request)) {
            Opened opened = fs.open(claim.path(), request.flags());
            files.opened(request.node(), opened.handle());
            return opened;
        }
    }

    @Override
    public Created create(Request request) throws IOException {
        try (Claim claim = change(request)) {
            Opened opened = fs.create(claim.path(), request.mode() & 07777, request.flags());
            Entry entry;
            try {
                entry = entry(changed(request), claim.path());
            } catch (IOException | RuntimeException | Error e) {
                // The kernel does not hear of the handle, and will not release it.
                files.refuse(claim.path(), opened.handle());
                throw e;
            }
            files.opened(entry.node(), opened.handle());
            return new Created(entry, opened);
        }
    }

    @Override
    public Created tmpfile(Request request) throws IOException {
        try (Claim claim = about(request)) {
            Opened opened = fs.tmpfile(claim.path(), request.mode() & 07777, request.flags());
            Attr attr;
            try {
                attr = fs.getattr(null, opened.handle());
            } catch (IOException | RuntimeException | Error e) {
                // As for create.
                files.refuse(null, opened.handle());
                throw e;
            }
            long node = tree.unnamed();
            files.opened(node, opened.handle());
            return new Created(Entry.of(node, numbered(attr, node), fs.validity()), opened);
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
        files.release(request);
    }

    @Override
    public void flush(Request request) throws IOException {
        files.flush(request);
    }

    @Override
    public Lock getlk(Request request) throws IOException {
        try (Claim claim = file(request)) {
            return fs.getlk(claim.pathOrNull(), request.handle(), request.lockOwner(), request.lock());
        }
    }

    /** What may wait claims nothing. */
    @Override
    public void setlk(Request request) throws IOException {
        if ((request.extraFlags() & WAIT) != 0) {
            files.lock(request, null, true);
            return;
        }
        try (Claim claim = file(request)) {
            files.lock(request, claim.pathOrNull(), false);
        }
    }

    @Override
    public void fsync(Request request) throws IOException {
        try (Claim claim = file(request)) {
            fs.fsync(claim.pathOrNull(), request.handle(), (request.extraFlags() & 1) != 0);
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
    public long bmap(Request request) throws IOException {
        try (Claim claim = about(request)) {
            return fs.bmap(claim.path(), (int) request.size(), request.offset());
        }
    }

    @Override
    public void syncfs(Request request) throws IOException {
        fs.syncfs();
    }

    @Override
    public int poll(Request request) throws IOException {
        long waiter = request.hasWaiter() ? request.offset() : 0;
        try (Claim claim = file(request)) {
            return fs.poll(claim.pathOrNull(), request.handle(), request.extraFlags(), waiter);
        }
    }

    @Override
    public void fallocate(Request request) throws IOException {
        try (Claim claim = file(request)) {
            fs.fallocate(claim.pathOrNull(), request.handle(), request.flags(), request.offset(), request.size());
        }
    }

    @Override
    public long lseek(Request request) throws IOException {
        try (Claim claim = file(request)) {
            return fs.lseek(claim.pathOrNull(), request.handle(), request.offset(), request.flags());
        }
    }

    @Override
    public long copyFileRange(Request request) throws IOException {
        Wanted to = Wanted.node(request.otherNode());
        try (Claim claim = tree.claim(request::interrupted, Wanted.node(request.node()), to)) {
            boolean isNamed = claim.pathOrNull() != null && claim.secondPath() != null;
            if (!isNamed && !overrides.hasHandles) {
                throw new FuseException(Errno.ESTALE);
            }
            return fs.copyFileRange(claim.pathOrNull(), request.handle(), request.offset(), claim.secondPath(),
                    request.otherHandle(), request.otherOffset(), request.size());
        }
    }

    @Override
    public int ioctl(Request request, MemorySegment output) throws IOException {
        PathFileSystem.Ioctl ioctl = new PathFileSystem.Ioctl(
                request.extraFlags(), request.offset(), request.flags(), request.data(), output);
        if ((ioctl.flags() & PathFileSystem.Ioctl.DIRECTORY) != 0) {
            return directories.ioctl(request, ioctl);
        }
        try (Claim claim = file(request)) {
            return fs.ioctl(claim.pathOrNull(), request.handle(), ioctl);
        }
    }

    @Override
    public Opened opendir(Request request) throws IOException {
        return directories.open(request);
    }

    @Override
    public void readdir(Request request, Listing listing) throws IOException {
        directories.list(request, listing);
    }

    @Override
    public void readdirplus(Request request, Listing listing) throws IOException {
        directories.list(request, listing);
    }

    @Override
    public void releasedir(Request request) throws IOException {
        directories.release(request);
    }

    @Override
    public void fsyncdir(Request request) throws IOException {
        directories.sync(request);
    }
}
