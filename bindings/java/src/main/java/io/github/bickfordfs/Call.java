package io.github.bickfordfs;

import io.github.bickfordfs.Layout.Ans;
import io.github.bickfordfs.Layout.Req;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.Locale;
import java.util.Set;

/**
 * One operation around which a {@link JavaFuse} is called: its parameters, to be changed before the system call, and its
 * result and answer, to be changed after it, or to be given in its place. Changing a parameter in a post-call is an
 * {@link IllegalStateException}: the system call has been made.
 */
public final class Call extends Request {
    private static final byte[] NO_BYTES = {};
    private static final Set<Operation> HAVE_DATA = EnumSet.of(Operation.READ, Operation.WRITE);

    private final Scratch names = new Scratch();
    private final Scratch otherNames = new Scratch();
    private final Scratch datas = new Scratch();
    private final Scratch answers = new Scratch();
    private byte[] array = NO_BYTES;
    private int arrayLength;
    private int result;
    private boolean answered;
    private boolean before;
    /** A post-call after a success. */
    private boolean succeeded;
    private DataMode data = DataMode.SHARED;

    /** Memory that stays at least until the next call of this thread. */
    private static final class Scratch {
        private MemorySegment memory = MemorySegment.NULL;
        /** What was too small: views of it may be in use. */
        private final ArrayList<MemorySegment> outgrown = new ArrayList<>(0);

        void begin() {
            if (!outgrown.isEmpty()) {
                outgrown.clear();
            }
        }

        MemorySegment of(long length) {
            if (memory.byteSize() < length) {
                outgrown.add(memory);
                memory = Arena.ofAuto().allocate(Math.max(256, Long.highestOneBit(length) * 2), 8);
            }
            return memory.asSlice(0, length);
        }
    }

    Call() {}

    /** A pre-call, whose parameters may be changed. */
    void beginBefore(DataMode data) {
        beginCall(0, true, data);
    }

    /** A request that is answered here: there is no system call whose parameters could be changed. */
    void beginWithout() {
        before = false;
    }

    /** A post-call. */
    void beginAfter(int result, DataMode data) {
        beginCall(result, false, data);
    }

    private void beginCall(int result, boolean before, DataMode data) {
        names.begin();
        otherNames.begin();
        datas.begin();
        answers.begin();
        this.before = before;
        this.succeeded = !before && result == 0;
        this.data = data;
        this.result = result;
        this.answered = false;
        this.arrayLength = 0;
    }

    boolean isAnswered() {
        return answered;
    }

    /** The address of a parameter that is to be changed. */
    private long parameter(int field) {
        long at = at(field);
        if (!before) {
            throw new IllegalStateException("the system call has been made: parameters are changed in a pre-call,"
                    + " the result and the answer in a post-call");
        }
        return at;
    }

    /** Copies bytes into the array. */
    void fillArray(long address, long length) {
        if (array.length < length) {
            array = new byte[(int) Math.max(4096, Long.highestOneBit(length) * 2)];
        }
        arrayLength = (int) length;
        Layout.copyOut(address, array, arrayLength);
    }

    /** Changes the inode or directory. */
    public void node(long node) {
        Layout.putLong(parameter(Req.NODE), node);
    }

    /** Changes the open file. */
    public void handle(long handle) {
        Layout.putLong(parameter(Req.HANDLE), handle);
    }

    /** Changes the offset. */
    public void offset(long offset) {
        Layout.putLong(parameter(Req.OFFSET), offset);
    }

    /**
     * Changes the size: how much is read, listed, copied or allocated, the size to which a file is cut. What is longer than
     * the caller asked for is an error, unless the post-call shortens it. Of a write and an extended attribute that is set
     * the length of the data counts, see {@link #replaceData}.
     */
    public void size(long size) {
        Layout.putLong(parameter(Req.SIZE), size);
    }

    /** Changes the other directory or file. */
    public void otherNode(long node) {
        Layout.putLong(parameter(Req.NODE2), node);
    }

