package io.github.bickfordfs.examples;

import io.github.bickfordfs.Attr;
import io.github.bickfordfs.Attributes;
import io.github.bickfordfs.Entry;
import io.github.bickfordfs.Errno;
import io.github.bickfordfs.FuseException;
import io.github.bickfordfs.InodeFileSystem;
import io.github.bickfordfs.Listing;
import io.github.bickfordfs.Program;
import io.github.bickfordfs.Request;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;

/** One file that says hello, over inodes: {@code Hello MOUNTPOINT}. */
public final class Hello implements InodeFileSystem {
    private static final byte[] TEXT = "Hello, world!\n".getBytes(StandardCharsets.UTF_8);
    private static final byte[] NAME = "hello".getBytes(StandardCharsets.UTF_8);
    private static final Attributes ROOT_ATTRIBUTES = new Attributes(Attr.directory(ROOT, 0755), Entry.SECOND);
    private static final Entry HELLO = Entry.of(2, Attr.file(2, 0644, TEXT.length), Entry.SECOND);
    private static final Attributes HELLO_ATTRIBUTES = new Attributes(HELLO.attr(), Entry.SECOND);

    @Override
    public Entry lookup(Request request) throws IOException {
        if (request.node() != ROOT || !request.nameIs(NAME)) {
            throw new FuseException(Errno.ENOENT);
        }
        return HELLO;
    }

    @Override
    public Attributes getattr(Request request) {
        return request.node() == ROOT ? ROOT_ATTRIBUTES : HELLO_ATTRIBUTES;
    }

    @Override
    public int read(Request request, MemorySegment into) {
        int from = (int) Math.min(request.offset(), TEXT.length);
        int length = (int) Math.min(into.byteSize(), TEXT.length - from);
        MemorySegment.copy(MemorySegment.ofArray(TEXT), from, into, 0, length);
        return length;
    }

    @Override
    public void readdir(Request request, Listing listing) {
        String[] names = {".", "..", "hello"};
        for (int i = (int) request.offset(); i < names.length; i++) {
            int type = i < 2 ? Attr.S_IFDIR : Attr.S_IFREG;
            if (!listing.add(names[i], i < 2 ? 1 : 2, type, i + 1)) {
                return;
            }
        }
    }

    /** The command. */
    public static void main(String[] args) {
        System.exit(new Program("hello").about("A file that says hello").inodes(args, _ -> new Hello()));
    }
}
