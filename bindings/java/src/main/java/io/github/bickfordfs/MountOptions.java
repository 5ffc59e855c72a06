package io.github.bickfordfs;

import java.util.Objects;

/**
 * How to mount.
 *
 * @param options options of mount.fuse3(8) with commas between, such as "ro,fsname=disk"; "transport=auto", "dev" or
 *     "uring"; "prompt" where no method waits for another request of the mount, by a lock or by using what it serves:
 *     threads of io_uring then take several requests at a time while methods are quick; "allow_idmap" for mounts that can be
 *     id-mapped, with "default_permissions" from Linux 6.12 on: requests then tell the caller's ids, else -1, only where
 *     something is made; "max_stack_depth=1" for {@link Backing}s, or "=2" where these lie on an overlay. For
 *     {@link JavaFuse} also "preset=base", "preset=opt" or "preset=fast", "no_xattr" and, on a mount that root alone uses,
 *     "no_permission_checks". For a {@link PathFileSystem} also, as in fuse(8): "entry_timeout=" and "attr_timeout=" for how
 *     many seconds the kernel may use names and attributes without asking, in the place of
 *     {@link PathFileSystem#validity}, and "negative_timeout=" for names that do not exist, which it asks for each time by
 *     default; "direct_io", "kernel_cache" and "auto_cache" for what it caches of open files; "uid=", "gid=" and "umask="
 *     (octal) for all files; "noforget" to keep all names until the end; "at_once" for requests that keep their threads until
 *     they are answered, also while they wait for a path, where methods hardly ever wait; and "use_ino", "hide_removed" and
 *     "handles_only", see there. But for {@link JavaFuse} also "max_background=" and "congestion_threshold=" for requests that
 *     nobody waits for, "request_timeout=" for after how many seconds without an answer the kernel ends the mount (from
 *     Linux 6.15 on, else mounting fails; less than 15 count as 15), and "time_granularity=" in nanoseconds
 * @param workers how many native threads serve requests over /dev/fuse, for as long as the mount, and over io_uring how
 *     many at most for each processor (2 to 16); zero for as many as the load asks for: 32 at most over /dev/fuse, of which
 *     one for each processor waits, but two at least and ten at most ("preset=base" has one), and 16 for each processor
 *     over io_uring
 * @param maxWrite bytes of data in one request, 4096 to 1048576, or zero for the most
 * @param virtualThreads whether each request has a virtual thread of its own; not for {@link JavaFuse}
 */
public record MountOptions(String options, int workers, int maxWrite, boolean virtualThreads) {
    /** As many threads as the load asks for; none is virtual. */
    public static final MountOptions DEFAULT = new MountOptions("", 0, 0, false);

    /** Checks the arguments. */
    public MountOptions {
        Objects.requireNonNull(options);
        if (options.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("the options have a NUL, where the text would end: "
                    + options.replace("\0", "\\0"));
        }
        if (workers < 0 || workers > 1024) {
            throw new IllegalArgumentException(
                    workers + " threads; between 1 and 1024 are possible, and 0 for as many as the load asks for");
        }
        if (maxWrite != 0 && (maxWrite < 4096 || maxWrite > 1 << 20)) {
            throw new IllegalArgumentException(maxWrite + " bytes; between 4096 and 1048576 are possible");
        }
    }

    /** The same with other options. */
    public MountOptions withOptions(String options) {
        return new MountOptions(options, workers, maxWrite, virtualThreads);
    }

    /** The same with more options. */
    public MountOptions plus(String more) {
        return withOptions(options.isEmpty() ? more : more.isEmpty() ? options : options + "," + more);
    }

    /** The same with another number of threads. */
    public MountOptions withWorkers(int workers) {
        return new MountOptions(options, workers, maxWrite, virtualThreads);
    }

    /** The same with another limit of data. */
    public MountOptions withMaxWrite(int maxWrite) {
        return new MountOptions(options, workers, maxWrite, virtualThreads);
    }

    /**
     * The same with a virtual thread for each request: a method may wait as long as it likes, and keeps no native thread
     * from serving others. There are as many as requests under way. What a request brings is copied once more, and
     * starting a thread takes time: for methods that answer at once it is the slower way.
     */
    public MountOptions withVirtualThreads() {
        return new MountOptions(options, workers, maxWrite, true);
    }
}
