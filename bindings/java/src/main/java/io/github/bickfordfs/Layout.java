package io.github.bickfordfs;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Offsets in the structures of bickford.h, and access to memory by address.
 *
 * <p>Addresses come as numbers, so that no object is made for a request.
 */
final class Layout {
    static final int ABI_VERSION = 1;

    /** struct bickford_request. */
    static final class Req {
        static final int UNIQUE = 0, OPERATION = 8, UID = 12, GID = 16, PID = 20, NODE = 24, HANDLE = 32;
        static final int OFFSET = 40, SIZE = 48, NODE2 = 56, HANDLE2 = 64, OFFSET2 = 72, LOCK_OWNER = 80;
        static final int PRESENT = 88, FLAGS = 92, FLAGS2 = 96, MODE = 100, UMASK = 104, RDEV = 108;
        static final int NEW_UID = 112, NEW_GID = 116, ACCESSED = 120, MODIFIED = 136, CHANGED = 152;
        static final int NAME = 168, NAME_LENGTH = 176, NAME2 = 184, NAME2_LENGTH = 192;
        static final int DATA = 200, DATA_LENGTH = 208, LOCK_START = 216, LOCK_END = 224;
        static final int LOCK_KIND = 232, LOCK_PID = 236;
        static final int PATH = 240, PATH_LENGTH = 248, PATH2 = 256, PATH2_LENGTH = 264;
        static final int BYTES = 272;

        private Req() {}
    }

    /** struct bickford_attr. */
    static final class At {
        static final int INO = 0, SIZE = 8, BLOCKS = 16, ACCESSED = 24, MODIFIED = 40, CHANGED = 56;
        static final int MODE = 72, LINKS = 76, UID = 80, GID = 84, RDEV = 88, BLOCK_SIZE = 92;
        static final int BYTES = 104;

        private At() {}
    }

    /** struct bickford_answer. */
    static final class Ans {
        static final int NODE = 0, GENERATION = 8, ENTRY_VALID = 16, ATTR_VALID = 24;
        static final int INO = 32, SIZE = 40, BLOCKS = 48, ACCESSED = 56, MODIFIED = 72, CHANGED = 88;
        static final int MODE = 104, LINKS = 108, UID = 112, GID = 116, RDEV = 120, BLOCK_SIZE = 124;
        static final int HANDLE = 136, OPEN_FLAGS = 144, BACKING = 148, COUNT = 152, BORN = 160, HAS_BORN = 176;
        static final int LOCK_KIND = 180, LOCK_START = 184, LOCK_END = 192, LOCK_PID = 200;
        static final int STATFS = 208, DATA = 264, DATA_CAPACITY = 272, DATA_LENGTH = 280;
        static final int BYTES = 288;

        private Ans() {}
    }

    static final int LATER = -1;
    static final int ANSWERED = -2;

    private static final MemorySegment ALL = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    private Layout() {}

    static int getInt(long address) {
        return ALL.get(ValueLayout.JAVA_INT_UNALIGNED, address);
    }

    static long getLong(long address) {
        return ALL.get(ValueLayout.JAVA_LONG_UNALIGNED, address);
    }

    static byte getByte(long address) {
        return ALL.get(ValueLayout.JAVA_BYTE, address);
    }

    static void putInt(long address, int value) {
        ALL.set(ValueLayout.JAVA_INT_UNALIGNED, address, value);
    }

    static void putLong(long address, long value) {
        ALL.set(ValueLayout.JAVA_LONG_UNALIGNED, address, value);
    }

    static void putByte(long address, byte value) {
        ALL.set(ValueLayout.JAVA_BYTE, address, value);
    }

    static byte[] getBytes(long address, int length) {
        byte[] bytes = new byte[length];
        MemorySegment.copy(ALL, ValueLayout.JAVA_BYTE, address, bytes, 0, length);
        return bytes;
    }

    static void copyOut(long address, byte[] into, int length) {
        copyOut(address, into, 0, length);
    }

    static void copyOut(long address, byte[] into, int offset, int length) {
        MemorySegment.copy(ALL, ValueLayout.JAVA_BYTE, address, into, offset, length);
    }

    static void copyIn(byte[] from, int length, long address) {
        MemorySegment.copy(from, 0, ALL, ValueLayout.JAVA_BYTE, address, length);
    }

    static void copyIn(MemorySegment from, long address) {
        MemorySegment.copy(from, 0, ALL, address, from.byteSize());
    }
}
