package io.github.bickfordfs;

import java.util.Objects;

/**
 * An open file.
 *
 * @param handle comes back with each operation on the open file
 * @param flags how the kernel is to treat it: {@link #DIRECT_IO} and so on
 * @param backing what the kernel reads and writes in its place, or null for the file system's methods
 */
public record Opened(long handle, int flags, Backing backing) {
    /** Without the page cache. */
    public static final int DIRECT_IO = 1;
    /** What is cached stays right. */
    public static final int KEEP_CACHE = 1 << 1;
    /** Cannot be sought. */
    public static final int NONSEEKABLE = 1 << 2;
    /** A listing may be cached. */
    public static final int CACHE_DIR = 1 << 3;
    /** A stream. */
    public static final int STREAM = 1 << 4;
    /** No flush when a descriptor is closed. */
    public static final int NOFLUSH = 1 << 5;

    /** Read and written by the kernel. */
    static final int PASSTHROUGH = 1 << 7;

    /** Handle zero, default treatment. */
    public static final Opened DEFAULT = new Opened(0, 0);

    /** An open file that the methods read and write. */
    public Opened(long handle, int flags) {
        this(handle, flags, null);
    }

    /** An open file that the kernel reads and writes itself. */
    public static Opened through(long handle, Backing backing) {
        return new Opened(handle, 0, Objects.requireNonNull(backing));
    }

    /** An open file with default treatment. */
    public static Opened of(long handle) {
        return new Opened(handle, 0);
    }
}
