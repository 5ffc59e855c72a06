"""A file system with one file. As root:

    mkdir /tmp/hello && python3 hello.py /tmp/hello &
    cat /tmp/hello/hello
    umount /tmp/hello
"""

import errno
import signal
import stat
import sys

import bickford

TEXT = b"Hello, world!\n"


class Hello(bickford.FileSystem):
    def getattr(self, path, handle):
        if path == "/":
            return bickford.Attributes(stat.S_IFDIR | 0o755, st_nlink=2)
        if path == "/hello":
            return bickford.Attributes(stat.S_IFREG | 0o644, len(TEXT))
        raise FileNotFoundError(errno.ENOENT, path)

    def readdir(self, path, handle):
        return ["hello"]

    def read(self, path, handle, offset, size):
        return TEXT[offset : offset + size]


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} MOUNTPOINT")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with bickford.mount(Hello(), sys.argv[1], "fsname=hello,ro") as session:
            session.wait()
    except bickford.Error as error:
        sys.exit(f"hello: {error}")
    except KeyboardInterrupt:
        pass  # and unmounted


main()
