package io.github.bickfordfs;

import io.github.bickfordfs.Layout.Req;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Instant;

/**
 * What the kernel asks for. Which fields mean something depends on the operation; others are zero.
 *
 * <p>It is a view of the request's own memory, used again for the next request of the thread. On any other thread, and
 * after the method that got it returned, or {@link #defer} was called, its use is an {@link IllegalStateException}. So is
 * the use of the buffers that it gave out, and on another thread a {@link WrongThreadException}.
 */
public sealed class Request permits Call {
    private static final int HAS_HANDLE = 1, HAS_MODE = 1 << 1, HAS_UID = 1 << 2, HAS_GID = 1 << 3, HAS_SIZE = 1 << 4;
    private static final int HAS_ACCESSED = 1 << 5, HAS_ACCESSED_NOW = 1 << 6, HAS_MODIFIED = 1 << 7;
    private static final int HAS_MODIFIED_NOW = 1 << 8, HAS_CHANGED = 1 << 9, HAS_WAITER = 1 << 12;

    private long request;
    private long answer;
    private long reply;
    private Arena arena;
    private Target target;
    private Deferred deferred;
    /** The answer of a request that has a thread of its own. */
    private Deferred owed;
    private Thread owner;

    Request() {}

    /**
     * The request that this thread serves: who calls a method of a {@link PathFileSystem}, which gets none as an argument.
     *
     * @return the request, which is over when the method returns
     * @throws IllegalStateException where the thread serves none: outside of methods that serve requests, on another thread
     *     than they run on, after {@link #defer}, and when a mount ends
     */
    public static Request current() {
        Call call = Bridge.current();
        if (call == null || !call.isServed()) {
            throw new IllegalStateException(Thread.currentThread() + " serves no request: ask in a method of the file system,"
                    + " on the thread that runs it, and hand other threads what they need");
        }
        return call;
    }

    /** Whether this is a request that somebody waits for. */
    final boolean isServed() {
        return request != 0 && operation() != null;
    }

    final void begin(long request, long answer, long reply, Target target) {
        this.request = request;
        this.answer = answer;
        this.reply = reply;
        this.target = target;
        this.deferred = null;
        this.owed = null;
        this.owner = Thread.currentThread();
    }

    /** A request that has left its callback, on the thread that answers it. */
    final void begin(long request, long answer, Deferred owed, Target target) {
        begin(request, answer, 0, target);
        this.owed = owed;
    }

    final boolean hasOwnThread() {
        return owed != null;
    }

    /** What another thread needs to serve it. */
    final RequestCopy copy() {
        return new RequestCopy(at(0));
    }

    /** The callback ends. An answer that is owed must not be kept by what its thread uses again. */
    final void finish() {
        deferred = null;
        owed = null;
        target = null;
        end();
    }

    /** Ends the views of this request. */
    private void end() {
        request = 0;
        answer = 0;
        reply = 0;
        if (arena != null) {
            Arena ended = arena;
            arena = null;
            ended.close();
        }
    }

    final boolean isDeferred() {
        return deferred != null;
    }

    final Deferred deferred() {
        return deferred;
    }

    final long at(int offset) {
        if (request == 0) {
            throw new IllegalStateException("this request is over: it may not be used after its method returned");
        }
        // To another thread it would be whatever the owner serves by now.
        if (owner != Thread.currentThread()) {
            throw new IllegalStateException("this request belongs to " + owner
                    + ": take what another thread needs, and defer() the answer");
        }
        return request + offset;
    }

    final long answer() {
        at(0);
        return answer;
    }

    final Arena arena() {
        at(0);
        if (arena == null) {
            arena = Arena.ofConfined();
        }
        return arena;
    }

    private boolean has(int bit) {
        return (Layout.getInt(at(Req.PRESENT)) & bit) != 0;
    }

    /** What is asked. */
    public final Operation operation() {
        return Operation.of(Layout.getInt(at(Req.OPERATION)));
    }

    /** The number of the request. */
    public final long unique() {
        return Layout.getLong(at(Req.UNIQUE));
    }

    /** The caller's user, for permissions. */
    public final int uid() {
        return Layout.getInt(at(Req.UID));
    }

    /** The caller's group, for permissions. */
    public final int gid() {
        return Layout.getInt(at(Req.GID));
    }

    /** The calling thread; zero where it is not known. */
    public final int pid() {
        return Layout.getInt(at(Req.PID));
    }

    /** The inode; where a name is made, found or removed, its directory. Zero in methods over paths. */
    public final long node() {
        return Layout.getLong(at(Req.NODE));
    }

    /** The open file. */
    public final long handle() {
        return Layout.getLong(at(Req.HANDLE));
    }

    /** Whether attributes are asked for, or changed, through an open file. */
    public final boolean hasHandle() {
        return has(HAS_HANDLE);
    }

    /** Where to begin, in bytes; for a listing, the offset of the last name that was taken, or zero. */
    public final long offset() {
        return Layout.getLong(at(Req.OFFSET));
    }

