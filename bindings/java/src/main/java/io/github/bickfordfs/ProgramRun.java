package io.github.bickfordfs;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/** A {@link Program} as the library sees it: bickford_program. */
final class ProgramRun {
    /** Set for good: the library's log is the program's then. */
    private static final AtomicBoolean RUNNING = new AtomicBoolean();
    /** Set for the process in the background, and for what that starts: the number of a descriptor, and its inode. */
    private static final String BACKGROUND = "BICKFORD_BACKGROUND_SOCKET";
    /** A longer line of System.out is told in parts. */
    private static final int LINE_BYTES = 1 << 14;
    /** SIGHUP, SIGINT and SIGTERM. */
    private static final int[] SIGNALS = {1, 2, 15};
    /** Room for a {@code struct sigaction}, which begins with the handler. */
    private static final long ACTION_BYTES = 256;
    private static final int LOG_ERROR = 1, LOG_WARNING = 2, LOG_INFO = 3;

    /** What is served, and by which function. */
    enum Kind {
        INODES("bickford_program_run"), PATHS("bickford_program_run_paths"), STACKFS("bickford_program_run_stackfs");

        private final String function;

        Kind(String function) {
            this.function = function;
        }
    }

    /** What was made: {@code layer} is that of a JavaFuse, else the operations serve. */
    record Served(Target target, MountOptions options, long operations, long refused, JavaFuseTarget layer) {}

    private final Program.Told told;
    private final String name;
    private final Kind kind;
    private final Program.Opener<Served> opener;
    private final Consumer<Mount> begun;
    private final boolean inBackground = isBackground();
    /** Lives until the program has ended. */
    private final Arena arena = Arena.ofShared();
    private final MemorySegment program = arena.allocate(80, 8);
    private final MemorySegment config = arena.allocate(32, 8);
    /** bickford_callbacks or bickford_layer. */
    private final MemorySegment served = arena.allocate(56, 8);
    /** What the virtual machine does at each of {@link #SIGNALS}. */
    private final MemorySegment actions = arena.allocate(SIGNALS.length * ACTION_BYTES, 8);
    private Target target;
    private int number = -1;
    private boolean starting;
    private Mount mount;
    private Path mountpoint;

    ProgramRun(Program program, Kind kind, Program.Opener<Served> opener, Consumer<Mount> begun) {
        this.told = program.told();
        this.name = program.name;
        this.kind = kind;
        this.opener = opener;
        this.begun = begun;
    }

    static boolean isRunning() {
        return RUNNING.get();
    }

    /** A path that was given, absolute: the background leaves the directory that a relative one is meant from. */
    static Path path(String text, String what) {
        if (text == null) {
            throw new IllegalArgumentException(what + " is missing");
        }
        try {
            return Path.of(text).toAbsolutePath();
        } catch (InvalidPathException e) {
            throw new IllegalArgumentException(what + ": the path \"" + text + "\" cannot be said in this locale ("
                    + SystemText.CHARSET + "); set LC_ALL=C.UTF-8", e);
        }
    }

    /** As the library tells it: by the socket of the report, which nobody else has. */
    private static boolean isBackground() {
        String[] told = Objects.requireNonNullElse(System.getenv(BACKGROUND), "").split(":");
        try {
            return told.length == 3 && Files.readSymbolicLink(Path.of("/proc/self/fd", told[0]))
                    .toString().equals("socket:[" + told[1] + "]");
        } catch (IOException e) {
            return false;
        }
    }

    int run(String[] args) {
        if (!RUNNING.compareAndSet(false, true)) {
            throw new IllegalStateException("a program has run already in this virtual machine");
        }
        try {
            leaveSignals();
            describe();
            List<byte[]> words = words(args);
            MemorySegment argv = arena.allocate(ADDRESS, words.size());
            for (int i = 0; i < words.size(); i++) {
                argv.setAtIndex(ADDRESS, i, text(words.get(i)));
            }
            MethodHandle run =
                    Native.function(kind.function, JAVA_INT, JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
            int status = (int) run.invokeExact(words.size(), argv, program, config, served);
            return status == 0 && mount != null && mount.isFatal() ? 1 : status;
        } catch (UnsatisfiedLinkError e) {
            System.err.println(name + ": " + e.getMessage());
            return 1;
        } catch (Error | RuntimeException e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("a native call threw", e);
        } finally {
            ended();
        }
    }

    private void ended() {
        if (starting) {
            Mount.started();
        }
        if (mount != null) {
            mount.endedByProgram();
        } else if (number >= 0) {
            Bridge.remove(number);
        }
    }

    /**
     * The library has handlers for them, which unmount: those of the virtual machine, which would be called as well, end it
     * meanwhile. What was ignored stays so.
     */
    private void leaveSignals() throws Throwable {
        MemorySegment ignored = MemorySegment.ofAddress(1);
        MemorySegment standard = arena.allocate(ACTION_BYTES, 8);
        for (int i = 0; i < SIGNALS.length; i++) {
            sigaction(SIGNALS[i], MemorySegment.NULL, action(i));
            if (!action(i).get(ADDRESS, 0).equals(ignored)) {
                sigaction(SIGNALS[i], standard, MemorySegment.NULL);
            }
        }
    }

    /** Has the virtual machine end by them: its hooks run, and who asks for a password puts the terminal back. */
    private void takeSignals() throws Throwable {
        for (int i = 0; i < SIGNALS.length; i++) {
            sigaction(SIGNALS[i], action(i), MemorySegment.NULL);
        }
    }

    private MemorySegment action(int i) {
        return actions.asSlice(i * ACTION_BYTES, ACTION_BYTES);
    }

    private static void sigaction(int signal, MemorySegment action, MemorySegment before) throws Throwable {
        Linker linker = Linker.nativeLinker();
        MethodHandle call = linker.downcallHandle(linker.defaultLookup().find("sigaction").orElseThrow(),
                FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS));
        int _ = (int) call.invokeExact(signal, action, before);
    }

