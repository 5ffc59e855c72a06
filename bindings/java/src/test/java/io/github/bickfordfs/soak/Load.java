package io.github.bickfordfs.soak;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Random;
import java.util.stream.Stream;

/** One user of a mount: files are written, read and compared, renamed, linked, listed, cut and removed. */
final class Load {
    private static final int FILES = 40;
    private static final int SIZE_MAX = 200_000;

    private final Path directory;
    private final boolean readOnly;
    private final Random random;
    /** What is in the file of each number; null where there is none. */
    private final byte[][] contents = new byte[FILES][];
    private volatile long operations;
    private boolean made;

    Load(Path mountpoint, boolean readOnly, int number) {
        this.directory = readOnly ? mountpoint : mountpoint.resolve("load" + number);
        this.readOnly = readOnly;
        this.random = new Random(number);
    }

    long operations() {
        return operations;
    }

    private Path file(int number) {
        return directory.resolve("file" + number);
    }

    @SuppressWarnings("NonAtomicOperationOnVolatileField")
    void once() throws IOException {
        if (readOnly) {
            readComputed();
        } else {
            if (!made) {
                Files.createDirectory(directory);
                made = true;
            }
            int number = random.nextInt(FILES);
            if (contents[number] == null) {
                write(number);
            } else {
                change(number);
            }
        }
        operations++;
    }

    private void change(int number) throws IOException {
        switch (random.nextInt(10)) {
            case 0 -> remove(number);
            case 1 -> rename(number);
            case 2 -> write(number);
            case 3 -> append(number);
            case 4 -> truncate(number);
            case 5 -> list();
            case 6 -> directories();
            default -> compare(number);
        }
    }

    private void write(int number) throws IOException {
        byte[] bytes = new byte[random.nextInt(SIZE_MAX)];
        random.nextBytes(bytes);
        Files.write(file(number), bytes);
        contents[number] = bytes;
    }

    private void append(int number) throws IOException {
        byte[] more = new byte[random.nextInt(10_000)];
        random.nextBytes(more);
        Files.write(file(number), more, StandardOpenOption.APPEND);
        int length = contents[number].length;
        contents[number] = Arrays.copyOf(contents[number], length + more.length);
        System.arraycopy(more, 0, contents[number], length, more.length);
    }

    private void truncate(int number) throws IOException {
        int length = random.nextInt(contents[number].length + 1);
        try (FileChannel channel = FileChannel.open(file(number), StandardOpenOption.WRITE)) {
            channel.truncate(length);
        }
        contents[number] = Arrays.copyOf(contents[number], length);
    }

    private void compare(int number) throws IOException {
        if (!Arrays.equals(contents[number], Files.readAllBytes(file(number)))) {
            throw new IOException(file(number) + " has not what was written");
        }
    }

    private void remove(int number) throws IOException {
        Files.delete(file(number));
        contents[number] = null;
        if (Files.exists(file(number))) {
            throw new IOException(file(number) + " is there, and was removed");
        }
    }

    private void rename(int number) throws IOException {
        int other = random.nextInt(FILES);
        if (other != number) {
            Files.move(file(number), file(other), StandardCopyOption.ATOMIC_MOVE);
            contents[other] = contents[number];
            contents[number] = null;
        }
    }

    private void list() throws IOException {
        long expected = Arrays.stream(contents).filter(bytes -> bytes != null).count();
        try (Stream<Path> files = Files.list(directory)) {
            long found = files.count();
            if (found != expected) {
                throw new IOException(directory + " lists " + found + " names of " + expected);
            }
        }
    }

    private void directories() throws IOException {
        Path inner = Files.createDirectory(directory.resolve("inner"));
        Files.createSymbolicLink(inner.resolve("link"), Path.of("nowhere"));
        if (!Files.readSymbolicLink(inner.resolve("link")).equals(Path.of("nowhere"))) {
            throw new IOException(inner + "/link leads elsewhere");
        }
        Files.delete(inner.resolve("link"));
        Files.delete(inner);
    }

    private void readComputed() throws IOException {
        try {
            Files.size(directory.resolve("missing"));
            throw new IOException(directory + "/missing is there");
        } catch (NoSuchFileException _) {
            // As it should be.
        }
        ByteBuffer buffer = ByteBuffer.allocate(random.nextInt(64 << 10) + 1);
        int offset = random.nextInt(LaterFs.SIZE);
        int length;
        try (FileChannel channel = FileChannel.open(directory.resolve(LaterFs.NAME))) {
            length = channel.read(buffer, offset);
        }
        for (int i = 0; i < length; i++) {
            if (buffer.get(i) != LaterFs.at(offset + i)) {
                throw new IOException(directory + ": a wrong byte at " + (offset + i));
            }
        }
    }
}
