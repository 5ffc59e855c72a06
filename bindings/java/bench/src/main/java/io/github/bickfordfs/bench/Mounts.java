package io.github.bickfordfs.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** What is mounted. */
final class Mounts {
    private static final long POLL_MILLISECONDS = 20;

    private Mounts() {}

    static boolean isMounted(Path mountpoint) throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/mountinfo"))) {
            if (line.split(" ")[4].equals(mountpoint.toString())) {
                return true;
            }
        }
        return false;
    }

    static void awaitUnmount(Path mountpoint) throws IOException, InterruptedException {
        while (isMounted(mountpoint.toAbsolutePath())) {
            Thread.sleep(POLL_MILLISECONDS);
        }
    }
}
