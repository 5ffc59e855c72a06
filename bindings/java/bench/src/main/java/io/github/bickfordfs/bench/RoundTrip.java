package io.github.bickfordfs.bench;

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * What a metadata operation takes, from the caller's system call to its answer, in several configurations that are
 * mounted at once and take turns: {@code RoundTrip --out FILE [--rounds N] [--count N] NAME=COMMAND ...}.
 *
 * <p>A command serves {@code {src}} at {@code {mnt}} in the foreground until it is unmounted. The first round is longer,
 * so that code is compiled, and does not count. The configuration {@code native} is the directory itself, and the ratios
 * are to the one named {@code stackfs}.
 */
public final class RoundTrip {
    private static final String REFERENCE = "stackfs";
    private static final int WARM_UP_FACTOR = 5;
    private static final long START_SECONDS = 120;

    private final List<Target> targets = new ArrayList<>();
    private int rounds = 11;
    private int count = 20_000;
    private Path out;
    private long names;

    /** One configuration while it is mounted. */
    private static final class Target {
        private final String name;
        private final String root;
        private final Process process;
        private final Map<String, List<Double>> micros = new LinkedHashMap<>();

        Target(String name, Path root, Process process) {
            this.name = name;
            this.root = root + "/";
            this.process = process;
        }
    }

    /** Something to measure; it is done once for a number. */
    private interface Work {
        void once(String root, String name);
    }

    private static final Map<String, Work> WORKS = works();

    private static Map<String, Work> works() {
        Map<String, Work> works = new LinkedHashMap<>();
        works.put("lookup of a missing name", (root, name) -> expect(-2, Libc.stat(root, name)));
        works.put("mkdir and rmdir", (root, name) -> {
            expect(0, Libc.mkdir(root, name, 0755));
            expect(0, Libc.rmdir(root, name));
        });
        return works;
    }

    private static void expect(int expected, int result) {
        if (result != expected) {
            throw new IllegalStateException("the system call answered " + result + ", not " + expected);
        }
    }

    private RoundTrip() {}

    /**
     * The command.
     *
     * @param args see above
     */
    public static void main(String[] args) throws Exception {
        RoundTrip run = new RoundTrip();
        Path directory = Files.createTempDirectory("bickford-round-trip");
        Map<String, String> commands = run.parse(args);
        Runtime.getRuntime().addShutdownHook(new Thread(run::stop));
        run.targets.add(new Target("native", Files.createDirectory(directory.resolve("native")), null));
        for (Map.Entry<String, String> command : commands.entrySet()) {
            run.targets.add(start(directory, command.getKey(), command.getValue(), run.out));
        }
        run.measure();
        run.stop();
        System.out.print(run.report());
        Files.writeString(run.out.resolveSibling(run.out.getFileName() + ".txt"), run.report());
    }

    private Map<String, String> parse(String[] args) {
        Map<String, String> commands = new LinkedHashMap<>();
        for (int i = 0; i < args.length; i++) {
            switch (args[i]) {
                case "--rounds" -> rounds = Integer.parseInt(args[++i]);
                case "--count" -> count = Integer.parseInt(args[++i]);
                case "--out" -> out = Path.of(args[++i]);
                default -> {
                    String[] parts = args[i].split("=", 2);
                    commands.put(parts[0], parts[1]);
                }
            }
        }
        if (out == null || !commands.containsKey(REFERENCE)) {
            throw new IllegalArgumentException("--out FILE and a configuration " + REFERENCE + "=COMMAND are needed");
        }
        return commands;
    }