    /** Changes the flags. */
    public void flags(int flags) {
        Layout.putInt(parameter(Req.FLAGS), flags);
    }

    /** Changes type and permissions. */
    public void mode(int mode) {
        Layout.putInt(parameter(Req.MODE), mode);
    }

    /** Changes the umask. */
    public void umask(int umask) {
        Layout.putInt(parameter(Req.UMASK), umask);
    }

    /** Changes the name. */
    public void name(String name) {
        name(name.getBytes(StandardCharsets.UTF_8));
    }

    /** Changes the name, which need not be UTF-8. */
    public void name(byte[] name) {
        put(names, name, Req.NAME);
    }

    /** Changes the other name, or the target of a symbolic link. */
    public void otherName(String name) {
        otherName(name.getBytes(StandardCharsets.UTF_8));
    }

    /** Changes the other name, or the target of a symbolic link, which need not be UTF-8. */
    public void otherName(byte[] name) {
        put(otherNames, name, Req.NAME2);
    }

    private void put(Scratch scratch, byte[] bytes, int field) {
        long at = parameter(field);
        MemorySegment memory = scratch.of(Math.max(1, bytes.length));
        Layout.copyIn(bytes, bytes.length, memory.address());
        Layout.putLong(at, memory.address());
        Layout.putLong(at + 8, bytes.length);
    }

    /**
     * In a pre-call: puts other data in place of those that are written. Where they are more or fewer, the post-call must
     * change {@link #answerCount} to what the caller wrote: the kernel takes no larger one, and a smaller one for an error.
     *
     * @param length how many bytes
     * @return memory for them, to be filled before the call returns
     * @throws IllegalStateException with {@link DataMode#NONE} for a write: what is not seen is not replaced
     */
    public MemorySegment replaceData(long length) {
        long at = parameter(Req.DATA);
        if (data == DataMode.NONE && operation() == Operation.WRITE) {
            throw unseen("are written");
        }
        MemorySegment memory = datas.of(Math.max(1, length));
        Layout.putLong(at, memory.address());
        Layout.putLong(at(Req.DATA_LENGTH), length);
        return memory.asSlice(0, length);
    }

    private static IllegalStateException unseen(String what) {
        return new IllegalStateException("calls see no data (data = none, or metadata-only = true), and may not replace"
                + " those that " + what + ": choose data = shared or copied");
    }

    /** With {@link DataMode#COPIED}: the data that are written or were read, in the first {@link #arrayLength} bytes. */
    public byte[] array() {
        at(0);
        return array;
    }

    /** How many bytes of {@link #array} are data. */
    public int arrayLength() {
        at(0);
        return arrayLength;
    }

    /**
     * With {@link DataMode#COPIED}: says that {@link #array} was changed, so that it is copied back: what is written in the
     * pre-call, what was read in the post-call.
     *
     * @throws IllegalStateException in another mode, and where the operation is neither a read nor a write: there are no
     *     data in the array
     */
    public void arrayChanged() {
        if (data != DataMode.COPIED || !HAVE_DATA.contains(operation())) {
            throw new IllegalStateException("the array has no data: they are copied for READ and WRITE, with data = copied;"
                    + " this is " + operation() + " with data = " + data.name().toLowerCase(Locale.ROOT));
        }
        if (operation() == Operation.READ) {
            answerData(array, arrayLength);
        } else {
            Layout.copyIn(array, arrayLength, replaceData(arrayLength).address());
        }
    }

    /** In a post-call: zero, or the error number of the operation. */
    public int result() {
        at(0);
        return result;
    }

    /** In a post-call: makes it a success, for which the answer must be right, with zero; or an error. */
    public void result(int errno) {
        at(0);
        if (errno < 0) {
            throw new IllegalArgumentException(errno + " is no error number");
        }
        result = errno;
    }

    /** Makes the operation fail; in a pre-call, without the system call. */
    public void fail(int errno) throws FuseException {
        throw new FuseException(errno);
    }

