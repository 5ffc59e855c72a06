package io.github.bickfordfs.bench;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Instant;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.cryptomator.jfuse.api.DirFiller;
import org.cryptomator.jfuse.api.Errno;
import org.cryptomator.jfuse.api.FileInfo;
import org.cryptomator.jfuse.api.Fuse;
import org.cryptomator.jfuse.api.FuseConfig;
import org.cryptomator.jfuse.api.FuseConnInfo;
import org.cryptomator.jfuse.api.FuseOperations;
import org.cryptomator.jfuse.api.Stat;
import org.cryptomator.jfuse.api.TimeSpec;

/**
 * A null file system over jfuse: {@code JfuseNull [--cheapest] SOURCE MOUNTPOINT}, until it gets a signal. With
 * {@code --cheapest} the kernel remembers names, missing names, attributes and data for good, gathers writes, and each
 * thread has a descriptor of its own: all that jfuse and libfuse 3 offer to save requests and time.
 */
public final class JfuseNull implements FuseOperations {
    private static final int O_ACCMODE = 3;
    private static final int O_WRONLY = 1;
    private static final int O_RDWR = 2;
    private static final int O_CREAT = 0100;
    private static final int O_APPEND = 02000;
    private static final long UTIME_NOW = (1L << 30) - 1;
    private static final long UTIME_OMIT = (1L << 30) - 2;
    private static final String CHEAPEST = "--cheapest";

    private final String source;
    private final Errno errno;
    private final boolean cheapest;

    private JfuseNull(String source, Errno errno, boolean cheapest) {
        this.source = source;
        this.errno = errno;
        this.cheapest = cheapest;
    }

    /**
     * The command.
     *
     * @param args source and mount point
     */
    public static void main(String[] args) throws Exception {
        boolean cheapest = args.length > 0 && args[0].equals(CHEAPEST);
        List<String> places = Arrays.asList(args).subList(cheapest ? 1 : 0, args.length);
        if (places.size() != 2) {
            System.err.println("usage: JfuseNull [" + CHEAPEST + "] SOURCE MOUNTPOINT");
            System.exit(2);
        }
        var builder = Fuse.builder();
        String library = System.getProperty("jfuse.library");
        if (library != null) {
            builder.setLibraryPath(library);
        }
        Path mountpoint = Path.of(places.get(1));
        Fuse fuse = builder.build(new JfuseNull(places.get(0), builder.errno(), cheapest));
        String[] options = cheapest
                ? new String[] {"-f", "-o", Mounts.CACHED + ",clone_fd"}
                : new String[] {"-f"};
        fuse.mount("jfuse-null", mountpoint, options);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                fuse.close();
            } catch (java.util.concurrent.TimeoutException e) {
                System.err.println("jfuse: " + e);
            }
        }));
        Mounts.awaitUnmount(mountpoint);
    }

    @Override
    public Errno errno() {
        return errno;
    }

    @Override
    public Set<Operation> supportedOperations() {
        EnumSet<Operation> operations = EnumSet.of(Operation.GET_ATTR, Operation.READ_DIR, Operation.OPEN,
                Operation.CREATE, Operation.READ, Operation.WRITE, Operation.RELEASE, Operation.FSYNC,
                Operation.TRUNCATE, Operation.MKDIR, Operation.RMDIR, Operation.UNLINK, Operation.RENAME,
                Operation.SYMLINK, Operation.READLINK, Operation.CHMOD, Operation.CHOWN, Operation.UTIMENS);
        if (cheapest) {
            operations.add(Operation.INIT);
        }
        return operations;
    }

    @Override
    public void init(FuseConnInfo connection, FuseConfig config) {
        connection.setWant(connection.want() | connection.capable() & FuseConnInfo.FUSE_CAP_WRITEBACK_CACHE);
    }

    private static void fill(Stat stat) {
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

    @Override
    public int getattr(String path, Stat stat, FileInfo file) {
        int result = file == null ? Libc.stat(source, path) : Libc.stat(file.getFh());
        if (result == 0) {
            fill(stat);
        }
        return result;
    }

    @Override
    public int readdir(String path, DirFiller filler, long offset, FileInfo file, int flags) {
        boolean plus = (flags & FUSE_READDIR_PLUS) != 0;
        String below = path.equals("/") ? path : path + "/";
        return Libc.list(source, path, name -> {
            // What is not there any more is looked up by itself.
            if (plus && Libc.stat(source, below.concat(name)) == 0) {
                filler.fill(name, JfuseNull::fill, 0, DirFiller.FUSE_FILL_DIR_PLUS);
            } else {
                filler.fill(name, stat -> {}, 0, 0);
            }
        });
    }

    private static int opened(int descriptor, FileInfo file) {
        if (descriptor >= 0) {
            file.setFh(descriptor);
            return 0;
        }
        return descriptor;
    }

    private int flags(FileInfo file) {
        // The kernel says where to append, and reads what surrounds the writes that it gathers.
        int flags = file.getFlags() & ~O_APPEND;
        return cheapest && (flags & O_ACCMODE) == O_WRONLY ? flags & ~O_ACCMODE | O_RDWR : flags;
    }

    @Override
    public int open(String path, FileInfo file) {
        return opened(Libc.open(source, path, flags(file), 0), file);
    }

    @Override
    public int create(String path, int mode, FileInfo file) {
        return opened(Libc.open(source, path, flags(file) | O_CREAT, mode), file);
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

    @Override
    public int chown(String path, int uid, int gid, FileInfo file) {
        return Libc.chown(source, path, uid, gid);
    }

    /** As libfuse has it: what the link holds, then where it is. */
    @Override
    public int symlink(String target, String path) {
        return Libc.symlink(target, source, path);
    }

    @Override
    public int readlink(String path, ByteBuffer buffer, long length) {
        return Libc.readlink(source, path, MemorySegment.ofBuffer(buffer), length);
    }

    private static long nanos(TimeSpec time) {
        if (time.isUtimeNow()) {
            return UTIME_NOW;
        }
        return time.isUtimeOmit() ? UTIME_OMIT : time.get().getNano();
    }

    private static long seconds(TimeSpec time) {
        return time.isUtimeNow() || time.isUtimeOmit() ? 0 : time.get().getEpochSecond();
    }

    @Override
    public int utimens(String path, TimeSpec accessed, TimeSpec modified, FileInfo file) {
        return Libc.utimens(source, path, seconds(accessed), nanos(accessed), seconds(modified), nanos(modified));
    }
}
