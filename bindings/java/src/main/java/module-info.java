/** FUSE file systems in Java for Linux, on the foreign function and memory API. */
module io.github.bickfordfs {
    exports io.github.bickfordfs;
}
