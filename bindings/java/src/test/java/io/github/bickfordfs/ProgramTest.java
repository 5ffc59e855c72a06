package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.Hello;
import io.github.bickfordfs.examples.NioFs;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.junit.jupiter.api.Test;

class ProgramTest {
    /** One file, {@code says}, with a greeting and what a file has: {@code Greeter FILE MOUNTPOINT}. */
    public static final class Greeter implements PathFileSystem {
        private final byte[] text;

        Greeter(String text) {
            this.text = text.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public long validity() {
            return 3600 * Entry.SECOND;
        }

        @Override
        public Attr getattr(String path) throws IOException {
            return switch (path) {
                case "/" -> Attr.directory(1, 0755);
                case "/says" -> Attr.file(2, 0644, text.length);
                case "/exit" -> {
                    System.exit(3);
                    throw new FuseException(Errno.EIO);
                }
                case "/memory" -> throw new OutOfMemoryError("asked for");
                case "/wrong" -> throw new IllegalStateException("a defect");
                default -> throw new FuseException(Errno.ENOENT);
            };
        }

        @Override
        public int read(String path, long handle, MemorySegment into, long offset) {
            int from = (int) Math.min(offset, text.length);
            int length = (int) Math.min(into.byteSize(), text.length - from);
            MemorySegment.copy(MemorySegment.ofArray(text), from, into, 0, length);
            return length;
        }

        private static PathFileSystem open(Program.Given given) throws Exception {
            System.out.println("opening");
            if (given.source().endsWith("unsaid")) {
                throw new IllegalStateException("a mistake of the program");
            }
            String greeting = given.flags().get("greeting") + (given.has("aloud") ? "!" : "") + " ";
            return new Greeter(greeting + Files.readString(Path.of(given.source())));
        }

        public static void main(String[] args) {
            Program program = new Program("greeter")
                    .about("Greets")
                    .version("3.1")
                    .sourcePath("FILE")
                    .options(MountOptions.DEFAULT.plus("ro,umask=022"))
                    .flag("greeting", "TEXT", "Hello", "How it begins")
                    .flag("aloud|a", "With an exclamation mark")
                    .begun(mount -> System.err.println("connection " + (mount.connection() > 0)));
            System.exit(program.paths(args, Greeter::open));
        }
    }

    /** The names that a directory has: {@code Names --of DIRECTORY MOUNTPOINT}. */
    public static final class Names implements PathFileSystem {
        private final Path directory;

        Names(Path directory) {
            this.directory = directory;
        }

        @Override
        public Attr getattr(String path) throws IOException {
            if (Files.notExists(directory.resolve(path.substring(1)))) {
                throw new FuseException(Errno.ENOENT);
            }
            return path.equals("/") ? Attr.directory(1, 0755) : Attr.file(2, 0644, 0);
        }

        public static void main(String[] args) {
            Program program = new Program("names")
                    .flag("of", "DIRECTORY", null, "What has them")
                    .begun(mount -> System.err.println("at " + mount.mountpoint()));
            System.exit(program.paths(args, given -> new Names(given.path("of"))));
        }
    }

    /** What a program says that ends with this status. */
    private static String said(int status, Place place, Class<?> main, String... args) throws Exception {
        return said(status, place, place.virtualMachine(main, args));
    }

    private static String said(int status, Place place, ProcessBuilder program) throws Exception {
        assertEquals(status, program.start().waitFor(), place::outputOrError);
        return place.output();
    }

    private static String logged(Path log, String part) throws IOException {
        return Files.readAllLines(log).stream().filter(line -> line.contains(part)).findFirst()
                .orElseThrow(() -> new AssertionError("no \"" + part + "\" in " + log));
    }

    @Test
    void itReturnsWhenTheMountAnswers() throws Exception {
        try (Place place = new Place()) {
            assertEquals("", said(0, place, Hello.class, place.mountpoint.toString()));
            assertEquals("Hello, world!\n", Files.readString(place.mountpoint.resolve("hello")));
            String table = Files.readString(Path.of("/proc/self/mountinfo"));
            assertTrue(table.contains(place.mountpoint + " ") && table.contains(" - fuse.hello hello "), table);
            place.unmount();
        }
    }

    @Test
    void itRunsInALocaleOfAnyCharset() throws Exception {
        try (Place place = new Place()) {
            ProcessBuilder program = place.virtualMachine(Hello.class, place.mountpoint.toString());
            place.localize(program);
            assertEquals("", said(0, place, program));
            assertEquals("Hello, world!\n", Files.readString(place.mountpoint.resolve("hello")));
            place.unmount();
        }
    }

    /** The background leaves the directory that they are meant from. */
    @Test
    void relativePathsAreThoseOfTheCaller() throws Exception {
        try (Place place = new Place()) {
            Files.createFile(place.source.resolve("name"));
            ProcessBuilder program = place.virtualMachine(Names.class, "--of", "source", "mnt");
            program.directory(place.directory.toFile());
            String said = said(0, place, program);
            assertTrue(said.endsWith("at " + place.directory.toRealPath().resolve("mnt") + "\n"), said);
            assertTrue(Files.exists(place.mountpoint.resolve("name")));
            place.unmount();
        }
    }

