package io.github.bickfordfs;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * A directory with a mount point, a source, and a watchdog: a test that is late loses its mount, so that nothing waits
 * for ever, and fails with what was going on.
 */
final class Place implements AutoCloseable {
    static final long DEADLINE_SECONDS = 120;
    /** Of FUSE, by number. */
    static final Path CONNECTIONS = Path.of("/sys/fs/fuse/connections");

    final Path directory;
    final Path mountpoint;
    final Path source;
    private final long deadlineSeconds;
    private final Thread watchdog;
    private volatile boolean over;
    private volatile boolean barked;

    Place() throws IOException {
        this(DEADLINE_SECONDS);
    }

    Place(long deadlineSeconds) throws IOException {
        this.deadlineSeconds = deadlineSeconds;
        assumeTrue(Files.isWritable(Path.of("/dev/fuse")) && "root".equals(System.getProperty("user.name")),
                "needs root and /dev/fuse");
        showConnections();
        directory = Files.createTempDirectory("bickford-java");
        mountpoint = Files.createDirectory(directory.resolve("mnt"));
        source = Files.createDirectory(directory.resolve("source"));
        watchdog = new Thread(this::watch, "watchdog");
        watchdog.setDaemon(true);
        watchdog.start();
    }

    /** Has the connections shown where they are not: without them a watchdog can abort nothing. */
    private static synchronized void showConnections() throws IOException {
        try (Stream<String> mounts = Files.lines(Path.of("/proc/self/mountinfo"))) {
            if (mounts.anyMatch(line -> line.contains(" - fusectl "))) {
                return;
            }
        }
        try {
            command("mount", "-t", "fusectl", "none", CONNECTIONS.toString());
        } catch (InterruptedException e) {
            throw new IOException("interrupted while fusectl was mounted", e);
        }
    }

    private void watch() {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(deadlineSeconds);
        while (!over) {
            long left = end - System.nanoTime();
            if (left <= 0) {
                barked = true;
                System.err.println("watchdog: " + mountpoint + " took longer than " + deadlineSeconds + " s");
                Thread.getAllStackTraces().forEach((thread, trace) -> {
                    System.err.println(thread);
                    for (StackTraceElement element : trace) {
                        System.err.println("    " + element);
                    }
                });
                abort();
                return;
            }
            java.util.concurrent.locks.LockSupport.parkNanos(left);
        }
    }

    /** Aborts the connection and takes the mount away. */
    private void abort() {
        try {
            for (String[] mount : mounts()) {
                Path connection = CONNECTIONS.resolve(Path.of(mount[2].split(":")[1], "abort"));
                if (Files.exists(connection)) {
                    Files.writeString(connection, "1");
                }
            }
            command("umount", "-l", mountpoint.toString());
        } catch (IOException | InterruptedException e) {
            e.printStackTrace();
        }
    }

    boolean isMounted() throws IOException {
        return !mounts().isEmpty();
    }

    /** The fields of what the mount table has of the mount point. */
    private List<String[]> mounts() throws IOException {
        return Files.readAllLines(Path.of("/proc/self/mountinfo")).stream()
                .map(line -> line.split(" "))
                .filter(fields -> fields[4].equals(mountpoint.toString()))
                .toList();
    }

    /** Waits for a condition that must come true before the watchdog barks. */
    void until(String what, Condition condition) throws Exception {
        while (!condition.holds()) {
            if (barked) {
                throw new AssertionError("not before the deadline: " + what + "\n"
                        + (Files.exists(directory.resolve("output")) ? output() : ""));
            }
            Thread.sleep(5);
        }
    }

    /** Something to wait for. */
    interface Condition {
        boolean holds() throws Exception;
    }

    /** Runs a program to its end; its output, of both streams, is the answer if it succeeds. */
    static String command(String... command) throws IOException, InterruptedException {
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (process.waitFor() != 0) {
            throw new IOException(String.join(" ", command) + ": " + output);
        }
        return output;
    }

    /** What a program writes, to both streams, however it ends. */
    static String outputOf(List<String> command) throws IOException {
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        return new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    }

    /** The command of this project, which scripts/java-tests.sh builds. */
    static Path bickford() {
        Path command = Path.of(System.getProperty("bickford.command"));
        if (!Files.isExecutable(command)) {
            throw new AssertionError(command + " is missing; run the tests by scripts/java-tests.sh");
        }
        return command;
    }

    /** Unmounts as soon as nothing has it busy: a process that was just started may for a moment. */
    void unmount() throws Exception {
        until("it can be unmounted", () -> {
            try {
                command("umount", mountpoint.toString());
                return true;
            } catch (IOException e) {
                if (!e.getMessage().contains("busy")) {
                    throw e;
                }
                return false;
            }
        });
    }

    /** A virtual machine that runs the main method of a class with this one's class path. */
    Process java(Class<?> main, String... args) throws IOException {
        return virtualMachine(main, args).start();
    }

    /** The same, to be started. */
    ProcessBuilder virtualMachine(Class<?> main, String... args) {
        List<String> command = new java.util.ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED", "-Xmx128m", "-cp", System.getProperty("java.class.path"),
                main.getName()));
        command.addAll(List.of(args));
        return new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(directory.resolve("output").toFile());
    }

    /** Has a process run where texts are in ISO-8859-15. */
    void localize(ProcessBuilder process) throws IOException, InterruptedException {
        assumeTrue(Files.exists(Path.of("/usr/share/i18n/locales/de_DE")), "no sources of locales; install locales");
        command("localedef", "-i", "de_DE", "-f", "ISO-8859-15", directory.resolve("de_DE.latin9").toString());
        process.environment().put("LOCPATH", directory.toString());
        process.environment().put("LC_ALL", "de_DE.latin9");
    }

    /** What the process of {@link #java} wrote. */
    String output() throws IOException {
        return Files.readString(directory.resolve("output"));
    }

    /** The same where no exception may be thrown. */
    String outputOrError() {
        try {
            return output();
        } catch (IOException e) {
            return e.toString();
        }
    }

    @Override
    public void close() throws Exception {
        over = true;
        java.util.concurrent.locks.LockSupport.unpark(watchdog);
        watchdog.join();
        if (isMounted()) {
            abort();
        }
        try (Stream<Path> files = Files.walk(directory)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
        if (barked) {
            throw new AssertionError("the watchdog barked: " + mountpoint);
        }
    }
}
