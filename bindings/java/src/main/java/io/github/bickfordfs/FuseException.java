package io.github.bickfordfs;

import java.io.IOException;

/** An error with the number that the caller of the operation gets. It has no stack trace. */
public class FuseException extends IOException {
    private static final long serialVersionUID = 1;

    /** The error number. */
    private final int errno;

    /**
     * An error.
     *
     * @param errno its number, such as {@link Errno#ENOENT}
     */
    public FuseException(int errno) {
        this(errno, Errno.name(errno));
    }

    /**
     * An error.
     *
     * @param errno its number, such as {@link Errno#ENOENT}
     * @param message what failed
     */
    public FuseException(int errno, String message) {
        super(message);
        if (errno <= 0 || errno > 511) {
            throw new IllegalArgumentException(errno + " is no error number");
        }
        this.errno = errno;
    }

    /**
     * The error number.
     *
     * @return above zero
     */
    public int errno() {
        return errno;
    }

    @Override
    public synchronized Throwable fillInStackTrace() {
        return this;
    }
}
