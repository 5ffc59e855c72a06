package io.github.bickfordfs;

/**
 * A lock on a range of a file.
 *
 * @param start first byte
 * @param end last byte
 * @param kind {@link #READ}, {@link #WRITE} or {@link #NONE}
 * @param pid the process that holds it
 */
public record Lock(long start, long end, int kind, int pid) {
    /** Shared. */
    public static final int READ = 0;
    /** Exclusive. */
    public static final int WRITE = 1;
    /** No lock. */
    public static final int NONE = 2;
    /** No lock is in the way. */
    public static final Lock FREE = new Lock(0, 0, NONE, 0);
}
