package io.github.bickfordfs;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * All that the {@code main} of a program does that serves a file system:
 *
 * <pre>{@code
 * public static void main(String[] args) {
 *     System.exit(new Program("hello").inodes(args, given -> new Hello()));
 * }
 * }</pre>
 *
 * <p>The command line is that of mount.fuse3(8) with more ({@code --help}), so that mount(8) and fstab(5) can mount it. The
 * program returns when the mount answers, and the file system is served in the background; with {@code -f} it is served
 * here. A signal unmounts it: handlers of the program's own for SIGINT, SIGTERM and SIGHUP are taken away when the file system is
 * made. The background is the virtual machine with its whole command line again: what stands before in
 * {@code main} happens in each of its processes, as does what stands after, in the one that was called when the mount answers.
 * The file system is made, and told of its end by {@code destroy}, in the one that serves it. What goes wrong is in the
 * log of the command line's {@code --log} and {@code --log-file}, as are, in the background, the lines of
 * {@link System#out} and {@link System#err}.
 *
 * <p>Once the mount answers, the current directory of the background is "/": what is used later is to be named by an absolute
 * path, as {@link Given#path} is, modules ({@code -p}) included.
 *
 * <p>To be run once in a virtual machine, by the main thread, and before anything is mounted otherwise. Paths of the
 * command line that are not ASCII are as they are given, whatever the locale; as {@link String}s they need one that has them.
 */
public final class Program {
    /** Makes what is served, in the process that serves it; where it throws, nothing is mounted, and the user is told why. */
    @FunctionalInterface
    public interface Opener<F> {
        /**
         * Makes the file system. It may read {@link System#in}, and ask at the terminal by {@link System#console}: the
         * background leaves both afterwards. A process that it starts stays with the caller's terminal, and ends with ^C or a
         * hangup there, unless it is started by setsid(1).
         *
         * @param given what the command line asks for
         * @return what is to be served
         * @throws Exception why it cannot be; the message says what failed, on what, and why
         */
        F open(Given given) throws Exception;
    }

    /**
     * What a command line asks for.
     *
     * @param source what stands before the mount point, an absolute path where it is one; the program's name where nothing
     *     does
     * @param mountpoint as it was given
     * @param flags the values of the program's own flags by name, without a letter: empty for a flag without one, the last of
     *     several; what is not given and has no initial value is not there
     */
    public record Given(String source, String mountpoint, Map<String, String> flags) {
        /** Whether a flag is given. */
        public boolean has(String flag) {
            return flags.containsKey(flag);
        }

        /**
         * The value of a flag as a path.
         *
         * @param flag its name
         * @return the absolute path, which a relative value has from where the program was called
         * @throws IllegalArgumentException where it is not given, or the locale cannot say it
         */
        public Path path(String flag) {
            return ProgramRun.path(flags.get(flag), "--" + flag);
        }
    }

    /** A flag of the program's own. */
    record Flag(String name, String value, String initial, String help) {}

    final String name;
    private String about = "";
    private String version = "";
    private String source;
    private boolean sourceIsPath;
    private MountOptions options = MountOptions.DEFAULT;
    private final List<Flag> flags = new ArrayList<>();
    private Consumer<Mount> begun = _ -> { };

    /**
     * A program.
     *
     * @param name in messages, in the log and in /proc/mounts, where the type is {@code fuse.NAME}
     */
    public Program(String name) {
        this.name = Objects.requireNonNull(name);
    }

    /** What it serves, in a line for the help. */
    public Program about(String text) {
        about = text;
        return this;
    }

    /** Its version. */
    public Program version(String version) {
        this.version = version;
        return this;
    }

    /** It needs a file or directory before the mount point, called so in the help. */
    public Program sourcePath(String shown) {
        source = shown;
        sourceIsPath = true;
        return this;
    }

    /** It needs something else before the mount point, such as {@code HOST:DIRECTORY}, called so in the help. */
    public Program sourceName(String shown) {
        source = shown;
        sourceIsPath = false;
        return this;
    }

    /** How it is mounted where the command line does not say otherwise. */
    public Program options(MountOptions options) {
        this.options = Objects.requireNonNull(options);
        return this;
    }

    /**
     * A flag without a value, {@code --NAME}, which may stand in {@code -o} as well.
     *
     * @param name none that {@code --help} shows already; {@code "port|p"} has the letter {@code -p}, too
     * @param help what it does, in a line
     * @return this
     */
    public Program flag(String name, String help) {
        flags.add(new Flag(name, null, null, help));
        return this;
    }

    /**
     * A flag with a value, {@code --NAME VALUE}, or {@code NAME=VALUE} in {@code -o}.
     *
     * @param name none that {@code --help} shows already; {@code "port|p"} has the letter {@code -p}, too
     * @param value what its value is called in the help
     * @param initial the value that it has where none is given, or null
     * @param help what it does, in a line
     * @return this
     */
    public Program flag(String name, String value, String initial, String help) {
        flags.add(new Flag(name, Objects.requireNonNull(value), initial, help));
        return this;
    }

    /**
     * Is given the mount once it answers, before anybody is told so: for notifications. The program's end closes it. What is
     * thrown is logged.
     */
    public Program begun(Consumer<Mount> begun) {
        this.begun = Objects.requireNonNull(begun);
        return this;
    }

    /**
     * Serves a file system over inodes, as the command line asks.
     *
     * @param args those of {@code main}
     * @param open makes the file system
     * @return the status for {@link System#exit}
     */
    public int inodes(String[] args, Opener<? extends InodeFileSystem> open) {
        return run(args, ProgramRun.Kind.INODES, given -> {
            InodeFileSystem fs = open.open(given);
            InodeTarget target = new InodeTarget(fs, fs.getClass().getName(), options.virtualThreads());
            return new ProgramRun.Served(target, options, target.operations(), 0, null);
        });
    }

    /**
     * Serves a file system over paths, as the command line asks.
     *
     * @param args those of {@code main}
     * @param open makes the file system
     * @return the status for {@link System#exit}
     */
    public int paths(String[] args, Opener<? extends PathFileSystem> open) {
        return run(args, ProgramRun.Kind.PATHS, given -> {
            PathTarget target = new PathTarget(open.open(given), options.virtualThreads());
            return new ProgramRun.Served(
                    target, target.options(options), target.operations(), target.refused(), null);
        });
    }

    /**
     * Serves a directory with calls around its operations, as the command line asks. It has the flags {@code --config} and
     * {@code --data} as well ({@link Configuration}), and those of StackFS, such as {@code --preset}.
     *
     * @param args those of {@code main}
     * @param open makes the calls
     * @return the status for {@link System#exit}
     * @throws IllegalArgumentException when virtual threads are asked for: each call answers at once
     */
    public int javaFuse(String[] args, Opener<? extends JavaFuse> open) {
        if (options.virtualThreads()) {
            throw new IllegalArgumentException("the calls of a JavaFuse answer at once, on the thread of the system call:"
                    + " serve it without virtual threads");
        }
        if (source == null || !sourceIsPath) {
            sourcePath("SOURCE");
        }
        flag("config", "FILE", null, "Switches pre-calls, system calls and post-calls");
        flag("data", "MODE", null, "What calls see of data: none, copied or shared [default: shared]");
        return run(args, ProgramRun.Kind.STACKFS, given -> {
            Configuration configuration =
                    given.has("config") ? Configuration.read(given.path("config")) : Configuration.DEFAULT;
            if (given.has("data")) {
                configuration = configuration.withData(Configuration.dataMode(given.flags().get("data")));
            }
            JavaFuseTarget target = new JavaFuseTarget(open.open(given), configuration);
            return new ProgramRun.Served(target, options, 0, 0, target);
        });
    }

    private int run(String[] args, ProgramRun.Kind kind, Opener<ProgramRun.Served> open) {
        return new ProgramRun(this, kind, open, begun).run(args);
    }

    /** What is told of the program. */
    record Told(String about, String version, String source, boolean sourceIsPath, MountOptions options, List<Flag> flags) {}

    Told told() {
        return new Told(about, version, source, sourceIsPath, options, List.copyOf(flags));
    }

    /** The flags by name, of their values in order; null where there is none. */
    static Map<String, String> named(List<Flag> flags, List<String> values) {
        Map<String, String> named = new HashMap<>();
        for (int i = 0; i < flags.size(); i++) {
            if (values.get(i) != null) {
                named.put(flags.get(i).name().split("\\|")[0], values.get(i));
            }
        }
        return Collections.unmodifiableMap(named);
    }
}
