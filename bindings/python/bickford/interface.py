"""The C interface (bickford.h) as ctypes has it."""

import ctypes
import functools
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int32,
    c_int64,
    c_uint32,
    c_uint64,
    c_void_p,
)

ABI_VERSION = 1

# BICKFORD_OP_*
OPERATIONS = {
    "getattr": 3,
    "readlink": 5,
    "symlink": 6,
    "mknod": 8,
    "mkdir": 9,
    "unlink": 10,
    "rmdir": 11,
    "rename": 12,
    "link": 13,
    "open": 14,
    "read": 15,
    "write": 16,
    "statfs": 17,
    "release": 18,
    "fsync": 20,
    "setxattr": 21,
    "getxattr": 22,
    "listxattr": 23,
    "removexattr": 24,
    "flush": 25,
    "opendir": 27,
    "readdir": 28,
    "releasedir": 29,
    "fsyncdir": 30,
    "access": 34,
    "create": 35,
    "destroy": 38,
    "fallocate": 43,
    "lseek": 46,
}
SETATTR = 4
# Those that know their file by its path alone.
BY_PATH = {"readlink", "open", "opendir", "unlink", "rmdir", "rename"}
NAMES = {number: name for name, number in OPERATIONS.items()} | {SETATTR: "setattr"}

# BICKFORD_HAS_*
HAS_HANDLE = 1 << 0
HAS_MODE = 1 << 1
HAS_UID = 1 << 2
HAS_GID = 1 << 3
HAS_SIZE = 1 << 4
HAS_ACCESSED = 1 << 5
HAS_ACCESSED_NOW = 1 << 6
HAS_MODIFIED = 1 << 7
HAS_MODIFIED_NOW = 1 << 8

# Of FUSE_INIT.
DONT_MASK = 1 << 6
POSIX_ACL = 1 << 20

ERROR_TIMEOUT = -13
UNMOUNT = {"normal": 0, "lazy": 1, "force": 2}
SECOND = 1_000_000_000


class Time(Structure):
    _fields_ = [("seconds", c_int64), ("nanoseconds", c_uint32), ("reserved", c_uint32)]

    def get(self):
        return self.seconds * SECOND + self.nanoseconds

    def set(self, nanoseconds):
        self.seconds, self.nanoseconds = divmod(nanoseconds, SECOND)


class Attr(Structure):
    _fields_ = [
        ("ino", c_uint64),
        ("size", c_uint64),
        ("blocks", c_uint64),
        ("accessed", Time),
        ("modified", Time),
        ("changed", Time),
        ("mode", c_uint32),
        ("links", c_uint32),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("rdev", c_uint32),
        ("block_size", c_uint32),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    ]

    def set(self, of):
        """From `Attributes` or an `os.stat_result`."""
        self.ino = of.st_ino
        self.size = of.st_size
        self.blocks = of.st_blocks
        self.accessed.set(of.st_atime_ns)
        self.modified.set(of.st_mtime_ns)
        self.changed.set(of.st_ctime_ns)
        self.mode = of.st_mode
        self.links = of.st_nlink
        self.uid = of.st_uid
        self.gid = of.st_gid
        self.rdev = encode_device(of.st_rdev)
        self.block_size = of.st_blksize


class Statfs(Structure):
    _fields_ = [
        ("blocks", c_uint64),
        ("blocks_free", c_uint64),
        ("available", c_uint64),
        ("files", c_uint64),
        ("files_free", c_uint64),
        ("block_size", c_uint32),
        ("name_max", c_uint32),
        ("fragment_size", c_uint32),
        ("reserved", c_uint32),
    ]


class Answer(Structure):
    _fields_ = [
        ("node", c_uint64),
        ("generation", c_uint64),
        ("entry_valid", c_uint64),
        ("attr_valid", c_uint64),
        ("attr", Attr),
        ("handle", c_uint64),
        ("open_flags", c_uint32),
        ("backing", c_int32),
        ("count", c_uint64),
        ("born", Time),
        ("has_born", c_uint32),
        ("lock_kind", c_uint32),
        ("lock_start", c_uint64),
        ("lock_end", c_uint64),
        ("lock_pid", c_uint32),
        ("reserved", c_uint32),
        ("statfs", Statfs),
        ("data", c_void_p),
        ("data_capacity", c_uint64),
        ("data_length", c_uint64),
    ]


class Config(Structure):
    _fields_ = [
        ("abi_version", c_uint32),
        ("workers", c_uint32),
        ("max_write", c_uint32),
        ("max_readahead", c_uint32),
        ("want", c_uint64),
        ("refuse", c_uint64),
    ]


