package io.github.bickfordfs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.FileSystems;
import java.nio.file.Path;

/**
 * A file of the machine that the kernel itself reads and writes for open files: no {@link Operation#READ} and
 * {@link Operation#WRITE} come for these (kernel pass-through). {@link Request#openBacking} and
 * {@link Deferred#openBacking} register it, and {@link Opened#through} answers with it.
 *
 * <p>The mount needs the option {@code max_stack_depth=1}, Linux 6.9 and CAP_SYS_ADMIN. All opens of an inode at a time have to
 * use the same file. The kernel does not ask who may write to it: an open that would is to be refused by the file system.
 */
public final class Backing implements AutoCloseable {
    private final long number;
    private final int id;

    private Backing(long number, int id) {
        this.number = number;
        this.id = id;
    }

    /** Registers a descriptor, and says where: answers the kernel's number of it. */
    interface Registrar {
        int open(int descriptor, long number) throws IOException;
    }

    static Backing open(Path file, Registrar registrar) throws IOException {
        if (file.getFileSystem() != FileSystems.getDefault()) {
            throw new IOException(file.getFileSystem().provider().getScheme() + ":" + file
                    + " is no path of the machine's own file system, and the kernel cannot read it");
        }
        try (Arena arena = Arena.ofConfined()) {
            var number = arena.allocate(8, 8);
            int descriptor = Native.openPath(file.toString());
            try {
                int id = registrar.open(descriptor, number.address());
                return new Backing(Layout.getLong(number.address()), id);
            } finally {
                Native.closeDescriptor(descriptor);
            }
        }
    }

    /** The kernel's number of it. */
    int id() {
        return id;
    }

    /**
     * Gives it back, when the last open that names it was released: the kernel looks it up some time after the answer. What is not
     * closed is kept until the mount ends; afterwards this does nothing, and neither does it the second time.
     */
    @Override
    public void close() {
        Native.closeBacking(number);
    }
}
