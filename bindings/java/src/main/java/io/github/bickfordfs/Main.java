package io.github.bickfordfs;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.List;

/** The command {@code javafuse}: mounts a directory with the calls of a class. */
public final class Main {
    private Main() {}

    /**
     * The command.
     *
     * @param args its arguments
     */
    public static void main(String[] args) {
        Program program = new Program("javafuse")
                .about("Serves the directory SOURCE with the pre-calls and post-calls of a Java class")
                .flag("class", "NAME", null,
                        "The class, with its package: public, a subclass of io.github.bickfordfs.JavaFuse, with a public"
                                + " constructor without parameters")
                .flag("classpath", "PATH", "", "Directories and jars where it is, with colons between");
        System.exit(program.javaFuse(args, Main::load));
    }

    private static JavaFuse load(Program.Given given) throws IOException {
        String name = given.flags().get("class");
        if (name == null) {
            throw new IOException("--class is missing: name the class whose calls are to be made");
        }
        List<URL> urls = new ArrayList<>();
        for (String place : given.flags().get("classpath").split(File.pathSeparator)) {
            if (!place.isEmpty()) {
                urls.add(ProgramRun.path(place, "--classpath").toUri().toURL());
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
            throw new IOException("class " + name + " was not found; say where it is with --classpath");
        } catch (LinkageError e) {
            Log.error("class " + name + " cannot be loaded", e);
            throw new IOException("class " + name + " cannot be loaded: " + (e.getCause() == null ? e : e.getCause())
                    + "; what it needs must be on the --classpath, too", e);
        }
        if (!JavaFuse.class.isAssignableFrom(type)) {
            throw new IOException("class " + name + " does not extend " + JavaFuse.class.getName());
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

    private static JavaFuse make(Class<? extends JavaFuse> type) throws IOException {
        try {
            return type.getConstructor().newInstance();
        } catch (InvocationTargetException e) {
            Log.error("the constructor of " + type.getName(), e.getCause());
            throw new IOException("the constructor of " + type.getName() + " threw " + e.getCause(), e);
        } catch (ReflectiveOperationException e) {
            throw new IOException("class " + type.getName()
                    + " cannot be made; it must be public, not abstract, and have a public constructor without parameters");
        }
    }
}
