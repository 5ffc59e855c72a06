/**
 * File systems in Java for Linux.
 *
 * <ul>
 *   <li>{@link io.github.bickfordfs.JavaFuse}: a directory is served by StackFS, and a class has calls before and after
 *       its operations.
 *   <li>{@link io.github.bickfordfs.PathFileSystem}: a file system over paths.
 *   <li>{@link io.github.bickfordfs.InodeFileSystem}: a file system over inodes, as the kernel sees it.
 * </ul>
 *
 * {@link io.github.bickfordfs.Mount} mounts each of them, and {@link io.github.bickfordfs.Program} is all of a program's
 * {@code main}. What a class does not override never enters Java.
 */
package io.github.bickfordfs;
