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
    void mistakesAreNamed() {
        for (String[] wrong : new String[][] {
            {"lookup.pre = maybe", "maybe"}, {"stat.pre = on", "stat"}, {"lookup.during = on", "lookup.during"},
            {"colour = on", "colour"}, {"data = some", "some"}
        }) {
            String message = assertThrows(IOException.class, () -> read(wrong[0])).getMessage();
            assertTrue(message.contains(wrong[1]) && message.contains("configuration"), message);
        }
    }
}
