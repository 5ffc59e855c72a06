package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.examples.MemoryFs;
import io.github.bickfordfs.examples.NullFs;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * pjdfstest and fsx on mounts in Java. {@code BICKFORD_LENGTH=full} runs all of both; otherwise it is a part that takes
 * seconds. {@code scripts/prerequisites.sh test} installs the programs.
 */
class ConformanceTest {
    private static final boolean FULL = "full".equals(System.getenv("BICKFORD_LENGTH"));
    private static final long DEADLINE_SECONDS = FULL ? 3_600 : Place.DEADLINE_SECONDS;
    /** What the short form runs of pjdfstest over StackFS: names are made, changed and removed, with all their errors. */
    private static final List<String> PART = List.of("rename", "mkdir", "symlink");
    /** Version 0.2.2 has 398; fewer means that a run broke off. */
    private static final int TESTS = 398;
    /** What the C library answers from the type of the file system, which has no limit for FUSE. */
    private static final List<String> EXCUSED = List.of("link::link_count_max");

    private static final String PJDFSTEST = """
            [features]
            posix_fallocate = {}
            rename_ctime = {}
            stat_st_birthtime = {}
            utime_now = {}
            utimensat = {}
            secondary_fs = "/dev/shm"

            [settings]
            naptime = 0.02
            allow_remount = false

            [dummy_auth]
            entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
            """;
    /** MemoryFs has no fallocate(2) and no time of birth; files have at most a gibibyte. */
    private static final String PJDFSTEST_IN_MEMORY =
            PJDFSTEST.replace("posix_fallocate = {}\n", "").replace("stat_st_birthtime = {}\n", "");
    private static final String REFUSED_IN_MEMORY = "open::interact_2gb";
    private static final String FSX = """
            [weights]
            close_open = 0.5
            invalidate = 0.2
            mapread = 1.0
            mapwrite = 1.0
            read = 1.0
            write = 1.0
            truncate = 1.0
            fsync = 0.05
            """;
    private static final String FSX_MORE = """
            fdatasync = 0.05
            posix_fallocate = 0.3
            punch_hole = 0.3
            sendfile = 0.3
            posix_fadvise = 0.2
            copy_file_range = 0.3
            """;

    private static void require(String program) {
        boolean found = Arrays.stream(System.getenv("PATH").split(":"))
                .anyMatch(directory -> Files.isExecutable(Path.of(directory, program)));
        assertTrue(found, program + " is not on PATH; scripts/prerequisites.sh test builds it into .prerequisites/bin");
    }

    private static MountOptions options(String transport) {
        return MountOptions.DEFAULT.withOptions("allow_other,transport=" + transport);
    }

    private static TreeMap<String, String> pjdfstest(Place place, Path directory) throws Exception {
        return pjdfstest(place, directory, PJDFSTEST, FULL ? List.of() : PART);
    }

    /** Name of each test of pjdfstest, and how it ended. */
    private static TreeMap<String, String> pjdfstest(
            Place place, Path directory, String configured, List<String> patterns) throws Exception {
        Path configuration = Files.writeString(place.directory.resolve("pjdfstest.toml"), configured);
        List<String> command = new ArrayList<>(List.of(
                "pjdfstest", "--configuration-file", configuration.toString(), "--path", directory.toString()));
        command.addAll(patterns);
        // It fails where a test does; which may be as it is natively.
        String output = Place.outputOf(command);
        TreeMap<String, String> results = new TreeMap<>();
        for (String line : output.split("\n")) {
            String[] words = line.trim().split("\\s+");
            if (words.length == 2 && List.of("ok", "FAILED", "skipped").contains(words[1])) {
                results.put(words[0], words[1]);
            }
        }
        assertFalse(results.isEmpty(), output);
        return results;
    }