    /** How many bytes; for {@link Operation#SETATTR} the new size. */
    public final long size() {
        return Layout.getLong(at(Req.SIZE));
    }

    /** Whether the size is to be changed. */
    public final boolean hasSize() {
        return has(HAS_SIZE);
    }

    /** The directory of the other name, or the file that is copied to. */
    public final long otherNode() {
        return Layout.getLong(at(Req.NODE2));
    }

    /** The open file that is copied to. */
    public final long otherHandle() {
        return Layout.getLong(at(Req.HANDLE2));
    }

    /** Where copying to begins, in bytes. */
    public final long otherOffset() {
        return Layout.getLong(at(Req.OFFSET2));
    }

    /** Whose locks. */
    public final long lockOwner() {
        return Layout.getLong(at(Req.LOCK_OWNER));
    }

    /** Flags of the system call; see bickford.h for each operation. */
    public final int flags() {
        return Layout.getInt(at(Req.FLAGS));
    }

    /** Further flags; see bickford.h for each operation. */
    public final int extraFlags() {
        return Layout.getInt(at(Req.FLAGS2));
    }

    /** Type and permissions; of MKDIR the permissions alone, without the type that the answer has to have. */
    public final int mode() {
        return Layout.getInt(at(Req.MODE));
    }

    /** Whether the permissions are to be changed. */
    public final boolean hasMode() {
        return has(HAS_MODE);
    }

    /** The caller's umask. */
    public final int umask() {
        return Layout.getInt(at(Req.UMASK));
    }

    /** Device number of a device node, in the kernel's 32-bit form. */
    public final int rdev() {
        return Layout.getInt(at(Req.RDEV));
    }

    /** Whether the owner is to be changed. */
    public final boolean hasNewUid() {
        return has(HAS_UID);
    }

    /** The new owner. */
    public final int newUid() {
        return Layout.getInt(at(Req.NEW_UID));
    }

    /** Whether the group is to be changed. */
    public final boolean hasNewGid() {
        return has(HAS_GID);
    }

    /** The new group. */
    public final int newGid() {
        return Layout.getInt(at(Req.NEW_GID));
    }

    /** The new time of access, or null where it stays. */
    public final Instant newAccessed() {
        return has(HAS_ACCESSED_NOW) ? Instant.now() : has(HAS_ACCESSED) ? time(Req.ACCESSED) : null;
    }

    /** The new time of modification, or null where it stays. */
    public final Instant newModified() {
        return has(HAS_MODIFIED_NOW) ? Instant.now() : has(HAS_MODIFIED) ? time(Req.MODIFIED) : null;
    }

    /** The new time of change, or null where it is not given. */
    public final Instant newChanged() {
        return has(HAS_CHANGED) ? time(Req.CHANGED) : null;
    }

    private Instant time(int offset) {
        return Instant.ofEpochSecond(Layout.getLong(at(offset)), Layout.getInt(at(offset + 8)));
    }

    /** Whether the caller of {@link Operation#POLL} wants to be woken: then {@link #offset} names it. */
    public final boolean hasWaiter() {
        return has(HAS_WAITER);
    }

    /** The lock that is asked for. */
    public final Lock lock() {
        return new Lock(Layout.getLong(at(Req.LOCK_START)), Layout.getLong(at(Req.LOCK_END)),
                Layout.getInt(at(Req.LOCK_KIND)), Layout.getInt(at(Req.LOCK_PID)));
    }

    /**
     * The name.
     *
     * @throws UncheckedIOException when it is not UTF-8: then {@link #nameBytes} has it. The caller gets
     *     {@link Errno#EILSEQ}
     */
    public final String name() {
        return text(nameBytes());
    }

