package io.github.bickfordfs;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;

/** What the native library has to tell, in the log of this package: there stands why callers got EIO, for example. */
final class NativeLog {
    private NativeLog() {}

    /** The function for bickford_log. */
    static MemorySegment listener() {
        return Native.upcall(MethodHandles.lookup(), "tell", FunctionDescriptor.ofVoid(ADDRESS, JAVA_INT, ADDRESS));
    }

    /** The least important of the library's lines that somebody may want (BICKFORD_LOG_*). */
    static int wanted() {
        int wanted = 2;
        while (wanted < 4 && Log.PLATFORM.isLoggable(level(wanted + 1))) {
            wanted++;
        }
        return wanted;
    }

    /** With what a session is served is nothing to bother an application with, which many loggers do from INFO on. */
    private static System.Logger.Level level(int told) {
        return switch (told) {
            case 1 -> System.Logger.Level.ERROR;
            case 2 -> System.Logger.Level.WARNING;
            case 3 -> System.Logger.Level.DEBUG;
            default -> System.Logger.Level.TRACE;
        };
    }

    private static void tell(MemorySegment user, int level, MemorySegment text) {
        try {
            Log.PLATFORM.log(level(level), text.reinterpret(Long.MAX_VALUE).getString(0));
        } catch (Throwable e) {
            // Nothing may be thrown into native code; and it was the log that failed.
        }
    }
}
