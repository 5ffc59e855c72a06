package io.github.bickfordfs;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Set;
import java.util.function.Predicate;

/** Which methods of a file system are its own. */
final class Overrides {
    private Overrides() {}

    /** The operations whose methods an {@link InodeFileSystem} overrides. */
    static Set<Operation> of(Class<?> type) {
        Set<Operation> operations = EnumSet.noneOf(Operation.class);
        for (Operation operation : Operation.values()) {
            if (has(type, InodeFileSystem.class, operation.method(), _ -> true)) {
                operations.add(operation);
            }
        }
        return operations;
    }

    /** Whether one of the methods of this name is not the default of the interface that declares it. */
    static boolean has(Class<?> type, Class<?> declaring, String name, Predicate<Method> which) {
        return Arrays.stream(type.getMethods()).anyMatch(method -> method.getName().equals(name)
                && method.getDeclaringClass() != declaring
                && declares(declaring, name, method.getParameterTypes())
                && which.test(method));
    }

    /** The operations whose pre-calls or post-calls a {@link JavaFuse} overrides. */
    static Set<Operation> of(Class<? extends JavaFuse> type, String prefix) {
        Set<Operation> operations = EnumSet.noneOf(Operation.class);
        for (Operation operation : Operation.values()) {
            String name = operation.method(prefix);
            for (Class<?> at = type; at != JavaFuse.class; at = at.getSuperclass()) {
                if (declares(at, name, Call.class)) {
                    operations.add(operation);
                }
            }
        }
        return operations;
    }

    private static boolean declares(Class<?> type, String name, Class<?>... parameters) {
        try {
            type.getDeclaredMethod(name, parameters);
            return true;
        } catch (NoSuchMethodException e) {
            return false;
        }
    }
}
