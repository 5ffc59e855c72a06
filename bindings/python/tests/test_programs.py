"""Programs that mount for real, as root. `BICKFORD_LIBRARY` names the library."""

import errno
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import bickford
from mounting import DEADLINE, EXAMPLES, HERE, SIZE, Mounted, Subject, mounted

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
        bickford.Flag("times|n", "N", "1"),
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
        ended = self.greeter("-o", options, "-n3", source, self.mount)
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

        def remount(*words, before=()):
            return self.run_program(*before, EXAMPLES / "hello.py", self.mount, "-o", "remount", "-o", *words)

        self.assertEqual(remount("rw,noatime,attr_timeout=7").stderr, "")
        line = next(line for line in Path("/proc/self/mounts").read_text().splitlines() if str(self.mount) in line)
        self.assertIn("noatime", line)
        # What the interpreter is told is no option of the mount.
        self.assertEqual(remount("rw,attr_timeout=7", before=["-X", "utf8"]).stderr, "")
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

    def test_signals_are_those_of_python_while_it_is_made(self):
        program, asks, cleared = self.directory / "asks.py", self.directory / "asks", self.directory / "cleared"
        program.write_text(f"""
import pathlib, signal, sys, time
import bickford

class Asks(bickford.FileSystem):
    def __init__(self, given):
        signal.signal(signal.SIGHUP, print)
        if given.flags["ask"]:
            pathlib.Path({str(asks)!r}).touch()
            try:
                time.sleep({DEADLINE})
            finally:
                pathlib.Path({str(cleared)!r}).touch()

sys.exit(bickford.run(Asks, "asks", flags=[bickford.Flag("ask")]))
""")

        def start(*words):
            line = [sys.executable, program, "-f", "--log=warn", *words, self.mount]
            started = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
            self.addCleanup(started.kill)
            return started

        asking = start("--ask")
        self.until(asks.exists)
        asking.send_signal(signal.SIGINT)
        _, said = asking.communicate(timeout=DEADLINE / 2)
        self.assertEqual((asking.returncode, said, cleared.exists()), (1, "asks: KeyboardInterrupt\n", True))
        serving = start()
        self.until(lambda: mounted(self.mount) is not None)
        serving.send_signal(signal.SIGHUP)
        _, said = serving.communicate(timeout=DEADLINE / 2)
        self.assertEqual((serving.returncode, said), (0, ""))

    def test_a_failure_is_said_while_the_program_goes_on(self):
        program = self.directory / "goes-on.py"
        program.write_text("""
import os, subprocess, sys, threading, time
import bickford

class Busy(bickford.FileSystem):
    def __init__(self, given):
        threading.Thread(target=time.sleep, args=[300]).start()
        print(os.getpid(), file=sys.stderr)

# In the background it has the report of that as its standard input.
print(subprocess.Popen(["sleep", "300"], stdout=subprocess.DEVNULL).pid, flush=True)
sys.exit(bickford.run(Busy, "busy"))
""")
        started, told = self.directory / "started", self.directory / "told"
        try:
            with open(started, "w") as out, open(told, "w") as err:
                ended = subprocess.run([sys.executable, program, self.directory / "missing"], stdout=out, stderr=err,
                                       check=False, timeout=DEADLINE / 2)
        finally:
            for pid in started.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        self.assertEqual(ended.returncode, 1)
        daemon, said = told.read_text().splitlines()
        self.assertIn("missing", said)
        self.until(lambda: not Path(f"/proc/{daemon}").exists())

    def test_what_is_read_from_standard_input_stays_in_the_foreground(self):
        source = self.directory / "source"
        source.write_text("world")
        for before in (["-"], []):
            line = [sys.executable, *before, *([source, self.mount] if before else [])]
            text = GREETER if before else GREETER.replace("workers=2", f"arguments=['x', 'x', {str(self.mount)!r}]")
            ended = subprocess.run(line, input=text, capture_output=True, text=True, check=False, timeout=DEADLINE / 2)
            self.assertEqual(ended.returncode, 1, ended.stderr)
            self.assertIn("use -f", ended.stderr)
            self.assertIsNone(mounted(self.mount))
        line = [sys.executable, "-", "-f", "--log=off", source, self.mount]
        with subprocess.Popen(line, stdin=subprocess.PIPE, text=True) as served:
            served.stdin.write(GREETER)
            served.stdin.close()
            self.until(lambda: mounted(self.mount) is not None)
            served.terminate()
            self.assertEqual(served.wait(DEADLINE), 0)
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

    def test_a_forked_child_has_no_part_in_a_mount(self):
        with self.serve(Subject()) as session:
            child = os.fork()
            if child == 0:
                signal.alarm(DEADLINE // 2)
                # As sys.exit would, but for the tests around.
                try:
                    session.close()
                    bickford._end()
                    self.assertRaises(bickford.Error, session.unmount)
                    self.assertIsNone(session.connection)
                    os._exit(0)
                finally:
                    os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(len((self.mount / "data").read_bytes()), SIZE)

    def test_what_the_end_of_a_program_waits_for_is_said(self):
        program = self.directory / "waits.py"
        go = self.directory / "go"
        os.mkfifo(go)
        program.write_text(f"""
import stat, sys, threading, bickford
asked = threading.Event()
class Root(bickford.FileSystem):
    def getattr(self, path, handle):
        return bickford.Attributes(stat.S_IFDIR | 0o755)
    def readdir(self, path, handle):
        asked.set()
        return open({str(go)!r}).read().split()
bickford.mount(Root(), {str(self.mount)!r})
print(flush=True)
asked.wait()
sys.exit(3)
""")
        running = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(running.kill)
        running.stdout.readline()
        asks = subprocess.Popen(["ls", self.mount], stderr=subprocess.DEVNULL)
        said = running.stderr.readline()
        go.write_text("")
        _, rest = running.communicate()
        self.assertEqual((running.returncode, rest), (3, ""))
        self.assertIn(str(self.mount), said)
        self.assertNotEqual(asks.wait(), 0)

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