    @Test
    void aZipFileIsAMount() throws Exception {
        try (Place place = new Place()) {
            Path file = place.directory.resolve("a.zip");
            try (OutputStream out = Files.newOutputStream(file); ZipOutputStream zip = new ZipOutputStream(out)) {
                zip.putNextEntry(new ZipEntry("inside"));
                zip.write("text".getBytes(StandardCharsets.UTF_8));
            }
            assertEquals("", said(0, place, NioFs.class, file.toString(), place.mountpoint.toString()));
            assertEquals("text", Files.readString(place.mountpoint.resolve("inside")));
            place.unmount();
        }
    }

    @Test
    void itHasFlagsASourceAndALog() throws Exception {
        try (Place place = new Place()) {
            Path file = Files.writeString(place.directory.resolve("caf\u00e9"), "world");
            Path log = place.directory.resolve("log");
            String options = "greeting=Ahoy,attr_timeout=0,log_file=" + log;
            String said = said(0, place, Greeter.class, file.toString(), "-ao", options, place.mountpoint.toString());
            assertTrue(said.endsWith(" WARN program: connection true\n") && said.lines().count() == 1, said);
            Path says = place.mountpoint.resolve("says");
            assertEquals("Ahoy! world", Files.readString(says));
            assertEquals(0755, (int) Files.getAttribute(says, "unix:mode") & 0777, "the umask of the program");
            assertThrows(IOException.class, () -> Files.writeString(says, "not here"));
            assertTrue(logged(log, "opening").contains(" INFO program: "));
            assertTrue(logged(log, "connection true").contains(" WARN program: "));
            assertThrows(IOException.class, () -> Files.size(place.mountpoint.resolve("wrong")));
            assertTrue(logged(log, "failed in GETATTR").contains("ERROR program: "));
            logged(log, "ProgramTest.java:");
            place.unmount();
            place.until("it has ended", () -> Files.readString(log).contains("unmounted"));
        }
    }

    @Test
    void itSaysWhatIsWrong() throws Exception {
        try (Place place = new Place()) {
            String mountpoint = place.mountpoint.toString();
            String help = said(0, place, Greeter.class, "--help");
            for (String part : List.of("Greets", "<FILE> <MOUNTPOINT>", "--greeting <TEXT>", "[default: Hello]", "umask")) {
                assertTrue(help.contains(part), help);
            }
            assertTrue(said(0, place, Greeter.class, "-V").startsWith("greeter 3.1 (bickford "));
            for (String more : List.of("-f", "-s")) {
                String said = said(1, place, Greeter.class, "/no/such", more, mountpoint);
                assertTrue(said.contains("greeter: /no/such: ENOENT"), said);
                said = said(1, place, Greeter.class, "/unsaid", more, mountpoint);
                assertTrue(said.contains("greeter: java.lang.IllegalStateException: a mistake"), said);
                assertTrue(said.contains("ProgramTest.java:"), said);
            }
            assertTrue(said(1, place, Greeter.class, "/etc/hostname", "-o", "greting=x", mountpoint)
                    .contains("'greeting'"));
            assertTrue(said(1, place, Greeter.class, "/etc/hostname", mountpoint + "/no").contains("does not exist"));
            assertFalse(place.isMounted());
        }
    }

    /** Its environment and its standard input are those of the other. */
    @Test
    void whatADaemonStartsWritesWhereItIsTold() throws Exception {
        try (Place place = new Place()) {
            ProcessBuilder program = place.virtualMachine(Greeter.class, "-f", "/etc/hostname", place.mountpoint + "/no");
            program.environment().put("BICKFORD_BACKGROUND", "/");
            program.environment().put("BICKFORD_BACKGROUND_SOCKET", "0:1:0");
            program.redirectInput(Path.of("/dev/null").toFile());
            String said = said(1, place, program);
            assertTrue(said.lines().anyMatch("opening"::equals), said);
        }
    }

    @Test
    void aSignalUnmountsAndASecondProgramIsRefused() throws Exception {
        try (Place place = new Place()) {
            Process process = place.java(Twice.class, "-f", place.mountpoint.toString());
            place.until("it answers", () -> Files.exists(place.mountpoint.resolve("hello")) || !process.isAlive());
            process.destroy();
            assertEquals(0, process.waitFor(), place::outputOrError);
            assertTrue(place.output().contains("SIGTERM: unmounting"), place.output());
            assertTrue(place.output().contains("a program has run already"), place.output());
            assertFalse(place.isMounted());
        }
    }

