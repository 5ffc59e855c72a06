package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.Hello;
import io.github.bickfordfs.examples.MemoryFs;
import io.github.bickfordfs.examples.NioFs;
import io.github.bickfordfs.examples.NullFs;
import io.github.bickfordfs.examples.UpperCase;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileSystem;
import java.nio.file.FileSystemException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.junit.jupiter.api.Test;

class ExamplesTest {
    static Set<String> names(Path directory) throws Exception {
        try (Stream<Path> names = Files.list(directory)) {
            return names.map(name -> name.getFileName().toString()).collect(Collectors.toCollection(TreeSet::new));
        }
    }

    @Test
    void hello() throws Exception {
        try (Place place = new Place()) {
            try (Mount mount = Mount.inodes(new Hello(), place.mountpoint, MountOptions.DEFAULT)) {
                assertTrue(mount.connection() > 0);
                assertEquals(Set.of("hello"), names(place.mountpoint));
                assertEquals("Hello, world!\n", Files.readString(place.mountpoint.resolve("hello")));
                assertThrows(NoSuchFileException.class, () -> Files.size(place.mountpoint.resolve("other")));
                assertFalse(mount.await(0));
            }
            assertFalse(place.isMounted());
        }
    }

    @Test
    void memory() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.inodes(new MemoryFs(), place.mountpoint, MountOptions.DEFAULT)) {
            exercise(place.mountpoint);
            Path link = place.mountpoint.resolve("link");
            Path file = Files.writeString(place.mountpoint.resolve("linked"), "two names");
            Files.createLink(link, file);
            assertEquals(2, Files.getAttribute(link, "unix:nlink"));
            Files.delete(file);
            assertEquals("two names", Files.readString(link));
            Files.setPosixFilePermissions(link, PosixFilePermissions.fromString("rw-r-----"));
            assertEquals("rw-r-----", PosixFilePermissions.toString(Files.getPosixFilePermissions(link)));
        }
    }

    private static boolean make(Path directory, int last) {
        byte[] path = (directory + "/caf.").getBytes(StandardCharsets.UTF_8);
        path[path.length - 1] = (byte) last;
        int descriptor = Libc.open(path, Libc.O_RDWR | Libc.O_CREAT | Libc.O_EXCL);
        if (descriptor >= 0) {
            Libc.close(descriptor);
        }
        return descriptor >= 0;
    }

    /** What ls(1) lists of names that are not UTF-8: their last letters in octal. */
    private static String listed(Path directory) throws Exception {
        return Place.command("ls", "-b", directory.toString());
    }

    @Test
    void namesThatAreNotUtf8AreNotMerged() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.inodes(new MemoryFs(), place.mountpoint, MountOptions.DEFAULT)) {
            assertTrue(make(place.mountpoint, 0xe9));
            assertTrue(make(place.mountpoint, 0xe8));
            assertEquals("caf\\350\ncaf\\351\n", listed(place.mountpoint));
        }
        try (Place place = new Place();
                Mount _ = Mount.paths(new NioFs(place.source), place.mountpoint, MountOptions.DEFAULT)) {
            assertFalse(make(place.mountpoint, 0xe9));
            assertEquals(Set.of(), names(place.source));
        }
        try (Place place = new Place();
                Mount _ = Mount.javaFuse(new NullFs(), place.source, place.mountpoint, Configuration.DEFAULT,
                        MountOptions.DEFAULT)) {
            assertTrue(make(place.mountpoint, 0xe9));
            assertTrue(make(place.mountpoint, 0xe8));
            assertEquals("caf\\350\ncaf\\351\n", listed(place.source));
            assertEquals("caf\\350\ncaf\\351\n", listed(place.mountpoint));
            // Java cannot name them.
            Place.command("rm", "-r", place.source.toString());
            Files.createDirectory(place.source);
        }
    }

    @Test
    void nullFileSystem() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.javaFuse(new NullFs(), place.source, place.mountpoint, Configuration.DEFAULT,
                        MountOptions.DEFAULT)) {
            exercise(place.mountpoint);
            assertEquals(names(place.source), names(place.mountpoint));
        }
    }

    @Test
    void aDirectoryOfTheDefaultFileSystem() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.paths(new NioFs(place.source), place.mountpoint, MountOptions.DEFAULT)) {
            exercise(place.mountpoint);
            assertEquals(names(place.source), names(place.mountpoint));
        }
    }

    @Test
    void aFileThatIsMadeToBeReadIsRead() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.paths(new NioFs(place.source), place.mountpoint, MountOptions.DEFAULT)) {
            Path file = place.mountpoint.resolve("file");
            int descriptor = Libc.open(file.toString().getBytes(), Libc.O_RDONLY | Libc.O_CREAT);
            try {
                Files.writeString(file, "text");
                assertEquals("text", Libc.read(descriptor));
            } finally {
                Libc.close(descriptor);
            }
        }
    }

    /** A target that was removed first would not be an error, but gone in between. */
    @Test
    void renamingIsOneStep() throws Exception {
        try (Place place = new Place()) {
            Files.createDirectory(place.source.resolve("directory"));
            Files.writeString(place.source.resolve("file"), "text");
            NioFs fs = new NioFs(place.source);
            assertThrows(FileSystemException.class, () -> fs.rename("/file", "/directory", 0));
            assertEquals(Set.of("directory", "file"), names(place.source));
            Files.writeString(place.source.resolve("there"), "old");
            fs.rename("/file", "/there", 0);
            assertEquals("text", Files.readString(place.source.resolve("there")));
        }
    }

    /** What every file system that can write must do. */
    private static void exercise(Path root) throws Exception {
        Path directory = Files.createDirectory(root.resolve("directory"));
        byte[] data = new byte[300_000];
        new Random(42).nextBytes(data);
        Path file = Files.write(directory.resolve("data"), data);
        assertEquals(data.length, Files.size(file));
        assertArrayEquals(data, Files.readAllBytes(file));
        Files.write(file, new byte[] {1, 2, 3}, StandardOpenOption.APPEND);
        assertEquals(data.length + 3, Files.size(file));
        try (var channel = Files.newByteChannel(file, StandardOpenOption.WRITE)) {
            channel.truncate(1000);
        }
        assertEquals(1000, Files.size(file));
        assertThrows(DirectoryNotEmptyException.class, () -> Files.delete(directory));
        Path moved = Files.move(file, root.resolve("moved"));
        assertFalse(Files.exists(file));
        assertEquals(1000, Files.size(moved));
        FileTime time = FileTime.from(Instant.parse("2001-02-03T04:05:06Z"));
        Files.setLastModifiedTime(moved, time);
        assertEquals(time, Files.getLastModifiedTime(moved));
        Path symlink = Files.createSymbolicLink(root.resolve("symlink"), Path.of("moved"));
        assertEquals(Path.of("moved"), Files.readSymbolicLink(symlink));
        assertEquals(1000, Files.size(symlink));
        assertEquals(Set.of("directory", "moved", "symlink"), names(root));
        Path empty = Files.createDirectory(root.resolve("empty"));
        moved = Files.move(Files.move(moved, empty.resolve("moved")), moved);
        assertEquals(1000, Files.size(moved));
        Files.delete(empty);
        Files.delete(directory);
        Files.delete(symlink);
        for (int i = 0; i < 300; i++) {
            Files.writeString(root.resolve("file-with-a-rather-long-name-" + i), "x" + i);
        }
        assertEquals(301, names(root).size());
        assertEquals("x299", Files.readString(root.resolve("file-with-a-rather-long-name-299")));
        for (int i = 0; i < 300; i++) {
            Files.delete(root.resolve("file-with-a-rather-long-name-" + i));
        }
        assertEquals(Set.of("moved"), names(root));
    }

    /** How many copies of large files of zip files this process has open. */
    private static long copies() throws Exception {
        long copies = 0;
        try (Stream<Path> descriptors = Files.list(Path.of("/proc/self/fd"))) {
            for (Path descriptor : (Iterable<Path>) descriptors::iterator) {
                try {
                    copies += Files.readSymbolicLink(descriptor).toString().contains("/niofs") ? 1 : 0;
                } catch (NoSuchFileException e) {
                    // Another thread has closed it meanwhile.
                }
            }
        }
        return copies;
    }

    @Test
    void zip() throws Exception {
        try (Place place = new Place()) {
            Path archive = place.directory.resolve("archive.zip");
            byte[] data = new byte[200_000];
            new Random(7).nextBytes(data);
            try (OutputStream out = Files.newOutputStream(archive); ZipOutputStream zip = new ZipOutputStream(out)) {
                zip.putNextEntry(new ZipEntry("folder/data"));
                zip.write(data);
                zip.putNextEntry(new ZipEntry("readme"));
                zip.write("read me".getBytes());
                zip.putNextEntry(new ZipEntry("large"));
                zip.write(new byte[65 << 20]);
                zip.write('x');
            }
            try (FileSystem zip = FileSystems.newFileSystem(archive);
                    Mount _ = Mount.paths(new NioFs(zip.getPath("/")), place.mountpoint, MountOptions.DEFAULT)) {
                assertEquals(Set.of("folder", "large", "readme"), names(place.mountpoint));
                assertEquals("read me", Files.readString(place.mountpoint.resolve("readme")));
                assertArrayEquals(data, Files.readAllBytes(place.mountpoint.resolve("folder/data")));
                assertTrue(Files.isDirectory(place.mountpoint.resolve("folder")));
                try (var large = Files.newByteChannel(place.mountpoint.resolve("large"))) {
                    ByteBuffer end = ByteBuffer.allocate(10);
                    large.position(large.size() - 1).read(end);
                    assertEquals("x", new String(end.array(), 0, end.position()));
                    assertEquals(1, copies());
                }
                place.until("the copy is gone", () -> copies() == 0);
                String message = assertThrows(FileSystemException.class, () -> Files.writeString(
                        place.mountpoint.resolve("readme"), ", too", StandardOpenOption.APPEND)).getMessage();
                assertTrue(message.endsWith("Read-only file system"), message);
                assertEquals("read me", Files.readString(place.mountpoint.resolve("readme")));
            }
        }
    }

    @Test
    void upperCase() throws Exception {
        try (Place place = new Place();
                Mount _ = Mount.javaFuse(new UpperCase(), place.source, place.mountpoint, Configuration.DEFAULT,
                        MountOptions.DEFAULT)) {
            Files.writeString(place.mountpoint.resolve("file"), "upper Case 1");
            assertEquals("UPPER CASE 1", Files.readString(place.source.resolve("file")));
            assertEquals(List.of("file"), List.copyOf(names(place.source)));
            Files.writeString(place.source.resolve("below"), "lower case");
            Place.command("cp", place.mountpoint + "/below", place.mountpoint + "/copy");
            assertEquals("LOWER CASE", Files.readString(place.source.resolve("copy")));
        }
    }
}
