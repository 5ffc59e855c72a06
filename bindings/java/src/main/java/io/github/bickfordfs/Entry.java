package io.github.bickfordfs;

/**
 * A name that was found or made, and its inode. Each one that is answered raises the lookup count of the node by one,
 * which {@link InodeFileSystem#forget} gives back.
 *
 * @param node names the inode from now on; zero where the name does not exist
 * @param generation tells apart inodes that had the same number
 * @param attr the attributes; null where the name does not exist
 * @param entryValid for how many nanoseconds the kernel may use the name without asking; what is negative is over, and
 *     zero
 * @param attrValid for how many nanoseconds the kernel may use the attributes without asking, likewise
 */
public record Entry(long node, long generation, Attr attr, long entryValid, long attrValid) {
    /** A second in nanoseconds. */
    public static final long SECOND = 1_000_000_000L;

    /** Checks the arguments. */
    public Entry {
        entryValid = Math.max(0, entryValid);
        attrValid = Math.max(0, attrValid);
    }

    /** An inode that the kernel may remember for {@code valid} nanoseconds. */
    public static Entry of(long node, Attr attr, long valid) {
        return new Entry(node, 0, attr, valid, valid);
    }

    /** A name that does not exist, which the kernel may remember for {@code valid} nanoseconds. */
    public static Entry none(long valid) {
        return new Entry(0, 0, null, valid, 0);
    }
}
