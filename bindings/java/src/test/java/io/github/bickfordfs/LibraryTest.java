package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LibraryTest {
    @Test
    void theLibraryIsInTheJar() {
        assertNotNull(Library.load(null, ""));
    }

    @Test
    void aMissingLibrarySaysWhatWasTriedAndWhatToDo() {
        String message = assertThrows(UnsatisfiedLinkError.class, () -> Library.load("/no/such/library.so", ""))
                .getMessage();
        assertTrue(message.contains("BICKFORD_LIBRARY=/no/such/library.so: no readable file"), message);
        assertTrue(message.contains("cargo build"), message);
    }

    @Test
    void aLibraryThatCannotBeLoadedSaysWhy(@TempDir Path directory) throws Exception {
        Path file = Files.writeString(directory.resolve(Library.FILE), "no library");
        String message =
                assertThrows(UnsatisfiedLinkError.class, () -> Library.load(file.toString(), "")).getMessage();
        assertTrue(message.contains(file.toString()), message);
    }
}
