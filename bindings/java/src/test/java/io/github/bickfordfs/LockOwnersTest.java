package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

class LockOwnersTest {
    private final LockOwners owners = new LockOwners();

    @Test
    void ownersEndWithTheirDescriptorOrTheirOpenFile() throws FuseException {
        owners.add(1, 10, 100);
        owners.add(1, 10, 100);
        owners.add(1, 10, 101);
        owners.add(1, 11, 100);
        owners.add(2, 10, 100);
        assertEquals(4, owners.size());
        assertEquals(List.of(), owners.take(1, 100, () -> true));
        owners.forget(1, 12);
        assertEquals(Set.of(10L, 11L), Set.copyOf(owners.take(1, 100, () -> false)));
        assertEquals(2, owners.size());
        owners.forget(1, 10);
        owners.forget(1, 10);
        assertEquals(List.of(10L), owners.take(2, 100, () -> false));
        assertEquals(0, owners.size());
    }

    @Test
    void moreThanAreKeptAreRefused() throws FuseException {
        for (long owner = 0; owner < 1 << 16; owner++) {
            owners.add(owner % 7, owner, 1);
        }
        owners.add(0, 0, 1);
        assertEquals(Errno.ENOLCK, assertThrows(FuseException.class, () -> owners.add(1, 0, 1)).errno());
        owners.forget(0, 0);
        owners.add(1, 0, 1);
        assertEquals(1 << 16, owners.size());
    }
}