    private static void openToAll(Path directory) throws Exception {
        Files.setPosixFilePermissions(directory, PosixFilePermissions.fromString("rwxr-xr-x"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring"})
    void pjdfstestSaysOfTheMountWhatItSaysOfTheDirectory(String transport) throws Exception {
        require("pjdfstest");
        Transports.require(transport);
        try (Place place = new Place(DEADLINE_SECONDS)) {
            openToAll(place.directory);
            openToAll(place.source);
            TreeMap<String, String> expected = pjdfstest(place, place.source);
            long passed = expected.values().stream().filter("ok"::equals).count();
            assertTrue(passed > expected.size() / 2, "what fails natively proves nothing: " + expected);
            assertTrue(!FULL || expected.size() == TESTS, expected.size() + " tests ran, not " + TESTS);
            try (Mount _ = Mount.javaFuse(new NullFs(), place.source, place.mountpoint, Configuration.DEFAULT,
                    options(transport))) {
                TreeMap<String, String> found = pjdfstest(place, place.mountpoint);
                expected.keySet().removeAll(EXCUSED);
                found.keySet().removeAll(EXCUSED);
                assertEquals(expected.toString().replace(", ", "\n"), found.toString().replace(", ", "\n"));
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "uring,virtual"})
    void pjdfstestFindsNoFaultInMemory(String transport) throws Exception {
        require("pjdfstest");
        try (Place place = new Place(DEADLINE_SECONDS); Mount _ = memory(place, transport)) {
            openToAll(place.directory);
            openToAll(place.mountpoint);
            TreeMap<String, String> found = pjdfstest(place, place.mountpoint, PJDFSTEST_IN_MEMORY, List.of());
            assertEquals(TESTS, found.size(), "the run broke off");
            assertEquals("FAILED", found.remove(REFUSED_IN_MEMORY), "it is listed as refused");
            long passed = found.values().stream().filter("ok"::equals).count();
            assertTrue(passed > found.size() / 2, "what is skipped proves nothing: " + found);
            found.values().removeIf(result -> !result.equals("FAILED"));
            assertEquals(Set.of(), found.keySet());
        }
    }

    /** "virtual" is no transport: each request has a virtual thread. */
    private static Mount memory(Place place, String transport) throws Exception {
        Transports.require(transport);
        boolean virtual = transport.endsWith(",virtual");
        MountOptions options = options(transport.replace(",virtual", "")).plus("default_permissions");
        return Mount.inodes(new MemoryFs(), place.mountpoint, virtual ? options.withVirtualThreads() : options);
    }

    private static void fsx(Place place, String configuration) throws Exception {
        Path file = Files.writeString(place.directory.resolve("fsx.toml"), configuration);
        int operations = FULL ? 100_000 : 3_000;
        for (int seed = 1; seed <= (FULL ? 5 : 1); seed++) {
            String output = Place.outputOf(List.of("fsx", "-q", "-N", Integer.toString(operations), "-S",
                    Integer.toString(seed), "-f", file.toString(), "-P", place.directory.toString(),
                    place.mountpoint.resolve("fsx-" + seed).toString()));
            assertTrue(output.contains("All operations completed A-OK!"), output);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "uring,prompt"})
    void fsxReadsWhatItWroteThroughTheNullFileSystem(String transport) throws Exception {
        require("fsx");
        Transports.require(transport);
        for (DataMode mode : FULL ? DataMode.values() : new DataMode[] {DataMode.SHARED}) {
            try (Place place = new Place(DEADLINE_SECONDS);
                    Mount _ = Mount.javaFuse(new NullFs(), place.source, place.mountpoint,
                            Configuration.DEFAULT.withData(mode), options(transport))) {
                fsx(place, FSX + FSX_MORE);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring", "uring,prompt", "dev,virtual", "uring,virtual"})
    void fsxReadsWhatItWroteIntoMemory(String transport) throws Exception {
        require("fsx");
        try (Place place = new Place(DEADLINE_SECONDS); Mount _ = memory(place, transport)) {
            fsx(place, FSX);
        }
    }
}
