"""The main of a program that serves a file system."""

import ctypes
import logging
import os
import signal
import sys
from ctypes import byref
from dataclasses import dataclass
from typing import Optional

from .interface import ABI_VERSION, Begun, Callbacks, Config, Error, Open, Program, load
from .interface import Flag as RawFlag
from .server import Server

_LOG = logging.getLogger("bickford")
# BICKFORD_LOG_*, from what level of `logging` on.
_LEVELS = ((logging.ERROR, 1), (logging.WARNING, 2), (logging.INFO, 3), (0, 4))


@dataclass(frozen=True)
class Flag:
    """A flag of a program's own, `--name`, which may stand in `-o` as well; "port|p" has the letter `-p`, too. Without `value`, which
    is what the help calls its value, it is given or not."""

    name: str
    value: Optional[str] = None
    initial: Optional[str] = None
    help: str = ""


@dataclass(frozen=True)
class Given:
    """What a command line asks for."""

    #: What stands before the mount point, an absolute path where it is one; the program's name where nothing does.
    source: str
    #: As it was given.
    mountpoint: str
    #: By name, without a letter: text, that given last, None where there is no value; True or False for a flag without one.
    flags: dict


class _Lines(logging.Handler):
    """Sends what is logged to the log of the program: standard error leads nowhere in the background."""

    def __init__(self, library):
        super().__init__()
        self._library = library

    def emit(self, record):
        try:
            level = next(number for least, number in _LEVELS if record.levelno >= least)
            text = self.format(record).replace("\0", " ")
            self._library.bickford_log_line(level, os.fsencode(text))
        except Exception:
            self.handleError(record)


def _told(error):
    """What a user is told of an exception."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error) or type(error).__name__


def _leave_interrupts():
    """Leaves ^C to the library, which has its own handler: Python's would be called as well. Answers whether it was there."""
    has_own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if has_own:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return has_own


class _Running:
    """A program, as the library sees it."""

    def __init__(self, library, file_system, flags):
        self._file_system = file_system
        self._flags = flags
        # Whether ^C raises in Python.
        self.interrupts = False
        self.server = Server(library, file_system)
        self.open = Open(self._open)

    def _open(self, _user, given, message, room):
        try:
            self.server.serve(self._made(self._given(given.contents)))
            return 0
        except BaseException as error:  # SystemExit, too, would end nothing but this call
            if not isinstance(error, (OSError, ValueError, Error, SystemExit, KeyboardInterrupt)):
                _LOG.exception("the file system could not be made")
            text = os.fsencode(_told(error)).replace(b"\0", b" ")[: room - 1] + b"\0"
            ctypes.memmove(message, text, len(text))
            return -1

    def _made(self, given):
        if self.interrupts:
            # Who asks for a password puts the terminal back then.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return self._file_system(given)
        finally:
            _leave_interrupts()
            for number in (signal.SIGHUP, signal.SIGUSR1):
                if callable(signal.getsignal(number)):
                    # The library would leave it alone, and the main thread, which calls it, is in the library.
                    signal.signal(number, signal.SIG_DFL)

    def _given(self, given):
        flags = {}
        for at, flag in enumerate(self._flags):
            value = given.values[at]
            text = None if value is None else os.fsdecode(value)
            flags[flag.name.split("|")[0]] = text if flag.value is not None else text is not None
        return Given(os.fsdecode(given.source), os.fsdecode(given.mountpoint), flags)


def _text(text):
    """For C; None stays."""
    if text is None:
        return None
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise ValueError(f"a NUL byte in {text!r}")
    return encoded


def _can_run_again():
    """Whether the interpreter would read the same program again, and neither standard input nor somebody at a terminal."""
    return bool(sys.argv) and sys.argv[0] not in ("", "-") and not hasattr(sys, "ps1")


def run(file_system, name, *, about="", version="", source=None, source_is_path=True, options="", flags=(), workers=0,
        max_write=0, max_readahead=0, arguments=None):
    """All that the main of a program does: `sys.exit(bickford.run(Hello, "hello"))`.

    Reads the command line, which is that of mount.fuse3(8) with more (`--help`), mounts, and returns when the mount answers, with the
    status for `sys.exit`; the file system is served in the background. With `-f` it is served here. A signal
    unmounts it, and mount(8) and fstab(5) can mount it.

    `file_system` is a subclass of `FileSystem`, which is called with what is `Given`, in the process that serves. It may ask at the
    terminal (`getpass`) and read standard input, which the background leaves afterwards. A process that it starts stays with the
    caller's terminal, and ends with ^C or a hangup there, without `start_new_session`. Where it raises, nothing is mounted, and the
    user is told the exception. In the background the current directory is "/" once the mount answers: relative paths of flags are to
    be made absolute there (`os.path.abspath`). `source` is what
    has to stand before the mount point, as the help calls it, a path unless `source_is_path` is false. `options` hold where the
    command line does not say otherwise, as for `mount`, and so are the numbers; `flags` are `Flag`s of the program's own.
    `arguments` stand in place of `sys.argv`, the program's name first.

    To be called once, by the main thread, which calls no handlers of `signal` until the end; those for SIGHUP and SIGUSR1 are taken
    away when the file system is made, so that these signals unmount it and log statistics. The background is the program run again:
    what stands before this happens in each of its processes, as does what stands after it, in the one that was called when the mount
    answers: `destroy` is told of its end. So without `-f` a program that is read from standard input, or typed, is refused.
    """
    library = load()
    flags = list(flags)
    running = _Running(library, file_system, flags)
    raw = (RawFlag * len(flags))(*(RawFlag(*map(_text, (it.name, it.value, it.initial, it.help))) for it in flags))
    program = Program(
        abi_version=ABI_VERSION,
        source_is_path=bool(source_is_path),
        name=_text(name),
        version=_text(version),
        about=_text(about),
        source=_text(source),
        # Python's lock lets one call run at a time, so nothing is gained by making requests tasks.
        options=_text(",".join(filter(None, [options, "at_once", "" if _can_run_again() else "foreground_only"]))),
        flags=raw if flags else None,
        flag_count=len(flags),
        open=running.open,
        begun=Begun(),
    )
    words = [_text(word) for word in (sys.argv if arguments is None else arguments)]
    line = (ctypes.c_char_p * len(words))(*words)
    config = Config(ABI_VERSION, workers, max_write, max_readahead, running.server.wanted())
    callbacks = Callbacks(None, running.server.operations(), running.server.callback)
    running.interrupts = _leave_interrupts()
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(_Lines(library))
    sys.stdout.flush()
    return library.bickford_program_run_paths(len(words), line, byref(program), byref(config), byref(callbacks))
