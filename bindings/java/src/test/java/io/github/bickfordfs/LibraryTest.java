package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
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
        assertNotNull(Library.load(null, "", Library.platform()));
    }

    @Test
    void theLibraryOfTheJarIsThatOfTheMachine() {
        assertEquals("linux-x86_64", Library.platform("Linux", "amd64"));
        assertEquals("linux-aarch64", Library.platform("Linux", "aarch64"));
        String message = assertThrows(UnsatisfiedLinkError.class, () -> Library.load(null, "", "linux-riscv64"))
                .getMessage();
        assertTrue(message.contains("jar:/META-INF/native/linux-riscv64/libbickford_ffi.so: not in the jar"), message);
        assertTrue(message.contains("use a jar with natives for linux-riscv64"), message);
    }

    @Test
    void aMissingLibrarySaysWhatWasTriedAndWhatToDo() {
        String message = assertThrows(UnsatisfiedLinkError.class,
                () -> Library.load("/no/such/library.so", "", Library.platform())).getMessage();
        assertTrue(message.contains("BICKFORD_LIBRARY=/no/such/library.so: no readable file"), message);
        assertTrue(message.contains("cargo build"), message);
    }

    @Test
    void aLibraryThatCannotBeLoadedSaysWhy(@TempDir Path directory) throws Exception {
        Path file = Files.writeString(directory.resolve(Library.FILE), "no library");
        String message = assertThrows(UnsatisfiedLinkError.class,
                () -> Library.load(file.toString(), "", Library.platform())).getMessage();
        assertTrue(message.contains(file.toString()), message);
        // As dlopen(3) says it.
        assertTrue(message.contains("file too short") || message.contains("invalid ELF header"), message);
    }
}
