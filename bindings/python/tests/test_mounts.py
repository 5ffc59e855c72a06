"""Mounts for real, as root. `BICKFORD_LIBRARY` names the library."""

import errno
import logging
import mmap
import os
import signal
import stat
import struct
import subprocess
import threading
import time
import unittest
from pathlib import Path

import bickford
from mounting import DEADLINE, SIZE, Mounted, Subject, mounted


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
        for name, number in (
            ("FileNotFoundError", errno.ENOENT),
            ("PermissionError", errno.EACCES),
            ("TimeoutError", errno.ETIMEDOUT),
            ("FileExistsError", errno.EEXIST),
        ):
            self.assertEqual(self.number(name, self.read), number, name)
        with self.assertLogs("bickford", logging.ERROR) as logs:
            for name in ("mistake", "exit", "long", "text", "numberless", "wordy", "huge"):
                self.assertEqual(self.number(name, self.read), errno.EIO, name)
            self.assertEqual(self.number("nothing", self.write), errno.EIO)
        self.assertEqual(len(logs.output), 8, logs.output)
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
        others = list(range(2000, 2040))
        groups = "--groups=" + ",".join(map(str, others))
        subprocess.run(["setpriv", "--reuid=1234", "--regid=1235", groups, "stat", self.mount], check=True,
                       stdout=subprocess.DEVNULL)
        asked = {(caller.uid, caller.gid) for caller in subject.callers}
        self.assertIn((1234, 1235), asked)
        self.assertIn([1235, *others], subject.groups)
        for ask in (bickford.caller, bickford.groups):
            with self.assertRaises(LookupError):
                ask()

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


def acl(*entries):
    """As an extended attribute: tag, permissions and id of each."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


class MirroredOnce(Mounted):
    def test_what_has_come_meanwhile_is_not_given_away(self):
        below = self.directory / "below"
        below.mkdir()
        self.example("mirror.py", "-o", "negative_timeout=60", below, self.mount)
        self.assertFalse((self.mount / "file").exists())
        (below / "file").write_bytes(b"another's")
        os.chown(below / "file", 12, 34)
        fd = os.open(self.mount / "file", os.O_CREAT | os.O_RDWR)
        self.assertEqual(os.read(fd, 20), b"another's")
        os.close(fd)
        self.assertEqual((below / "file").stat().st_uid, 12)
        self.assertFalse((self.mount / "other").exists())
        (below / "other").touch()
        with self.assertRaises(FileExistsError):
            os.open(self.mount / "other", os.O_CREAT | os.O_EXCL | os.O_RDWR)


    def test_what_cannot_be_given_to_its_caller_is_not_made(self):
        below = self.directory / "below"
        below.mkdir()
        below.chmod(0o777)
        before = ["setpriv", "--bounding-set", "-chown"]
        example = self.example("mirror.py", "-o", "allow_other", below, self.mount, before=before)
        for made in ("touch", "mkfifo", "mkdir", "ln -s target"):
            asked = subprocess.run(["sh", "-c", f"LC_ALL=C {made} new"], cwd=self.mount, user=1, group=1,
                                   stderr=subprocess.PIPE, text=True, check=False)
            self.assertIn("not permitted", asked.stderr, made)
            self.assertEqual(list(below.iterdir()), [], made)
        held = [os.readlink(file) for file in Path(f"/proc/{example.pid}/fd").iterdir()]
        self.assertFalse([name for name in held if str(below) in name])


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
            with self.assertRaises(OSError) as raised:
                os.lseek(file.fileno(), -5, os.SEEK_DATA)
            self.assertEqual(raised.exception.errno, errno.ENXIO)
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

    def test_a_directory_may_give_its_group(self):
        above, below = self.both("dir")
        below.mkdir()
        os.chown(below, -1, 12)
        os.chmod(below, 0o2777)
        make = "echo x > file; mkdir dir; mkfifo fifo; ln -s file link"
        subprocess.run(["setpriv", "--reuid=1234", "--regid=1235", "--clear-groups", "sh", "-c", make], check=True,
                       cwd=above)
        for name in ("file", "dir", "fifo", "link"):
            found = os.lstat(below / name)
            self.assertEqual((found.st_uid, found.st_gid), (1234, 12), name)
        self.assertTrue(os.stat(below / "dir").st_mode & stat.S_ISGID)

    def test_set_id_bits_stay_with_what_is_made(self):
        os.close(os.open(self.mount / "file", os.O_CREAT | os.O_WRONLY, 0o4755))
        os.mknod(self.mount / "node", stat.S_IFREG | 0o2755)
        for name, mode in (("file", 0o4755), ("node", 0o2755)):
            self.assertEqual(stat.S_IMODE(os.stat(self.below / name).st_mode), mode, name)

    def test_a_default_acl_takes_the_place_of_the_umask(self):
        # user::rwx, user:1234:rwx, group::rwx, mask::rwx, other::---
        given = acl((1, 7, -1), (2, 7, 1234), (4, 7, -1), (16, 7, -1), (32, 0, -1))
        os.setxattr(self.below, "system.posix_acl_default", given)
        make = "umask 027; echo x > file; mkdir dir; mkfifo fifo; ln -s file link"
        subprocess.run(["sh", "-c", make], check=True, cwd=self.mount)
        for name, mode in (("file", 0o660), ("dir", 0o770), ("fifo", 0o660)):
            self.assertEqual(stat.S_IMODE(os.lstat(self.below / name).st_mode), mode, name)

    def test_acls_are_obeyed(self):
        # user::rw-, user:1234:rw-, group::---, mask::rw-, other::---
        given = acl((1, 6, -1), (2, 6, 1234), (4, 0, -1), (16, 6, -1), (32, 0, -1))
        for name in ("above", "below"):
            (self.below / name).write_text("text")
            os.chown(self.below / name, -1, 1235)
            os.setxattr((self.mount if name == "above" else self.below) / name, "system.posix_acl_access", given)
            for place in self.both(name):
                for user, group, status in ((1234, 1236, 0), (1233, 1235, 1)):
                    as_user = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "cat", place]
                    ended = subprocess.run(as_user, capture_output=True, check=False)
                    self.assertEqual(ended.returncode, status, (place, user, ended.stderr))

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


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    unittest.main()
