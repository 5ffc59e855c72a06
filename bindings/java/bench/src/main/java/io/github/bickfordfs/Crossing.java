package io.github.bickfordfs;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.github.bickfordfs.Layout.Ans;
import io.github.bickfordfs.Layout.Req;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/**
 * The crossing alone: the functions that native threads call, called through their pointers as native code does. A
 * score has the way out of Java and back in it; {@link #nothing} is the way out alone.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 5, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(value = 3, jvmArgsAppend = "--enable-native-access=ALL-UNNAMED")
public class Crossing {
    private static final Linker LINKER = Linker.nativeLinker();
    private static final int DATA_BYTES = 128 << 10;
    private static final int LOOKUP = 1;
    private static final int GETATTR = 3;
    private static final int WRITE = 16;

    private static final MethodHandle PRE = LINKER.downcallHandle(Bridge.PRE,
            FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG));
    private static final MethodHandle POST = LINKER.downcallHandle(Bridge.POST,
            FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT));
    private static final MethodHandle DISPATCH = LINKER.downcallHandle(Bridge.DISPATCH,
            FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG));
    private static final MethodHandle NOTHING = LINKER.downcallHandle(
            LINKER.defaultLookup().find("getppid").orElseThrow(), FunctionDescriptor.of(JAVA_INT));

    /** Calls that do nothing, and one that looks at what it got. */
    static final class Calls extends JavaFuse {
        @Override
        protected void preGetattr(Call call) {}

        @Override
        protected void preLookup(Call call) {
            call.mode(call.mode() + call.nameLength());
        }

        @Override
        protected void preWrite(Call call) {}

        @Override
        protected void postLookup(Call call) {
            if (call.result() == 0) {
                call.answerSize(call.answerSize());
            }
        }
    }

    /** Answers with what it keeps. */
    static final class Inodes implements InodeFileSystem {
        private final Attributes attributes = new Attributes(Attr.directory(ROOT, 0755), Entry.SECOND);
        private final Entry entry = Entry.of(2, Attr.file(2, 0644, 100), Entry.SECOND);

        @Override
        public Attributes getattr(Request request) {
            return attributes;
        }

        @Override
        public Entry lookup(Request request) throws IOException {
            return entry;
        }
    }

    private Arena arena;
    private long calls;
    private long copying;
    private long inodes;
    private long lookup;
    private long getattr;
    private long write;
    private long answer;

    /** Makes requests as the library does. */
    @Setup
    public void setUp() {
        arena = Arena.ofConfined();
        calls = Bridge.add(new JavaFuseTarget(new Calls(), Configuration.DEFAULT));
        copying = Bridge.add(new JavaFuseTarget(new Calls(), Configuration.DEFAULT.withData(DataMode.COPIED)));
        inodes = Bridge.add(new InodeTarget(new Inodes(), "crossing", false));
        lookup = request(LOOKUP);
        getattr = request(GETATTR);
        write = request(WRITE);
        MemorySegment name = arena.allocateFrom("a-name");
        Layout.putLong(lookup + Req.NAME, name.address());
        Layout.putLong(lookup + Req.NAME_LENGTH, name.byteSize() - 1);
        Layout.putLong(write + Req.DATA, arena.allocate(DATA_BYTES, 64).address());
        Layout.putLong(write + Req.DATA_LENGTH, DATA_BYTES);
        answer = arena.allocate(Ans.BYTES, 8).address();
    }

    private long request(int operation) {
        long request = arena.allocate(Req.BYTES, 8).address();
        Layout.putInt(request + Req.OPERATION, operation);
        Layout.putLong(request + Req.NODE, InodeFileSystem.ROOT);
        return request;
    }

    /** Gives the memory back. */
    @TearDown
    public void tearDown() {
        Bridge.remove((int) calls);
        Bridge.remove((int) copying);
        Bridge.remove((int) inodes);
        arena.close();
    }

    /** The way into native code and back, with a system call that does nearly nothing. */
    @Benchmark
    public int nothing() throws Throwable {
        return (int) NOTHING.invokeExact();
    }

    /** A pre-call that does nothing. */
    @Benchmark
    public int preCall() throws Throwable {
        return (int) PRE.invokeExact(calls, getattr, answer);
    }

    /** A pre-call that reads and changes parameters. */
    @Benchmark
    public int preCallThatChanges() throws Throwable {
        return (int) PRE.invokeExact(calls, lookup, answer);
    }

    /** A post-call that reads and changes the answer. */
    @Benchmark
    public int postCall() throws Throwable {
        return (int) POST.invokeExact(calls, lookup, answer, 0);
    }

    /** A pre-call of a write of 128 KiB, with shared data. */
    @Benchmark
    public int preWriteShared() throws Throwable {
        return (int) PRE.invokeExact(calls, write, answer);
    }

    /** The same with copied data. */
    @Benchmark
    public int preWriteCopied() throws Throwable {
        return (int) PRE.invokeExact(copying, write, answer);
    }

    /** Attributes, answered by a file system over inodes. */
    @Benchmark
    public int inodeGetattr() throws Throwable {
        return (int) DISPATCH.invokeExact(inodes, getattr, answer, 0L);
    }

    /** A name, answered by a file system over inodes. */
    @Benchmark
    public int inodeLookup() throws Throwable {
        return (int) DISPATCH.invokeExact(inodes, lookup, answer, 0L);
    }
}
