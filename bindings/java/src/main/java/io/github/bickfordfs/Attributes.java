package io.github.bickfordfs;

/**
 * Attributes, and for how long the kernel may use them.
 *
 * @param attr the attributes
 * @param valid for how many nanoseconds
 */
public record Attributes(Attr attr, long valid) {}
