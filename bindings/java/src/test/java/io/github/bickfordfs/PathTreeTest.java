package io.github.bickfordfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.bickfordfs.PathTree.Claim;
import io.github.bickfordfs.PathTree.Wanted;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
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

    private Claim claim(Wanted... wanted) throws FuseException {
        return tree.claim(() -> false, wanted);
    }

    /** A claim that another thread waits for; what it gets is closed by the test. */
    private FutureTask<Claim> waiting(BooleanSupplier interrupted, Wanted... wanted) throws InterruptedException {
        int before = tree.waiting();
        FutureTask<Claim> claiming = AllAtOnce.start(() -> tree.claim(interrupted, wanted));
        while (tree.waiting() == before) {
            assertTrue(!claiming.isDone(), "it did not wait");
            Thread.sleep(1);
        }
        return claiming;
    }

    private static Claim got(FutureTask<Claim> claiming) throws Exception {
        return claiming.get(Place.DEADLINE_SECONDS, TimeUnit.SECONDS);
    }

    @Test
    void whatChangesAPathWaitsForWhoUsesIt() throws Exception {
        long directory = tree.lookup(ROOT, "directory");
        long file = tree.lookup(directory, "file");
        Claim using = claim(Wanted.node(file));
        FutureTask<Claim> moving = waiting(() -> false, Wanted.change(ROOT, "directory"), Wanted.change(ROOT, "moved"));
        FutureTask<Claim> later = waiting(() -> false, Wanted.node(file));
        claim(Wanted.change(ROOT, "elsewhere")).close();
        assertEquals("/directory/file", using.path());
        using.close();
        Claim moved = got(moving);
        assertEquals("/moved", moved.secondPath());
        assertEquals(1, tree.waiting());
        tree.rename(ROOT, "directory", ROOT, "moved");
        moved.close();
        Claim last = got(later);
        assertEquals("/moved/file", last.path());
        last.close();
        assertEquals(3, tree.size());
    }

    @Test
    void aNameThatIsRemovedWhileItIsWaitedForHasNoPath() throws Exception {
        long file = tree.lookup(ROOT, "file");
        Claim removing = claim(Wanted.change(ROOT, "file"));
        FutureTask<Claim> using = waiting(() -> false, Wanted.node(file));
        tree.remove(ROOT, "file");
        removing.close();
        Claim used = got(using);
        assertNull(used.pathOrNull());
        used.close();
        tree.forget(file, 1);
        assertEquals(1, tree.size());
    }

    @Test
    void whoWaitsCanBeInterruptedAndKeepsNobody() throws Exception {
        long file = tree.lookup(ROOT, "file");
        AtomicBoolean interrupted = new AtomicBoolean();
        Claim using = claim(Wanted.node(file));
        FutureTask<Claim> removing = waiting(interrupted::get, Wanted.change(ROOT, "file"));
        FutureTask<Claim> later = waiting(() -> false, Wanted.node(file));
        interrupted.set(true);
        got(later).close();
        var failure = assertThrows(java.util.concurrent.ExecutionException.class, () -> got(removing));
        assertEquals(Errno.EINTR, Errno.of(failure));
        assertEquals("/file", using.path());
        using.close();
        claim(Wanted.change(ROOT, "file")).close();
    }

    @Test
    void namesThatAreOnlyClaimedAreForgotten() throws Exception {
        long directory = tree.lookup(ROOT, "directory");
        Claim making = claim(Wanted.change(directory, "new"));
        FutureTask<Claim> looking = waiting(() -> false, Wanted.name(directory, "new"));
        making.close();
        got(looking).close();
        assertEquals(2, tree.size());
        making = claim(Wanted.change(directory, "new"));
        tree.forget(directory, 1);
        assertEquals(3, tree.size());
        making.close();
        assertEquals(1, tree.size());
    }

    @Test
    void nodesAreFoundByTheirPaths() throws Exception {
        long directory = tree.lookup(ROOT, "directory");
        long file = tree.lookup(directory, "file");
        assertEquals(ROOT, tree.find("/"));
        assertEquals(directory, tree.find("/directory"));
        assertEquals(file, tree.find("/directory/file"));
        assertEquals(0, tree.find("/file"));
        assertEquals(0, tree.find("/directory/file/below"));
        assertEquals(3, tree.size());
    }

    @Test
    void aNameThatIsBeingChangedIsNotLookedUpAside() throws Exception {
        assertEquals(2, tree.lookupUnlessChanged(ROOT, "file"));
        Claim removing = claim(Wanted.change(ROOT, "file"));
        assertEquals(0, tree.lookupUnlessChanged(ROOT, "file"));
        removing.close();
        assertEquals(2, tree.lookupUnlessChanged(ROOT, "file"));
        tree.forget(2, 2);
        assertEquals(1, tree.size());
    }

    @Test
    void whatHasNoNameGetsOneAndKeepsIt() throws Exception {
        long node = tree.unnamed();
        assertNull(tree.pathOrNull(node));
        isStale(node);
        long stale = tree.lookup(ROOT, "name");
        try (Claim claim = claim(Wanted.node(node), Wanted.change(ROOT, "name"))) {
            assertNull(claim.pathOrNull());
            tree.name(node, ROOT, "name");
        }
        assertEquals("/name", tree.path(node));
        assertEquals(node, tree.lookup(ROOT, "name"));
        isStale(stale);
        tree.name(node, ROOT, "other");
        assertEquals("/name", tree.path(node));
        tree.forget(stale, 1);
        tree.forget(node, 2);
        assertEquals(1, tree.size());
    }

    @Test
    void aDirectoryIntoItselfIsRefused() throws Exception {
        long directory = tree.lookup(ROOT, "directory");
        long below = tree.lookup(directory, "below");
        FuseException refused = assertThrows(FuseException.class,
                () -> claim(Wanted.change(ROOT, "directory"), Wanted.change(below, "new")));
        assertEquals(Errno.EINVAL, refused.errno());
        assertEquals(3, tree.size());
        claim(Wanted.change(ROOT, "directory"), Wanted.change(ROOT, "directory")).close();
    }
}
