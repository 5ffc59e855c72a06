package io.github.bickfordfs;

/**
 * Size and use of a file system (statvfs(3)).
 *
 * @param blockSize unit of the block counts in bytes
 * @param blocks blocks in all
 * @param free free blocks
 * @param available blocks that ordinary users may take
 * @param files inodes in all
 * @param filesFree free inodes
 * @param nameMax longest name in bytes
 */
public record StatFs(int blockSize, long blocks, long free, long available, long files, long filesFree, int nameMax) {
    /** Nothing is known; names may have 255 bytes. */
    public static final StatFs UNKNOWN = new StatFs(4096, 0, 0, 0, 0, 0, 255);
}
