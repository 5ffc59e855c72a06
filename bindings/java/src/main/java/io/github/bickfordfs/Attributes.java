package io.github.bickfordfs;

/**
 * Attributes, and for how long the kernel may use them.
 *
 * @param attr the attributes
 * @param valid for how many nanoseconds; what is negative is over, and zero
 */
public record Attributes(Attr attr, long valid) {
    /** Checks the arguments. */
    public Attributes {
        valid = Math.max(0, valid);
    }
}
