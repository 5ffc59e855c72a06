package io.github.bickfordfs;

import static io.github.bickfordfs.PathOperationsTest.options;
import static io.github.bickfordfs.PathOperationsTest.stat;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.Hello;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What the kernel is told of a file system over paths by listings and options, and remembers until that is dropped. */
class PathCacheTest {
    private static final long HOUR = 3600 * Entry.SECOND;

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "dev,virtual", "uring,at_once,max_background=16"})
    void attributesOfAListingSaveLookups(String transport) throws Exception {
        Map<String, Integer> asked = new HashMap<>();

        class Listed implements PathFileSystem {
            @Override
            public long validity() {
                return HOUR;
            }

            @Override
            public synchronized Attr getattr(String path) {
                asked.merge(path, 1, Integer::sum);
                return path.equals("/") ? Attr.directory(0, 0755) : Attr.file(0, 0644, path.length());
            }

            @Override
            public List<Item> readdir(String path) {
                return List.of(Item.of("known", Attr.file(0, 0600, 99)), new Item("unknown", Attr.S_IFREG));
            }
        }

        try (Place place = new Place(); Mount _ = Mount.paths(new Listed(), place.mountpoint, options(transport))) {
            Map<String, Long> numbers = Libc.list(place.mountpoint);
            Path known = place.mountpoint.resolve("known");
            assertEquals(99, Files.size(known));
            assertEquals(numbers.get("known"), stat(known, "ino"));
            assertEquals("/unknown".length(), Files.size(place.mountpoint.resolve("unknown")));
            asked.remove("/");
            assertEquals(Map.of("/unknown", 1), asked);
        }
    }

    /** Every name that is looked up is a file with an inode number of its own. */
    private static class Numbered implements PathFileSystem {
        private final List<Item> items;

        Numbered(Item... items) {
            this.items = List.of(items);
        }

        @Override
        public Attr getattr(String path) throws IOException {
            return path.equals("/") ? Attr.directory(4711, 0755) : Attr.file(100 + path.length(), 0644, 0);
        }

        @Override
        public List<Item> readdir(String path) {
            return items;
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "dev,virtual"})
    void inodeNumbersAreTheFileSystemsWhereItIsSaidSo(String transport) throws Exception {
        Numbered fs = new Numbered(PathFileSystem.Item.of("known", Attr.file(42, 0644, 13)));
        try (Place place = new Place();
                Mount _ = Mount.paths(fs, place.mountpoint, options(transport).plus("use_ino"))) {
            assertEquals(42, Libc.list(place.mountpoint).get("known"));
            assertEquals(4711L, stat(place.mountpoint, "ino"));
            assertEquals(103L, stat(place.mountpoint.resolve("ab"), "ino"));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "dev,virtual"})
    void aListingThatCannotBeIsRefusedAndTold(String transport) throws Exception {
        Attr typeless = new Attr(0, 0600, 1, 0, 0, 0, 0, 0, Instant.EPOCH, Instant.EPOCH, Instant.EPOCH);
        for (PathFileSystem.Item wrong : List.of(
                new PathFileSystem.Item("a/b", 0), PathFileSystem.Item.of("typeless", typeless))) {
            Numbered fs = new Numbered(new PathFileSystem.Item("first", 0), wrong);
            try (Place place = new Place(); Records records = new Records();
                    Mount _ = Mount.paths(fs, place.mountpoint, options(transport))) {
                assertThrows(UncheckedIOException.class, () -> ExamplesTest.names(place.mountpoint));
                assertTrue(records.threw(wrong.attr() == null ? "no file has the name" : "in which no type is"));
            }
        }
    }

    /** Files that change without the kernel's knowledge, of which it may remember all for an hour. */
    private static final class Remembered implements PathFileSystem {
        final Map<String, String> texts = new ConcurrentHashMap<>();

        @Override
        public long validity() {
            return HOUR;
        }

        private String at(String path) throws FuseException {
            String text = texts.get(path);
            if (text == null) {
                throw new FuseException(Errno.ENOENT);
            }
            return text;
        }

        @Override
        public Attr getattr(String path) throws IOException {
            return path.equals("/") || path.equals("/d") ? Attr.directory(0, 0755) : Attr.file(0, 0644, at(path).length());
        }

        @Override
        public Opened open(String path, int flags) {
            return new Opened(0, Opened.KEEP_CACHE);
        }

        @Override
        public int read(String path, long handle, MemorySegment into, long offset) throws IOException {
            byte[] text = at(path).getBytes();
            int length = (int) Math.clamp(text.length - offset, 0, into.byteSize());
            into.asSlice(0, length).copyFrom(MemorySegment.ofArray(text).asSlice(offset, length));
            return length;
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring"})
    void whatChangedElsewhereIsAskedForAgain(String transport) throws Exception {
        Remembered fs = new Remembered();
        fs.texts.put("/d/file", "old");
        try (Place place = new Place(); Mount mount = Mount.paths(fs, place.mountpoint, options(transport))) {
            Path file = place.mountpoint.resolve("d/file");
            assertEquals("old", Files.readString(file));
            fs.texts.put("/d/file", "new");
            assertEquals("old", Files.readString(file));
            mount.invalidate("/d/file");
            mount.flushNotifications();
            assertEquals("new", Files.readString(file));
            assertEquals(3, Files.size(file));
            fs.texts.put("/d/file", "longer");
            assertEquals(3, Files.size(file));
            mount.invalidate("/d/file");
            mount.flushNotifications();
            assertEquals(6, Files.size(file));

            fs.texts.clear();
            assertTrue(Files.exists(file));
            mount.invalidateName("/d/file");
            mount.flushNotifications();
            assertFalse(Files.exists(file));
            for (String unknown : List.of("/none", "/none/below", "/d/none")) {
                mount.invalidate(unknown);
                mount.invalidateName(unknown);
            }
            mount.invalidate("/");
            mount.flushNotifications();
            for (String unusable : List.of("/", "/d/", "d", "", "/d\0")) {
                assertThrows(IllegalArgumentException.class, () -> mount.invalidateName(unusable), unusable);
            }
        }
    }

    @Test
    void optionsTakeThePlaceOfWhatTheFileSystemSaysOfItself() throws Exception {
        Remembered fs = new Remembered();
        fs.texts.put("/file", "old");
        try (Place place = new Place(); Mount _ = Mount.paths(
                fs, place.mountpoint, options("dev").plus("entry_timeout=0,attr_timeout=0"))) {
            Path file = place.mountpoint.resolve("file");
            assertEquals(3, Files.size(file));
            fs.texts.put("/file", "longer");
            assertEquals(6, Files.size(file));
            fs.texts.clear();
            assertFalse(Files.exists(file));
            String message = assertThrows(IOException.class, () -> Mount.paths(
                    fs, place.source, options("dev").plus("attr_timeout=soon"))).getMessage();
            assertTrue(message.contains("attr_timeout"), message);
        }
    }

    @Test
    void pathsNameNothingOfAMountOverInodes() throws Exception {
        try (Place place = new Place(); Mount mount = Mount.inodes(new Hello(), place.mountpoint, options("dev"))) {
            String message = assertThrows(IllegalStateException.class, () -> mount.invalidate("/hello")).getMessage();
            assertTrue(message.contains("no mount over paths"), message);
            assertThrows(IllegalStateException.class, () -> mount.invalidateName("/hello"));
        }
    }
}
