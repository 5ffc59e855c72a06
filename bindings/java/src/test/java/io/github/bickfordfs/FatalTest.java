package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.Hello;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class FatalTest {
    /** A file system whose methods end the virtual machine in different ways: {@code Ending MOUNTPOINT}. */
    static final class Ending implements InodeFileSystem {
        @Override
        public Attributes getattr(Request request) {
            return new Attributes(Attr.directory(ROOT, 0755), Entry.SECOND);
        }

        @Override
        public Entry lookup(Request request) throws IOException {
            switch (request.name()) {
                case "memory" -> {
                    long[][] all = new long[1 << 20][];
                    for (int i = 0; i < all.length; i++) {
                        all[i] = new long[1 << 20];
                    }
                }
                case "stack" -> deeper(0);
                case "exit" -> System.exit(3);
                default -> { }
            }
            throw new FuseException(Errno.ENOENT);
        }

        private int deeper(int depth) {
            return depth < 0 ? depth : deeper(depth + 1) + 1;
        }

        public static void main(String[] args) throws IOException {
            try (Mount mount = Mount.inodes(new Ending(), Path.of(args[0]), MountOptions.DEFAULT.withOptions(args[1]))) {
                mount.await();
            }
        }
    }

    @ParameterizedTest
    @CsvSource({"memory,dev", "stack,dev", "exit,dev", "memory,uring", "stack,uring", "exit,uring"})
    void theEndOfTheVirtualMachineUnmounts(String how, String transport) throws Exception {
        Transports.require(transport);
        try (Place place = new Place()) {
            Process process = place.java(Ending.class, place.mountpoint.toString(), "transport=" + transport);
            try {
                place.until("it is mounted", () -> place.isMounted() || !process.isAlive());
                assertTrue(process.isAlive(), place::outputOrError);
                assertThrows(IOException.class,
                        () -> Files.readAttributes(place.mountpoint.resolve(how), "size"));
                place.until("it is unmounted", () -> !place.isMounted());
                place.until("the process ends", () -> !process.isAlive());
                assertEquals(how.equals("exit") ? 3 : 0, process.exitValue(), place::outputOrError);
            } finally {
                process.destroyForcibly().waitFor();
            }
        }
    }

    @Test
    void aMountWithoutItsGuardIsTakenAway() throws Exception {
        InodeTarget target = new InodeTarget(new Hello(), "hello", false);
        Thread started = new Thread(() -> { });
        started.start();
        try (Place place = new Place()) {
            assertThrows(IllegalThreadStateException.class, () -> new Mount(place.mountpoint, target,
                    number -> Native.mount(place.mountpoint.toString(), MountOptions.DEFAULT,
                            new Native.CallbackSpec(number, target.operations(), 0, Bridge.DISPATCH)),
                    _ -> started));
            assertFalse(place.isMounted());
        }
    }

    @Test
    void aTerminatedProcessUnmounts() throws Exception {
        try (Place place = new Place()) {
            Process process = place.java(Ending.class, place.mountpoint.toString(), "");
            try {
                place.until("it is mounted", () -> place.isMounted() || !process.isAlive());
                assertTrue(process.isAlive(), place::outputOrError);
                process.destroy();
                place.until("the process ends", () -> !process.isAlive());
                assertFalse(place.isMounted());
            } finally {
                process.destroyForcibly().waitFor();
            }
        }
    }

    @Test
    void aKilledProcessLeavesAMountThatIsCleanedUp() throws Exception {
        try (Place place = new Place()) {
            Process process = place.java(Hello.class, "-f", place.mountpoint.toString());
            place.until("it answers", () -> Files.exists(place.mountpoint.resolve("hello")) || !process.isAlive());
            assertTrue(process.isAlive(), place::outputOrError);
            process.destroyForcibly().waitFor();
            assertTrue(place.isMounted());
            // Rings are taken down a little after their process; until then requests are cancelled.
            place.until("it is said to be dead", () -> assertThrows(IOException.class,
                    () -> Mount.inodes(new Hello(), place.mountpoint, MountOptions.DEFAULT))
                    .getMessage().contains("bickford unmount"));
            Place.command(Place.bickford().toString(), "unmount", place.mountpoint.toString());
            assertFalse(place.isMounted());
        }
    }
}
