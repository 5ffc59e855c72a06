package io.github.bickfordfs;

import java.io.IOException;
import java.io.InputStream;
import java.io.StringReader;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** The file of a {@link Configuration}: as java.util.Properties has it, which tells neither lines nor what is set twice. */
final class ConfigurationFile {
    private static final int BYTES_MAX = 1 << 20;

    private final Map<String, Configuration.Setting> set = new HashMap<>();
    private final List<Configuration.Setting> settings = new ArrayList<>();

    private ConfigurationFile() {}

    /** What is in a file, which may be a device without an end. */
    static byte[] bytes(Path file) throws IOException {
        try (InputStream in = Files.newInputStream(file)) {
            byte[] bytes = in.readNBytes(BYTES_MAX + 1);
            if (bytes.length > BYTES_MAX) {
                throw new IllegalArgumentException("more than " + BYTES_MAX + " bytes are no configuration");
            }
            return bytes;
        } catch (FileSystemException e) {
            throw e;
        } catch (IOException e) {
            // Of reading, as of a directory: it does not say what.
            throw new IOException(file + ": " + e.getMessage(), e);
        }
    }

    /** What a file sets; {@link IllegalArgumentException} with the line where it cannot be understood. */
    static List<Configuration.Setting> parse(byte[] bytes) {
        ConfigurationFile file = new ConfigurationFile();
        StringBuilder logical = new StringBuilder();
        int first = 0;
        int number = 0;
        for (String line : text(bytes).split("\r\n|\r|\n")) {
            number++;
            if (logical.isEmpty()) {
                first = number;
                if (line.isBlank() || "#!".indexOf(line.stripLeading().charAt(0)) >= 0) {
                    continue;
                }
            }
            logical.append(line).append('\n');
            if (!goesOn(line)) {
                file.add("line " + first + ": ", logical.toString());
                logical.setLength(0);
            }
        }
        if (!logical.isEmpty()) {
            file.add("line " + first + ": ", logical.toString());
        }
        return file.settings;
    }

    private static String text(byte[] bytes) {
        ByteBuffer in = ByteBuffer.wrap(bytes);
        CharBuffer out = CharBuffer.allocate(bytes.length);
        if (StandardCharsets.UTF_8.newDecoder().decode(in, out, true).isError()) {
            long before = out.flip().chars().filter(letter -> letter == '\n').count();
            throw new IllegalArgumentException("line " + (before + 1) + ": a byte that is not UTF-8; save it as UTF-8");
        }
        // Some editors begin a file with a byte order mark, which nobody sees.
        String text = out.flip().toString();
        return text.startsWith("\ufeff") ? text.substring(1) : text;
    }

    /** Whether a line ends in a backslash that is not escaped. */
    private static boolean goesOn(String line) {
        int end = line.length();
        while (end > 0 && line.charAt(end - 1) == '\\') {
            end--;
        }
        return (line.length() - end) % 2 != 0;
    }

    private void add(String place, String line) {
        Properties properties = new Properties();
        try {
            properties.load(new StringReader(line));
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException(
                    place + e.getMessage() + "; four hexadecimal digits are expected after \\u", e);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        properties.forEach((key, value) -> {
            Configuration.Setting setting = new Configuration.Setting(place, key.toString(), value.toString());
            try {
                Configuration.Setting before = set.putIfAbsent(setting.what(), setting);
                if (before != null) {
                    throw new IllegalArgumentException("\"" + key + "\" is set already, in "
                            + before.place().replace(": ", "") + "; leave one of them out");
                }
            } catch (IllegalArgumentException e) {
                throw new IllegalArgumentException(place + e.getMessage(), e);
            }
            settings.add(setting);
        });
    }
}
