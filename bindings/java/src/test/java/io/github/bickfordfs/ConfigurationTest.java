package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ConfigurationTest {
    @TempDir
    private Path directory;

    private Configuration read(String text) throws IOException {
        return Configuration.read(Files.writeString(directory.resolve("configuration"), text));
    }

    @Test
    void anEmptyFileIsTheDefault() throws IOException {
        assertEquals(Configuration.DEFAULT, read("# nothing\n"));
    }

    @Test
    void oneOperationGoesBeforeAll() throws IOException {
        Configuration configuration = read("lookup.post = on\npost = off # all others\nwrite.call = no\n");
        assertEquals(EnumSet.of(Operation.LOOKUP), configuration.post());
        assertFalse(configuration.call().contains(Operation.WRITE));
        assertTrue(configuration.call().contains(Operation.READ));
        assertEquals(Operation.all(), configuration.pre());
    }

    @Test
    void metadataOnlyGoesBeforeData() throws IOException {
        assertEquals(DataMode.NONE, read("metadata-only = true\ndata = copied\n").data());
        assertEquals(DataMode.COPIED, read("metadata-only = false\ndata = copied\n").data());
    }

    @Test
    void mistakesAreNamedWithTheirLine() {
        for (String[] wrong : new String[][] {
            {"lookup.pre = maybe", "maybe"}, {"stat.pre = on", "stat"}, {"lookup.during = on", "lookup.during"},
            {"colour = on", "colour"}, {"data = some", "some"}, {"pre = \\u00zz", "four hexadecimal digits"},
            {"post=on", "\"post\" is set already, in line 2"}, {"CopyFileRange.call on", "is set already, in line 4"}
        }) {
            String before = "# a comment that ends in \\\n post = off\r\n\ncopy_file_range.call = \\\n  off\n";
            String message = assertThrows(IOException.class, () -> read(before + wrong[0] + "\n")).getMessage();
            assertTrue(message.contains(wrong[1]) && message.contains("configuration: line 6: "), message);
        }
    }

    @Test
    void aFileThatIsNotUtf8IsNamedWithItsLine() throws IOException {
        Path file = directory.resolve("latin-1");
        Files.write(file, "pre = on\n# caf\u00e9\n".getBytes(java.nio.charset.StandardCharsets.ISO_8859_1));
        String message = assertThrows(IOException.class, () -> Configuration.read(file)).getMessage();
        assertTrue(message.contains("latin-1: line 2: ") && message.contains("UTF-8"), message);
    }

    /** Some editors write one. */
    @Test
    void aByteOrderMarkIsNoPartOfTheFirstKey() throws IOException {
        assertEquals(DataMode.COPIED, read("\ufeffdata = copied\n").data());
    }

    @Test
    void whatIsNoFileOfThisIsNamed() {
        String message = assertThrows(IOException.class, () -> Configuration.read(directory)).getMessage();
        assertTrue(message.contains(directory + ": "), message);
        message = assertThrows(IOException.class, () -> Configuration.read(Path.of("/dev/zero"))).getMessage();
        assertEquals("/dev/zero: more than 1048576 bytes are no configuration", message);
    }

    @Test
    void propertiesOfAProgramAreTakenAsTheyAre() {
        java.util.Properties properties = new java.util.Properties();
        properties.setProperty("metadata-only", "on");
        properties.setProperty("lookup.pre", "off");
        Configuration configuration = Configuration.of(properties);
        assertEquals(DataMode.NONE, configuration.data());
        assertFalse(configuration.pre().contains(Operation.LOOKUP));
        properties.setProperty("colour", "on");
        String message = assertThrows(IllegalArgumentException.class, () -> Configuration.of(properties)).getMessage();
        assertTrue(message.startsWith("\"colour\" is none of"), message);
    }
}