class Request(Structure):
    _fields_ = [
        ("unique", c_uint64),
        ("operation", c_uint32),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("pid", c_uint32),
        ("node", c_uint64),
        ("handle", c_uint64),
        ("offset", c_uint64),
        ("size", c_uint64),
        ("node2", c_uint64),
        ("handle2", c_uint64),
        ("offset2", c_uint64),
        ("lock_owner", c_uint64),
        ("present", c_uint32),
        ("flags", c_uint32),
        ("flags2", c_uint32),
        ("mode", c_uint32),
        ("umask", c_uint32),
        ("rdev", c_uint32),
        ("new_uid", c_uint32),
        ("new_gid", c_uint32),
        ("accessed", Time),
        ("modified", Time),
        ("changed", Time),
        ("name", c_void_p),
        ("name_length", c_uint64),
        ("name2", c_void_p),
        ("name2_length", c_uint64),
        ("data", c_void_p),
        ("data_length", c_uint64),
        ("lock_start", c_uint64),
        ("lock_end", c_uint64),
        ("lock_kind", c_uint32),
        ("lock_pid", c_uint32),
        ("path", c_void_p),
        ("path_length", c_uint64),
        ("path2", c_void_p),
        ("path2_length", c_uint64),
    ]

    def text(self, field):
        """A path or name, as Python has those that are no UTF-8 (PEP 383); None where there is none."""
        at = getattr(self, field)
        return None if at is None else os.fsdecode(ctypes.string_at(at, getattr(self, field + "_length")))


Dispatch = CFUNCTYPE(c_int32, c_void_p, POINTER(Request), POINTER(Answer), c_void_p)


class Callbacks(Structure):
    _fields_ = [("user", c_void_p), ("operations", c_uint64), ("dispatch", Dispatch)]


class Flag(Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p), ("initial", c_char_p), ("help", c_char_p)]


class Invocation(Structure):
    _fields_ = [
        ("source", c_char_p),
        ("mountpoint", c_char_p),
        ("values", POINTER(c_char_p)),
        ("value_count", c_uint64),
        ("all_values", c_void_p),
    ]


Open = CFUNCTYPE(c_int32, c_void_p, POINTER(Invocation), c_void_p, c_uint64)
Begun = CFUNCTYPE(None, c_void_p, c_uint64)


class Program(Structure):
    _fields_ = [
        ("abi_version", c_uint32),
        ("source_is_path", c_uint32),
        ("name", c_char_p),
        ("version", c_char_p),
        ("about", c_char_p),
        ("source", c_char_p),
        ("options", c_char_p),
        ("flags", POINTER(Flag)),
        ("flag_count", c_uint64),
        ("open", Open),
        ("begun", Begun),
    ]


class Error(Exception):
    """What the library could not do, in its own words."""


def encode_device(device):
    major, minor = os.major(device), os.minor(device)
    return (minor & 0xFF) | (major & 0xFFF) << 8 | (minor & 0xFFF00) << 12


def decode_device(device):
    return os.makedev(device >> 8 & 0xFFF, device & 0xFF | device >> 12 & 0xFFF00)


@functools.cache
def load():
    name = os.environ.get("BICKFORD_LIBRARY") or f"libbickford_ffi.so.{ABI_VERSION}"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        text = f"{error}; install Bickford (make install), or set BICKFORD_LIBRARY to the path of libbickford_ffi.so"
        raise ImportError(text) from error
    library.bickford_abi_version.restype = c_uint32
    found = library.bickford_abi_version()
    if found != ABI_VERSION:
        raise ImportError(f"{name} has version {found} of the interface, this module is for {ABI_VERSION}")
    if not hasattr(library, "bickford_reply_groups"):
        raise ImportError(f"{name} is older than this module; install both of one version of Bickford")
    library.bickford_version.restype = c_char_p
    library.bickford_last_error.restype = c_char_p
    library.bickford_session_connection.restype = c_int64
    library.bickford_session_connection.argtypes = [c_uint64]
    library.bickford_session_wait.argtypes = [c_uint64, c_int64]
    library.bickford_session_unmount.argtypes = [c_uint64, c_uint32]
    library.bickford_session_close.argtypes = [c_uint64]
    library.bickford_reply_list.argtypes = [c_void_p, c_char_p, c_uint64, c_uint32, POINTER(Attr)]
    library.bickford_reply_groups.argtypes = [c_void_p, POINTER(c_uint32), c_uint64]
    library.bickford_mount_paths.argtypes = [
        c_char_p,
        c_char_p,
        POINTER(Config),
        POINTER(Callbacks),
        POINTER(c_uint64),
    ]
    library.bickford_program_run_paths.argtypes = [
        c_int32,
        POINTER(c_char_p),
        POINTER(Program),
        POINTER(Config),
        POINTER(Callbacks),
    ]
    library.bickford_log_line.argtypes = [c_uint32, c_char_p]
    return library


def groups_of(library, reply):
    """The groups of the caller of a request that is not answered; None where they are not known."""
    room = 32
    while True:
        groups = (c_uint32 * room)()
        count = library.bickford_reply_groups(reply, groups, room)
        if count <= room:
            return None if count < 0 else groups[:count]
        room = count


def last_error(library):
    return os.fsdecode(library.bickford_last_error() or b"")


def check(library, status):
    if status < 0:
        raise Error(last_error(library))
