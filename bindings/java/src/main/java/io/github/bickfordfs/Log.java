package io.github.bickfordfs;

import java.io.PrintWriter;
import java.io.StringWriter;

/** What this package has to tell: in the log of the {@link Program} that runs, else in that of the platform. */
final class Log {
    /** Of this package's name. */
    static final System.Logger PLATFORM = System.getLogger(Log.class.getPackageName());

    private Log() {}

    static void warning(String text) {
        log(System.Logger.Level.WARNING, text, null);
    }

    static void error(String text) {
        log(System.Logger.Level.ERROR, text, null);
    }

    static void error(String text, Throwable e) {
        log(System.Logger.Level.ERROR, text, e);
    }

    private static void log(System.Logger.Level level, String text, Throwable e) {
        if (!ProgramRun.isRunning()) {
            PLATFORM.log(level, text, e);
            return;
        }
        StringWriter line = new StringWriter().append(text);
        if (e != null) {
            e.printStackTrace(new PrintWriter(line.append('\n')));
        }
        ProgramRun.tell(level, line.toString().stripTrailing());
    }
}
