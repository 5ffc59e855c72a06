"""Passes a directory through, each operation to the system call of its name. As root:

    python3 mirror.py SOURCE MOUNTPOINT
"""

import errno
import os
import stat
import sys

import bickford

# The kernel appends at the offset that it knows, and Python's buffers are not aligned.
LEFT_OUT = os.O_APPEND | os.O_DIRECT


class Mirror(bickford.FileSystem):
    applies_umask = True
    keeps_acls = True

    def __init__(self, given):
        os.scandir(given.source).close()  # says what is wrong with it
        self.source = os.path.realpath(given.source)
        # The caller's umask comes with each request.
        os.umask(0)

    def below(self, path):
        return self.source + path

    def at(self, path, handle):
        """What an open file is known by, whatever has become of its name."""
        return self.below(path) if handle is None else handle

    def masked(self, path, mode):
        """Without the caller's umask, unless the directory has a default ACL, which takes its place."""
        try:
            os.getxattr(os.path.dirname(self.below(path)), "system.posix_acl_default")
            return mode
        except OSError:
            return mode & ~bickford.caller().umask

    def getattr(self, path, handle):
        return os.lstat(self.below(path)) if handle is None else os.fstat(handle)

    def readlink(self, path):
        return os.readlink(self.below(path))

    def symlink(self, path, target):
        os.symlink(target, self.below(path))
        self.give(path, os.unlink)

    def mknod(self, path, mode, device):
        os.mknod(self.below(path), self.masked(path, mode), device)
        self.give(path, os.unlink)

    def mkdir(self, path, mode):
        os.mkdir(self.below(path), self.masked(path, mode))
        self.give(path, os.rmdir)

    def give(self, path, remove, handle=None):
        """What somebody made belongs to them, or is removed: who is told of an error finds nothing made."""
        try:
            self.own(path, handle)
        except OSError:
            remove(self.below(path))
            raise

    def own(self, path, handle):
        """But for the group where the directory gives its own."""
        caller, made = bickford.caller(), self.getattr(path, handle)
        inherits = os.stat(os.path.dirname(self.below(path))).st_mode & stat.S_ISGID
        self.chown(path, handle, caller.uid, -1 if inherits else caller.gid)
        if made.st_mode & (stat.S_ISUID | stat.S_ISGID):
            # The change of owner took them away.
            self.chmod(path, handle, stat.S_IMODE(made.st_mode))

    def unlink(self, path):
        os.unlink(self.below(path))

    def rmdir(self, path):
        os.rmdir(self.below(path))

    def rename(self, path, new, flags):
        if flags:
            # Python has no renameat2(2).
            raise OSError(errno.EINVAL, "flags of a rename")
        os.rename(self.below(path), self.below(new))

    def link(self, path, handle, new):
        if path is None:
            raise FileNotFoundError(errno.ENOENT, "no name is left")
        os.link(self.below(path), self.below(new), follow_symlinks=False)

    def chmod(self, path, handle, mode):
        os.chmod(self.at(path, handle), mode)

    def chown(self, path, handle, uid, gid):
        if handle is None:
            os.lchown(self.below(path), uid, gid)
        else:
            os.fchown(handle, uid, gid)

    def truncate(self, path, handle, size):
        os.truncate(self.at(path, handle), size)

    def utimens(self, path, handle, accessed, modified):
        found = self.getattr(path, handle)
        times = (
            found.st_atime_ns if accessed is None else accessed,
            found.st_mtime_ns if modified is None else modified,
        )
        if handle is None:
            os.utime(self.below(path), ns=times, follow_symlinks=False)
        else:
            os.utime(handle, ns=times)

    def open(self, path, flags):
        return os.open(self.below(path), flags & ~(LEFT_OUT | os.O_NOFOLLOW))

    def create(self, path, mode, flags):
        # What has come there meanwhile nobody has checked for the caller.
        flags = flags & ~LEFT_OUT | os.O_CREAT | os.O_EXCL
        handle = os.open(self.below(path), flags, self.masked(path, mode))
        try:
            self.give(path, os.unlink, handle)
        except OSError:
            os.close(handle)
            raise
        return handle

    def read(self, path, handle, offset, size):
        return os.pread(handle, size, offset)

    def write(self, path, handle, offset, data):
        return os.pwrite(handle, data, offset)

    def release(self, path, handle):
        os.close(handle)

    def fsync(self, path, handle, data_only):
        (os.fdatasync if data_only else os.fsync)(handle)

    def readdir(self, path, handle):
        with os.scandir(self.below(path)) as entries:
            for entry in entries:
                yield entry.name, entry.stat(follow_symlinks=False)

    def statfs(self, path, handle):
        return os.statvfs(self.at(path, handle))

    def getxattr(self, path, handle, name):
        return os.getxattr(self.at(path, handle), name, follow_symlinks=handle is not None)

    def setxattr(self, path, handle, name, value, flags):
        os.setxattr(self.at(path, handle), name, value, flags, follow_symlinks=handle is not None)

    def listxattr(self, path, handle):
        return os.listxattr(self.at(path, handle), follow_symlinks=handle is not None)

    def removexattr(self, path, handle, name):
        os.removexattr(self.at(path, handle), name, follow_symlinks=handle is not None)

    def fallocate(self, path, handle, offset, length, mode):
        if mode:
            # Python has posix_fallocate(3) alone.
            raise OSError(errno.EOPNOTSUPP, "a mode of fallocate")
        os.posix_fallocate(handle, offset, length)

    def lseek(self, path, handle, offset, whence):
        return os.lseek(handle, offset, whence)


if __name__ == "__main__":
    about = "A directory passed through"
    sys.exit(bickford.run(Mirror, "mirror", about=about, source="SOURCE", options="default_permissions"))
