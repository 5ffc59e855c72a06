package io.github.bickfordfs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;

/** Passes the names of a directory over paths to the library, which keeps them, one after the other. */
final class PathNames {
    private final Request request;
    /** Used again by each name, and made when there is one. */
    private MemorySegment memory;

    PathNames(Request request) {
        this.request = request;
    }

    /** Adds a name. One that no file has, and attributes that cannot be, are defects of the file system, and told. */
    void add(PathFileSystem.Item item) throws IOException {
        byte[] name = item.name().getBytes(StandardCharsets.UTF_8);
        Listing.check(name);
        MemorySegment place = memory();
        MemorySegment.copy(name, 0, place, ValueLayout.JAVA_BYTE, Layout.At.BYTES, name.length);
        long attr = 0;
        if (item.attr() != null) {
            attr = place.address();
            Answers.putAttr(attr, item.attr());
        }
        request.list(place.address() + Layout.At.BYTES, name.length, item.mode(), attr);
    }

    private MemorySegment memory() {
        if (memory == null) {
            Arena arena = request.arena();
            memory = arena.allocate(Layout.At.BYTES + Listing.NAME_MAX, 8);
        }
        return memory;
    }
}
