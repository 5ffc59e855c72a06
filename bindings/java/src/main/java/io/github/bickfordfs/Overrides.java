package io.github.bickfordfs;

import java.lang.reflect.Method;
import java.util.EnumSet;
import java.util.Set;

/** Which methods of a file system are its own. */
final class Overrides {
    private Overrides() {}

    /** The operations whose methods an {@link InodeFileSystem} overrides. */
    static Set<Operation> of(Class<?> type) {
        Set<Operation> operations = EnumSet.noneOf(Operation.class);
        for (Operation operation : Operation.values()) {
            if (has(type, operation.method())) {
                operations.add(operation);
            }
        }
        return operations;
    }

    /** Whether a public method of this name that takes a request is not the interface's default. */
    static boolean has(Class<?> type, String name) {
        for (Method method : type.getMethods()) {
            if (method.getName().equals(name) && overrides(method)) {
                return true;
            }
        }
        return false;
    }

    private static boolean overrides(Method method) {
        if (method.getDeclaringClass() == InodeFileSystem.class || method.isBridge()) {
            return false;
        }
        for (Method original : InodeFileSystem.class.getMethods()) {
            if (original.getName().equals(method.getName())
                    && java.util.Arrays.equals(original.getParameterTypes(), method.getParameterTypes())) {
                return true;
            }
        }
        return false;
    }

    /** The operations whose pre-calls or post-calls a {@link JavaFuse} overrides. */
    static Set<Operation> of(Class<? extends JavaFuse> type, String prefix) {
        Set<Operation> operations = EnumSet.noneOf(Operation.class);
        for (Operation operation : Operation.values()) {
            String name = operation.method(prefix);
            for (Class<?> at = type; at != JavaFuse.class; at = at.getSuperclass()) {
                if (declares(at, name)) {
                    operations.add(operation);
                }
            }
        }
        return operations;
    }

    private static boolean declares(Class<?> type, String name) {
        try {
            type.getDeclaredMethod(name, Call.class);
            return true;
        } catch (NoSuchMethodException e) {
            return false;
        }
    }
}
