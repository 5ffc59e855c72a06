package io.github.bickfordfs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Files in memory with all operations over paths. What has data below an offset has a hole above. */
class PathOperationsFs extends KeptFs {
    /** Where data end and the hole begins. */
    static final long HOLE = 4096;
    static final long DIRECTORY_HANDLE = 0x7fff_ffff_ffffL;
    /** When all was made; what has no name a second later. */
    static final Instant BORN = Instant.ofEpochSecond(1_234_567_890);
    /** What an ioctl answers. */
    static final int CODE = 7;

    /** A lock and whose it is. */
    private record Held(long owner, Lock lock) {}

    final List<String> calls = Collections.synchronizedList(new ArrayList<>());
    final AtomicLong waiter = new AtomicLong();
    volatile int ready;
    private final Map<String, Attr> nodes = new ConcurrentHashMap<>();
    private final List<Held> records = new ArrayList<>();
    private final List<Held> files = new ArrayList<>();

    @Override
    public synchronized Attr getattr(String path) throws IOException {
        Attr attr = nodes.get(path);
        return attr != null ? attr : super.getattr(path);
    }

    @Override
    public Instant born(String path) {
        return BORN;
    }

    @Override
    public Instant born(String path, long handle) throws IOException {
        return path != null ? BORN : BORN.plusSeconds(1);
    }

    @Override
    public void mknod(String path, int mode, int rdev) {
        nodes.put(path, new Attr(0, mode, 1, 0, 0, rdev, 0, 0, Instant.EPOCH, Instant.EPOCH, Instant.EPOCH));
    }

    @Override
    public Opened opendir(String path) {
        calls.add("opendir " + path);
        return Opened.of(DIRECTORY_HANDLE);
    }

    private void at(String call, long handle) throws FuseException {
        if (handle != DIRECTORY_HANDLE) {
            throw new FuseException(Errno.EBADF);
        }
        calls.add(call);
    }

    @Override
    public List<Item> readdir(String path, long handle) throws IOException {
        at("readdir " + path, handle);
        return List.of(new Item("unknown", 0), Item.of("known", Attr.file(42, 0644, 13)));
    }

    @Override
    public void releasedir(String path, long handle) throws IOException {
        at("releasedir " + path, handle);
    }

    @Override
    public void fsyncdir(String path, long handle, boolean dataOnly) throws IOException {
        at("fsyncdir " + path + " " + dataOnly, handle);
    }

    @Override
    public void fallocate(String path, long handle, int mode, long offset, long length) throws IOException {
        if (mode != 0) {
            throw new FuseException(Errno.EOPNOTSUPP);
        }
        truncate(path, handle, offset + length);
    }

    @Override
    public long lseek(String path, long handle, long offset, int whence) throws IOException {
        long size = getattr(path, handle).size();
        if (offset >= size || (whence == Libc.SEEK_DATA && offset >= HOLE)) {
            throw new FuseException(Errno.ENXIO);
        }
        return whence == Libc.SEEK_DATA ? offset : Math.max(offset, Math.min(HOLE, size));
    }

    @Override
    public long copyFileRange(
            String path, long handle, long offset, String toPath, long toHandle, long toOffset, long length)
            throws IOException {
        calls.add("copy " + path + " to " + toPath);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment memory = arena.allocate(length);
            int read = read(path, handle, memory, offset);
            return write(toPath, toHandle, memory.asSlice(0, read), toOffset);
        }
    }

    @Override
    public int ioctl(String path, long handle, Ioctl ioctl) throws IOException {
        boolean isDirectory = (ioctl.flags() & Ioctl.DIRECTORY) != 0;
        if (isDirectory != (handle == DIRECTORY_HANDLE)) {
            throw new FuseException(Errno.EBADF);
        }
        for (long i = 0; i < ioctl.output().byteSize(); i++) {
            byte in = i < ioctl.input().byteSize() ? ioctl.input().get(ValueLayout.JAVA_BYTE, i) : 0;
            ioctl.output().set(ValueLayout.JAVA_BYTE, i, (byte) (in + path.length()));
        }
        return (ioctl.command() >> 8 & 0xff) == 'B' ? CODE : 0;
    }

    @Override
    public int poll(String path, long handle, int events, long waiter) {
        if (waiter != 0) {
            this.waiter.set(waiter);
        }
        return ready & events;
    }

    private static boolean collide(Held held, long owner, Lock lock) {
        boolean isApart = held.lock.end() < lock.start() || lock.end() < held.lock.start();
        return held.owner != owner && !isApart && (held.lock.kind() == Lock.WRITE || lock.kind() == Lock.WRITE);
    }

    private void take(List<Held> all, long owner, Lock lock, boolean wait) throws FuseException {
        synchronized (all) {
            while (lock.kind() != Lock.NONE && all.stream().anyMatch(held -> collide(held, owner, lock))) {
                if (!wait) {
                    throw new FuseException(Errno.EAGAIN);
                }
                calls.add("waiting");
                if (Request.current().interrupted()) {
                    calls.add("interrupted");
                    throw new FuseException(Errno.EINTR);
                }
                try {
                    all.wait(20);
                } catch (InterruptedException e) {
                    throw new FuseException(Errno.EINTR);
                }
            }
            all.removeIf(held -> held.owner == owner
                    && lock.start() <= held.lock.start() && held.lock.end() <= lock.end());
            if (lock.kind() != Lock.NONE) {
                all.add(new Held(owner, lock));
            }
            all.notifyAll();
        }
    }

    /** How many locks are held. */
    int locks() {
        synchronized (records) {
            synchronized (files) {
                return records.size() + files.size();
            }
        }
    }

    @Override
    public Lock getlk(String path, long handle, long owner, Lock lock) {
        synchronized (records) {
            return records.stream().filter(held -> collide(held, owner, lock)).map(Held::lock).findFirst()
                    .orElse(Lock.FREE);
        }
    }

    @Override
    public void setlk(String path, long handle, long owner, Lock lock, boolean wait) throws IOException {
        take(records, owner, lock, wait);
    }

    @Override
    public void flock(String path, long handle, long owner, int kind, boolean wait) throws IOException {
        take(files, owner, new Lock(0, Long.MAX_VALUE, kind, 0), wait);
    }

    @Override
    public void destroy() {
        boolean isServing = true;
        try {
            Request.current();
        } catch (IllegalStateException e) {
            isServing = false;
        }
        calls.add("destroy " + isServing);
    }
}
