package io.github.bickfordfs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;

/** An {@link InodeFileSystem} behind the callbacks. */
final class InodeTarget extends AnsweringTarget {
    private final InodeFileSystem fs;

    /** {@code name} is that of the user's class. */
    InodeTarget(InodeFileSystem fs, String name, boolean virtualThreads) {
        super(name, virtualThreads);
        this.fs = fs;
    }

    long operations() {
        long mask = Operation.mask(fs.operations()) | 1L << DESTROY;
        return Overrides.has(fs.getClass(), InodeFileSystem.class, "forget", _ -> true) ? mask | 1L << FORGET : mask;
    }

    @Override
    void ended() {
        fs.destroy();
    }

    @Override
    int call(int operation, Call request) throws IOException {
        long answer = request.answer();
        switch (operation) {
            case FORGET -> forget(request);
            case 1 -> entry(request, answer, fs.lookup(request));
            case 3 -> attributes(request, answer, fs.getattr(request));
            case 4 -> attributes(request, answer, fs.setattr(request));
            case 5 -> target(request, answer, fs.readlink(request));
            case 6 -> entry(request, answer, fs.symlink(request));
            case 8 -> entry(request, answer, fs.mknod(request));
            case 9 -> entry(request, answer, fs.mkdir(request));
            case 10 -> fs.unlink(request);
            case 11 -> fs.rmdir(request);
            case 12 -> fs.rename(request);
            case 13 -> entry(request, answer, fs.link(request));
            case 14 -> opened(request, answer, fs.open(request));
            case 16 -> moved(request, answer, fs.write(request));
            case 17 -> statfs(request, answer, fs.statfs(request));
            case 18 -> fs.release(request);
            case 20 -> fs.fsync(request);
            case 21 -> fs.setxattr(request);
            case 22 -> put(request, answer, request.size(), fs.getxattr(request));
            case 23 -> put(request, answer, request.size(), fs.listxattr(request));
            case 24 -> fs.removexattr(request);
            case 25 -> fs.flush(request);
            case 27 -> opened(request, answer, fs.opendir(request));
            case 29 -> fs.releasedir(request);
            case 30 -> fs.fsyncdir(request);
            case 31 -> lock(request, answer, fs.getlk(request));
            case 32 -> fs.setlk(request);
            case 34 -> fs.access(request);
            case 35 -> created(request, answer, fs.create(request));
            case 37 -> count(request, answer, fs.bmap(request));
            case 40 -> count(request, answer, fs.poll(request));
            case 43 -> fs.fallocate(request);
            case 46 -> count(request, answer, fs.lseek(request));
            case 47 -> moved(request, answer, fs.copyFileRange(request));
            case 50 -> fs.syncfs(request);
            case 51 -> created(request, answer, fs.tmpfile(request));
            case 52 -> statx(request, answer, fs.statx(request));
            case 15 -> read(request, answer);
            case 28 -> list(request, answer, false);
            case 39 -> ioctl(request, answer);
            case 44 -> list(request, answer, true);
            default -> {
                return Errno.ENOSYS;
            }
        }
        return request.isDeferred() ? Layout.LATER : 0;
    }

    private void forget(Request request) {
        var pairs = request.data();
        for (long i = 0; i < request.size(); i++) {
            long at = pairs.address() + i * 16;
            try {
                fs.forget(Layout.getLong(at), Layout.getLong(at + 8));
            } catch (Throwable e) {
                // The others are given back only here.
                failed(FORGET, e);
            }
        }
    }

    private void read(Request request, long answer) throws IOException {
        int length = fs.read(request, Answers.buffer(answer, request.arena()));
        if (!request.isDeferred()) {
            Answers.filled(answer, length);
        }
    }

    private void list(Request request, long answer, boolean plus) throws IOException {
        Listing listing = new Listing(Answers.buffer(answer, request.arena()), plus);
        if (plus) {
            fs.readdirplus(request, listing);
        } else {
            fs.readdir(request, listing);
        }
        if (!request.isDeferred()) {
            Answers.filled(answer, listing.used());
        }
    }

    private void ioctl(Request request, long answer) throws IOException {
        MemorySegment output = Answers.zeroed(answer, request.arena());
        int result = fs.ioctl(request, output);
        if (!request.isDeferred()) {
            Answers.count(answer, result);
            Answers.filled(answer, request.size());
        }
    }

    private static void target(Request request, long answer, byte[] target) throws IOException {
        if (!request.isDeferred()) {
            Answers.data(answer, target);
        }
    }

    private static void put(Request request, long answer, long room, byte[] bytes) throws IOException {
        if (!request.isDeferred()) {
            Answers.xattr(answer, room, bytes);
        }
    }

    private static void count(Request request, long answer, long count) {
        if (!request.isDeferred()) {
            Answers.count(answer, count);
        }
    }

    private static void moved(Request request, long answer, long count) throws IOException {
        if (!request.isDeferred()) {
            Answers.moved(answer, count, request.size());
        }
    }

    private static void entry(Request request, long answer, Entry entry) {
        if (!request.isDeferred()) {
            Answers.entry(answer, entry);
        }
    }

    private static void attributes(Request request, long answer, Attributes attributes) {
        if (!request.isDeferred()) {
            Answers.attributes(answer, attributes);
        }
    }

    private static void statx(Request request, long answer, Statx statx) {
        if (!request.isDeferred()) {
            Answers.statx(answer, statx);
        }
    }

    private static void opened(Request request, long answer, Opened opened) {
        if (!request.isDeferred()) {
            Answers.opened(answer, opened);
        }
    }

    private static void created(Request request, long answer, Created created) {
        if (!request.isDeferred()) {
            Answers.created(answer, created);
        }
    }

    private static void statfs(Request request, long answer, StatFs statfs) {
        if (!request.isDeferred()) {
            Answers.statfs(answer, statfs);
        }
    }

    private static void lock(Request request, long answer, Lock lock) {
        if (!request.isDeferred()) {
            Answers.lock(answer, lock);
        }
    }
}
