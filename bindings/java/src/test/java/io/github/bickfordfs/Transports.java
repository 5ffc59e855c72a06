package io.github.bickfordfs;

import static org.junit.jupiter.api.Assumptions.assumeFalse;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** What this kernel offers. */
final class Transports {
    private static final Path URING = Path.of("/sys/module/fuse/parameters/enable_uring");

    private Transports() {}

    /** Leaves a test out where the kernel has no io_uring for FUSE, or has it turned off. */
    static void require(String transport) throws IOException {
        assumeFalse(transport.equals("uring") && !(Files.exists(URING) && Files.readString(URING).startsWith("Y")),
                "io_uring is off: " + URING + " is not Y");
    }
}