    private static Target start(Path directory, String name, String command, Path out)
            throws IOException, InterruptedException {
        Path source = Files.createDirectory(directory.resolve(name + "-source"));
        Path mountpoint = Files.createDirectory(directory.resolve(name));
        Path log = out.resolveSibling(out.getFileName() + "." + name + ".log");
        // In a session of its own, as one in the background: the scheduler treats those of one session otherwise.
        Process process = new ProcessBuilder("setsid", "sh", "-c",
                command.replace("{src}", source.toString()).replace("{mnt}", mountpoint.toString()))
                .redirectErrorStream(true)
                .redirectOutput(log.toFile())
                .start();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS);
        while (!Mounts.isMounted(mountpoint)) {
            if (!process.isAlive() || System.nanoTime() > end) {
                process.destroy();
                throw new IOException(name + " was not mounted:\n" + Files.readString(log));
            }
            Thread.sleep(20);
        }
        return new Target(name, mountpoint, process);
    }

    private void stop() {
        for (Target target : targets) {
            try {
                if (target.process != null && Mounts.isMounted(Path.of(target.root).normalize())) {
                    new ProcessBuilder("umount", "-l", target.root).inheritIO().start().waitFor();
                    target.process.waitFor(30, TimeUnit.SECONDS);
                    target.process.destroy();
                }
            } catch (IOException | InterruptedException e) {
                System.err.println(target.name + ": " + e);
            }
        }
    }

    private void measure() throws IOException {
        try (PrintWriter raw = new PrintWriter(Files.newBufferedWriter(out))) {
            raw.println("round\tconfiguration\twork\toperations\tmicroseconds");
            for (int round = 0; round <= rounds; round++) {
                for (Map.Entry<String, Work> work : WORKS.entrySet()) {
                    for (int i = 0; i < targets.size(); i++) {
                        one(raw, round, work.getKey(), work.getValue(), targets.get((i + round) % targets.size()));
                    }
                }
                raw.flush();
            }
        }
    }

    private void one(PrintWriter raw, int round, String name, Work work, Target target) {
        int operations = round == 0 ? count * WARM_UP_FACTOR : count;
        // Names that were not used before: none is remembered.
        String[] all = new String[operations];
        for (int i = 0; i < operations; i++) {
            all[i] = "name" + names++;
        }
        long start = System.nanoTime();
        for (String each : all) {
            work.once(target.root, each);
        }
        double micros = (System.nanoTime() - start) / 1000.0 / operations;
        raw.printf("%d\t%s\t%s\t%d\t%.3f%n", round, target.name, name, operations, micros);
        if (round > 0) {
            target.micros.computeIfAbsent(name, _ -> new ArrayList<>()).add(micros);
        }
    }

    private static double median(List<Double> values) {
        double[] sorted = values.stream().mapToDouble(Double::doubleValue).sorted().toArray();
        int middle = sorted.length / 2;
        return sorted.length % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    }

    /** Median of the differences, or of the ratios, round by round. */
    private static double paired(List<Double> values, List<Double> reference, boolean ratio) {
        List<Double> pairs = new ArrayList<>();
        for (int i = 0; i < values.size(); i++) {
            pairs.add(ratio ? values.get(i) / reference.get(i) : values.get(i) - reference.get(i));
        }
        return median(pairs);
    }

    private String report() {
        StringBuilder report = new StringBuilder();
        Target reference = targets.stream().filter(target -> target.name.equals(REFERENCE)).findFirst().orElseThrow();
        for (String work : WORKS.keySet()) {
            report.append(String.format("%s: %d rounds of %d%n", work, rounds, count));
            report.append(String.format("  %-12s %10s %10s %16s %14s%n", "", "median us", "MAD us", "over " + REFERENCE,
                    "ratio to it"));
            for (Target target : targets) {
                List<Double> values = target.micros.get(work);
                List<Double> base = reference.micros.get(work);
                double median = median(values);
                double spread = median(values.stream().map(value -> Math.abs(value - median)).toList());
                report.append(String.format("  %-12s %10.2f %10.2f %16.2f %14.3f%n", target.name, median, spread,
                        paired(values, base, false), paired(values, base, true)));
            }
        }
        return report.toString();
    }
}
