package io.github.bickfordfs;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.io.IOException;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.file.FileSystemException;
import java.util.HashMap;
import java.util.Map;

/**
 * Error numbers of files for which the Java platform has no exception: it throws what strerror(3) says, as the reason of a
 * {@link FileSystemException} or the message of an {@link IOException}.
 */
final class ErrorTexts {
    private static final int[] OF_FILES = {
        Errno.EPERM, Errno.EBUSY, Errno.EXDEV, Errno.ENOTDIR, Errno.EISDIR, Errno.ENFILE, Errno.EMFILE, Errno.EFBIG,
        Errno.ENOSPC, Errno.EROFS, Errno.EMLINK, Errno.ENAMETOOLONG, Errno.ELOOP, Errno.EOPNOTSUPP, Errno.ESTALE,
        Errno.EDQUOT
    };

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
                numbers.put(text.reinterpret(Long.MAX_VALUE).getString(0), errno);
            }
        } catch (Throwable e) {
            // Without native access nothing is mounted.
            return Map.of();
        }
        return numbers;
    }

    /** The number of which an exception has the text; EIO where it has none. */
    static int number(IOException e) {
        String text = e instanceof FileSystemException file ? file.getReason() : e.getMessage();
        return text == null ? Errno.EIO : NUMBERS.getOrDefault(text, Errno.EIO);
    }
}
