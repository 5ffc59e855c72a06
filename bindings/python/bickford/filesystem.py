"""What a file system is."""

import threading
from dataclasses import dataclass
from typing import Optional

@dataclass
class Attributes:
    """Attributes of a file, named as those of `os.stat_result`, which can be given in their place."""

    st_mode: int
    st_size: int = 0
    st_nlink: int = 1
    st_uid: int = 0
    st_gid: int = 0
    st_ino: int = 0
    st_rdev: int = 0
    st_blocks: Optional[int] = None
    st_blksize: int = 4096
    st_atime_ns: int = 0
    st_mtime_ns: int = 0
    st_ctime_ns: int = 0

    def __post_init__(self):
        if self.st_blocks is None:
            self.st_blocks = (self.st_size + 511) // 512


@dataclass
class Statfs:
    """Size and use of a file system, named as those of `os.statvfs_result`, which can be given in its place."""

    f_blocks: int = 0
    f_bfree: int = 0
    f_bavail: int = 0
    f_files: int = 0
    f_ffree: int = 0
    f_bsize: int = 4096
    f_frsize: int = 4096
    f_namemax: int = 255


@dataclass(frozen=True)
class Caller:
    """Who makes a request."""

    uid: int
    gid: int
    pid: int
    umask: int


# Of each thread, who makes the request that it serves.
current = threading.local()


def caller():
    """The `Caller` of the request that the running method serves; LookupError elsewhere."""
    found = getattr(current, "caller", None)
    if found is None:
        raise LookupError("no request is being served by this thread")
    return found


def groups():
    """The groups of that caller, for a file system that checks permissions itself: the one for permissions first, then the
    supplementary ones. They are read from /proc each time. None where they cannot be known: the caller is in another pid
    namespace or has ended, or acts for somebody else just now, as a server of NFS does."""
    caller()
    return current.groups()


class FileSystem:
    """A file system over paths: override what it has. All paths begin with "/".

    `getattr` is needed; what is missing is answered by the library, mostly with ENOSYS. `handle` is what `open`, `create` or
    `opendir` returned for the open file, or None where the request comes with a path alone; `path` is None where an open file
    has no name any more.
    """

    #: Whether `mknod`, `mkdir` and `create` themselves take the caller's umask (`caller().umask`) off the mode. Otherwise the kernel
    #: has, also where a default ACL of the directory should take its place (acl(5)). Read of the class.
    applies_umask = False

    #: Whether ACLs (acl(5)), which are extended attributes, are kept: the kernel then checks permissions by them, as with the
    #: option `default_permissions`. Read of the class.
    keeps_acls = False

    def __init__(self, given=None):
        """`given` is what the command line asks for, where `run` makes it."""

    def getattr(self, path, handle):
        """`Attributes` or an `os.stat_result`; FileNotFoundError where there is no such file."""
        raise NotImplementedError

    def readlink(self, path):
        """What a symbolic link says."""
        raise NotImplementedError

    def symlink(self, path, target):
        raise NotImplementedError

    def mknod(self, path, mode, device):
        raise NotImplementedError

    def mkdir(self, path, mode):
        raise NotImplementedError

    def unlink(self, path):
        raise NotImplementedError

    def rmdir(self, path):
        raise NotImplementedError

    def rename(self, path, new, flags):
        """`flags` are those of renameat2(2)."""
        raise NotImplementedError

    def link(self, path, handle, new):
        raise NotImplementedError

    def chmod(self, path, handle, mode):
        raise NotImplementedError

    def chown(self, path, handle, uid, gid):
        """-1 for what stays."""
        raise NotImplementedError

    def truncate(self, path, handle, size):
        raise NotImplementedError

    def utimens(self, path, handle, accessed, modified):
        """Nanoseconds since 1970; None for what stays."""
        raise NotImplementedError

    def open(self, path, flags):
        """Anything that is to come as `handle` with what is done to the open file. There is no O_TRUNC: `truncate` comes.

        Where it is missing, the kernel keeps contents from one open to the next until size or modification time change.
        """
        raise NotImplementedError

    def create(self, path, mode, flags):
        """Makes a file and opens it. FileExistsError for a name that is there: who did not say O_EXCL then gets what is there, by `open`."""
        raise NotImplementedError

    def read(self, path, handle, offset, size):
        """At most `size` bytes; fewer only at the end of the file."""
        raise NotImplementedError

    def write(self, path, handle, offset, data):
        """How many bytes were written."""
        raise NotImplementedError

    def flush(self, path, handle):
        """A descriptor was closed; close(2) tells the error."""
        raise NotImplementedError

    def release(self, path, handle):
        """Nobody has the file open any more."""

    def fsync(self, path, handle, data_only):
        raise NotImplementedError

    def opendir(self, path, flags):
        raise NotImplementedError

    def readdir(self, path, handle):
        """All names but "." and "..": each a string, or a pair with its attributes."""
        raise NotImplementedError

    def releasedir(self, path, handle):
        """Nobody has the directory open any more."""

    def fsyncdir(self, path, handle, data_only):
        raise NotImplementedError

    def access(self, path, handle, mode):
        raise NotImplementedError

    def statfs(self, path, handle):
        """`Statfs` or an `os.statvfs_result`."""
        raise NotImplementedError

    def getxattr(self, path, handle, name):
        """The value; OSError with ENODATA where there is none."""
        raise NotImplementedError

    def setxattr(self, path, handle, name, value, flags):
        """Without `keeps_acls` refuse ACLs (`system.posix_acl_access`, `system.posix_acl_default`) with EOPNOTSUPP: the kernel
        checks the mode alone."""
        raise NotImplementedError

    def listxattr(self, path, handle):
        """The names."""
        raise NotImplementedError

    def removexattr(self, path, handle, name):
        raise NotImplementedError

    def fallocate(self, path, handle, offset, length, mode):
        raise NotImplementedError

    def lseek(self, path, handle, offset, whence):
        """`os.SEEK_DATA` and `os.SEEK_HOLE`."""
        raise NotImplementedError

    def destroy(self):
        """The session has ended; no call follows."""
