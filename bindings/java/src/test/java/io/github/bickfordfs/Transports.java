package io.github.bickfordfs;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** What this kernel offers. */
final class Transports {
    private static final Path URING = Path.of("/sys/module/fuse/parameters/enable_uring");

    private Transports() {}

    /** Leaves a test out where the kernel is older. */
    static void requireKernel(int major, int minor, String what) {
        String[] version = System.getProperty("os.version").split("[.-]");
        int here = Integer.parseInt(version[0]) * 1000 + Integer.parseInt(version[1]);
        assumeTrue(here >= major * 1000 + minor, what + " needs Linux " + major + "." + minor);
    }

    /** Turns io_uring for FUSE on; leaves a test out where the kernel has none. */
    static void require(String transport) throws IOException {
        if (transport.startsWith("uring")) {
            assumeTrue(Files.exists(URING), "no " + URING + "; FUSE over io_uring needs Linux 6.14");
            if (!Files.readString(URING).startsWith("Y")) {
                System.err.println("writing Y to " + URING);
                Files.writeString(URING, "Y");
            }
        }
    }
}
