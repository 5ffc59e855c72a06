package io.github.bickfordfs;

/**
 * A file that was made and opened.
 *
 * @param entry its name and inode
 * @param opened the open file
 */
public record Created(Entry entry, Opened opened) {}
