"""What the tests that mount have in common. A mount that hangs is aborted after a minute."""

import builtins
import errno
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import bickford

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
DEADLINE = 60
# Of the files of `Subject`.
SIZE = 1 << 20


def mounted(mountpoint):
    """Number of the connection that is mounted there, or None."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[4] == str(mountpoint):
            return int(fields[2].split(":")[1])
    return None


def give_up(mountpoint):
    connection = mounted(mountpoint)
    print(f"HUNG: aborting connection {connection} at {mountpoint}", file=sys.stderr, flush=True)
    if connection is not None:
        try:
            Path(f"/sys/fs/fuse/connections/{connection}/abort").write_text("1")
        except OSError as error:
            print(error, file=sys.stderr)
        subprocess.run(["umount", "-l", mountpoint], check=False)
    os._exit(1)


class Mounted(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="bickford-python-")
        self.addCleanup(directory.cleanup)
        self.directory = Path(os.path.realpath(directory.name))
        self.mount = self.directory / "mount"
        self.mount.mkdir()
        self.directory.chmod(0o755)
        watchdog = threading.Timer(DEADLINE, give_up, [self.mount])
        watchdog.daemon = True
        watchdog.start()
        self.addCleanup(watchdog.cancel)

    def serve(self, file_system, options="", **config):
        session = bickford.mount(file_system, self.mount, options, **config)
        self.addCleanup(session.close)
        return session

    def example(self, name, *arguments, before=()):
        """Starts an example that mounts at `self.mount`, under what `before` says."""
        line = [*before, sys.executable, EXAMPLES / name, "-f", "--log=warn", *arguments]
        program = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, program)
        while mounted(self.mount) is None:
            self.assertIsNone(program.poll(), "the example has ended")
            time.sleep(0.01)
        return program

    def end(self, program):
        program.terminate()
        _, said = program.communicate()
        self.assertEqual((program.returncode, said), (0, ""))
        self.assertIsNone(mounted(self.mount))


class Subject(bickford.FileSystem):
    """Files whose names say what becomes of them, and what was asked."""

    def __init__(self):
        self.asked = []
        self.destroyed = threading.Event()
        self.callers = []
        self.groups = []

    def getattr(self, path, handle):
        self.callers.append(bickford.caller())
        self.groups.append(bickford.groups())
        if path == "/":
            return bickford.Attributes(stat.S_IFDIR | 0o755)
        if path.startswith("/missing"):
            raise FileNotFoundError(errno.ENOENT, path)
        return bickford.Attributes(stat.S_IFREG | 0o666, SIZE, st_mtime_ns=-1_500_000_000)

    def open(self, path, flags):
        if path == "/none":
            return None
        return [path]

    def read(self, path, handle, offset, size):
        self.asked.append((path, handle))
        if path == "/mistake":
            raise KeyError("a mistake")
        if path == "/exit":
            sys.exit(3)
        if path == "/unknown":
            raise NotImplementedError
        if path == "/long":
            return bytes(size + 1)
        if path == "/text":
            return "text"
        if path == "/numberless":
            raise OSError("no number")
        if path == "/wordy":
            raise OSError("ENOENT", "no number")
        if path == "/huge":
            raise OSError(1 << 32, "no errno")
        if path.endswith("Error"):
            raise getattr(builtins, path[1:])(path)
        parts = range(offset >> 12, min(offset + size, SIZE) >> 12)
        return b"".join(bytes([part]) * 4096 for part in parts)

    def write(self, path, handle, offset, data):
        return None if path == "/nothing" else len(data) + 1 if path == "/more" else len(data)

    def release(self, path, handle):
        self.asked.append(("release", handle))

    def readdir(self, path, handle):
        yield "plain"
        yield b"\xff", bickford.Attributes(stat.S_IFREG | 0o644)
        yield "pair", bickford.Attributes(stat.S_IFDIR | 0o755)

    def destroy(self):
        self.destroyed.set()
