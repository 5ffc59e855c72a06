package io.github.bickfordfs.examples;

import io.github.bickfordfs.Call;
import io.github.bickfordfs.Errno;
import io.github.bickfordfs.FuseException;
import io.github.bickfordfs.JavaFuse;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Turns what is written into upper case before it reaches the directory below:
 * {@code javafuse --class io.github.bickfordfs.examples.UpperCase SOURCE MOUNTPOINT}.
 */
public final class UpperCase extends JavaFuse {
    @Override
    protected void preWrite(Call call) {
        MemorySegment from = call.data();
        MemorySegment to = call.replaceData(from.byteSize());
        for (long i = 0; i < from.byteSize(); i++) {
            byte letter = from.get(ValueLayout.JAVA_BYTE, i);
            boolean small = letter >= 'a' && letter <= 'z';
            to.set(ValueLayout.JAVA_BYTE, i, (byte) (small ? letter - 'a' + 'A' : letter));
        }
    }

    /** The system call would copy without a write; where it cannot, the kernel reads and writes. */
    @Override
    protected void preCopyFileRange(Call call) throws FuseException {
        call.fail(Errno.EOPNOTSUPP);
    }
}
