package io.github.bickfordfs.bench;

import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import jnr.ffi.Pointer;
import ru.serce.jnrfuse.FuseFillDir;
import ru.serce.jnrfuse.FuseStubFS;
import ru.serce.jnrfuse.struct.FileStat;
import ru.serce.jnrfuse.struct.FuseFileInfo;
import ru.serce.jnrfuse.struct.Timespec;

/**
 * A null file system over jnr-fuse: {@code JnrNull [--cheapest] SOURCE MOUNTPOINT}, until it gets a signal. With
 * {@code --cheapest} the kernel remembers names, missing names, attributes and data for good; libfuse 2 has no
 * write-back cache.
 */
public final class JnrNull extends FuseStubFS {
    private static final int O_CREAT = 0100;
    private static final int O_APPEND = 02000;

    private static final String CHEAPEST = "--cheapest";

    private final String source;

    private JnrNull(String source) {
        this.source = source;
    }

    /**
     * The command.
     *
     * @param args source and mount point
     */
    public static void main(String[] args) {
        boolean cheapest = args.length > 0 && args[0].equals(CHEAPEST);
        List<String> places = Arrays.asList(args).subList(cheapest ? 1 : 0, args.length);
        if (places.size() != 2) {
            System.err.println("usage: JnrNull [" + CHEAPEST + "] SOURCE MOUNTPOINT");
            System.exit(2);
        }
        // big_writes is the default of libfuse 3, and has to be asked for in 2.
        String options = "big_writes,fsname=jnr-fuse-null" + (cheapest ? "," + Mounts.CACHED : "");
        new JnrNull(places.get(0)).mount(Path.of(places.get(1)), true, false, new String[] {"-o", options});
    }

    private static int fill(int result, FileStat stat) {
        if (result == 0) {
            Libc.Attributes from = Libc.attributes();
            stat.st_ino.set(from.ino());
            stat.st_mode.set(from.mode());
            stat.st_nlink.set(from.links());
            stat.st_uid.set(from.uid());
            stat.st_gid.set(from.gid());
            stat.st_size.set(from.size());
            stat.st_blocks.set(from.blocks());
            stat.st_atim.tv_sec.set(from.accessedSeconds());
            stat.st_atim.tv_nsec.set(from.accessedNanos());
            stat.st_mtim.tv_sec.set(from.modifiedSeconds());
            stat.st_mtim.tv_nsec.set(from.modifiedNanos());
            stat.st_ctim.tv_sec.set(from.changedSeconds());
            stat.st_ctim.tv_nsec.set(from.changedNanos());
        }
        return result;
    }

    @Override
    public int getattr(String path, FileStat stat) {
        return fill(Libc.stat(source, path), stat);
    }

    @Override
    public int fgetattr(String path, FileStat stat, FuseFileInfo file) {
        return fill(Libc.stat(file.fh.longValue()), stat);
    }

    @Override
    public int readdir(String path, Pointer buffer, FuseFillDir filler, long offset, FuseFileInfo file) {
        return Libc.list(source, path, name -> filler.apply(buffer, name, null, 0));
    }

    private static int opened(int descriptor, FuseFileInfo file) {
        if (descriptor >= 0) {
            file.fh.set(descriptor);
            return 0;
        }
        return descriptor;
    }

    @Override
    public int open(String path, FuseFileInfo file) {
        return opened(Libc.open(source, path, file.flags.get() & ~O_APPEND, 0), file);
    }

    @Override
    public int create(String path, long mode, FuseFileInfo file) {
        return opened(Libc.open(source, path, file.flags.get() & ~O_APPEND | O_CREAT, (int) mode), file);
    }

    @Override
    public int read(String path, Pointer buffer, long size, long offset, FuseFileInfo file) {
        return Libc.read(file.fh.longValue(), MemorySegment.ofAddress(buffer.address()), size, offset);
    }

    @Override
    public int write(String path, Pointer buffer, long size, long offset, FuseFileInfo file) {
        return Libc.write(file.fh.longValue(), MemorySegment.ofAddress(buffer.address()), size, offset);
    }

    @Override
    public int release(String path, FuseFileInfo file) {
        return Libc.close(file.fh.longValue());
    }

    @Override
    public int fsync(String path, int dataOnly, FuseFileInfo file) {
        return Libc.fsync(file.fh.longValue());
    }

    @Override
    public int truncate(String path, long size) {
        return Libc.truncate(source, path, size);
    }

    @Override
    public int ftruncate(String path, long size, FuseFileInfo file) {
        return Libc.truncate(file.fh.longValue(), size);
    }

    @Override
    public int mkdir(String path, long mode) {
        return Libc.mkdir(source, path, (int) mode);
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
    public int rename(String from, String to) {
        return Libc.rename(source, from, to);
    }

    @Override
    public int chmod(String path, long mode) {
        return Libc.chmod(source, path, (int) mode);
    }

    @Override
    public int chown(String path, long uid, long gid) {
        return Libc.chown(source, path, (int) uid, (int) gid);
    }

    @Override
    public int symlink(String target, String path) {
        return Libc.symlink(target, source, path);
    }

    @Override
    public int readlink(String path, Pointer buffer, long size) {
        return Libc.readlink(source, path, MemorySegment.ofAddress(buffer.address()), size);
    }

    @Override
    public int utimens(String path, Timespec[] times) {
        return Libc.utimens(source, path, times[0].tv_sec.get(), times[0].tv_nsec.longValue(), times[1].tv_sec.get(),
                times[1].tv_nsec.longValue());
    }
}
