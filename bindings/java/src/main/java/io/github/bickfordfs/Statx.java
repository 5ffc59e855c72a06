package io.github.bickfordfs;

import java.time.Instant;

/**
 * Attributes with the time of birth (statx(2)).
 *
 * @param attributes the attributes
 * @param born when the inode was made, or null where that is not known
 */
public record Statx(Attributes attributes, Instant born) {}
