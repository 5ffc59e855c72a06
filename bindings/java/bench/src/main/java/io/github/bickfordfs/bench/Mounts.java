package io.github.bickfordfs.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** What is mounted. */
final class Mounts {
    /** Options of libfuse 2 and 3 with which the kernel asks for nothing twice. */
    static final String CACHED = "entry_timeout=1e9,attr_timeout=1e9,negative_timeout=1e9,kernel_cache";

    private Mounts() {}

    static boolean isMounted(Path mountpoint) throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/mountinfo"))) {
            if (line.split(" ")[4].equals(mountpoint.toString())) {
                return true;
            }
        }
        return false;
    }

    /** Waits without working: what a process computes here would count as its file system's. */
    static void awaitUnmount(Path mountpoint) throws IOException {
        int table = Libc.open("/proc/self/mountinfo", "", 0, 0);
        if (table < 0) {
            throw new IOException("open /proc/self/mountinfo: error " + -table);
        }
        while (isMounted(mountpoint.toAbsolutePath())) {
            Libc.awaitMounts(table);
        }
        Libc.close(table);
    }
}
