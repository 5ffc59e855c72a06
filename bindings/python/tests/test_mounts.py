"""Mounts for real, as root. `BICKFORD_LIBRARY` names the library. A mount that hangs is aborted after a minute."""

import errno
import logging
import mmap
import os
import signal
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

    def example(self, name, *arguments):
        """Starts an example that mounts at `self.mount`."""
        line = [sys.executable, EXAMPLES / name, "-f", "--log=warn", *arguments]
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

    def getattr(self, path, handle):
        self.callers.append(bickford.caller())
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


class Calls(Mounted):
    def number(self, name, operation):
        with self.assertRaises(OSError) as raised:
            operation(self.mount / name)
        return raised.exception.errno

    def read(self, path):
        return path.read_bytes()

    def write(self, path):
        with open(path, "r+b", buffering=0) as file:
            file.write(b"x")

    def test_errors_are_those_of_the_methods(self):
        self.serve(Subject(), "direct_io")
        self.assertEqual(self.number("missing", os.stat), errno.ENOENT)
        self.assertEqual(self.number("unknown", self.read), errno.ENOSYS)
        self.assertEqual(self.number("numberless", self.read), errno.EIO)
        with self.assertLogs("bickford", logging.ERROR) as logs:
            for name in ("mistake", "exit", "long", "text"):
                self.assertEqual(self.number(name, self.read), errno.EIO, name)
            self.assertEqual(self.number("nothing", self.write), errno.EIO)
        self.assertEqual(len(logs.output), 5, logs.output)
        self.assertIn("read of /mistake failed", logs.output[0])
        self.assertIn("KeyError: 'a mistake'", logs.output[0])
        # What is not there is answered by the library.
        self.assertEqual(self.number("missing-too", os.mkdir), errno.ENOSYS)
        # And it goes on.
        self.assertEqual(len(self.read(self.mount / "fine")), SIZE)

    def test_more_written_than_there_was_is_an_error(self):
        self.serve(Subject(), "direct_io")
        self.assertEqual(self.number("more", self.write), errno.EIO)

    def test_data_are_right_over_each_transport(self):
        for transport in ("dev", "auto"):
            with bickford.mount(Subject(), self.mount, f"transport={transport}") as session:
                data = self.read(self.mount / "data")
                self.assertEqual(data, b"".join(bytes([page]) * 4096 for page in range(256)))
                self.assertEqual(session.connection, mounted(self.mount))
            self.assertIsNone(mounted(self.mount))

    def test_handles_are_objects_until_their_file_is_closed(self):
        subject = Subject()
        session = self.serve(subject, "direct_io")
        for name in ("a", "none"):
            self.read(self.mount / name)
        session.unmount()
        self.assertTrue(session.wait(DEADLINE))
        self.assertTrue(subject.destroyed.wait(DEADLINE))
        self.assertIn(("/a", ["/a"]), subject.asked)
        self.assertIn(("/none", None), subject.asked)
        released = [handle for what, handle in subject.asked if what == "release"]
        self.assertEqual(sorted(map(str, released)), ["None", "['/a']"])

    def test_names_need_not_be_text(self):
        self.serve(Subject())
        self.assertEqual(sorted(os.listdir(os.fsencode(self.mount))), [b"pair", b"plain", b"\xff"])
        types = {entry.name: entry.is_dir() for entry in os.scandir(self.mount)}
        self.assertEqual(types, {"plain": False, "pair": True, "\udcff": False})
        self.assertEqual(os.stat(self.mount / "plain").st_mtime_ns, -1_500_000_000)

    def test_who_asks_is_known_during_a_call(self):
        subject = Subject()
        self.serve(subject, "allow_other,attr_timeout=0")
        subprocess.run(["setpriv", "--reuid=1234", "--regid=1235", "--clear-groups", "stat", self.mount], check=True,
                       stdout=subprocess.DEVNULL)
        asked = {(caller.uid, caller.gid) for caller in subject.callers}
        self.assertIn((1234, 1235), asked)
        with self.assertRaises(LookupError):
            bickford.caller()

    def test_what_cannot_be_mounted_is_told(self):
        for mountpoint, options, told in (
            (self.directory / "missing", "", "missing"),
            (self.mount, "no_such_option=1", "no_such_option"),
        ):
            with self.assertRaises(bickford.Error) as raised:
                bickford.mount(Subject(), mountpoint, options)
            self.assertIn(told, str(raised.exception))
        for mountpoint, options in ((f"{self.mount}\0x", ""), (self.mount, "ro\0x")):
            with self.assertRaises(ValueError):
                bickford.mount(Subject(), mountpoint, options)

    def test_a_busy_mount_is_left_or_aborted(self):
        session = self.serve(Subject(), "direct_io")
        file = os.open(self.mount / "data", os.O_RDONLY)
        with self.assertRaises(bickford.Error):
            session.unmount()
        self.assertFalse(session.wait(0.05))
        session.unmount("force")
        for operation in (lambda: os.read(file, 1), lambda: os.close(file)):
            with self.assertRaises(OSError):
                operation()
        self.assertTrue(session.wait(DEADLINE))
        session.close()
        session.close()
        self.assertTrue(session.wait() and session.connection is None)
        with self.assertRaises(bickford.Error):
            session.unmount()
        with self.assertRaises(ValueError):
            session.unmount("gently")


