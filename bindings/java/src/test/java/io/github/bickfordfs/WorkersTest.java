package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** How many native threads serve a mount. */
class WorkersTest {
    @ParameterizedTest
    @ValueSource(strings = {"dev", "uring"})
    void methodsThatWaitGetMoreThreads(String transport) throws Exception {
        Transports.require(transport);
        // More than wait for requests where there are few processors, and fewer than there may be.
        AllAtOnce fs = new AllAtOnce(12);
        MountOptions options = MountOptions.DEFAULT.plus("transport=" + transport);
        try (Place place = new Place(); Mount _ = Mount.paths(fs, place.mountpoint, options)) {
            fs.readAll(place.mountpoint);
        }
        assertFalse(fs.virtual.get());
    }

    @Test
    void whatCannotBeIsRefused() {
        assertEquals(0, MountOptions.DEFAULT.workers());
        assertEquals(1024, MountOptions.DEFAULT.withWorkers(1024).workers());
        for (int workers : new int[] {-1, 1025}) {
            assertThrows(IllegalArgumentException.class, () -> MountOptions.DEFAULT.withWorkers(workers));
        }
    }
}
