package io.github.bickfordfs;

import io.github.bickfordfs.Layout.Ans;
import io.github.bickfordfs.Layout.Req;
import java.io.IOException;
import java.util.EnumSet;
import java.util.Set;

/** A {@link JavaFuse} behind the callbacks. */
final class JavaFuseTarget extends Target {
    private static final int READ = Operation.READ.code();
    private static final int WRITE = Operation.WRITE.code();

    private final JavaFuse fs;
    private final Configuration configuration;
    private final boolean copies;

    JavaFuseTarget(JavaFuse fs, Configuration configuration) {
        super(fs.getClass().getName());
        this.fs = fs;
        this.configuration = configuration;
        this.copies = configuration.data() == DataMode.COPIED;
    }

    Native.LayerSpec layer(int number) {
        return new Native.LayerSpec(number, mask("pre", configuration.pre()),
                Operation.mask(configuration.call()), mask("post", configuration.post()),
                configuration.data() == DataMode.NONE);
    }

    private long mask(String prefix, Set<Operation> switchedOn) {
        Set<Operation> operations = EnumSet.noneOf(Operation.class);
        operations.addAll(Overrides.of(fs.getClass(), prefix));
        operations.retainAll(switchedOn);
        return Operation.mask(operations);
    }

    @Override
    int pre(int operation, Call call) throws IOException {
        call.beginBefore(configuration.data());
        if (copies && operation == WRITE) {
            call.fillArray(Layout.getLong(call.at(Req.DATA)), Layout.getLong(call.at(Req.DATA_LENGTH)));
        }
        fs.pre(operation, call);
        return call.isAnswered() ? Layout.ANSWERED : 0;
    }

    @Override
    int post(int operation, Call call, int result) throws IOException {
        call.beginAfter(result, configuration.data());
        if (copies && operation == WRITE) {
            call.fillArray(Layout.getLong(call.at(Req.DATA)), Layout.getLong(call.at(Req.DATA_LENGTH)));
        } else if (copies && operation == READ && result == 0) {
            long answer = call.answer();
            call.fillArray(Layout.getLong(answer + Ans.DATA), Layout.getLong(answer + Ans.DATA_LENGTH));
        }
        fs.post(operation, call);
        return call.result();
    }
}
