package io.github.bickfordfs;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;

/**
 * A listing being filled; it takes no more than the kernel asked for. A name that no file has (empty, with a slash or a
 * NUL, longer than 4095 bytes) is an {@link IllegalArgumentException}: the kernel would refuse the listing from there on.
 * So are attributes that cannot be.
 */
public final class Listing {
    private static final int DIRENT = 24;
    private static final int ENTRY = 128;
    /** The kernel takes no longer name. */
    static final int NAME_MAX = 4095;

    private final boolean plus;
    private final MemorySegment buffer;
    private long used;

    Listing(MemorySegment buffer, boolean plus) {
        this.buffer = buffer;
        this.plus = plus;
    }

    /** How many bytes of the buffer are filled. */
    long used() {
        return used;
    }

    /** Whether names come with entries. */
    public boolean isPlus() {
        return plus;
    }

    /**
     * Adds a name.
     *
     * @param name the name
     * @param ino its inode number as readdir(3) shows it; zero when unknown
     * @param mode its type, as the bits of a mode
     * @param offset where the listing goes on after it: the next request brings that
     * @return whether it had room; if not, it has to come with the next request
     */
    public boolean add(String name, long ino, int mode, long offset) {
        return add(name.getBytes(StandardCharsets.UTF_8), ino, mode, offset);
    }

    /**
     * Adds a name that need not be UTF-8.
     *
     * @param name the name
     * @param ino its inode number as readdir(3) shows it; zero when unknown
     * @param mode its type, as the bits of a mode
     * @param offset where the listing goes on after it: the next request brings that
     * @return whether it had room; if not, it has to come with the next request
     */
    public boolean add(byte[] name, long ino, int mode, long offset) {
        return add(name, ino, mode, offset, null);
    }

    /**
     * Adds a name with its entry, which raises the lookup count of its node by one, except for "." and ".."; only
     * where {@link #isPlus}.
     *
     * @param name the name
     * @param entry its entry
     * @param offset where the listing goes on after it: the next request brings that
     * @return whether it had room; if not, it has to come with the next request
     */
    public boolean add(String name, Entry entry, long offset) {
        return add(name.getBytes(StandardCharsets.UTF_8), entry, offset);
    }

    /**
     * Adds a name that need not be UTF-8 with its entry, as {@link #add(String, Entry, long)} does.
     *
     * @param name the name
     * @param entry its entry
     * @param offset where the listing goes on after it: the next request brings that
     * @return whether it had room; if not, it has to come with the next request
     */
    public boolean add(byte[] name, Entry entry, long offset) {
        return add(name, entry.attr().ino(), entry.attr().mode(), offset, entry);
    }

    static void check(byte[] name) {
        boolean isName = name.length > 0 && name.length <= NAME_MAX;
        for (int i = 0; isName && i < name.length; i++) {
            isName = name[i] != '/' && name[i] != 0;
        }
        if (!isName) {
            throw new IllegalArgumentException("no file has the name \"" + new String(name, StandardCharsets.UTF_8)
                    + "\": empty, with a slash or a NUL, or longer than " + NAME_MAX + " bytes");
        }
    }

    private boolean add(byte[] bytes, long ino, int mode, long offset, Entry entry) {
        check(bytes);
        long fixed = plus ? ENTRY + DIRENT : DIRENT;
        long end = used + (fixed + bytes.length + 7) / 8 * 8;
        if (end > buffer.byteSize()) {
            return false;
        }
        buffer.asSlice(used, end - used).fill((byte) 0);
        long at = used;
        if (plus) {
            if (entry != null) {
                putEntry(at, entry);
            }
            at += ENTRY;
        }
        buffer.set(ValueLayout.JAVA_LONG_UNALIGNED, at, ino);
        buffer.set(ValueLayout.JAVA_LONG_UNALIGNED, at + 8, offset);
        buffer.set(ValueLayout.JAVA_INT_UNALIGNED, at + 16, bytes.length);
        buffer.set(ValueLayout.JAVA_INT_UNALIGNED, at + 20, (mode & Attr.S_IFMT) >> 12);
        MemorySegment.copy(bytes, 0, buffer, ValueLayout.JAVA_BYTE, at + DIRENT, bytes.length);
        used = end;
        return true;
    }

    /** struct fuse_entry_out. */
    private void putEntry(long at, Entry entry) {
        Attr attr = Answers.checked(entry.attr());
        long[] longs = {
            entry.node(), entry.generation(), entry.entryValid() / Entry.SECOND, entry.attrValid() / Entry.SECOND
        };
        for (int i = 0; i < longs.length; i++) {
            buffer.set(ValueLayout.JAVA_LONG_UNALIGNED, at + i * 8L, longs[i]);
        }
        buffer.set(ValueLayout.JAVA_INT_UNALIGNED, at + 32, (int) (entry.entryValid() % Entry.SECOND));
        buffer.set(ValueLayout.JAVA_INT_UNALIGNED, at + 36, (int) (entry.attrValid() % Entry.SECOND));
        long[] wide = {
            attr.ino(), attr.size(), attr.blocks(), attr.accessed().getEpochSecond(),
            attr.modified().getEpochSecond(), attr.changed().getEpochSecond()
        };
        for (int i = 0; i < wide.length; i++) {
            buffer.set(ValueLayout.JAVA_LONG_UNALIGNED, at + 40 + i * 8L, wide[i]);
        }
        int[] narrow = {
            attr.accessed().getNano(), attr.modified().getNano(), attr.changed().getNano(), attr.mode(), attr.links(),
            attr.uid(), attr.gid(), attr.rdev(), 4096, 0
        };
        for (int i = 0; i < narrow.length; i++) {
            buffer.set(ValueLayout.JAVA_INT_UNALIGNED, at + 88 + i * 4L, narrow[i]);
        }
    }
}
