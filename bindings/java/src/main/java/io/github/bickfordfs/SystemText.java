package io.github.bickfordfs;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.Charset;
import java.util.Arrays;

/**
 * Texts of the system, such as paths and arguments. {@link MemorySegment#getString} knows few of the charsets that they are
 * in.
 */
final class SystemText {
    /** The charset in which the platform takes them. */
    static final Charset CHARSET = charset(System.getProperty("sun.jnu.encoding"));

    private SystemText() {}

    static Charset charset(String name) {
        try {
            return Charset.forName(name);
        } catch (IllegalArgumentException e) {
            return Charset.defaultCharset();
        }
    }

    /** A text of C. */
    static String decoded(MemorySegment text, Charset charset) {
        long length = 0;
        while (text.get(JAVA_BYTE, length) != 0) {
            length++;
        }
        return new String(text.asSlice(0, length).toArray(JAVA_BYTE), charset);
    }

    /** A text for C. */
    static MemorySegment encoded(String text, Arena arena) {
        byte[] bytes = text.getBytes(CHARSET);
        return arena.allocateFrom(JAVA_BYTE, Arrays.copyOf(bytes, bytes.length + 1));
    }
}
