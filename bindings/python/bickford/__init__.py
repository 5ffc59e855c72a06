"""FUSE file systems over paths in Python, by Bickford's C interface.

A file system is a class with the methods of `FileSystem` that it needs. `run` makes a program of it, with a command line:

    class Hello(bickford.FileSystem):
        def getattr(self, path, handle):
            if path == "/":
                return bickford.Attributes(stat.S_IFDIR | 0o755)
            raise FileNotFoundError(errno.ENOENT, path)

    if __name__ == "__main__":
        sys.exit(bickford.run(Hello, "hello"))

Within another program `mount` serves it:

    with bickford.mount(Hello(), "/mnt/hello") as session:
        session.wait()

Methods are called by several threads, one at a time for Python's interpreter lock. What they raise becomes the answer: an
`OSError` its errno, or that of its class where it has none (`FileNotFoundError(path)`), `NotImplementedError` ENOSYS, anything
else EIO, with the traceback in the log (`logging`, "bickford").

A program must not map a file of its own mount (mmap) and touch it: the interpreter's lock is held then, and nobody could
answer. Reading and writing such files from another thread is fine.
"""

import atexit
import contextlib
import logging
import os
import time
from ctypes import byref, c_uint64

from .filesystem import Attributes, Caller, FileSystem, Statfs, caller, groups
from .interface import ABI_VERSION, ERROR_TIMEOUT, UNMOUNT, Callbacks, Config, Error, check, load
from .program import Flag, Given, run
from .server import Server

__all__ = [
    "Attributes",
    "Caller",
    "Error",
    "FileSystem",
    "Flag",
    "Given",
    "Session",
    "Statfs",
    "caller",
    "groups",
    "mount",
    "run",
    "version",
]


_LOG = logging.getLogger("bickford")
# Seconds for methods to return, before it is said that they are waited for.
_PATIENCE = 2.0

# The library goes on calling these, whether the program keeps them or not.
_open = {}


@atexit.register
def _end():
    """Who comes now is not served any more: the mounts of a program that ends are aborted."""
    for session in list(_open.values()):
        with contextlib.suppress(Error):
            session.unmount("force")
        with contextlib.suppress(Error):
            # A method that is still running must not outlive the interpreter.
            if not session.wait(_PATIENCE):
                _LOG.warning("the program ends when a method of the mount at %s has returned", session._mountpoint)
            session.close()


def _forget():
    """Mounts are those of the process that made them, and what serves them is not in its children."""
    for session in _open.values():
        session._number = None
    _open.clear()


os.register_at_fork(after_in_child=_forget)


class Session:
    """A mounted file system, until it is closed or the program ends. As a context manager it is closed at the end. In a child
    of fork(2) it is closed, and the mount goes on."""

    def __init__(self, library, number, server, mountpoint):
        self._library = library
        self._number = number
        self._mountpoint = mountpoint
        # The library calls it until the session has ended.
        self._server = server
        _open[number] = self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def wait(self, timeout=None):
        """Waits until somebody has unmounted it, or for so many seconds. Whether it has ended."""
        if self._number is None:
            return True
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 0.2 if until is None else max(0.0, min(0.2, until - time.monotonic()))
            # In between Python handles signals.
            status = self._library.bickford_session_wait(self._number, int(left * 1000))
            if status != ERROR_TIMEOUT:
                check(self._library, status)
                return True
            if until is not None and time.monotonic() >= until:
                return False

    def unmount(self, mode="normal"):
        """`mode` is "normal", which fails while somebody uses it, "lazy" or "force"."""
        if mode not in UNMOUNT:
            raise ValueError(f"mode {mode!r}: one of {', '.join(UNMOUNT)}")
        if self._number is None:
            raise Error("the session is closed")
        check(self._library, self._library.bickford_session_unmount(self._number, UNMOUNT[mode]))

    def close(self):
        """Unmounts, lazily where it is still mounted, and waits until nobody has a file open there any more
        (`unmount("force")` before spares that). Twice is fine."""
        if self._number is None:
            return
        number = self._number
        status = self._library.bickford_session_unmount(number, UNMOUNT["lazy"])
        if status >= 0 or self.wait(0):
            # Its calls come to objects of this program.
            self.wait()
        check(self._library, self._library.bickford_session_close(number))
        self._number = None
        _open.pop(number, None)

    @property
    def connection(self):
        """The number in /sys/fs/fuse/connections, or None where it is not known."""
        number = -1 if self._number is None else self._library.bickford_session_connection(self._number)
        return None if number < 0 else number


def version():
    """Version of the library."""
    return load().bickford_version().decode()


def mount(file_system, mountpoint, options="", *, workers=0, max_write=0, max_readahead=0):
    """Mounts a `FileSystem` and returns its `Session` once the mount answers.

    `options` are those of `bickford_mount_paths` in bickford.h, with commas between: of mount.fuse3(8) and fuse(8), and
    `transport=auto|dev|uring`. `workers` is a fixed number of threads, `max_write` and `max_readahead` are bytes; 0 is the
    default. Raises `Error`.
    """
    library = load()
    server = Server(library, file_system)
    config = Config(ABI_VERSION, workers, max_write, max_readahead, server.wanted())
    callbacks = Callbacks(None, server.operations(), server.callback)
    number = c_uint64()
    # Python's lock lets one call run at a time, so nothing is gained by making requests tasks.
    options = ",".join(filter(None, [options, "at_once"]))
    mountpoint, options = os.fsencode(mountpoint), os.fsencode(options)
    if b"\0" in mountpoint + options:
        raise ValueError("a NUL byte in the mountpoint or the options")
    try:
        check(library, library.bickford_mount_paths(mountpoint, options, byref(config), byref(callbacks), byref(number)))
        return Session(library, number.value, server, os.fsdecode(mountpoint))
    except BaseException:
        # Of a signal, which Python handles when the call is over.
        if number.value != 0:
            Session(library, number.value, server, os.fsdecode(mountpoint)).close()
        raise