class Mirrored(Mounted):
    def setUp(self):
        super().setUp()
        self.below = self.directory / "below"
        self.below.mkdir()
        self.example("mirror.py", "-o", "allow_other,attr_timeout=0,entry_timeout=0", self.below, self.mount)

    def both(self, name):
        return self.mount / name, self.below / name

    def test_files(self):
        above, below = self.both("file")
        above.write_bytes(b"some data")
        self.assertEqual(below.read_bytes(), b"some data")
        with open(above, "r+b") as file:
            file.seek(5)
            file.write(b"text")
            file.flush()
            os.fsync(file.fileno())
            os.posix_fallocate(file.fileno(), 0, 8192)
            file.truncate(4096)
        self.assertEqual(below.read_bytes().rstrip(b"\0"), b"some text")
        self.assertEqual(below.stat().st_size, 4096)
        with open(above, "ab") as file:
            file.write(b"end")
        self.assertEqual(below.read_bytes()[4096:], b"end")
        os.truncate(above, 3)
        self.assertEqual(above.read_bytes(), b"som")
        sparse, _ = self.both("sparse")
        with open(sparse, "wb") as file:
            file.truncate(1 << 20)
            file.seek(512 << 10)
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
            self.assertEqual(os.lseek(file.fileno(), 0, os.SEEK_DATA), 512 << 10)
        large, below = self.both("large")
        data = os.urandom(3 << 20)
        large.write_bytes(data)
        self.assertEqual((large.read_bytes(), below.read_bytes()), (data, data))
        for flags in (0, os.O_CREAT | os.O_EXCL):
            path = self.mount / ("large" if flags == 0 else "made")
            fd = os.open(path, os.O_WRONLY | os.O_DIRECT | flags)
            aligned = mmap.mmap(-1, 4096)
            aligned.write(data[:4096])
            self.assertEqual(os.pwrite(fd, aligned, 8192), 4096)
            os.close(fd)
            self.assertEqual((self.below / path.name).read_bytes()[8192:12288], data[:4096])

    def test_names(self):
        (self.mount / "dir").mkdir(0o750)
        self.assertEqual(stat.S_IMODE((self.below / "dir").stat().st_mode), 0o750)
        (self.mount / "dir/file").write_text("x")
        os.link(self.mount / "dir/file", self.mount / "link")
        self.assertEqual((self.mount / "link").stat().st_nlink, 2)
        os.rename(self.mount / "dir/file", self.mount / "new")
        os.symlink("new", self.mount / "symlink")
        self.assertEqual(os.readlink(self.below / "symlink"), "new")
        self.assertEqual((self.mount / "symlink").read_text(), "x")
        os.mkfifo(self.mount / "fifo")
        self.assertTrue(stat.S_ISFIFO((self.below / "fifo").stat().st_mode))
        os.mknod(self.mount / "null", stat.S_IFCHR | 0o600, os.makedev(259, 70_000))
        for place in self.both("null"):
            self.assertEqual(os.lstat(place).st_rdev, os.makedev(259, 70_000))
        found = {"dir", "link", "new", "symlink", "fifo", "null"}
        self.assertEqual(set(os.listdir(self.mount)), found)
        for name in ("link", "new", "symlink", "fifo", "null"):
            os.unlink(self.mount / name)
        os.rmdir(self.mount / "dir")
        self.assertEqual(os.listdir(self.below), [])
        with self.assertRaises(FileNotFoundError):
            os.rmdir(self.mount / "dir")

    def test_attributes(self):
        above, below = self.both("file")
        above.touch()
        os.chmod(above, 0o640)
        os.chown(above, 12, -1)
        os.chown(above, -1, 34)
        os.utime(above, ns=(1_000_000_001, 2_000_000_002))
        for path in (above, below):
            found = path.stat()
            self.assertEqual((stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid), (0o640, 12, 34))
            self.assertEqual((found.st_atime_ns, found.st_mtime_ns), (1_000_000_001, 2_000_000_002))
        os.utime(above)
        self.assertLess(abs(below.stat().st_mtime - time.time()), 60)
        os.setxattr(above, "user.name", b"value")
        self.assertEqual(os.getxattr(below, "user.name"), b"value")
        self.assertEqual(os.listxattr(above), ["user.name"])
        os.removexattr(above, "user.name")
        with self.assertRaises(OSError) as raised:
            os.getxattr(above, "user.name")
        self.assertEqual(raised.exception.errno, errno.ENODATA)
        above, below = os.statvfs(self.mount), os.statvfs(self.below)
        self.assertEqual((above.f_blocks, above.f_frsize), (below.f_blocks, below.f_frsize))

    def test_others_make_their_own_files(self):
        os.chmod(self.mount, 0o777)
        make = "umask 027; echo x > file; mkdir dir; ln -s file link"
        subprocess.run(["setpriv", "--reuid=1234", "--regid=1235", "--clear-groups", "sh", "-c", make], check=True,
                       cwd=self.mount)
        for name, mode in (("file", 0o640), ("dir", 0o750), ("link", 0o777)):
            found = os.lstat(self.below / name)
            self.assertEqual((found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)), (1234, 1235, mode), name)

    def test_removed_while_open(self):
        above, _ = self.both("file")
        with open(above, "w+b", buffering=0) as file:
            file.write(b"before")
            above.unlink()
            file.write(b" after")
            self.assertEqual(os.fstat(file.fileno()).st_size, 12)
            self.assertEqual(os.pread(file.fileno(), 99, 0), b"before after")

    def test_many_clients(self):
        def work(number):
            for step in range(20):
                path = self.mount / f"{number}-{step}"
                path.write_text(str(path))
                self.assertEqual(path.read_text(), str(path))
                if step % 2:
                    path.unlink()

        threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(os.listdir(self.below)), 80)


