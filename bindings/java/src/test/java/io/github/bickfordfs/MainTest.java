package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.UpperCase;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

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

    /** What the command writes to standard error. */
    private static String error(int status, String... args) {
        PrintStream before = System.err;
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        System.setErr(new PrintStream(bytes, true, StandardCharsets.UTF_8));
        try {
            assertEquals(status, Main.run(args), () -> bytes.toString(StandardCharsets.UTF_8));
        } finally {
            System.setErr(before);
        }
        return bytes.toString(StandardCharsets.UTF_8);
    }

    @Test
    void mistakesAreNamed() {
        String nullFs = "io.github.bickfordfs.examples.NullFs";
        assertTrue(error(2, "a", "b").contains("--class is missing"));
        assertTrue(error(2, "--class", nullFs, "a").contains("1 given"));
        assertTrue(error(2, "--class", nullFs, "--what", "a", "b").contains("no option --what"));
        assertTrue(error(2, "--class").contains("--class needs a value"));
        assertTrue(error(2, "--class", "no.Such", "a", "b").contains("class no.Such was not found"));
        assertTrue(error(2, "--class", "java.lang.String", "a", "b").contains("does not extend"));
        assertTrue(error(2, "--class", nullFs, "--data", "some", "a", "b").contains("none, copied, shared"));
        assertTrue(error(1, "--class", nullFs, "--config", "/no/such", "a", "b").contains("/no/such"));
        String threw = error(1, "--class", Throwing.class.getName(), "a", "b");
        assertTrue(threw.contains("threw java.lang.IllegalStateException: no disk") && threw.contains("MainTest.java:"),
                threw);
        assertTrue(error(2, "--class", Abstract.class.getName(), "a", "b").contains("not abstract"));
        assertTrue(error(1, "--class", nullFs, "/no/such/source", "/").contains("/no/such/source"));
    }

    /** The launcher with the module in a jar, and the class in another. */
    @Test
    void theLauncherServesAClass() throws Exception {
        try (Place place = new Place()) {
            Path jar = place.directory.resolve("bickford-test.jar");
            pack(jar, Path.of("target/classes"));
            Path classes = Path.of("target/test-classes").toAbsolutePath();
            ProcessBuilder builder = new ProcessBuilder("bin/javafuse", "--class", UpperCase.class.getName(),
                    "--classpath", classes.toString(), "-o", "preset=opt,fsname=upper", place.source.toString(),
                    place.mountpoint.toString());
            builder.environment().put("BICKFORD_JAR", jar.toString());
            builder.environment().put("JAVA_HOME", System.getProperty("java.home"));
            builder.environment().remove("BICKFORD_LIBRARY");
            Process process = builder.redirectErrorStream(true)
                    .redirectOutput(place.directory.resolve("output").toFile())
                    .start();
            try {
                place.until("it is mounted", () -> place.isMounted() || !process.isAlive());
                String output = place.output();
                assertTrue(process.isAlive(), output);
                Files.writeString(place.mountpoint.resolve("file"), "launched");
                assertEquals("LAUNCHED", Files.readString(place.source.resolve("file")));
                place.unmount();
                place.until("the process ends", () -> !process.isAlive());
                assertEquals(0, process.exitValue(), place::outputOrError);
                assertFalse(place.isMounted());
            } finally {
                process.destroyForcibly().waitFor();
            }
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
