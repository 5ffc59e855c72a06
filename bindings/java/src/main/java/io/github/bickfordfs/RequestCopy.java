package io.github.bickfordfs;

import io.github.bickfordfs.Layout.Req;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** A request for another thread than the one that it came to, whose memory serves the next. */
final class RequestCopy {
    /** Where a request has the addresses of what it brings; the lengths follow them. */
    private static final int[] POINTERS = {Req.NAME, Req.NAME2, Req.DATA, Req.PATH, Req.PATH2};

    private final byte[] bytes;

    /** Copies struct bickford_request and what it points to. */
    RequestCopy(long request) {
        int size = Req.BYTES;
        for (int pointer : POINTERS) {
            size += length(request, pointer);
        }
        bytes = new byte[size];
        Layout.copyOut(request, bytes, Req.BYTES);
        int end = Req.BYTES;
        for (int pointer : POINTERS) {
            Layout.copyOut(Layout.getLong(request + pointer), bytes, end, length(request, pointer));
            end += length(request, pointer);
        }
    }

    private static int length(long request, int pointer) {
        return Math.toIntExact(Layout.getLong(request + pointer + 8));
    }

    /** The address of a struct bickford_request with all that it points to, which lives as long as the arena. */
    long in(Arena arena) {
        MemorySegment memory = arena.allocate(bytes.length, 8);
        long request = memory.address();
        Layout.copyIn(bytes, bytes.length, request);
        long end = request + Req.BYTES;
        for (int pointer : POINTERS) {
            // What is not there stays so: a path that is NULL is not an empty one.
            if (Layout.getLong(request + pointer) != 0) {
                Layout.putLong(request + pointer, end);
                end += length(request, pointer);
            }
        }
        return request;
    }
}