GREETER = """
import logging, stat, sys
import bickford

class Greeter(bickford.FileSystem):
    def __init__(self, given):
        assert given.mountpoint
        if given.flags["code"] is not None:
            sys.exit(given.flags["code"])
        if given.flags["times"] == "many":
            raise ValueError("--times many: a number is meant")
        mark = "!" if given.flags["mark"] else ""
        with open(given.source) as file:
            self.text = (given.flags["greeting"] + mark + file.read()) * int(given.flags["times"])
        logging.getLogger(__name__).warning("opened")

    def getattr(self, path, handle):
        if path == "/defect":
            raise RuntimeError("upside down")
        return bickford.Attributes(stat.S_IFDIR | 0o755 if path == "/" else stat.S_IFREG | 0o644, len(self.text))

    def read(self, path, handle, offset, size):
        return self.text.encode()[offset : offset + size]

if __name__ == "__main__":
    flags = [
        bickford.Flag("greeting", "TEXT", "Hello, ", "How it begins"),
        bickford.Flag("times", "N", "1"),
        bickford.Flag("mark", help="With an exclamation mark"),
        bickford.Flag("code", "TEXT"),
    ]
    sys.exit(bickford.run(Greeter, "greeter", version="2", source="FILE", flags=flags, workers=2))
"""


