package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;

class PathTreeTest {
    private static final long ROOT = InodeFileSystem.ROOT;

    private final PathTree tree = new PathTree();

    private void isStale(long node) {
        assertEquals(Errno.ESTALE, assertThrows(FuseException.class, () -> tree.path(node)).errno());
    }

    @Test
    void exchangedNamesKeepTheirNodes() throws FuseException {
        long a = tree.lookup(ROOT, "a");
        long below = tree.lookup(a, "below");
        long directory = tree.lookup(ROOT, "directory");
        long b = tree.lookup(directory, "b");
        tree.exchange(ROOT, "a", directory, "b");
        assertEquals("/directory/b", tree.path(a));
        assertEquals("/directory/b/below", tree.pathOrNull(below));
        assertEquals("/a", tree.path(b));
        assertEquals(b, tree.lookup(ROOT, "a"));
        assertEquals(a, tree.lookup(directory, "b"));
    }

    @Test
    void exchangingWithANameThatIsNotKnownMovesTheOther() throws FuseException {
        long a = tree.lookup(ROOT, "a");
        tree.exchange(ROOT, "unknown", ROOT, "a");
        assertEquals("/unknown", tree.path(a));
    }

    @Test
    void whatIsMovedIntoADirectoryOfWhichNothingIsKnownIsThere() throws FuseException {
        long moved = tree.lookup(ROOT, "moved");
        long empty = tree.lookup(ROOT, "empty");
        tree.rename(ROOT, "moved", empty, "name");
        assertEquals("/empty/name", tree.path(moved));
        long other = tree.lookup(ROOT, "other");
        tree.exchange(ROOT, "empty", other, "name");
        assertEquals("/other/name/name", tree.path(moved));
        long file = tree.lookup(ROOT, "file");
        tree.remove(file, "name");
        tree.rename(file, "name", ROOT, "name");
        assertEquals("/file", tree.path(file));
    }

    @Test
    void whatWasRemovedHasNoPath() throws FuseException {
        long directory = tree.lookup(ROOT, "directory");
        long below = tree.lookup(directory, "below");
        tree.remove(directory, "below");
        assertNull(tree.pathOrNull(below));
        isStale(below);
        long replaced = tree.lookup(ROOT, "log");
        long moved = tree.lookup(ROOT, "new");
        tree.rename(ROOT, "new", ROOT, "log");
        assertNull(tree.pathOrNull(replaced));
        assertEquals("/log", tree.pathOrNull(moved));
        long inRemoved = tree.lookup(directory, "other");
        tree.remove(ROOT, "directory");
        assertNull(tree.pathOrNull(inRemoved));
        assertEquals("/", tree.pathOrNull(ROOT));
    }
}
