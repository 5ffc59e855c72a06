package io.github.bickfordfs.soak;

import io.github.bickfordfs.Attr;
import io.github.bickfordfs.Attributes;
import io.github.bickfordfs.Deferred;
import io.github.bickfordfs.Entry;
import io.github.bickfordfs.Errno;
import io.github.bickfordfs.FuseException;
import io.github.bickfordfs.InodeFileSystem;
import io.github.bickfordfs.Opened;
import io.github.bickfordfs.Request;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** One file, whose bytes follow from their offsets, read from virtual threads; a name is not found now and then later. */
final class LaterFs implements InodeFileSystem {
    static final String NAME = "file";
    static final int SIZE = 1 << 20;

    private static final int NODE = 2;

    /** The byte at an offset. */
    static byte at(long offset) {
        return (byte) (offset * 31 >> 3);
    }

    @Override
    public Entry lookup(Request request) throws IOException {
        if (request.name().equals(NAME)) {
            return Entry.of(NODE, Attr.file(NODE, 0444, SIZE), 0);
        }
        Deferred owed = request.defer();
        Thread.ofVirtual().start(() -> owed.fail(new FuseException(Errno.ENOENT)));
        return null;
    }

    @Override
    public Attributes getattr(Request request) {
        return new Attributes(request.node() == ROOT ? Attr.directory(ROOT, 0755) : Attr.file(NODE, 0444, SIZE), 0);
    }

    @Override
    public Opened open(Request request) {
        return new Opened(1, Opened.DIRECT_IO);
    }

    @Override
    public int read(Request request, MemorySegment into) {
        long offset = request.offset();
        Deferred owed = request.defer();
        Thread.ofVirtual().start(() -> {
            MemorySegment buffer = owed.buffer();
            long length = Math.clamp(SIZE - offset, 0, buffer.byteSize());
            for (long i = 0; i < length; i++) {
                buffer.set(ValueLayout.JAVA_BYTE, i, at(offset + i));
            }
            owed.complete(length);
        });
        return 0;
    }
}
