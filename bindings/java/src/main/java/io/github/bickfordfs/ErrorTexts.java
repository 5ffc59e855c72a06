package io.github.bickfordfs;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.file.FileSystemException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Error numbers of files for which the Java platform has no exception: it throws what strerror(3) says, as the reason of a
 * {@link FileSystemException} or the message of an {@link IOException}.
 */
final class ErrorTexts {
    private static final int[] OF_FILES = {
        Errno.EPERM, Errno.ENXIO, Errno.EACCES, Errno.EBUSY, Errno.EXDEV, Errno.ENOTDIR, Errno.EISDIR, Errno.EINVAL,
        Errno.ENFILE, Errno.EMFILE, Errno.ETXTBSY, Errno.EFBIG, Errno.ENOSPC, Errno.EROFS, Errno.EMLINK,
        Errno.ENAMETOOLONG, Errno.ENOTEMPTY, Errno.ELOOP, Errno.EOPNOTSUPP, Errno.ESTALE, Errno.EDQUOT
    };
    /** What the platform adds to the text of ELOOP. */
    private static final List<String> ADDED =
            List.of(" or unable to access attributes of symbolic link", " (NOFOLLOW_LINKS specified)");

    private static final Map<String, Integer> NUMBERS = numbers();

    private ErrorTexts() {}

    private static Map<String, Integer> numbers() {
        Map<String, Integer> numbers = new HashMap<>();
        try {
            Linker linker = Linker.nativeLinker();
            MethodHandle strerror = linker.downcallHandle(linker.defaultLookup().find("strerror").orElseThrow(),
                    FunctionDescriptor.of(ADDRESS, JAVA_INT));
            for (int errno : OF_FILES) {
                // In the language of this process, as the platform's own.
                MemorySegment text = (MemorySegment) strerror.invokeExact(errno);
                numbers.put(SystemText.decoded(text.reinterpret(Long.MAX_VALUE), SystemText.CHARSET), errno);
            }
        } catch (Throwable e) {
            // Without native access nothing is mounted.
            return Map.of();
        }
        return numbers;
    }

    /** The number of which an exception has the text; EIO where it has none. */
    static int number(IOException e) {
        return number(e instanceof FileSystemException file ? file.getReason() : e.getMessage(), Errno.EIO);
    }

    /** The same where java.io opens a file: "/x (Permission denied)". ENOENT where it has none. */
    static int number(FileNotFoundException e) {
        String text = e.getMessage();
        int begin = text == null || !text.endsWith(")") ? -1 : text.lastIndexOf(" (");
        return number(begin < 0 ? null : text.substring(begin + 2, text.length() - 1), Errno.ENOENT);
    }

    private static int number(String text, int otherwise) {
        if (text == null) {
            return otherwise;
        }
        String plain = text;
        for (String added : ADDED) {
            plain = plain.endsWith(added) ? plain.substring(0, plain.length() - added.length()) : plain;
        }
        return NUMBERS.getOrDefault(plain, otherwise);
    }
}
