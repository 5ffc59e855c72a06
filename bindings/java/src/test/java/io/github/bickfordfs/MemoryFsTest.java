package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.MemoryFs;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What {@link MemoryFs} must do besides what all examples do. */
class MemoryFsTest {
    /** As much as the virtual machine of {@link Place#java} may have, twice. */
    private static void fill(Path file) throws IOException {
        try (var out = Files.newOutputStream(file)) {
            byte[] part = new byte[1 << 20];
            for (int i = 0; i < 256; i++) {
                out.write(part);
            }
        }
    }

    private static String owner(Path path) throws IOException {
        return Files.getAttribute(path, "unix:uid") + ":" + Files.getAttribute(path, "unix:gid");
    }

    @Test
    void dataThatDoNotFitIntoTheHeapEndNothing() throws Exception {
        try (Place place = new Place()) {
            Place.command("chown", "1234:567", place.mountpoint.toString());
            Process process = place.java(MemoryFs.class, "-f", place.mountpoint.toString());
            try {
                place.until("it is mounted", () -> {
                    assertTrue(process.isAlive(), place::outputOrError);
                    return place.isMounted();
                });
                assertEquals("1234:567", owner(place.mountpoint));
                Path kept = Files.writeString(place.mountpoint.resolve("kept"), "kept");
                Path large = place.mountpoint.resolve("large");
                for (int i = 0; i < 3; i++) {
                    String message = assertThrows(IOException.class, () -> fill(large)).getMessage();
                    assertTrue(message.contains("No space left on device"), message);
                    assertTrue(Files.size(large) >= 16 << 20);
                    Files.delete(large);
                }
                try (RandomAccessFile file = new RandomAccessFile(large.toFile(), "rw")) {
                    assertThrows(IOException.class, () -> file.setLength(1 << 30));
                }
                assertEquals("kept", Files.readString(kept));
                place.unmount();
                assertEquals(0, process.waitFor());
            } finally {
                process.destroyForcibly();
            }
        }
    }

    @Test
    void aListingThatBeginsAgainHasNewNames() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.inodes(new MemoryFs(), place.mountpoint, MountOptions.DEFAULT)) {
            Files.createDirectory(place.mountpoint.resolve("old"));
            List<List<String>> listed = Libc.listTwice(place.mountpoint, () -> {
                Files.delete(place.mountpoint.resolve("old"));
                Files.createDirectory(place.mountpoint.resolve("new"));
                return null;
            });
            assertEquals(List.of(List.of(".", "..", "old"), List.of(".", "..", "new")), listed);
        }
    }

    @Test
    void whatIsMadeInADirectoryWithSetgidIsOfItsGroup() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.inodes(new MemoryFs(), place.mountpoint, MountOptions.DEFAULT)) {
            Path shared = Files.createDirectory(place.mountpoint.resolve("shared"));
            Files.setAttribute(shared, "unix:gid", 567);
            Files.setAttribute(shared, "unix:mode", 02775);
            Path below = Files.createDirectory(shared.resolve("below"));
            assertEquals(02000, (int) Files.getAttribute(below, "unix:mode") & 02000);
            Path file = Files.writeString(below.resolve("file"), "text");
            assertEquals("0:567", owner(file));
            assertEquals(0, (int) Files.getAttribute(file, "unix:mode") & 02000);
        }
    }
}
