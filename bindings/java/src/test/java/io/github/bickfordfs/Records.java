package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.Objects;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/** What the library logs meanwhile, in the place of standard error. */
final class Records extends Handler implements AutoCloseable {
    private final Logger logger = Logger.getLogger(Mount.class.getPackageName());
    private final Queue<LogRecord> records = new ConcurrentLinkedQueue<>();

    Records() {
        logger.setUseParentHandlers(false);
        logger.addHandler(this);
    }

    /** That an exception was logged with this message, thrown in this method. */
    void check(Class<? extends Throwable> type, String message, String method) {
        boolean found = records.stream().map(LogRecord::getThrown).anyMatch(thrown -> type.isInstance(thrown)
                && Objects.equals(message, thrown.getMessage())
                && Arrays.stream(thrown.getStackTrace()).anyMatch(frame -> frame.getMethodName().equals(method)));
        assertTrue(found, "not logged: " + message);
    }

    /** How many lines. */
    int size() {
        return records.size();
    }

    /** Whether a line contains a text. */
    boolean have(String text) {
        return records.stream().anyMatch(record -> record.getMessage().contains(text));
    }

    /** Whether an exception was logged whose message contains a text. */
    boolean threw(String text) {
        return records.stream().map(LogRecord::getThrown)
                .anyMatch(thrown -> thrown != null && String.valueOf(thrown.getMessage()).contains(text));
    }

    @Override
    public void publish(LogRecord record) {
        records.add(record);
    }

    @Override
    public void flush() {}

    @Override
    public void close() {
        logger.removeHandler(this);
        logger.setUseParentHandlers(true);
    }
}
