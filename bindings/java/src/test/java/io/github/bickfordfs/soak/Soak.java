package io.github.bickfordfs.soak;

import io.github.bickfordfs.Configuration;
import io.github.bickfordfs.DataMode;
import io.github.bickfordfs.Mount;
import io.github.bickfordfs.MountOptions;
import io.github.bickfordfs.examples.Hello;
import io.github.bickfordfs.examples.MemoryFs;
import io.github.bickfordfs.examples.NullFs;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/**
 * Mixed load on mounts of one virtual machine, with the collector kept busy: {@code Soak SECONDS TRANSPORT DIRECTORY}.
 *
 * <p>From time to time the load rests, and what the process holds is written down. It fails when an operation fails or
 * reads what was not written, when nothing moves for two minutes, or when native memory, descriptors or threads have
 * grown. {@code scripts/java-soak.sh} starts it.
 */
public final class Soak {
    private static final int LOADS_PER_MOUNT = 2;
    private static final int SAMPLES = 20;
    /** Samples before the first that counts: code is compiled and buffers are made. */
    private static final int FIRST = 5;
    private static final long STUCK_NANOS = TimeUnit.MINUTES.toNanos(2);
    /** The compiler's and the allocator's own movements; a leak of a byte for a request is more. */
    private static final long NATIVE_MEMORY_SLACK = 16 << 20;
    private static final long RESIDENT_SLACK = 48 << 20;
    /** To each mount, before anything is counted: some for each thread that may be too many. */
    private static final int CALM_REQUESTS = 150;

    private final Path directory;
    private final String transport;
    private final Gate gate = new Gate();
    private final AtomicBoolean over = new AtomicBoolean();
    private final List<Load> loads = new ArrayList<>();
    private final Map<String, Mount> mounts = new LinkedHashMap<>();
    private volatile long remounts;
    private long calmed;
    private volatile Throwable failure;

    private Soak(Path directory, String transport) {
        this.directory = directory;
        this.transport = transport;
    }

    /**
     * The soak.
     *
     * @param args seconds, transport and an empty directory
     */
    public static void main(String[] args) throws Exception {
        if (args.length != 3) {
            System.err.println("usage: Soak SECONDS auto|dev|uring DIRECTORY");
            System.exit(2);
        }
        Soak soak = new Soak(Path.of(args[2]), args[1]);
        List<String> complaints = soak.run(Integer.parseInt(args[0]));
        complaints.forEach(complaint -> System.out.println("soak: FAILED: " + complaint));
        if (!complaints.isEmpty()) {
            System.exit(1);
        }
        System.out.println("soak: passed");
    }

    private Path made(String name) throws IOException {
        return Files.createDirectory(directory.resolve(name));
    }

    private void javaFuse(String name, DataMode mode, String preset) throws IOException {
        Path source = made(name + "-source");
        MountOptions options = MountOptions.DEFAULT.withOptions("preset=" + preset + ",transport=" + transport);
        if (preset.equals("base")) {
            // One thread, as it has by itself, cannot serve over io_uring.
            options = options.withWorkers(2);
        }
        mounts.put(name, Mount.javaFuse(new NullFs(), source, made(name), Configuration.DEFAULT.withData(mode), options));
    }

    private void mountAll() throws IOException {
        javaFuse("javafuse1", DataMode.NONE, "opt");
        javaFuse("javafuse2", DataMode.COPIED, "base");
        javaFuse("shared", DataMode.SHARED, "fast");
        MountOptions options = MountOptions.DEFAULT.withOptions("transport=" + transport);
        mounts.put("memory", Mount.inodes(new MemoryFs(), made("memory"), options));
        mounts.put("virtual", Mount.inodes(new MemoryFs(), made("virtual"), options.withVirtualThreads()));
        mounts.put("later", Mount.inodes(new LaterFs(), made("later"), options));
    }

    private List<String> run(int seconds) throws Exception {
        List<Thread> threads = new ArrayList<>();
        List<Sample> samples = new ArrayList<>();
        try {
            mountAll();
            for (String name : mounts.keySet()) {
                for (int i = 0; i < LOADS_PER_MOUNT; i++) {
                    Load load = new Load(directory.resolve(name), name.equals("later"), loads.size());
                    loads.add(load);
                    threads.add(start("load-" + name + i, load::once));
                }
            }
            threads.add(start("garbage", new Garbage()::once));
            threads.add(start("remount", this::remount));
            Thread watch = new Thread(this::watch, "watch");
            watch.setDaemon(true);
            watch.start();
            sample(seconds, samples);
        } finally {
            over.set(true);
            gate.open();
            for (Thread thread : threads) {
                thread.join();
            }
            for (Mount mount : mounts.values()) {
                mount.close();
            }
        }
        return judge(samples);
    }

