package io.github.bickfordfs.examples;

import io.github.bickfordfs.Attr;
import io.github.bickfordfs.Errno;
import io.github.bickfordfs.FuseException;
import io.github.bickfordfs.MountOptions;
import io.github.bickfordfs.Opened;
import io.github.bickfordfs.PathFileSystem;
import io.github.bickfordfs.Program;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.ReadOnlyFileSystemException;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;
import java.time.Instant;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A directory of any java.nio.file.FileSystem, served as a mount: {@code NioFs ZIP-FILE MOUNTPOINT}. Zip files are served
 * to be read: who writes to a part of a file in one begins with an empty file, which nobody sees before it is closed.
 */
public final class NioFs implements PathFileSystem {
    private static final int O_ACCMODE = 3, O_WRONLY = 1;
    /** Larger files of a zip file are read from a copy on disk: its channels hold the whole file in memory. */
    private static final long IN_MEMORY_MAX = 64 << 20;

    private final Path root;
    private final boolean isZip;
    private final boolean writable;
    private final Map<Long, SeekableByteChannel> open = new ConcurrentHashMap<>();
    private final AtomicLong next = new AtomicLong();

    /** Serves what is below {@code root}. */
    public NioFs(Path root) {
        this.root = root;
        this.isZip = root.getFileSystem().provider().getScheme().equals("jar");
        this.writable = !isZip && !root.getFileSystem().isReadOnly();
    }

    private Path at(String path) {
        return path.equals("/") ? root : root.resolve(path.substring(1));
    }

    private Path change(String path) {
        if (!writable) {
            throw new ReadOnlyFileSystemException();
        }
        return at(path);
    }