    private void describe() {
        program.set(JAVA_INT, 0, Layout.ABI_VERSION);
        program.set(JAVA_INT, 4, told.sourceIsPath() ? 1 : 0);
        program.set(ADDRESS, 8, text(name));
        program.set(ADDRESS, 16, text(told.version()));
        program.set(ADDRESS, 24, text(told.about()));
        program.set(ADDRESS, 32, text(told.source()));
        program.set(ADDRESS, 40, text(told.options().options()));
        List<Program.Flag> flags = told.flags();
        MemorySegment array = arena.allocate(32L * Math.max(1, flags.size()), 8);
        for (int i = 0; i < flags.size(); i++) {
            Program.Flag flag = flags.get(i);
            array.set(ADDRESS, 32L * i, text(flag.name()));
            array.set(ADDRESS, 32L * i + 8, text(flag.value()));
            array.set(ADDRESS, 32L * i + 16, text(flag.initial()));
            array.set(ADDRESS, 32L * i + 24, text(flag.help()));
        }
        program.set(ADDRESS, 48, array);
        program.set(JAVA_LONG, 56, flags.size());
        program.set(ADDRESS, 64, upcall("open", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG)));
        program.set(ADDRESS, 72, upcall("begun", FunctionDescriptor.ofVoid(ADDRESS, JAVA_LONG)));
        configure(told.options(), 0);
    }

    private MemorySegment upcall(String method, FunctionDescriptor descriptor) {
        try {
            MethodHandle handle = MethodHandles.lookup().findVirtual(ProgramRun.class, method, descriptor.toMethodType());
            return Linker.nativeLinker().upcallStub(handle.bindTo(this), descriptor, arena);
        } catch (ReflectiveOperationException e) {
            throw new LinkageError("no method " + method, e);
        }
    }

    private void configure(MountOptions options, long refused) {
        config.set(JAVA_INT, 0, Layout.ABI_VERSION);
        config.set(JAVA_INT, 4, options.workers());
        config.set(JAVA_INT, 8, options.maxWrite());
        config.set(JAVA_LONG, 24, refused);
    }

    private MemorySegment text(String text) {
        return text == null ? MemorySegment.NULL : text(text.getBytes(StandardCharsets.UTF_8));
    }

    private MemorySegment text(byte[] bytes) {
        MemorySegment text = arena.allocate(bytes.length + 1L);
        MemorySegment.copy(bytes, 0, text, JAVA_BYTE, 0, bytes.length);
        return text;
    }

    /** The program's name and its arguments, these as the process got them: the locale may have no text for them. */
    private List<byte[]> words(String[] args) throws IOException {
        List<byte[]> words = new ArrayList<>();
        words.add(System.getProperty("bickford.program", name).getBytes(SystemText.CHARSET));
        List<byte[]> line = ownLine();
        int first = line.size() - args.length;
        for (int i = 0; i < args.length; i++) {
            byte[] decoded = args[i].getBytes(SystemText.CHARSET);
            byte[] own = first > 0 ? line.get(first + i) : decoded;
            // Another line, as of a test, differs in letters.
            words.add(isAscii(own) ? decoded : own);
        }
        return words;
    }

    private static boolean isAscii(byte[] bytes) {
        for (byte at : bytes) {
            if (at < 0) {
                return false;
            }
        }
        return true;
    }

    private static List<byte[]> ownLine() throws IOException {
        byte[] all = Files.readAllBytes(Path.of("/proc/self/cmdline"));
        List<byte[]> line = new ArrayList<>();
        ByteArrayOutputStream word = new ByteArrayOutputStream();
        for (byte at : all) {
            if (at == 0) {
                line.add(word.toByteArray());
                word.reset();
            } else {
                word.write(at);
            }
        }
        return line;
    }

    /** Makes what is served, and fills in how. */
    private int open(MemorySegment user, MemorySegment given, MemorySegment message, long room) {
        try {
            if (inBackground) {
                System.setOut(lines(LOG_INFO));
                System.setErr(lines(LOG_WARNING));
            }
            Program.Given asked = given(given.reinterpret(32));
            boolean isSaid = asked.mountpoint().indexOf('\ufffd') < 0;
            mountpoint = isSaid ? Path.of(asked.mountpoint()).toAbsolutePath() : Path.of("");
            fill(made(asked));
            Mount.starting();
            starting = true;
            return 0;
        } catch (Throwable e) {
            say(e, message.reinterpret(room));
            return -1;
        }
    }

    private Served made(Program.Given given) throws Throwable {
        takeSignals();
        try {
            return opener.open(given);
        } finally {
            leaveSignals();
        }
    }

    private Program.Given given(MemorySegment given) {
        MemorySegment values = given.get(ADDRESS, 16).reinterpret(given.get(JAVA_LONG, 24) * 8);
        List<String> texts = new ArrayList<>();
        for (int i = 0; i < told.flags().size(); i++) {
            texts.add(string(values.getAtIndex(ADDRESS, i)));
        }
        return new Program.Given(string(given.get(ADDRESS, 0)), string(given.get(ADDRESS, 8)),
                Program.named(told.flags(), texts));
    }

    private static String string(MemorySegment text) {
        return text.address() == 0 ? null : SystemText.decoded(text.reinterpret(Long.MAX_VALUE), SystemText.CHARSET);
    }

    private void fill(Served made) {
        target = made.target();
        number = Bridge.add(target);
        program.set(ADDRESS, 40, text(made.options().options()));
        configure(made.options(), made.refused());
        if (made.layer() != null) {
            Native.fillLayer(served, made.layer().layer(number), Bridge.PRE, Bridge.POST);
        } else {
            Native.fillCallbacks(served, new Native.CallbackSpec(number, made.operations(), 0, Bridge.DISPATCH));
        }
    }

    private static void say(Throwable e, MemorySegment message) {
        boolean isExpected = e instanceof IOException || e instanceof IllegalArgumentException
                || e instanceof UnsatisfiedLinkError;
        if (!isExpected) {
            Log.error("what is to be served could not be made", e);
        }
        String text = e.getMessage() == null ? e.getClass().getName() : e.getMessage();
        if (e instanceof FileSystemException file && file.getReason() == null) {
            text = file.getFile() + ": " + Errno.name(Errno.of(e));
        } else if (!isExpected) {
            text = e.toString();
        }
        byte[] bytes = text.replace('\0', ' ').getBytes(StandardCharsets.UTF_8);
        int length = (int) Math.min(bytes.length, message.byteSize() - 1);
        while (length < bytes.length && (bytes[length] & 0xc0) == 0x80) {
            // Not within a letter.
            length--;
        }
        MemorySegment.copy(bytes, 0, message, JAVA_BYTE, 0, length);
        message.set(JAVA_BYTE, length, (byte) 0);
    }

    private void begun(MemorySegment user, long session) {
        try {
            mount = mounted(session);
            begun.accept(mount);
        } catch (Throwable e) {
            Log.error("what begins with the mount failed", e);
        }
    }

    private Mount mounted(long session) throws IOException {
        try {
            return Mount.ofProgram(mountpoint, target, number, session);
        } catch (Throwable e) {
            // No thread is to be had, say: nobody would take it away after a fatal error.
            Native.unmount(session, Native.UNMOUNT_LAZY);
            throw e;
        } finally {
            // Before the program goes on: it may end the virtual machine, which waits for this.
            starting = false;
            Mount.started();
        }
    }

    /** A line of the program's log. */
    static void tell(System.Logger.Level level, String text) {
        tell(level == System.Logger.Level.ERROR ? LOG_ERROR : LOG_WARNING, text);
    }

    private static void tell(int level, String text) {
        try (Arena arena = Arena.ofConfined()) {
            Native.logLine(level, arena.allocateFrom(text.replace('\0', ' ')));
        }
    }

    /** A stream whose lines go to the log. */
    private static PrintStream lines(int level) {
        OutputStream lines = new OutputStream() {
            private final ByteArrayOutputStream line = new ByteArrayOutputStream();

            @Override
            public synchronized void write(int at) {
                if (at != '\n') {
                    line.write(at);
                }
                if (at == '\n' || line.size() >= LINE_BYTES) {
                    String text = line.toString(StandardCharsets.UTF_8);
                    line.reset();
                    tell(level, text);
                }
            }
        };
        return new PrintStream(lines, true, StandardCharsets.UTF_8);
    }
}
