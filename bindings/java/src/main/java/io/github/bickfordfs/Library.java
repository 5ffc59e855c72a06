package io.github.bickfordfs;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** Finds the native library, and says where it looked. */
final class Library {
    static final String FILE = "libbickford_ffi.so";
    static final String VARIABLE = "BICKFORD_LIBRARY";

    private Library() {}

    /** The directory of the jar for this machine, such as linux-x86_64. */
    static String platform() {
        return platform(System.getProperty("os.name", ""), System.getProperty("os.arch", ""));
    }

    static String platform(String os, String arch) {
        return os.toLowerCase(Locale.ROOT) + "-" + (arch.equals("amd64") ? "x86_64" : arch);
    }

    /** Where the library may be: the variable alone if it is set; else the jar, then java.library.path. */
    static SymbolLookup load() {
        return load(System.getenv(VARIABLE), System.getProperty("java.library.path", ""), platform());
    }

    static SymbolLookup load(String chosen, String path, String platform) {
        List<String> tried = new ArrayList<>();
        if (chosen != null && !chosen.isEmpty()) {
            SymbolLookup found = open(Path.of(chosen), VARIABLE + "=" + chosen, tried);
            if (found != null) {
                return found;
            }
            throw missing(tried, platform);
        }
        SymbolLookup found = fromJar(tried, platform);
        for (String directory : path.split(File.pathSeparator)) {
            if (found == null && !directory.isEmpty()) {
                Path file = Path.of(directory, FILE);
                found = open(file, file + " (java.library.path)", tried);
            }
        }
        if (found == null) {
            throw missing(tried, platform);
        }
        return found;
    }

    private static UnsatisfiedLinkError missing(List<String> tried, String platform) {
        return new UnsatisfiedLinkError("the native library of Bickford was not found; tried:\n  "
                + String.join("\n  ", tried) + "\nThat of the jar is copied to " + System.getProperty("java.io.tmpdir")
                + ", where one must be able to write and to run programs (not noexec): -Djava.io.tmpdir=DIR names another."
                + "\nElse build it with 'cargo build --release -p bickford-ffi' and set "
                + VARIABLE + " to its path, or use a jar with natives for " + platform);
    }

    private static SymbolLookup fromJar(List<String> tried, String platform) {
        String resource = "/META-INF/native/" + platform + "/" + FILE;
        try (InputStream in = Library.class.getResourceAsStream(resource)) {
            if (in == null) {
                tried.add("jar:" + resource + ": not in the jar");
                return null;
            }
            Path copy = Files.createTempFile("bickford", ".so");
            try {
                Files.copy(in, copy, StandardCopyOption.REPLACE_EXISTING);
                return open(copy, "jar:" + resource + ", copied", tried);
            } finally {
                Files.delete(copy);
            }
        } catch (IOException e) {
            tried.add("jar:" + resource + ": " + e);
            return null;
        }
    }

    private static SymbolLookup open(Path file, String name, List<String> tried) {
        if (!Files.isReadable(file)) {
            tried.add(name + ": no readable file");
            return null;
        }
        try {
            return SymbolLookup.libraryLookup(file.toAbsolutePath(), Arena.global());
        } catch (IllegalArgumentException e) {
            tried.add(name + ": " + reason(file, e));
            return null;
        }
    }

    /** Why a library is not loaded, which the lookup does not tell: another libc, a directory without programs. */
    private static String reason(Path file, IllegalArgumentException failure) {
        try {
            System.load(file.toAbsolutePath().toString());
        } catch (UnsatisfiedLinkError e) {
            return e.getMessage();
        }
        return failure.getMessage();
    }
}
