package io.github.bickfordfs.bench;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.EnumSet;
import java.util.Set;
import org.cryptomator.jfuse.api.DirFiller;
import org.cryptomator.jfuse.api.Errno;
import org.cryptomator.jfuse.api.FileInfo;
import org.cryptomator.jfuse.api.Fuse;
import org.cryptomator.jfuse.api.FuseOperations;
import org.cryptomator.jfuse.api.Stat;

/** A null file system over jfuse: {@code JfuseNull SOURCE MOUNTPOINT}, until it gets a signal. */
public final class JfuseNull implements FuseOperations {
    private static final int O_CREAT = 0100;
    private static final int O_APPEND = 02000;

    private final String source;
    private final Errno errno;

    private JfuseNull(String source, Errno errno) {
        this.source = source;
        this.errno = errno;
    }

    /**
     * The command.
     *
     * @param args source and mount point
     */
    public static void main(String[] args) throws Exception {
        var builder = Fuse.builder();
        String library = System.getProperty("jfuse.library");
        if (library != null) {
            builder.setLibraryPath(library);
        }
        Fuse fuse = builder.build(new JfuseNull(args[0], builder.errno()));
        fuse.mount("jfuse-null", Path.of(args[1]), "-f");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                fuse.close();
            } catch (java.util.concurrent.TimeoutException e) {
                System.err.println("jfuse: " + e);
            }
        }));
        Mounts.awaitUnmount(Path.of(args[1]));
    }

    @Override
    public Errno errno() {
        return errno;
    }

    @Override
    public Set<Operation> supportedOperations() {
        return EnumSet.of(Operation.GET_ATTR, Operation.READ_DIR, Operation.OPEN, Operation.CREATE, Operation.READ,
                Operation.WRITE, Operation.RELEASE, Operation.FSYNC, Operation.TRUNCATE, Operation.MKDIR,
                Operation.RMDIR, Operation.UNLINK, Operation.RENAME, Operation.CHMOD);
    }

    @Override
    public int getattr(String path, Stat stat, FileInfo file) {
        int result = Libc.stat(source, path);
        if (result == 0) {
            Libc.Attributes from = Libc.attributes();
            stat.setMode(from.mode());
            stat.setNLink((short) from.links());
            stat.setUid(from.uid());
            stat.setGid(from.gid());
            stat.setSize(from.size());
            stat.aTime().set(Instant.ofEpochSecond(from.accessedSeconds(), from.accessedNanos()));
            stat.mTime().set(Instant.ofEpochSecond(from.modifiedSeconds(), from.modifiedNanos()));
            stat.cTime().set(Instant.ofEpochSecond(from.changedSeconds(), from.changedNanos()));
        }
        return result;
    }

    @Override
    public int readdir(String path, DirFiller filler, long offset, FileInfo file, int flags) {
        try (DirectoryStream<Path> names = Files.newDirectoryStream(Path.of(source + path))) {
            filler.fill(".");
            filler.fill("..");
            for (Path name : names) {
                filler.fill(name.getFileName().toString());
            }
            return 0;
        } catch (IOException e) {
            return -errno.eio();
        }
    }

    private static int opened(int descriptor, FileInfo file) {
        if (descriptor >= 0) {
            file.setFh(descriptor);
            return 0;
        }
        return descriptor;
    }

    @Override
    public int open(String path, FileInfo file) {
        return opened(Libc.open(source, path, file.getFlags() & ~O_APPEND, 0), file);
    }

    @Override
    public int create(String path, int mode, FileInfo file) {
        return opened(Libc.open(source, path, file.getFlags() & ~O_APPEND | O_CREAT, mode), file);
    }

    @Override
    public int read(String path, ByteBuffer buffer, long count, long offset, FileInfo file) {
        return Libc.read(file.getFh(), MemorySegment.ofBuffer(buffer), count, offset);
    }

    @Override
    public int write(String path, ByteBuffer buffer, long count, long offset, FileInfo file) {
        return Libc.write(file.getFh(), MemorySegment.ofBuffer(buffer), count, offset);
    }

    @Override
    public int release(String path, FileInfo file) {
        return Libc.close(file.getFh());
    }

    @Override
    public int fsync(String path, int dataOnly, FileInfo file) {
        return Libc.fsync(file.getFh());
    }

    @Override
    public int truncate(String path, long size, FileInfo file) {
        return file == null ? Libc.truncate(source, path, size) : Libc.truncate(file.getFh(), size);
    }

    @Override
    public int mkdir(String path, int mode) {
        return Libc.mkdir(source, path, mode);
    }

    @Override
    public int rmdir(String path) {
        return Libc.rmdir(source, path);
    }

    @Override
    public int unlink(String path) {
        return Libc.unlink(source, path);
    }

    @Override
    public int rename(String from, String to, int flags) {
        return flags == 0 ? Libc.rename(source, from, to) : -errno.einval();
    }

    @Override
    public int chmod(String path, int mode, FileInfo file) {
        return Libc.chmod(source, path, mode);
    }
}
