package io.github.bickfordfs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.NoSuchFileException;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/** Files in memory, over paths: those without a name are kept as long as a handle of them is open. */
class KeptFs implements PathFileSystem {
    private static final class Contents {
        private Attr attr;
        private byte[] data = {};
    }

    private final Map<String, Contents> names = new HashMap<>();
    private final Map<Long, Contents> handles = new HashMap<>();
    private long next;

    private Contents at(String path) throws IOException {
        Contents contents = names.get(path);
        if (contents == null) {
            throw new NoSuchFileException(path);
        }
        return contents;
    }

    private Contents of(long handle) throws FuseException {
        Contents contents = handles.get(handle);
        if (contents == null) {
            throw new FuseException(Errno.EBADF);
        }
        return contents;
    }

    synchronized int open() {
        return handles.size();
    }

    @Override
    public long validity() {
        return 0;
    }

    @Override
    public synchronized Attr getattr(String path) throws IOException {
        return path.equals("/") ? Attr.directory(0, 0755) : at(path).attr;
    }

    @Override
    public synchronized Attr getattr(String path, long handle) throws IOException {
        return of(handle).attr;
    }

    private synchronized Opened opened(Contents contents) {
        handles.put(++next, contents);
        return Opened.of(next);
    }

    @Override
    public synchronized Opened open(String path, int flags) throws IOException {
        return opened(at(path));
    }

    @Override
    public synchronized Opened create(String path, int mode, int flags) {
        Contents contents = new Contents();
        contents.attr = Attr.file(0, mode, 0);
        names.put(path, contents);
        return opened(contents);
    }

    @Override
    public synchronized Opened tmpfile(String path, int mode, int flags) {
        Contents contents = new Contents();
        contents.attr = Attr.file(0, mode, 0).withLinks(0);
        return opened(contents);
    }

    @Override
    public synchronized void link(String path, long handle, String newPath) throws IOException {
        Contents contents = of(handle);
        contents.attr = contents.attr.withLinks(1);
        names.put(newPath, contents);
    }

    @Override
    public synchronized int read(String path, long handle, MemorySegment into, long offset) throws IOException {
        byte[] data = of(handle).data;
        int from = (int) Math.min(offset, data.length);
        int length = (int) Math.min(data.length - from, into.byteSize());
        MemorySegment.copy(data, from, into, ValueLayout.JAVA_BYTE, 0, length);
        return length;
    }

    @Override
    public synchronized int write(String path, long handle, MemorySegment data, long offset) throws IOException {
        Contents contents = of(handle);
        int length = (int) data.byteSize();
        resize(contents, Math.max(contents.data.length, offset + length));
        MemorySegment.copy(data, ValueLayout.JAVA_BYTE, 0, contents.data, (int) offset, length);
        return length;
    }

    private static void resize(Contents contents, long size) {
        contents.data = Arrays.copyOf(contents.data, (int) size);
        contents.attr = contents.attr.withSize(size);
    }

    @Override
    public synchronized void truncate(String path, long size) throws IOException {
        resize(at(path), size);
    }

    @Override
    public synchronized void truncate(String path, long handle, long size) throws IOException {
        resize(of(handle), size);
    }

    private static void permit(Contents contents, int mode) {
        contents.attr = contents.attr.withPermissions(mode);
    }

    @Override
    public synchronized void chmod(String path, int mode) throws IOException {
        permit(at(path), mode);
    }

    @Override
    public synchronized void chmod(String path, long handle, int mode) throws IOException {
        permit(of(handle), mode);
    }

    private static void own(Contents contents, int uid, int gid) {
        Attr attr = contents.attr;
        contents.attr = attr.withOwner(uid == -1 ? attr.uid() : uid, gid == -1 ? attr.gid() : gid);
    }

    @Override
    public synchronized void chown(String path, int uid, int gid) throws IOException {
        own(at(path), uid, gid);
    }

    @Override
    public synchronized void chown(String path, long handle, int uid, int gid) throws IOException {
        own(of(handle), uid, gid);
    }

    private static void date(Contents contents, Instant accessed, Instant modified) {
        Attr attr = contents.attr;
        contents.attr = attr.withTimes(accessed == null ? attr.accessed() : accessed,
                modified == null ? attr.modified() : modified, attr.changed());
    }

    @Override
    public synchronized void setTimes(String path, Instant accessed, Instant modified) throws IOException {
        date(at(path), accessed, modified);
    }

    @Override
    public synchronized void setTimes(String path, long handle, Instant accessed, Instant modified) throws IOException {
        date(of(handle), accessed, modified);
    }

    @Override
    public synchronized void unlink(String path) throws IOException {
        Contents contents = at(path);
        names.remove(path);
        contents.attr = contents.attr.withLinks(0);
    }

    @Override
    public synchronized void rename(String path, String newPath, int flags) throws IOException {
        if (flags != 0) {
            throw new FuseException(Errno.EINVAL);
        }
        Contents moved = at(path);
        names.remove(path);
        Contents replaced = names.put(newPath, moved);
        if (replaced != null) {
            replaced.attr = replaced.attr.withLinks(0);
        }
    }

    @Override
    public StatFs statfs(String path) throws IOException {
        if (!path.equals("/")) {
            at(path);
        }
        return new StatFs(4096, 1234, 0, 0, 0, 0, 255);
    }

    @Override
    public synchronized void release(String path, long handle) throws IOException {
        of(handle);
        handles.remove(handle);
    }
}
