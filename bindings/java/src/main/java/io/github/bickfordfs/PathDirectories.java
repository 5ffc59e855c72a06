package io.github.bickfordfs;

import io.github.bickfordfs.PathFileSystem.Item;
import io.github.bickfordfs.PathTree.Claim;
import io.github.bickfordfs.PathTree.Wanted;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** The directories that are open, by numbers that the kernel has for handles: as many as it has open. */
final class PathDirectories {
    /** FUSE_UNKNOWN_INO: readdir(3) shows something, but not zero. */
    private static final long UNKNOWN_INO = 0xffff_ffffL;
    private static final List<Item> DOTS = List.of(new Item(".", Attr.S_IFDIR), new Item("..", Attr.S_IFDIR));

    /** An open directory. */
    private static final class OpenDirectory {
        /** The file system's own handle. */
        private final long handle;
        /** The names as they were when the listing began, or null: offsets are positions in it, after the dots. */
        private volatile List<Item> items;

        OpenDirectory(long handle) {
            this.handle = handle;
        }
    }

    private final PathFileSystem fs;
    private final PathTree tree;
    private final PathOverrides overrides;
    private final Map<Long, OpenDirectory> open = new ConcurrentHashMap<>();
    private final AtomicLong next = new AtomicLong();

    PathDirectories(PathFileSystem fs, PathTree tree, PathOverrides overrides) {
        this.fs = fs;
        this.tree = tree;
        this.overrides = overrides;
    }

    /** The path of a directory, held until the claim is closed: null where its name is gone and a handle tells it. */
    private String path(Claim claim) throws FuseException {
        return overrides.hasDirectoryHandles ? claim.pathOrNull() : claim.path();
    }

    private OpenDirectory get(long number) throws FuseException {
        OpenDirectory directory = open.get(number);
        if (directory == null) {
            throw new FuseException(Errno.EBADF);
        }
        return directory;
    }

    /** The file system's handle of an open directory. */
    long handle(long number) throws FuseException {
        return get(number).handle;
    }

    private Claim about(Request request) throws FuseException {
        return tree.claim(request::interrupted, Wanted.node(request.node()));
    }

    Opened open(Request request) throws IOException {
        Opened opened = Opened.DEFAULT;
        if (overrides.hasDirectoryHandles) {
            try (Claim claim = about(request)) {
                opened = fs.opendir(claim.path());
            }
        }
        long number = next.incrementAndGet();
        open.put(number, new OpenDirectory(opened.handle()));
        return new Opened(number, opened.flags());
    }

    void release(Request request) throws IOException {
        OpenDirectory directory = get(request.handle());
        open.remove(request.handle());
        if (overrides.releasesDirectories) {
            // It comes once, also for callers that got a signal.
            try (Claim claim = tree.claim(() -> false, Wanted.node(request.node()))) {
                fs.releasedir(claim.pathOrNull(), directory.handle);
            }
        }
    }

    void sync(Request request) throws IOException {
        long handle = handle(request.handle());
        try (Claim claim = about(request)) {
            fs.fsyncdir(path(claim), handle, (request.extraFlags() & 1) != 0);
        }
    }

    int ioctl(Request request, PathFileSystem.Ioctl ioctl) throws IOException {
        long handle = handle(request.handle());
        try (Claim claim = about(request)) {
            return fs.ioctl(path(claim), handle, ioctl);
        }
    }

    /** A directory that is rewound is listed again. */
    void list(Request request, Listing listing) throws IOException {
        OpenDirectory directory = get(request.handle());
        List<Item> items = directory.items;
        boolean isFresh = items == null || request.offset() == 0;
        if (isFresh) {
            try (Claim claim = about(request)) {
                items = checked(fs.readdir(path(claim), directory.handle));
            }
            directory.items = items;
        }
        fill(request, items, isFresh, listing);
    }

    /** What cannot be is refused before a name is looked up of which the kernel would not hear. */
    private static List<Item> checked(List<Item> items) {
        List<Item> copy = List.copyOf(items);
        for (Item item : copy) {
            Listing.check(item.name().getBytes(StandardCharsets.UTF_8));
            if (item.attr() != null) {
                Answers.checked(item.attr());
            }
        }
        return copy;
    }

    /**
     * Attributes that came with an earlier request may be those of a name that is gone: then the kernel is left to look the
     * name up.
     */
    private void fill(Request request, List<Item> items, boolean isFresh, Listing listing) throws IOException {
        long validity = fs.validity();
        for (long i = request.offset(); i < items.size() + 2; i++) {
            Item item = i < 2 ? DOTS.get((int) i) : items.get((int) i - 2);
            byte[] name = item.name().getBytes(StandardCharsets.UTF_8);
            if (!listing.fits(name)) {
                return;
            }
            boolean mayBind = isFresh && listing.isPlus() && item.attr() != null;
            long node = mayBind ? tree.lookupUnlessChanged(request.node(), item.name()) : 0;
            if (node == 0) {
                listing.add(name, item.ino() == 0 ? UNKNOWN_INO : item.ino(), item.mode(), i + 1);
            } else {
                listing.add(name, Entry.of(node, PathAdapter.numbered(item.attr(), node), validity), i + 1);
            }
        }
    }
}
