package io.github.bickfordfs;

import java.io.IOException;

/** One file, which is not cached; subclasses say how it is read. */
class OneFile implements InodeFileSystem {
    static final int SIZE = 14;

    @Override
    public Entry lookup(Request request) throws IOException {
        if (!request.name().equals("file")) {
            throw new FuseException(Errno.ENOENT);
        }
        return Entry.of(2, Attr.file(2, 0644, SIZE), Entry.SECOND);
    }

    @Override
    public Attributes getattr(Request request) {
        return new Attributes(
                request.node() == ROOT ? Attr.directory(ROOT, 0755) : Attr.file(2, 0644, SIZE), Entry.SECOND);
    }

    @Override
    public Opened open(Request request) throws IOException {
        return new Opened(7, Opened.DIRECT_IO);
    }
}
