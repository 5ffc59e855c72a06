"""Turns requests into calls of methods."""

import ctypes
import errno
import functools
import itertools
import logging
import os
import time
from ctypes import byref

from .filesystem import Caller, FileSystem, current
from .interface import (
    BY_PATH,
    DONT_MASK,
    HAS_ACCESSED,
    HAS_ACCESSED_NOW,
    HAS_GID,
    HAS_MODE,
    HAS_MODIFIED,
    HAS_MODIFIED_NOW,
    HAS_SIZE,
    HAS_UID,
    NAMES,
    OPERATIONS,
    POSIX_ACL,
    SETATTR,
    Attr,
    Dispatch,
    decode_device,
    groups_of,
    last_error,
)

_LOG = logging.getLogger("bickford")
# Of an OSError that was made without an errno.
_ERRNOS = {
    BlockingIOError: errno.EAGAIN,
    BrokenPipeError: errno.EPIPE,
    ChildProcessError: errno.ECHILD,
    ConnectionAbortedError: errno.ECONNABORTED,
    ConnectionRefusedError: errno.ECONNREFUSED,
    ConnectionResetError: errno.ECONNRESET,
    FileExistsError: errno.EEXIST,
    FileNotFoundError: errno.ENOENT,
    InterruptedError: errno.EINTR,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
    ProcessLookupError: errno.ESRCH,
    TimeoutError: errno.ETIMEDOUT,
}
# The kernel takes smaller ones only.
_NO_ERRNO = 512


def _errno(error):
    """The errno of an OSError, or None."""
    if isinstance(error.errno, int) and 0 < error.errno < _NO_ERRNO:
        return error.errno
    return next((number for kind, number in _ERRNOS.items() if isinstance(error, kind)), None)


class Handles:
    """Objects of open files, by number. Zero stands for None."""

    def __init__(self):
        self._numbers = itertools.count(1)
        self._objects = {}

    def add(self, handle):
        if handle is None:
            return 0
        number = next(self._numbers)
        self._objects[number] = handle
        return number

    def get(self, number):
        return self._objects.get(number)

    def take(self, number):
        return self._objects.pop(number, None)