    /** Replacing what is not UTF-8 would make one name of two. */
    private static String text(byte[] bytes) {
        String text = new String(bytes, StandardCharsets.UTF_8);
        if (text.indexOf('\ufffd') >= 0) {
            try {
                StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes));
            } catch (CharacterCodingException e) {
                throw new UncheckedIOException("a name is not UTF-8", e);
            }
        }
        return text;
    }

    /** The name as it is. */
    public final byte[] nameBytes() {
        return Layout.getBytes(Layout.getLong(at(Req.NAME)), nameLength());
    }

    /** Length of the name in bytes. */
    public final int nameLength() {
        return (int) Layout.getLong(at(Req.NAME_LENGTH));
    }

    /** Whether the name is this one, compared without making an object. */
    public final boolean nameIs(byte[] expected) {
        int length = nameLength();
        if (length != expected.length) {
            return false;
        }
        long name = Layout.getLong(at(Req.NAME));
        for (int i = 0; i < length; i++) {
            if (Layout.getByte(name + i) != expected[i]) {
                return false;
            }
        }
        return true;
    }

    /**
     * The other name of a renaming, or the target of a symbolic link.
     *
     * @throws UncheckedIOException when it is not UTF-8: then {@link #otherNameBytes} has it. The caller gets
     *     {@link Errno#EILSEQ}
     */
    public final String otherName() {
        return text(otherNameBytes());
    }

    /** The other name as it is. */
    public final byte[] otherNameBytes() {
        return Layout.getBytes(Layout.getLong(at(Req.NAME2)), (int) Layout.getLong(at(Req.NAME2_LENGTH)));
    }

    /** Of a mount over paths: the path, or null where there is none. Not UTF-8, it is as with {@link #name}. */
    final String path() {
        return path(Req.PATH);
    }

    /** The other path, likewise. */
    final String otherPath() {
        return path(Req.PATH2);
    }

    private String path(int pointer) {
        long address = Layout.getLong(at(pointer));
        return address == 0 ? null : text(Layout.getBytes(address, (int) Layout.getLong(at(pointer + 8))));
    }

    /** Of a READDIR over paths: adds a name to the answer. */
    final void list(long name, long length, int mode, long attr) {
        at(0);
        if (owed != null) {
            owed.list(name, length, mode, attr);
        } else {
            Native.list(reply, name, length, mode, attr);
        }
    }

    /** The data of a write, the value of an extended attribute, or the input of an ioctl: a view, read-only. */
    public final MemorySegment data() {
        long length = Layout.getLong(at(Req.DATA_LENGTH));
        return MemorySegment.ofAddress(Layout.getLong(at(Req.DATA))).reinterpret(length, arena(), null).asReadOnly();
    }

    /** {@link #data} as a byte buffer. */
    public final ByteBuffer dataBuffer() {
        return data().asByteBuffer();
    }

    /** A copy of {@link #data}. */
    public final byte[] dataBytes() {
        return Layout.getBytes(Layout.getLong(at(Req.DATA)), (int) Layout.getLong(at(Req.DATA_LENGTH)));
    }

    /** Whether the caller got a signal; such a request should end soon, with EINTR if nothing was done. */
    public final boolean interrupted() {
        at(0);
        return owed != null ? owed.interrupted() : reply != 0 && Native.interrupted(reply);
    }

    /**
     * The groups of the caller, for a file system that checks permissions itself: the one for permissions first, then the
     * supplementary ones. They are read from /proc each time.
     *
     * @return none where they cannot be known: the caller is in another pid namespace or has ended, or acts for somebody else
     *     just now, as a server of NFS does; nor in a call of a layer
     */
    public final int[] groups() {
        at(0);
        if (owed != null) {
            return owed.groups();
        }
        return reply == 0 ? new int[0] : Native.groups(reply);
    }

    /**
     * The request has changed attributes of a node that it does not name: the time of change of what {@link Operation#RENAME}
     * has moved. The kernel drops those when it is answered, and is told here to refuse what somebody asked for before, if
     * anybody did. Over paths that is done.
     *
     * @param node the node
     * @throws IllegalStateException in a call of a layer
     */
    public final void changed(long node) {
        at(0);
        if (owed != null) {
            owed.changed(node);
        } else if (reply != 0) {
            Native.changed(reply, node);
        } else {
            throw new IllegalStateException("a call of a layer changes nothing: StackFS does");
        }
    }

    /**
     * Registers a file that the kernel is to read and write in the place of this file system: for {@link Operation#OPEN},
     * {@link Operation#CREATE} and {@link Operation#TMPFILE}, whose answer is then {@link Opened#through}.
     *
     * @param file an existing regular file
     * @return what keeps it registered
     * @throws IOException when it cannot be opened, with its error number; or registered: the message says why
     */
    public final Backing openBacking(Path file) throws IOException {
        at(0);
        if (owed != null) {
            return owed.openBacking(file);
        }
        if (reply == 0) {
            throw new IllegalStateException("a call of a layer opens no files: StackFS does");
        }
        long in = reply;
        return Backing.open(file, (descriptor, number) -> Native.openBacking(in, descriptor, number));
    }

    /**
     * Takes the answer out of this method: it is given later, once, by any thread, also a virtual one. What the method
     * returns then means nothing; what it throws is the answer, unless that was given. Take what you need of the request
     * before.
     *
     * @return the answer that is owed
     * @throws IllegalStateException in a call of a layer, and in a method of a {@link PathFileSystem}: these answer when they
     *     return
     */
    public final Deferred defer() {
        at(0);
        if (target != null && target.answersOnReturn()) {
            throw new IllegalStateException("a method over paths answers when it returns: where it may wait long, mount with"
                    + " virtual threads");
        }
        return take();
    }

    /** Takes the answer out of the callback. */
    final Deferred take() {
        at(0);
        if (owed == null && reply == 0) {
            throw new IllegalStateException("a call of a layer cannot be answered later");
        }
        deferred = owed != null ? owed : Deferred.take(reply, operation(), size(), target);
        Deferred taken = deferred;
        end();
        return taken;
    }
}
