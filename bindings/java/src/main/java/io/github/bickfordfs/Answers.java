package io.github.bickfordfs;

import io.github.bickfordfs.Layout.Ans;
import io.github.bickfordfs.Layout.At;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Instant;
import java.util.function.Consumer;

/** Writes answers into struct bickford_answer. */
final class Answers {
    private Answers() {}

    static void entry(long answer, Entry entry) {
        Layout.putLong(answer + Ans.NODE, entry.node());
        Layout.putLong(answer + Ans.GENERATION, entry.generation());
        Layout.putLong(answer + Ans.ENTRY_VALID, entry.entryValid());
        Layout.putLong(answer + Ans.ATTR_VALID, entry.attrValid());
        if (entry.node() != 0 && entry.attr() == null) {
            throw new IllegalArgumentException("the entry of node " + entry.node() + " has no attributes");
        }
        if (entry.attr() != null) {
            attr(answer, entry.attr());
        }
    }

    static void attributes(long answer, Attributes attributes) {
        attr(answer, attributes.attr());
        Layout.putLong(answer + Ans.ATTR_VALID, attributes.valid());
    }

    static void statx(long answer, Statx statx) {
        attributes(answer, statx.attributes());
        if (statx.born() != null) {
            time(answer + Ans.BORN, statx.born());
            Layout.putInt(answer + Ans.HAS_BORN, 1);
        }
    }

    /** The kernel makes EIO of what cannot be, and says nothing. */
    static Attr checked(Attr attr) {
        boolean hasType = switch (attr.mode() & Attr.S_IFMT) {
            // Besides those of Attr pipes, character devices, block devices, sockets.
            case Attr.S_IFREG, Attr.S_IFDIR, Attr.S_IFLNK, 0010000, 0020000, 0060000, 0140000 -> true;
            default -> false;
        };
        if (!hasType) {
            throw new IllegalArgumentException("attributes with inode number " + attr.ino() + " have the mode 0"
                    + Integer.toOctalString(attr.mode()) + ", in which no type is: add Attr.S_IFREG, S_IFDIR or another");
        }
        if (attr.size() < 0) {
            throw new IllegalArgumentException("attributes with inode number " + attr.ino() + " have a size of "
                    + attr.size() + " bytes");
        }
        return attr;
    }

    /** Attributes; nothing of how long they are valid. */
    static void attr(long answer, Attr attr) {
        putAttr(answer + Ans.INO, attr);
    }

    /** Writes a struct bickford_attr; nothing where the attributes cannot be. */
    static void putAttr(long at, Attr unchecked) {
        Attr attr = checked(unchecked);
        Layout.putLong(at + At.INO, attr.ino());
        Layout.putLong(at + At.SIZE, attr.size());
        Layout.putLong(at + At.BLOCKS, attr.blocks());
        time(at + At.ACCESSED, attr.accessed());
        time(at + At.MODIFIED, attr.modified());
        time(at + At.CHANGED, attr.changed());
        Layout.putInt(at + At.MODE, attr.mode());
        Layout.putInt(at + At.LINKS, attr.links());
        Layout.putInt(at + At.UID, attr.uid());
        Layout.putInt(at + At.GID, attr.gid());
        Layout.putInt(at + At.RDEV, attr.rdev());
        Layout.putInt(at + At.BLOCK_SIZE, 4096);
    }

    private static void time(long address, Instant time) {
        Layout.putLong(address, time.getEpochSecond());
        Layout.putInt(address + 8, time.getNano());
    }

    static void opened(long answer, Opened opened) {
        Layout.putLong(answer + Ans.HANDLE, opened.handle());
        Backing backing = opened.backing();
        Layout.putInt(answer + Ans.OPEN_FLAGS, backing == null ? opened.flags() : opened.flags() | Opened.PASSTHROUGH);
        Layout.putInt(answer + Ans.BACKING, backing == null ? 0 : backing.id());
    }

    static void created(long answer, Created created) {
        entry(answer, created.entry());
        opened(answer, created.opened());
    }

    static void count(long answer, long count) {
        Layout.putLong(answer + Ans.COUNT, count);
    }

    /** How many of the bytes that were asked for were written or copied. */
    static void moved(long answer, long count, long asked) throws IOException {
        if (count < 0 || count > asked) {
            throw new IOException(count + " bytes are no answer where " + asked + " are to be written or copied");
        }
        count(answer, count);
    }

    static void lock(long answer, Lock lock) {
        Layout.putLong(answer + Ans.LOCK_START, lock.start());
        Layout.putLong(answer + Ans.LOCK_END, lock.end());
        Layout.putInt(answer + Ans.LOCK_KIND, lock.kind());
        Layout.putInt(answer + Ans.LOCK_PID, lock.pid());
    }

    static void statfs(long answer, StatFs statfs) {
        long at = answer + Ans.STATFS;
        Layout.putLong(at, statfs.blocks());
        Layout.putLong(at + 8, statfs.free());
        Layout.putLong(at + 16, statfs.available());
        Layout.putLong(at + 24, statfs.files());
        Layout.putLong(at + 32, statfs.filesFree());
        Layout.putInt(at + 40, statfs.blockSize());
        Layout.putInt(at + 44, statfs.nameMax());
        Layout.putInt(at + 48, statfs.blockSize());
    }

    /** The buffer of the answer, as far as the kernel has room. */
    static MemorySegment buffer(long answer, Arena arena) {
        return buffer(answer, arena, null);
    }

    static MemorySegment buffer(long answer, Arena arena, Consumer<MemorySegment> atItsEnd) {
        return MemorySegment.ofAddress(Layout.getLong(answer + Ans.DATA))
                .reinterpret(Layout.getLong(answer + Ans.DATA_CAPACITY), arena, atItsEnd);
    }

    /** The buffer of an answer that all of it is, also what is not filled. */
    static MemorySegment zeroed(long answer, Arena arena) {
        return buffer(answer, arena).fill((byte) 0);
    }

    /** How much of the buffer is filled. What cannot be is a defect of the file system, and logged. */
    static void filled(long answer, long length) throws IOException {
        if (length < 0 || length > Layout.getLong(answer + Ans.DATA_CAPACITY)) {
            throw new IOException(length + " bytes are no answer for a buffer of "
                    + Layout.getLong(answer + Ans.DATA_CAPACITY)
                    + (length == -1 ? "; where a channel reads -1, at the end of the file, answer zero" : ""));
        }
        Layout.putLong(answer + Ans.DATA_LENGTH, length);
    }

    /** Copies bytes into the buffer of the answer. */
    static void data(long answer, byte[] bytes) throws IOException {
        filled(answer, bytes.length);
        Layout.copyIn(bytes, bytes.length, Layout.getLong(answer + Ans.DATA));
    }

    /** The value of an extended attribute, or its length where no more was asked. */
    static void xattr(long answer, long room, byte[] value) throws IOException {
        if (room == 0) {
            count(answer, value.length);
        } else if (value.length > room) {
            throw new FuseException(Errno.ERANGE);
        } else {
            data(answer, value);
        }
    }
}