    @Override
    public Attr getattr(String path) throws IOException {
        BasicFileAttributes a =
                Files.readAttributes(at(path), BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
        Instant modified = a.lastModifiedTime().toInstant();
        Attr attr;
        if (a.isDirectory()) {
            attr = Attr.directory(0, writable ? 0755 : 0555);
        } else if (a.isSymbolicLink()) {
            attr = new Attr(0, Attr.S_IFLNK | 0777, 1, 0, 0, 0, a.size(), 0, modified, modified, modified);
        } else {
            attr = Attr.file(0, writable ? 0644 : 0444, a.size());
        }
        return attr.withTimes(a.lastAccessTime().toInstant(), modified, modified);
    }

    @Override
    public Attr getattr(String path, long handle) throws IOException {
        return path == null ? Attr.file(0, 0644, channel(handle).size()).withLinks(0) : getattr(path);
    }

    @Override
    public List<Item> readdir(String path) throws IOException {
        List<Item> items = new ArrayList<>();
        try (DirectoryStream<Path> names = Files.newDirectoryStream(at(path))) {
            for (Path name : names) {
                String text = name.getFileName().toString();
                items.add(new Item(text.endsWith("/") ? text.substring(0, text.length() - 1) : text, 0));
            }
        }
        return items;
    }

    @Override
    public String readlink(String path) throws IOException {
        return Files.readSymbolicLink(at(path)).toString();
    }

    private Opened open(SeekableByteChannel channel) {
        long handle = next.incrementAndGet();
        open.put(handle, channel);
        return Opened.of(handle);
    }

    private SeekableByteChannel toRead(Path path) throws IOException {
        if (!isZip || Files.size(path) <= IN_MEMORY_MAX) {
            return Files.newByteChannel(path, StandardOpenOption.READ);
        }
        Path copy = Files.createTempFile("niofs", null);
        try {
            Files.copy(path, copy, StandardCopyOption.REPLACE_EXISTING);
            return Files.newByteChannel(copy, StandardOpenOption.READ, StandardOpenOption.DELETE_ON_CLOSE);
        } catch (IOException | RuntimeException | Error e) {
            Files.deleteIfExists(copy);
            throw e;
        }
    }

    @Override
    public Opened open(String path, int flags) throws IOException {
        int access = flags & O_ACCMODE;
        if (access == 0) {
            return open(toRead(at(path)));
        }
        Set<OpenOption> options = new HashSet<>(EnumSet.of(StandardOpenOption.WRITE));
        if (access != O_WRONLY) {
            options.add(StandardOpenOption.READ);
        }
        return open(Files.newByteChannel(change(path), options));
    }

    @Override
    public Opened create(String path, int mode, int flags) throws IOException {
        Set<OpenOption> options = new HashSet<>(EnumSet.of(StandardOpenOption.WRITE, StandardOpenOption.CREATE));
        if ((flags & O_ACCMODE) != O_WRONLY) {
            options.add(StandardOpenOption.READ);
        }
        return open(Files.newByteChannel(change(path), options));
    }

    private SeekableByteChannel channel(long handle) throws IOException {
        SeekableByteChannel channel = open.get(handle);
        if (channel == null) {
            throw new FuseException(Errno.EBADF);
        }
        return channel;
    }

    @Override
    public int read(String path, long handle, MemorySegment into, long offset) throws IOException {
        SeekableByteChannel channel = channel(handle);
        ByteBuffer buffer = into.asByteBuffer();
        synchronized (channel) {
            channel.position(offset);
            while (buffer.hasRemaining() && channel.read(buffer) >= 0) {
                // Until it is full, or the file ends.
            }
        }
        return buffer.position();
    }

    @Override
    public int write(String path, long handle, MemorySegment data, long offset) throws IOException {
        SeekableByteChannel channel = channel(handle);
        ByteBuffer buffer = data.asByteBuffer();
        synchronized (channel) {
            channel.position(offset);
            while (buffer.hasRemaining()) {
                channel.write(buffer);
            }
        }
        return buffer.position();
    }

    @Override
    public void release(String path, long handle) throws IOException {
        SeekableByteChannel channel = open.remove(handle);
        if (channel != null) {
            channel.close();
        }
    }

    @Override
    public void truncate(String path, long size) throws IOException {
        try (SeekableByteChannel channel = Files.newByteChannel(change(path), StandardOpenOption.WRITE)) {
            resize(channel, size);
        }
    }

    @Override
    public void truncate(String path, long handle, long size) throws IOException {
        SeekableByteChannel channel = channel(handle);
        synchronized (channel) {
            resize(channel, size);
        }
    }

    private static void resize(SeekableByteChannel channel, long size) throws IOException {
        if (size < channel.size()) {
            channel.truncate(size);
        } else if (size > channel.size()) {
            channel.position(size - 1).write(ByteBuffer.allocate(1));
        }
    }

    @Override
    public void setTimes(String path, Instant accessed, Instant modified) throws IOException {
        Files.getFileAttributeView(change(path), BasicFileAttributeView.class, LinkOption.NOFOLLOW_LINKS).setTimes(
                modified == null ? null : FileTime.from(modified), accessed == null ? null : FileTime.from(accessed),
                null);
    }

    @Override
    public void mkdir(String path, int mode) throws IOException {
        Files.createDirectory(change(path));
    }

    @Override
    public void unlink(String path) throws IOException {
        if (Files.isDirectory(at(path), LinkOption.NOFOLLOW_LINKS)) {
            throw new FuseException(Errno.EISDIR);
        }
        Files.delete(change(path));
    }

    @Override
    public void rmdir(String path) throws IOException {
        Files.delete(change(path));
    }

    @Override
    public void symlink(String path, String target) throws IOException {
        Files.createSymbolicLink(change(path), root.getFileSystem().getPath(target));
    }

    @Override
    public void rename(String path, String newPath, int flags) throws IOException {
        if (flags != 0) {
            throw new FuseException(Errno.EINVAL);
        }
        try {
            // The latter for providers that do not replace by the former alone.
            Files.move(
                    change(path), change(newPath), StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        } catch (AtomicMoveNotSupportedException | UnsupportedOperationException e) {
            Files.move(change(path), change(newPath), StandardCopyOption.REPLACE_EXISTING);
        }
    }

    /** Mounts a zip file to be read. */
    public static void main(String[] args) {
        Program program = new Program("zip")
                .about("The files of a zip file, to be read")
                .sourcePath("FILE.zip")
                .options(MountOptions.DEFAULT.plus("ro"));
        // Not closed: the file system is there until the program ends.
        System.exit(program.paths(args,
                given -> new NioFs(FileSystems.newFileSystem(Path.of(given.source())).getPath("/"))));
    }
}
