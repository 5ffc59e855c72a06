"""A file system with one file. As root:

    mkdir /tmp/hello && python3 hello.py /tmp/hello
    cat /tmp/hello/hello
    umount /tmp/hello
"""

import errno
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


if __name__ == "__main__":
    sys.exit(bickford.run(Hello, "hello", about="A file system with one file", options="ro"))
