package io.github.bickfordfs;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** The command {@code javafuse}: mounts a directory with the calls of a class. */
public final class Main {
    static final String USAGE = """
            usage: javafuse --class NAME [--classpath PATH] [--config FILE] [--data none|copied|shared]
                            [--workers N] [-o OPTIONS] SOURCE MOUNTPOINT

            Serves the directory SOURCE at MOUNTPOINT through StackFS, with the pre-calls and post-calls of
            class NAME (a public subclass of io.github.bickfordfs.JavaFuse with a constructor without
            parameters), until MOUNTPOINT is unmounted or the process gets a signal.

              --class NAME        the class, with its package
              --classpath PATH    directories and jars where it is, with colons between
              --config FILE       switches pre-calls, system calls and post-calls; see Configuration
              --data MODE         what calls see of data: none (JavaFuse1), copied (JavaFuse2), shared
              --workers N         threads that serve (0, the default: as many as the load asks for)
              -o OPTIONS          those of mount.fuse3(8), preset=base|opt|fast, transport=auto|dev|uring, no_xattr,
                                  no_yielding where threads of io_uring shall not yield to callers,
                                  allow_idmap for mounts that can be id-mapped,
                                  prompt where no call waits for another request of the mount, and on a mount
                                  that root alone uses no_permission_checks
            """;

    private String name;
    private String classpath = "";
    private Configuration configuration = Configuration.DEFAULT;
    private DataMode data;
    private MountOptions options = MountOptions.DEFAULT;
    private final List<String> places = new ArrayList<>();

    /** What the command line cannot say. */
    private static final class UsageException extends Exception {
        private static final long serialVersionUID = 1;

        UsageException(String message) {
            super(message);
        }
    }

    private Main() {}

    /**
     * The command.
     *
     * @param args its arguments
     */
    public static void main(String[] args) {
        // No System.exit where it went well: the shutdown hook would wait for a mount that is gone.
        int status = run(args);
        if (status != 0) {
            System.exit(status);
        }
    }

    static int run(String... args) {
        Main main = new Main();
        try {
            if (!main.parse(args)) {
                System.out.print(USAGE);
                return 0;
            }
            main.serve();
            return 0;
        } catch (UsageException e) {
            System.err.println("javafuse: " + e.getMessage() + "\n" + USAGE);
            return 2;
        } catch (IOException | UnsatisfiedLinkError e) {
            System.err.println("javafuse: " + e.getMessage());
            return 1;
        }
    }

    private boolean parse(String[] args) throws UsageException, IOException {
        for (int i = 0; i < args.length; i++) {
            String arg = args[i];
            switch (arg) {
                case "-h", "--help" -> {
                    return false;
                }
                case "--class" -> name = value(args, ++i);
                case "--classpath" -> classpath = value(args, ++i);
                case "--config" -> configuration = Configuration.read(path(value(args, ++i)));
                case "--data" -> data = dataMode(value(args, ++i));
                case "--workers" -> options = workers(value(args, ++i));
                case "-o" -> options = options.plus(value(args, ++i));
                default -> place(arg);
            }
        }
        if (name == null) {
            throw new UsageException("--class is missing");
        }
        if (places.size() != 2) {
            throw new UsageException("SOURCE and MOUNTPOINT are needed, " + places.size() + " given");
        }
        return true;
    }

    private void place(String arg) throws UsageException {
        if (arg.startsWith("-")) {
            throw new UsageException("there is no option " + arg);
        }
        places.add(arg);
    }

    private static String value(String[] args, int i) throws UsageException {
        if (i >= args.length) {
            throw new UsageException(args[i - 1] + " needs a value");
        }
        return args[i];
    }

    private static DataMode dataMode(String value) throws UsageException {
        try {
            return Configuration.dataMode(value);
        } catch (IllegalArgumentException e) {
            throw new UsageException(e.getMessage());
        }
    }

    private MountOptions workers(String value) throws UsageException {
        try {
            return options.withWorkers(Integer.parseInt(value));
        } catch (IllegalArgumentException e) {
            throw new UsageException("--workers " + value + ": a number from 0 to 1024 is needed");
        }
    }

    private void serve() throws IOException, UsageException {
        JavaFuse fs = load();
        Configuration chosen = data == null ? configuration : configuration.withData(data);
        Path source = path(places.get(0));
        Path mountpoint = path(places.get(1));
        try (Mount mount = Mount.javaFuse(fs, source, mountpoint, chosen, options)) {
            mount.await();
        }
    }

    /** In the C locale Java cannot say names that are not ASCII. */
    private static Path path(String text) throws IOException {
        try {
            return Path.of(text);
        } catch (InvalidPathException e) {
            throw new IOException("the path \"" + text + "\" cannot be said in this locale ("
                    + System.getProperty("sun.jnu.encoding") + "); set LC_ALL=C.UTF-8", e);
        }
    }

    private JavaFuse load() throws IOException, UsageException {
        List<URL> urls = new ArrayList<>();
        for (String place : classpath.split(File.pathSeparator)) {
            if (!place.isEmpty()) {
                urls.add(path(place).toUri().toURL());
            }
        }
        // Not closed: the class loads others for as long as it serves.
        @SuppressWarnings("resource")
        ClassLoader loader = urls.isEmpty()
                ? Thread.currentThread().getContextClassLoader()
                : new URLClassLoader(urls.toArray(URL[]::new), Main.class.getClassLoader());
        // Also of the threads that serve.
        Thread.currentThread().setContextClassLoader(loader);
        Class<?> type;
        try {
            type = Class.forName(name, true, loader);
            resolve(type);
        } catch (ClassNotFoundException e) {
            throw new UsageException("class " + name + " was not found; say where it is with --classpath");
        } catch (LinkageError e) {
            e.printStackTrace();
            throw new IOException("class " + name + " cannot be loaded: " + (e.getCause() == null ? e : e.getCause())
                    + "; what it needs must be on the --classpath, too", e);
        }
        if (!JavaFuse.class.isAssignableFrom(type)) {
            throw new UsageException("class " + name + " does not extend " + JavaFuse.class.getName());
        }
        return make(type.asSubclass(JavaFuse.class));
    }

    /** Its methods are looked through when it is mounted: what they name must be there. */
    private static void resolve(Class<?> type) {
        type.getDeclaredConstructors();
        for (Class<?> at = type; at != null; at = at.getSuperclass()) {
            at.getDeclaredMethods();
        }
    }

    private static JavaFuse make(Class<? extends JavaFuse> type) throws IOException, UsageException {
        try {
            return type.getConstructor().newInstance();
        } catch (InvocationTargetException e) {
            e.getCause().printStackTrace();
            throw new IOException("the constructor of " + type.getName() + " threw " + e.getCause(), e);
        } catch (ReflectiveOperationException e) {
            throw new UsageException("class " + type.getName()
                    + " cannot be made; it must be public, not abstract, and have a public constructor without parameters");
        }
    }
}