class Server:
    """Turns requests into calls of a file system, or of one of a class that `serve` brings later."""

    def __init__(self, library, file_system):
        self._library = library
        self._class = file_system if isinstance(file_system, type) else type(file_system)
        self._fs = file_system
        self._handles = Handles()
        self.callback = Dispatch(self._dispatch)

    def operations(self):
        def overridden(name):
            return getattr(self._class, name, None) is not getattr(FileSystem, name)

        wanted = sum(1 << number for name, number in OPERATIONS.items() if overridden(name))
        if any(overridden(name) for name in ("chmod", "chown", "truncate", "utimens")):
            wanted |= 1 << SETATTR
        # Handles are forgotten with them.
        if overridden("open") or overridden("create"):
            wanted |= 1 << OPERATIONS["release"]
        if overridden("opendir"):
            wanted |= 1 << OPERATIONS["releasedir"]
        return wanted

    def wanted(self):
        """What the kernel is asked for."""
        umask = DONT_MASK if getattr(self._class, "applies_umask", False) else 0
        acls = POSIX_ACL if getattr(self._class, "keeps_acls", False) else 0
        return umask | acls

    def serve(self, file_system):
        self._fs = file_system

    def _dispatch(self, _user, request, answer, reply):
        request, answer = request.contents, answer.contents
        name = NAMES.get(request.operation)
        try:
            if request.path is None and name in BY_PATH:
                raise OSError(errno.ESTALE, "no name is left")
            current.caller = Caller(request.uid, request.gid, request.pid, request.umask)
            current.groups = functools.partial(groups_of, self._library, reply)
            getattr(self, "_" + name)(request, answer, reply)
            return 0
        except NotImplementedError:
            return errno.ENOSYS
        except BaseException as error:  # SystemExit, too, would end nothing but this call
            number = _errno(error) if isinstance(error, OSError) else None
            if number is None:
                _LOG.exception("%s of %s failed", name, request.text("path"))
            return number or errno.EIO
        finally:
            current.caller = None

    def _handle(self, request):
        return self._handles.get(request.handle)

    def _data(self, answer, data, most):
        data = bytes(data)
        if len(data) > min(most, answer.data_capacity):
            raise ValueError(f"{len(data)} bytes where at most {min(most, answer.data_capacity)} were asked for")
        ctypes.memmove(answer.data, data, len(data))
        answer.data_length = len(data)

    def _getattr(self, request, answer, _reply):
        answer.attr.set(self._fs.getattr(request.text("path"), self._handle(request)))

    def _setattr(self, request, _answer, _reply):
        path, handle, has = request.text("path"), self._handle(request), request.present
        if has & HAS_MODE:
            self._fs.chmod(path, handle, request.mode)
        if has & (HAS_UID | HAS_GID):
            uid = request.new_uid if has & HAS_UID else -1
            gid = request.new_gid if has & HAS_GID else -1
            self._fs.chown(path, handle, uid, gid)
        if has & HAS_SIZE:
            self._fs.truncate(path, handle, request.size)
        accessed = self._time(has, HAS_ACCESSED, HAS_ACCESSED_NOW, request.accessed)
        modified = self._time(has, HAS_MODIFIED, HAS_MODIFIED_NOW, request.modified)
        if accessed is not None or modified is not None:
            self._fs.utimens(path, handle, accessed, modified)

    @staticmethod
    def _time(has, given, now, value):
        if has & now:
            return time.time_ns()
        return value.get() if has & given else None

    def _readlink(self, request, answer, _reply):
        self._data(answer, os.fsencode(self._fs.readlink(request.text("path"))), answer.data_capacity)

    def _symlink(self, request, _answer, _reply):
        self._fs.symlink(request.text("path"), request.text("name2"))

    def _mknod(self, request, _answer, _reply):
        self._fs.mknod(request.text("path"), request.mode, decode_device(request.rdev))

    def _mkdir(self, request, _answer, _reply):
        self._fs.mkdir(request.text("path"), request.mode)

    def _unlink(self, request, _answer, _reply):
        self._fs.unlink(request.text("path"))

    def _rmdir(self, request, _answer, _reply):
        self._fs.rmdir(request.text("path"))

    def _rename(self, request, _answer, _reply):
        self._fs.rename(request.text("path"), request.text("path2"), request.flags)

    def _link(self, request, _answer, _reply):
        self._fs.link(request.text("path"), self._handle(request), request.text("path2"))

    def _open(self, request, answer, _reply):
        answer.handle = self._handles.add(self._fs.open(request.text("path"), request.flags))

    def _create(self, request, answer, _reply):
        created = self._fs.create(request.text("path"), request.mode, request.flags)
        answer.handle = self._handles.add(created)

    def _read(self, request, answer, _reply):
        data = self._fs.read(request.text("path"), self._handle(request), request.offset, request.size)
        self._data(answer, data, request.size)

    def _write(self, request, answer, _reply):
        data = ctypes.string_at(request.data, request.data_length)
        answer.count = self._fs.write(request.text("path"), self._handle(request), request.offset, data)

    def _flush(self, request, _answer, _reply):
        self._fs.flush(request.text("path"), self._handle(request))

    def _release(self, request, _answer, _reply):
        self._fs.release(request.text("path"), self._handles.take(request.handle))

    def _fsync(self, request, _answer, _reply):
        self._fs.fsync(request.text("path"), self._handle(request), bool(request.flags2 & 1))

    def _opendir(self, request, answer, _reply):
        answer.handle = self._handles.add(self._fs.opendir(request.text("path"), request.flags))

    def _readdir(self, request, _answer, reply):
        for entry in self._fs.readdir(request.text("path"), self._handle(request)):
            name, attributes = (entry, None) if isinstance(entry, (str, bytes)) else entry
            name, attr = os.fsencode(name), None
            if attributes is not None:
                attr = Attr()
                attr.set(attributes)
            mode = attr.mode if attr is not None else 0
            told = self._library.bickford_reply_list(reply, name, len(name), mode, attr and byref(attr))
            if told < 0:
                raise OSError(errno.EIO, last_error(self._library))

    def _releasedir(self, request, _answer, _reply):
        self._fs.releasedir(request.text("path"), self._handles.take(request.handle))

    def _fsyncdir(self, request, _answer, _reply):
        self._fs.fsyncdir(request.text("path"), self._handle(request), bool(request.flags2 & 1))

    def _access(self, request, _answer, _reply):
        self._fs.access(request.text("path"), self._handle(request), request.flags)

    def _statfs(self, request, answer, _reply):
        found, to = self._fs.statfs(request.text("path"), self._handle(request)), answer.statfs
        to.blocks, to.blocks_free, to.available = found.f_blocks, found.f_bfree, found.f_bavail
        to.files, to.files_free, to.name_max = found.f_files, found.f_ffree, found.f_namemax
        to.block_size, to.fragment_size = found.f_bsize, found.f_frsize

    def _getxattr(self, request, answer, _reply):
        value = self._fs.getxattr(request.text("path"), self._handle(request), request.text("name"))
        self._data(answer, value, answer.data_capacity)

    def _setxattr(self, request, _answer, _reply):
        path, handle, name = request.text("path"), self._handle(request), request.text("name")
        value = ctypes.string_at(request.data, request.data_length)
        self._fs.setxattr(path, handle, name, value, request.flags)

    def _listxattr(self, request, answer, _reply):
        names = self._fs.listxattr(request.text("path"), self._handle(request))
        self._data(answer, b"".join(os.fsencode(name) + b"\0" for name in names), answer.data_capacity)

    def _removexattr(self, request, _answer, _reply):
        self._fs.removexattr(request.text("path"), self._handle(request), request.text("name"))

    def _fallocate(self, request, _answer, _reply):
        handle = self._handle(request)
        self._fs.fallocate(request.text("path"), handle, request.offset, request.size, request.flags)

    def _lseek(self, request, answer, _reply):
        handle = self._handle(request)
        # Of a negative one lseek(2) is to say what is wrong.
        offset = ctypes.c_int64(request.offset).value
        answer.count = self._fs.lseek(request.text("path"), handle, offset, request.flags)

    def _destroy(self, _request, _answer, _reply):
        self._fs.destroy()