    /** In a pre-call: the answer is filled in, and there shall be no system call. */
    public void answered() {
        at(0);
        answered = true;
    }

    /** Answer: the node; zero where a name does not exist. */
    public long answerNode() {
        return Layout.getLong(answer() + Ans.NODE);
    }

    /** Answer: the attributes, as an object. */
    public Attr answerAttr() {
        long at = answer();
        return new Attr(Layout.getLong(at + Ans.INO), Layout.getInt(at + Ans.MODE), Layout.getInt(at + Ans.LINKS),
                Layout.getInt(at + Ans.UID), Layout.getInt(at + Ans.GID), Layout.getInt(at + Ans.RDEV),
                Layout.getLong(at + Ans.SIZE), Layout.getLong(at + Ans.BLOCKS), time(at + Ans.ACCESSED),
                time(at + Ans.MODIFIED), time(at + Ans.CHANGED));
    }

    private static Instant time(long address) {
        return Instant.ofEpochSecond(Layout.getLong(address), Layout.getInt(address + 8));
    }

    /** Answer: the attributes, and for how many nanoseconds they hold. */
    public void answer(Attributes attributes) {
        Answers.attributes(answer(), attributes);
    }

    /** Answer: a name. */
    public void answer(Entry entry) {
        Answers.entry(answer(), entry);
    }

    /** Answer: an open file. */
    public void answer(Opened opened) {
        Answers.opened(answer(), opened);
    }

    /** Answer: size and use. */
    public void answer(StatFs statfs) {
        Answers.statfs(answer(), statfs);
    }

    /** Answer: the size among the attributes. */
    public long answerSize() {
        return Layout.getLong(answer() + Ans.SIZE);
    }

    /** Changes the size among the attributes. */
    public void answerSize(long size) {
        Layout.putLong(answer() + Ans.SIZE, size);
    }

    /** Answer: type and permissions among the attributes. */
    public int answerMode() {
        return Layout.getInt(answer() + Ans.MODE);
    }

    /** Changes type and permissions among the attributes. */
    public void answerMode(int mode) {
        Layout.putInt(answer() + Ans.MODE, mode);
    }

    /** Changes the owner and group among the attributes. */
    public void answerOwner(int uid, int gid) {
        Layout.putInt(answer() + Ans.UID, uid);
        Layout.putInt(answer() + Ans.GID, gid);
    }

    /** Answer: the open file. */
    public long answerHandle() {
        return Layout.getLong(answer() + Ans.HANDLE);
    }

    /** Answer: bytes written or copied, an offset, events. */
    public long answerCount() {
        return Layout.getLong(answer() + Ans.COUNT);
    }

    /** Changes the count. */
    public void answerCount(long count) {
        Layout.putLong(answer() + Ans.COUNT, count);
    }

    /** Answer: the data, as a view that may be changed in place. Empty with {@link DataMode#NONE} for reads. */
    public MemorySegment answerData() {
        long at = answer();
        return MemorySegment.ofAddress(Layout.getLong(at + Ans.DATA))
                .reinterpret(Layout.getLong(at + Ans.DATA_LENGTH), arena(), null);
    }

    /**
     * Changes the data of the answer.
     *
     * @throws IllegalStateException with {@link DataMode#NONE} in the post-call of a read that succeeded: what is not seen
     *     is not replaced
     */
    public void answerData(byte[] bytes) {
        answerData(bytes, bytes.length);
    }

    private void answerData(byte[] bytes, int length) {
        long at = answer();
        if (succeeded && data == DataMode.NONE && operation() == Operation.READ) {
            throw unseen("were read");
        }
        if (length > Layout.getLong(at + Ans.DATA_CAPACITY)) {
            Layout.putLong(at + Ans.DATA, answers.of(length).address());
        }
        Layout.copyIn(bytes, length, Layout.getLong(at + Ans.DATA));
        Layout.putLong(at + Ans.DATA_LENGTH, length);
    }
}
