package io.github.bickfordfs.soak;

/** Where workers rest while it is shut. */
final class Gate {
    private int workers;
    private int resting;
    private boolean shut;

    /** One more worker. */
    synchronized void join() {
        workers++;
    }

    /** One worker less. */
    synchronized void leave() {
        workers--;
        notifyAll();
    }

    /** Rests while it is shut. */
    synchronized void pass() throws InterruptedException {
        resting++;
        notifyAll();
        while (shut) {
            wait();
        }
        resting--;
    }

    /** Shuts it, and waits until every worker rests. */
    synchronized void shut() throws InterruptedException {
        shut = true;
        while (resting < workers) {
            wait();
        }
    }

    synchronized void open() {
        shut = false;
        notifyAll();
    }
}