    /** Something done over and over. */
    private interface Work {
        void once() throws Exception;
    }

    private Thread start(String name, Work work) {
        gate.join();
        Thread thread = new Thread(() -> {
            try {
                while (!over.get() && failure == null) {
                    gate.pass();
                    work.once();
                }
            } catch (Throwable e) {
                failure = e;
                e.printStackTrace();
            } finally {
                gate.leave();
            }
        }, name);
        thread.start();
        return thread;
    }

    /** A mount that comes and goes. */
    private void remount() throws IOException {
        Path mountpoint = Files.createDirectories(directory.resolve("remounted"));
        try (Mount _ = Mount.inodes(new Hello(), mountpoint,
                MountOptions.DEFAULT.withOptions("transport=" + transport))) {
            if (Files.size(mountpoint.resolve("hello")) == 0) {
                throw new IOException("hello is empty");
            }
        }
        remounts++;
        LockSupport.parkNanos(TimeUnit.SECONDS.toNanos(1));
    }

    private void sample(int seconds, List<Sample> samples) throws Exception {
        long start = System.nanoTime();
        for (int i = 1; i <= SAMPLES && failure == null; i++) {
            long next = start + TimeUnit.SECONDS.toNanos(seconds) / SAMPLES * i;
            while (failure == null && System.nanoTime() < next) {
                Thread.sleep(100);
            }
            gate.shut();
            calm();
            long requests = loads.stream().mapToLong(Load::operations).sum();
            Sample sample = Sample.now();
            System.out.printf("soak: %4d s  %9d operations  %4d remounts  %s%n",
                    TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - start), requests, remounts, sample);
            samples.add(sample);
            if (i == FIRST) {
                Sample.baseline();
            }
            gate.open();
        }
    }

    /** Threads that the load had started end when single requests find that they are too many. */
    private void calm() throws InterruptedException {
        for (int i = 0; i < CALM_REQUESTS; i++) {
            for (String name : mounts.keySet()) {
                Files.exists(directory.resolve(name).resolve("nothing-" + calmed));
            }
            calmed++;
            Thread.sleep(10);
        }
    }

    private List<String> judge(List<Sample> samples) throws Exception {
        System.out.println(Sample.difference());
        List<String> complaints = new ArrayList<>();
        if (failure != null) {
            complaints.add("the load ended with " + failure);
        }
        if (samples.size() < SAMPLES) {
            complaints.add("only " + samples.size() + " of " + SAMPLES + " samples were taken");
            return complaints;
        }
        Sample first = samples.get(FIRST - 1);
        Sample last = samples.getLast();
        grown(complaints, "native memory of the virtual machine", first.nativeMemory(), last.nativeMemory(),
                NATIVE_MEMORY_SLACK);
        grown(complaints, "resident memory", first.resident(), last.resident(), RESIDENT_SLACK);
        grown(complaints, "descriptors", first.descriptors(), last.descriptors(), 0);
        grown(complaints, "threads", first.threads(), last.threads(), 2);
        return complaints;
    }

    private static void grown(List<String> complaints, String what, long from, long to, long slack) {
        if (to > from + slack) {
            complaints.add(what + " grew from " + from + " to " + to);
        }
    }

    /** Ends the process with its stacks when nothing moves. */
    private void watch() {
        long before = -1;
        long since = System.nanoTime();
        while (!over.get()) {
            LockSupport.parkNanos(TimeUnit.SECONDS.toNanos(1));
            long now = loads.stream().mapToLong(Load::operations).sum();
            if (now != before) {
                before = now;
                since = System.nanoTime();
            } else if (System.nanoTime() - since > STUCK_NANOS) {
                System.out.println("soak: FAILED: nothing moved for two minutes");
                Thread.getAllStackTraces().forEach((thread, trace) -> System.out.println(thread + " " + List.of(trace)));
                mounts.values().forEach(Soak::abort);
                Runtime.getRuntime().halt(1);
            }
        }
    }

    private static void abort(Mount mount) {
        try {
            Files.writeString(Path.of("/sys/fs/fuse/connections", Long.toString(mount.connection()), "abort"), "1");
            new ProcessBuilder("umount", "-l", mount.mountpoint().toString()).start().waitFor();
        } catch (IOException | InterruptedException e) {
            System.out.println("abort " + mount.mountpoint() + ": " + e);
        }
    }
}
