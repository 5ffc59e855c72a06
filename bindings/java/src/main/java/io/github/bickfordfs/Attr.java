package io.github.bickfordfs;

import java.time.Instant;

/**
 * Attributes of an inode (stat(2)).
 *
 * @param ino inode number as stat(2) shows it
 * @param mode type and permissions
 * @param links hard links
 * @param uid owner
 * @param gid group
 * @param rdev device number of a device node, in the kernel's 32-bit form
 * @param size bytes
 * @param blocks allocated units of 512 bytes
 * @param accessed last access
 * @param modified last modification
 * @param changed last change of the inode
 */
public record Attr(
        long ino,
        int mode,
        int links,
        int uid,
        int gid,
        int rdev,
        long size,
        long blocks,
        Instant accessed,
        Instant modified,
        Instant changed) {
    /** The bits of a mode that tell the type. */
    public static final int S_IFMT = 0170000;
    /** A directory. */
    public static final int S_IFDIR = 0040000;
    /** A regular file. */
    public static final int S_IFREG = 0100000;
    /** A symbolic link. */
    public static final int S_IFLNK = 0120000;

    /** Attributes of a directory of the user root with these permissions, two links and all times zero. */
    public static Attr directory(long ino, int permissions) {
        return new Attr(ino, S_IFDIR | permissions, 2, 0, 0, 0, 0, 0, Instant.EPOCH, Instant.EPOCH, Instant.EPOCH);
    }

    /** Attributes of a regular file of the user root with these permissions, one link and all times zero. */
    public static Attr file(long ino, int permissions, long size) {
        return new Attr(ino, S_IFREG | permissions, 1, 0, 0, 0, size, (size + 511) / 512, Instant.EPOCH, Instant.EPOCH,
                Instant.EPOCH);
    }

    /** The same with another owner and group. */
    public Attr withOwner(int uid, int gid) {
        return new Attr(ino, mode, links, uid, gid, rdev, size, blocks, accessed, modified, changed);
    }

    /** The same with other permissions; the type stays. */
    public Attr withPermissions(int permissions) {
        return new Attr(ino, mode & S_IFMT | permissions & 07777, links, uid, gid, rdev, size, blocks, accessed,
                modified, changed);
    }

    /** The same with another size, and blocks to match. */
    public Attr withSize(long size) {
        return new Attr(ino, mode, links, uid, gid, rdev, size, (size + 511) / 512, accessed, modified, changed);
    }

    /** The same with other times. */
    public Attr withTimes(Instant accessed, Instant modified, Instant changed) {
        return new Attr(ino, mode, links, uid, gid, rdev, size, blocks, accessed, modified, changed);
    }

    /** The same with another number of links. */
    public Attr withLinks(int links) {
        return new Attr(ino, mode, links, uid, gid, rdev, size, blocks, accessed, modified, changed);
    }

    /** The same with a device number, in the kernel's 32-bit form. */
    public Attr withDevice(int rdev) {
        return new Attr(ino, mode, links, uid, gid, rdev, size, blocks, accessed, modified, changed);
    }

    /** Whether this is a directory. */
    public boolean isDirectory() {
        return (mode & S_IFMT) == S_IFDIR;
    }
}
