package io.github.bickfordfs;

/** What calls of a {@link JavaFuse} see of data that are read and written. */
public enum DataMode {
    /** Nothing: metadata alone (JavaFuse1). */
    NONE,
    /** Copies in an array of Java (JavaFuse2): {@link Call#array}. */
    COPIED,
    /** The buffers themselves: {@link Call#data} and {@link Call#answerData}. */
    SHARED
}
