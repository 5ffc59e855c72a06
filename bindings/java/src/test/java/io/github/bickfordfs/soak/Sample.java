package io.github.bickfordfs.soak;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.management.JMException;
import javax.management.ObjectName;

/**
 * What this process holds.
 *
 * @param nativeMemory bytes that the virtual machine has committed outside of its heap, as it tracks them itself
 * @param resident bytes of anonymous memory; the library's own are among them
 * @param descriptors open files
 * @param threads threads of the process
 */
record Sample(long nativeMemory, long resident, long descriptors, long threads) {
    /** How long the ends of a mount that was closed, such as its rings, may take to go. */
    private static final int SETTLE_MILLISECONDS = 3_000;

    static Sample now() throws Exception {
        System.gc();
        long descriptors = Long.MAX_VALUE;
        long threads = Long.MAX_VALUE;
        for (int waited = 0; waited < SETTLE_MILLISECONDS; waited += 100) {
            descriptors = Math.min(descriptors, count("/proc/self/fd"));
            threads = Math.min(threads, count("/proc/self/task"));
            Thread.sleep(100);
        }
        return new Sample(tracked(), anonymous(), descriptors, threads);
    }

    private static long tracked() throws JMException {
        String summary = track("summary", "scale=1");
        return number(summary, "Total: reserved=\\d+, committed=(\\d+)")
                - number(summary, "Java Heap \\(reserved=\\d+, committed=(\\d+)");
    }

    /** What later ones are compared with. */
    static void baseline() throws JMException {
        track("baseline");
    }

    /** What changed since, by the virtual machine's own account. */
    static String difference() throws JMException {
        return track("summary.diff", "scale=KB");
    }

    private static String track(String... arguments) throws JMException {
        return (String) ManagementFactory.getPlatformMBeanServer().invoke(
                new ObjectName("com.sun.management:type=DiagnosticCommand"), "vmNativeMemory",
                new Object[] {arguments}, new String[] {String[].class.getName()});
    }

    private static long number(String text, String pattern) {
        Matcher matcher = Pattern.compile(pattern).matcher(text);
        if (!matcher.find()) {
            throw new IllegalStateException("no " + pattern + " in: " + text
                    + " (is the virtual machine started with -XX:NativeMemoryTracking=summary?)");
        }
        return Long.parseLong(matcher.group(1));
    }

    private static long anonymous() throws IOException {
        return number(Files.readString(Path.of("/proc/self/status")), "RssAnon:\\s*(\\d+)") * 1024;
    }

    private static long count(String directory) throws IOException {
        try (Stream<Path> files = Files.list(Path.of(directory))) {
            return files.count();
        }
    }

    @Override
    public String toString() {
        return String.format("%6d KiB native  %7d KiB resident  %3d descriptors  %3d threads",
                nativeMemory >> 10, resident >> 10, descriptors, threads);
    }
}
