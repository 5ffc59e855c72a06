package io.github.bickfordfs;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Locale;

/** A {@link PathFileSystem} behind the callbacks: names, open files and paths are the library's. */
final class PathTarget extends AnsweringTarget {
    private static final int PERMISSIONS = 07777;
    /** Of a SETLK. */
    private static final int FLOCK = 1, WAIT = 2;

    private final PathFileSystem fs;
    private final PathOverrides overrides;

    PathTarget(PathFileSystem fs, boolean virtualThreads) {
        super(fs.getClass().getName(), virtualThreads);
        this.fs = fs;
        this.overrides = new PathOverrides(fs.getClass());
    }

    long operations() {
        return Operation.mask(overrides.operations()) | 1L << DESTROY;
    }

    /** Flags of INIT that are not to be in force. */
    long refused() {
        return overrides.refused();
    }

    /** What the file system says of itself comes first: the caller's options take its place. */
    MountOptions options(MountOptions options) {
        long valid = Math.max(0, fs.validity());
        String seconds = String.format(Locale.ROOT, "%d.%09d", valid / Entry.SECOND, valid % Entry.SECOND);
        return options.withOptions("entry_timeout=" + seconds + ",attr_timeout=" + seconds).plus(options.options());
    }

    @Override
    boolean answersOnReturn() {
        return true;
    }

    @Override
    void ended() {
        fs.destroy();
    }

    @Override
    int call(int operation, Call request) throws IOException {
        long answer = request.answer();
        switch (operation) {
            case 3 -> Answers.attr(answer, getattr(request));
            case 4 -> setattr(request);
            case 5 -> Answers.data(answer, fs.readlink(named(request)).getBytes(StandardCharsets.UTF_8));
            case 6 -> fs.symlink(named(request), request.otherName());
            case 8 -> fs.mknod(named(request), request.mode(), request.rdev());
            case 9 -> fs.mkdir(named(request), request.mode() & PERMISSIONS);
            case 10 -> fs.unlink(named(request));
            case 11 -> fs.rmdir(named(request));
            case 12 -> fs.rename(named(request), request.otherPath(), request.flags());
            case 13 -> link(request);
            case 14 -> Answers.opened(answer, fs.open(named(request), request.flags()));
            case 16 -> Answers.moved(answer, write(request), request.size());
            case 17 -> Answers.statfs(answer, fs.statfs(named(request)));
            case 18 -> release(request);
            case 20 -> fs.fsync(file(request), request.handle(), isDataOnly(request));
            case 21 -> fs.setxattr(named(request), request.name(), request.dataBytes(), request.flags());
            case 22 -> Answers.xattr(answer, request.size(), fs.getxattr(named(request), request.name()));
            case 23 -> Answers.xattr(answer, request.size(), listxattr(request));
            case 24 -> fs.removexattr(named(request), request.name());
            case 25 -> flush(request);
            case 27 -> Answers.opened(answer, fs.opendir(named(request)));
            case 29 -> fs.releasedir(directory(request), request.handle());
            case 30 -> fs.fsyncdir(directory(request), request.handle(), isDataOnly(request));
            case 31 -> Answers.lock(answer, getlk(request));
            case 32 -> setlk(request);
            case 34 -> fs.access(named(request), request.flags());
            case 35 -> Answers.opened(answer, fs.create(named(request), request.mode() & PERMISSIONS, request.flags()));
            case 37 -> Answers.count(answer, fs.bmap(named(request), (int) request.size(), request.offset()));
            case 40 -> Answers.count(answer, poll(request));
            case 43 -> fallocate(request);
            case 46 -> Answers.count(answer, lseek(request));
            case 47 -> Answers.moved(answer, copyFileRange(request), request.size());
            case 50 -> fs.syncfs();
            case 51 -> Answers.opened(answer, fs.tmpfile(named(request), request.mode() & PERMISSIONS, request.flags()));
            case 52 -> Answers.statx(answer, statx(request));
            case 15 -> read(request, answer);
            case 28 -> list(request);
            case 39 -> ioctl(request, answer);
            default -> {
                return Errno.ENOSYS;
            }
        }
        return 0;
    }

    /** The library's own answer where there is no path. */
    static FuseException nameless() {
        return new FuseException(Errno.ENOENT);
    }

    /** The path of what a method is about that knows files by their paths alone. */
    private static String named(Request request) throws FuseException {
        String path = request.path();
        if (path == null) {
            throw nameless();
        }
        return path;
    }

    /** The path of an open file: null where there is none, and a handle of the file system's own tells the file. */
    private String file(Request request) throws FuseException {
        return overrides.hasHandles ? request.path() : named(request);
    }

    /** As {@link #file}, of an open directory. */
    private String directory(Request request) throws FuseException {
        return overrides.hasDirectoryHandles ? request.path() : named(request);
    }

    /** Of something that may be an open file. */
    private String subject(Request request) throws FuseException {
        return request.hasHandle() ? file(request) : named(request);
    }

    private static boolean isDataOnly(Request request) {
        return (request.extraFlags() & 1) != 0;
    }

