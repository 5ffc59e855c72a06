package io.github.bickfordfs;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;

/**
 * Which calls are made around the operations of a {@link JavaFuse}. In a file (java.util.Properties):
 *
 * <pre>
 * metadata-only = false   # true: data are not seen
 * data = shared           # none, copied or shared
 * pre = on                # all pre-calls
 * call = on               # all system calls
 * post = off              # all post-calls
 * lookup.post = on        # that of one operation, which goes before the above
 * write.call = off        # ENOSYS, unless a call answers
 * </pre>
 *
 * @param data what calls see of data
 * @param pre operations with a pre-call, where it is overridden
 * @param call operations with a system call
 * @param post operations with a post-call, where it is overridden
 */
public record Configuration(DataMode data, Set<Operation> pre, Set<Operation> call, Set<Operation> post) {
    /** All calls, shared data. */
    public static final Configuration DEFAULT =
            new Configuration(DataMode.SHARED, Operation.all(), Operation.all(), Operation.all());

    /** Copies the sets. */
    public Configuration {
        pre = Collections.unmodifiableSet(copy(pre));
        call = Collections.unmodifiableSet(copy(call));
        post = Collections.unmodifiableSet(copy(post));
    }

    private static EnumSet<Operation> copy(Set<Operation> operations) {
        EnumSet<Operation> copy = EnumSet.noneOf(Operation.class);
        copy.addAll(operations);
        return copy;
    }

    /** The same with another way for data. */
    public Configuration withData(DataMode data) {
        return new Configuration(data, pre, call, post);
    }

    /**
     * Reads a file.
     *
     * @param file its path
     * @return what it says
     * @throws IOException when it cannot be read, or says what cannot be understood, or the same twice; the message
     *     names the line
     */
    public static Configuration read(Path file) throws IOException {
        try {
            return of(ConfigurationFile.parse(ConfigurationFile.bytes(file)));
        } catch (IllegalArgumentException e) {
            throw new IOException(file + ": " + e.getMessage(), e);
        } catch (NoSuchFileException e) {
            throw new NoSuchFileException(file.toString(), null, "there is no such file");
        } catch (AccessDeniedException e) {
            throw new AccessDeniedException(file.toString(), null, "this user may not read it");
        }
    }

    /** One line that sets something. {@code place} is the line, for messages. */
    record Setting(String place, String key, String value) {
        Setting {
            value = value.replaceFirst("\\s*#.*", "").strip();
        }

        /** The same for two keys that set the same. */
        String what() {
            int dot = key.indexOf('.');
            return dot < 0 ? key : operation(key.substring(0, dot)) + key.substring(dot);
        }
    }

    /**
     * From properties.
     *
     * @param properties as they are in a file
     * @return what they say
     */
    public static Configuration of(Properties properties) {
        List<Setting> settings = new ArrayList<>();
        properties.forEach((key, value) -> settings.add(new Setting("", key.toString(), value.toString())));
        return of(settings);
    }

    private static Configuration of(List<Setting> settings) {
        List<Setting> sorted = new ArrayList<>(settings);
        // Those without a dot come first, and metadata-only after data.
        sorted.sort(Comparator.comparing((Setting setting) -> setting.key().contains("."))
                .thenComparing(Setting::key));
        Map<String, EnumSet<Operation>> stages = Map.of("pre", EnumSet.allOf(Operation.class), "call",
                EnumSet.allOf(Operation.class), "post", EnumSet.allOf(Operation.class));
        Builder builder = new Builder(stages);
        for (Setting setting : sorted) {
            try {
                builder.set(setting);
            } catch (IllegalArgumentException e) {
                throw new IllegalArgumentException(setting.place() + e.getMessage(), e);
            }
        }
        return new Configuration(builder.data, stages.get("pre"), stages.get("call"), stages.get("post"));
    }

    /** What was set so far. */
    private static final class Builder {
        private final Map<String, EnumSet<Operation>> stages;
        private DataMode data = DataMode.SHARED;

        Builder(Map<String, EnumSet<Operation>> stages) {
            this.stages = stages;
        }

        void set(Setting setting) {
            String key = setting.key();
            String value = setting.value();
            switch (key) {
                case "metadata-only" -> data = isOn(key, value) ? DataMode.NONE : data;
                case "data" -> data = dataMode(value);
                case "pre", "call", "post" -> {
                    if (!isOn(key, value)) {
                        stages.get(key).clear();
                    }
                }
                default -> one(stages, key, value);
            }
        }
    }

    private static void one(Map<String, EnumSet<Operation>> stages, String key, String value) {
        int dot = key.indexOf('.');
        EnumSet<Operation> stage = dot < 0 ? null : stages.get(key.substring(dot + 1));
        if (stage == null) {
            throw new IllegalArgumentException("\"" + key
                    + "\" is none of metadata-only, data, pre, call, post, and OPERATION.pre, .call or .post");
        }
        Operation operation = operation(key.substring(0, dot));
        if (isOn(key, value)) {
            stage.add(operation);
        } else {
            stage.remove(operation);
        }
    }

    private static Operation operation(String name) {
        for (Operation operation : Operation.values()) {
            if (operation.method().equalsIgnoreCase(name.replace("_", ""))) {
                return operation;
            }
        }
        throw new IllegalArgumentException("\"" + name + "\" is no operation, such as lookup or write");
    }

    private static boolean isOn(String key, String value) {
        return switch (value.toLowerCase(Locale.ROOT)) {
            case "on", "true", "yes" -> true;
            case "off", "false", "no" -> false;
            default -> throw new IllegalArgumentException(key + " = \"" + value + "\" is neither on nor off");
        };
    }

    static DataMode dataMode(String value) {
        for (DataMode mode : DataMode.values()) {
            if (mode.name().equalsIgnoreCase(value)) {
                return mode;
            }
        }
        throw new IllegalArgumentException("data = \"" + value + "\" is none of none, copied, shared");
    }
}