    /** As who asks for a password has the terminal put back. */
    @Test
    void hooksRunWhereASignalComesWhileItIsMade() throws Exception {
        try (Place place = new Place()) {
            Path asks = place.directory.resolve("asks");
            Process process = place.java(Asking.class, "-f", "--asks=" + asks, place.mountpoint.toString());
            place.until("it asks", () -> Files.exists(asks) || !process.isAlive());
            Place.outputOf(List.of("kill", "-INT", Long.toString(process.pid())));
            assertEquals(130, process.waitFor(), place::outputOrError);
            assertTrue(place.output().contains("put back"), place.output());
        }
    }

    /** Asks, and is never answered. */
    public static final class Asking {
        public static void main(String[] args) {
            Program program = new Program("asking").flag("asks", "FILE", null, "Made when it asks");
            System.exit(program.inodes(args, given -> {
                Runtime.getRuntime().addShutdownHook(new Thread(() -> System.err.println("put back")));
                Files.createFile(given.path("asks"));
                Thread.sleep(Long.MAX_VALUE);
                return new Hello();
            }));
        }
    }

    /** Runs two programs. */
    public static final class Twice {
        public static void main(String[] args) {
            int status = new Program("twice").inodes(args, _ -> new Hello());
            try {
                new Program("twice").inodes(args, _ -> new Hello());
            } catch (IllegalStateException e) {
                System.err.println(e.getMessage());
            }
            System.exit(status);
        }
    }

    @Test
    void aProgramMayCloseItsMount() throws Exception {
        try (Place place = new Place()) {
            String said = said(0, place, Closing.class, "-f", place.mountpoint.toString());
            assertTrue(said.contains("it is closed\n"), said);
            assertFalse(place.isMounted());
        }
    }

    /** Closes its mount as soon as that is there. */
    public static final class Closing {
        private static Thread closer;

        public static void main(String[] args) throws InterruptedException {
            Program program = new Program("closing").begun(mount -> closer = Thread.ofPlatform().start(() -> {
                try {
                    mount.close();
                    System.err.println("it is closed");
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }));
            int status = program.inodes(args, _ -> new Hello());
            closer.join();
            System.exit(status);
        }
    }

    @Test
    void theEndOfTheVirtualMachineWaitsForNoOneWhoAsksForIt() throws Exception {
        try (Place place = new Place()) {
            said(4, place, Leaving.class, "-f", place.mountpoint.toString());
            assertFalse(place.isMounted());
        }
    }

    /** Ends as soon as its mount is there; with another status where its mount counts as one that begins. */
    public static final class Leaving {
        public static void main(String[] args) {
            Program program = new Program("leaving").begun(_ -> System.exit(4 + Mount.STARTING.get()));
            System.exit(program.inodes(args, _ -> new Hello()));
        }
    }

    @Test
    void theEndOfTheVirtualMachineUnmounts() throws Exception {
        for (String how : List.of("exit", "memory")) {
            try (Place place = new Place()) {
                Process process = place.java(Greeter.class, "-f", "/etc/hostname", place.mountpoint.toString());
                place.until("it answers", () -> Files.exists(place.mountpoint.resolve("says")) || !process.isAlive());
                assertThrows(IOException.class, () -> Files.size(place.mountpoint.resolve(how)));
                assertEquals(how.equals("exit") ? 3 : 1, process.waitFor(), place::outputOrError);
                assertFalse(place.isMounted());
            }
        }
    }

    /** As a line of fstab(5) is mounted, the class among the options. */
    @Test
    void mount8CanMountIt() throws Exception {
        try (Place place = new Place()) {
            String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
            Path program = Files.writeString(place.directory.resolve("mount.fuse.shouter"), "#!/bin/sh\nexec '" + java
                    + "' -Dbickford.program=\"$0\" --enable-native-access=ALL-UNNAMED -cp '"
                    + System.getProperty("java.class.path") + "' io.github.bickfordfs.Main \"$@\"\n");
            Files.setPosixFilePermissions(program, PosixFilePermissions.fromString("rwxr-xr-x"));
            String options = "rw,preset=opt,class=io.github.bickfordfs.examples.UpperCase";
            List<String> line = new ArrayList<>(Arrays.asList(program.toString(), place.source.toString(),
                    place.mountpoint.toString(), "-o", options));
            assertEquals("", Place.outputOf(line));
            Files.writeString(place.mountpoint.resolve("file"), "shouted");
            assertEquals("SHOUTED", Files.readString(place.source.resolve("file")));
            line.set(4, "remount,ro");
            assertEquals("", Place.outputOf(line));
            assertThrows(IOException.class, () -> Files.writeString(place.mountpoint.resolve("file"), "x"));
            line.set(4, "class=no.Such");
            line.set(2, place.directory.toString());
            Process refused = new ProcessBuilder(line).redirectErrorStream(true).start();
            String said = new String(refused.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertEquals(32, refused.waitFor(), said);
            assertTrue(said.contains("class no.Such was not found"), said);
            place.unmount();
        }
    }
}