    private Attr getattr(Request request) throws IOException {
        String path = subject(request);
        return request.hasHandle() ? fs.getattr(path, request.handle()) : fs.getattr(path);
    }

    private Statx statx(Request request) throws IOException {
        Attributes attributes = new Attributes(getattr(request), 0);
        String path = subject(request);
        return new Statx(attributes, request.hasHandle() ? fs.born(path, request.handle()) : fs.born(path));
    }

    /** One change comes at a time. */
    private void setattr(Request request) throws IOException {
        String path = subject(request);
        boolean byHandle = request.hasHandle();
        long handle = request.handle();
        if (request.hasMode()) {
            int mode = request.mode() & PERMISSIONS;
            if (byHandle) {
                fs.chmod(path, handle, mode);
            } else {
                fs.chmod(path, mode);
            }
        } else if (request.hasNewUid() || request.hasNewGid()) {
            int uid = request.hasNewUid() ? request.newUid() : -1;
            int gid = request.hasNewGid() ? request.newGid() : -1;
            if (byHandle) {
                fs.chown(path, handle, uid, gid);
            } else {
                fs.chown(path, uid, gid);
            }
        } else if (request.hasSize()) {
            if (byHandle) {
                fs.truncate(path, handle, request.size());
            } else {
                fs.truncate(path, request.size());
            }
        } else {
            Instant accessed = request.newAccessed();
            Instant modified = request.newModified();
            if (byHandle) {
                fs.setTimes(path, handle, accessed, modified);
            } else {
                fs.setTimes(path, accessed, modified);
            }
        }
    }

    private void link(Request request) throws IOException {
        String path = subject(request);
        if (path == null) {
            fs.link(null, request.handle(), request.otherPath());
        } else {
            fs.link(path, request.otherPath());
        }
    }

    private void read(Request request, long answer) throws IOException {
        MemorySegment into = Answers.buffer(answer, request.arena());
        Answers.filled(answer, fs.read(file(request), request.handle(), into, request.offset()));
    }

    private long write(Request request) throws IOException {
        return fs.write(file(request), request.handle(), request.data(), request.offset());
    }

    /** Whether an open file can be told. One that cannot ends without a word. */
    private boolean isKnown(Request request) throws FuseException {
        return overrides.hasHandles || request.path() != null;
    }

    private void release(Request request) throws IOException {
        if (isKnown(request)) {
            fs.release(request.path(), request.handle());
        }
    }

    private void flush(Request request) throws IOException {
        if (isKnown(request)) {
            fs.flush(request.path(), request.handle());
        }
    }

    private Lock getlk(Request request) throws IOException {
        return fs.getlk(file(request), request.handle(), request.lockOwner(), request.lock());
    }

    private void setlk(Request request) throws IOException {
        boolean wait = (request.extraFlags() & WAIT) != 0;
        Lock lock = request.lock();
        if ((request.extraFlags() & FLOCK) != 0) {
            fs.flock(file(request), request.handle(), request.lockOwner(), lock.kind(), wait);
        } else {
            fs.setlk(file(request), request.handle(), request.lockOwner(), lock, wait);
        }
    }

    private byte[] listxattr(Request request) throws IOException {
        ByteArrayOutputStream names = new ByteArrayOutputStream();
        for (String name : fs.listxattr(named(request))) {
            names.writeBytes(name.getBytes(StandardCharsets.UTF_8));
            names.write(0);
        }
        return names.toByteArray();
    }

    private int poll(Request request) throws IOException {
        long waiter = request.hasWaiter() ? request.offset() : 0;
        return fs.poll(file(request), request.handle(), request.extraFlags(), waiter);
    }

    private void fallocate(Request request) throws IOException {
        fs.fallocate(file(request), request.handle(), request.flags(), request.offset(), request.size());
    }

    private long lseek(Request request) throws IOException {
        return fs.lseek(file(request), request.handle(), request.offset(), request.flags());
    }

    private long copyFileRange(Request request) throws IOException {
        String toPath = request.otherPath();
        if (toPath == null && !overrides.hasHandles) {
            throw nameless();
        }
        return fs.copyFileRange(file(request), request.handle(), request.offset(), toPath, request.otherHandle(),
                request.otherOffset(), request.size());
    }

    private void ioctl(Request request, long answer) throws IOException {
        MemorySegment output = Answers.zeroed(answer, request.arena());
        PathFileSystem.Ioctl ioctl = new PathFileSystem.Ioctl(
                request.extraFlags(), request.offset(), request.flags(), request.data(), output);
        boolean isDirectory = (ioctl.flags() & PathFileSystem.Ioctl.DIRECTORY) != 0;
        String path = isDirectory ? directory(request) : file(request);
        Answers.count(answer, fs.ioctl(path, request.handle(), ioctl));
        Answers.filled(answer, request.size());
    }

    private void list(Request request) throws IOException {
        PathNames names = new PathNames(request);
        for (PathFileSystem.Item item : fs.readdir(directory(request), request.handle())) {
            names.add(item);
        }
    }
}