class Programs(Mounted):
    def run_program(self, *words, **arguments):
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, **arguments)

    def greeter(self, *words):
        program = self.directory / "greeter.py"
        program.write_text(GREETER)
        return self.run_program(program, *words)

    def until(self, condition):
        until = time.monotonic() + DEADLINE / 2
        while not condition():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def daemon(self, name):
        """The process of this name that serves `self.mount`, as its command line says."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                if os.fsencode(self.mount) in words and (process / "comm").read_text() == name + "\n":
                    return int(process.name)
            except OSError:
                pass  # it has ended
        return None

    def test_the_background(self):
        # Its relative path is one of the directory that it leaves.
        environment = dict(os.environ, PYTHONPATH=str(HERE.parent))
        ended = self.run_program("hello.py", self.mount, cwd=EXAMPLES, env=environment)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "", ""))
        self.assertEqual((self.mount / "hello").read_bytes(), b"Hello, world!\n")
        daemon = self.daemon("hello")
        os.kill(daemon, signal.SIGTERM)
        self.until(lambda: self.daemon("hello") is None)
        self.assertIsNone(mounted(self.mount))

    def test_flags_and_the_log(self):
        source, log = self.directory / "source", self.directory / "log"
        source.write_text("world")
        options = f"greeting=Ahoy,times=2,mark,log-file={log}"
        ended = self.greeter("-o", options, "--times", "3", source, self.mount)
        self.assertEqual((ended.returncode, ended.stderr.count("opened")), (0, 1), ended.stderr)
        self.assertEqual((self.mount / "any").read_text(), "Ahoy!world" * 3)
        with self.assertRaises(OSError) as raised:
            os.stat(self.mount / "defect")
        self.assertEqual(raised.exception.errno, errno.EIO)
        self.until(lambda: "RuntimeError: upside down" in log.read_text())
        subprocess.run(["umount", self.mount], check=True)
        self.until(lambda: self.daemon("greeter") is None)

    def test_flags_of_the_mount_can_be_changed(self):
        self.assertEqual(self.run_program(EXAMPLES / "hello.py", self.mount, "-o", "attr_timeout=7").stderr, "")

        def remount(*words):
            return self.run_program(EXAMPLES / "hello.py", self.mount, "-o", "remount", "-o", *words)

        self.assertEqual(remount("rw,noatime,attr_timeout=7").stderr, "")
        line = next(line for line in Path("/proc/self/mounts").read_text().splitlines() if str(self.mount) in line)
        self.assertIn("noatime", line)
        refused = remount("ro,attr_timeout=8")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("'attr_timeout=8' is not in force", refused.stderr)
        refused = remount("ro", "--stats")
        self.assertIn("'stats' is not in force", refused.stderr)
        subprocess.run(["umount", self.mount], check=True)

    def test_what_is_wrong_is_said(self):
        source = self.directory / "source"
        source.write_text("world")
        for words, status, part in (
            (["--help"], 0, "--greeting <TEXT>"),
            (["-V"], 0, "greeter 2 (bickford "),
            ([source], 2, "<FILE> <MOUNTPOINT>"),
            ([source, self.mount, "-o", "greting=x"], 1, "'greeting'"),
            ([source, self.mount, "--times", "many"], 1, "greeter: --times many: a number is meant"),
            ([source, self.mount, "--times", "x"], 1, "invalid literal"),
            ([source, self.mount, "--code", "not today"], 1, "greeter: not today"),
            (["/no/such", self.mount], 1, "greeter: /no/such: No such file or directory"),
            (["/no/such", "-f", self.mount], 1, "/no/such: No such file or directory"),
        ):
            ended = self.greeter(*words)
            self.assertEqual(ended.returncode, status, ended.stderr)
            self.assertIn(part, ended.stdout + ended.stderr)
            self.assertNotIn("Traceback", ended.stderr)
            self.assertIsNone(mounted(self.mount))

    def test_an_interrupt_in_the_foreground_unmounts(self):
        program = self.example("hello.py", self.mount)
        program.send_signal(signal.SIGINT)
        self.assertEqual(program.wait(DEADLINE), 0)

    def test_hello(self):
        self.example("hello.py", self.mount)
        self.assertEqual((self.mount / "hello").read_bytes(), b"Hello, world!\n")
        self.assertEqual(os.listdir(self.mount), ["hello"])

    def test_ends_with_its_mount(self):
        program = self.example("hello.py", self.mount)
        subprocess.run(["umount", self.mount], check=True)
        self.assertEqual(program.wait(DEADLINE), 0)

    def test_a_session_that_nobody_keeps_is_served_until_the_end(self):
        program = f"""
import gc, os, stat, bickford
class Root(bickford.FileSystem):
    def getattr(self, path, handle):
        return bickford.Attributes(stat.S_IFDIR | 0o755)
    def statfs(self, path, handle):
        return bickford.Statfs(f_blocks=17)
bickford.mount(Root(), {str(self.mount)!r})
gc.collect()
assert os.statvfs({str(self.mount)!r}).f_blocks == 17
os.chdir({str(self.mount)!r})
"""
        subprocess.run([sys.executable, "-c", program], check=True)
        self.assertIsNone(mounted(self.mount))

    def test_what_fails_is_said(self):
        missing = self.directory / "missing"
        ended = subprocess.run([sys.executable, EXAMPLES / "hello.py", missing], capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 1)
        self.assertIn(str(missing), ended.stderr)
        self.assertNotIn("Traceback", ended.stderr)

    def test_without_the_library(self):
        environment = dict(os.environ, BICKFORD_LIBRARY="/nowhere/libbickford_ffi.so")
        ended = subprocess.run([sys.executable, EXAMPLES / "hello.py", self.mount], capture_output=True, text=True,
                               check=False, env=environment)
        self.assertIn("/nowhere/libbickford_ffi.so", ended.stderr)
        self.assertIn("make install", ended.stderr)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    unittest.main()
