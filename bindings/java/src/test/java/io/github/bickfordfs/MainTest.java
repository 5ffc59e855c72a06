package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.UpperCase;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class MainTest {
    /** Cannot be made. */
    public static final class Throwing extends JavaFuse {
        /** Throws. */
        public Throwing() {
            throw new IllegalStateException("no disk");
        }
    }

    /** Cannot be made. */
    public abstract static class Abstract extends JavaFuse {}

    /** What the command says that fails with this status, in the foreground. */
    private static String error(int status, String... args) throws Exception {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED", "-cp", System.getProperty("java.class.path"),
                Main.class.getName(), "-f"));
        command.addAll(List.of(args));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(status, process.waitFor(), said);
        return said;
    }

    @Test
    void mistakesAreNamed() throws Exception {
        String nullFs = "io.github.bickfordfs.examples.NullFs";
        assertTrue(error(1, "/", "b").contains("javafuse: --class is missing"));
        assertTrue(error(2, "--class", nullFs, "a").contains("<SOURCE> <MOUNTPOINT>"));
        assertTrue(error(2, "--class", nullFs, "--what", "a", "b").contains("--what"));
        assertTrue(error(2, "--class").contains("--class <NAME>"));
        assertTrue(error(2, "--class", nullFs, "--preset", "x", "a", "b").contains("base, opt, fast"));
        assertTrue(error(1, "--class", "no.Such", "/", "b").contains("class no.Such was not found"));
        assertTrue(error(1, "--class", "java.lang.String", "/", "b").contains("does not extend"));
        assertTrue(error(1, "--class", nullFs, "--data", "some", "/", "b").contains("none, copied, shared"));
        assertTrue(error(1, "--class", nullFs, "--config", "/no/such", "/", "b").contains("/no/such"));
        String threw = error(1, "--class", Throwing.class.getName(), "/", "b");
        assertTrue(threw.contains("threw java.lang.IllegalStateException: no disk") && threw.contains("MainTest.java:"),
                threw);
        String unloadable = error(1, "--class", Unloadable.class.getName(), "/", "b");
        assertTrue(unloadable.contains("cannot be loaded: java.lang.IllegalStateException: no driver"), unloadable);
        assertTrue(error(1, "--class", Abstract.class.getName(), "/", "b").contains("not abstract"));
        assertTrue(error(1, "--class", nullFs, "/no/such/source", "/").contains("/no/such/source"));
    }

    /** Cannot be loaded. */
    public static final class Unloadable extends JavaFuse {
        static {
            if (true) {
                throw new IllegalStateException("no driver");
            }
        }
    }

    @Test
    void whatMethodsNameMustBeThere(@TempDir Path directory) throws Exception {
        Path source = directory.resolve("Lacking.java");
        Files.writeString(source, """
                public class Lacking extends io.github.bickfordfs.JavaFuse {
                    void use(Lacked lacked) {}
                }
                class Lacked {}
                """);
        String javac = Path.of(System.getProperty("java.home"), "bin", "javac").toString();
        ProcessBuilder builder = new ProcessBuilder(javac, "-cp", "target/classes", source.toString());
        assertEquals(0, builder.inheritIO().start().waitFor());
        Files.delete(directory.resolve("Lacked.class"));
        String said = error(1, "--class", "Lacking", "--classpath", directory.toString(), "/", "b");
        assertTrue(said.contains("class Lacking cannot be loaded: java.lang.ClassNotFoundException: Lacked"), said);
    }

    /** Needs more than java.base, and services of its class path. */
    public static final class Needing extends JavaFuse {
        /** Looks at what it needs. */
        public Needing() {
            look();
        }

        private static void look() {
            ClassLoader context = Thread.currentThread().getContextClassLoader();
            if (context != Needing.class.getClassLoader()) {
                throw new IllegalStateException("services are looked for with " + context);
            }
            java.net.http.HttpRequest.newBuilder();
        }

        @Override
        protected void preWrite(Call call) {
            look();
            call.replaceData(call.size()).fill((byte) 'n');
        }
    }

    /** The launcher with the module in a jar, and the class in another; a name may be what the locale cannot say. */
    @Test
    void theLauncherServesAClass() throws Exception {
        launch(UpperCase.class, "LAUNCHED");
    }

    @Test
    void theLauncherGivesAClassWhatItNeeds() throws Exception {
        launch(Needing.class, "nnnnnnnn");
    }

    /** A path that the locale cannot say is told, with what to do; those of the mount need not be said. */
    @Test
    void theLauncherSaysWhatTheLocaleCannot() throws Exception {
        ProcessBuilder builder = launcher(Path.of("target/classes"), UpperCase.class, "/no/caf\u00e9", "/no/caf\u00e9");
        builder.environment().put("LC_ALL", "C");
        String said = failed(builder);
        assertTrue(said.contains("\"/no/caf\u00e9\": No such file"), said);
        builder.command().addAll(List.of("--classpath", "caf\u00e9"));
        said = failed(builder);
        assertTrue(said.startsWith("javafuse: --classpath: the path") && said.contains("LC_ALL=C.UTF-8"), said);
    }

    /** The virtual machine is kept small, and what the user wants of it comes after that. */
    @Test
    void theLauncherKeepsTheMachineSmall() throws Exception {
        ProcessBuilder builder = launcher(Path.of("target/classes"), UpperCase.class, "/no/such/source", "/no/such");
        builder.environment().put("JAVAFUSE_JAVA_OPTIONS", "-XX:+PrintFlagsFinal -Xms32m");
        String said = failed(builder);
        assertTrue(said.matches("(?s).* InitialHeapSize += 33554432 .* TrimNativeHeapInterval += 1000 .*"), said);
    }

    /** What a launcher that fails says. */
    private static String failed(ProcessBuilder builder) throws Exception {
        Process process = builder.redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(1, process.waitFor(), said);
        return said;
    }

    private static ProcessBuilder launcher(Path jar, Class<?> type, String source, String mountpoint) {
        Path classes = Path.of("target/test-classes").toAbsolutePath();
        ProcessBuilder builder = new ProcessBuilder("bin/javafuse", "--class", type.getName(), "--classpath",
                classes.toString(), "-o", "preset=opt,no_yielding,fsname=upper", source, mountpoint);
        builder.environment().put("BICKFORD_JAR", jar.toString());
        builder.environment().put("JAVA_HOME", System.getProperty("java.home"));
        builder.environment().remove("BICKFORD_LIBRARY");
        return builder;
    }

    private static void launch(Class<?> type, String written) throws Exception {
        try (Place place = new Place()) {
            Path jar = place.directory.resolve("bickford-test.jar");
            pack(jar, Path.of("target/classes"));
            ProcessBuilder builder =
                    launcher(jar, type, place.source.toString(), place.mountpoint.toString());
            Process process = builder.redirectErrorStream(true).start();
            // It ends once the mount answers, and says nothing.
            String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertEquals(0, process.waitFor(), said);
            assertEquals("", said);
            Files.writeString(place.mountpoint.resolve("file"), "launched");
            assertEquals(written, Files.readString(place.source.resolve("file")));
            place.unmount();
            assertFalse(place.isMounted());
        }
    }

    private static void pack(Path jar, Path classes) throws Exception {
        List<Path> files;
        try (Stream<Path> all = Files.walk(classes)) {
            files = all.filter(Files::isRegularFile).sorted().toList();
        }
        try (JarOutputStream out = new JarOutputStream(Files.newOutputStream(jar))) {
            for (Path file : files) {
                out.putNextEntry(new JarEntry(classes.relativize(file).toString()));
                Files.copy(file, out);
            }
        }
    }
}
