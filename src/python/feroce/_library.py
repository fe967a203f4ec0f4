"""libferoce_python.so by ctypes: the functions of feroce_python.h, with their types. ctypes lets
the interpreter run while one of them does."""
import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from . import _place

NAME = "libferoce_python.so"


class Bytes(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("size", c_uint64)]
    kept: bytes  # Where it points to, of an argument.


class Result(ctypes.Structure):
    _fields_ = [("code", c_int32), ("reserved", c_int32), ("value", c_uint64), ("made", c_uint64),
                ("data", Bytes), ("why", c_char_p)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("port", c_uint16), ("connections", c_uint16), ("policy", c_uint32),
                ("connect_timeout", c_int64), ("queue_if_no_path", c_int64)]


class ServerOptions(ctypes.Structure):
    _fields_ = [("address", c_char_p), ("port", c_uint16), ("queue_depth", c_uint16),
                ("chunk_size", c_uint32)]


class ServerRequest(ctypes.Structure):
    _fields_ = [("is_read", c_uint32), ("reserved", c_uint32), ("message", Bytes), ("data", Bytes),
                ("session", c_char_p)]


class SpaceOptions(ctypes.Structure):
    _fields_ = [("rank", c_int32), ("size", c_uint16), ("port", c_uint16), ("seed", c_char_p),
                ("memory", c_uint64), ("patience", c_int64), ("silence", c_int64)]


# What a call that is begun has after its queue and its timeout.
CALLS: dict[str, list[Any]] = {
    "close": [c_uint64],
    "session_open": [c_char_p, c_char_p, POINTER(SessionOptions)],
    "session_read": [c_uint64, Bytes, c_uint64],
    "session_write": [c_uint64, Bytes, Bytes],
    "session_add_path": [c_uint64, c_char_p],
    "session_look": [c_uint64],
    "server_open": [POINTER(ServerOptions)],
    "disk_open": [c_char_p, c_char_p, c_char_p, c_int32, POINTER(SessionOptions)],
    "disk_read": [c_uint64, c_uint64, c_uint64],
    "disk_write": [c_uint64, c_uint64, Bytes, c_uint32],
    "disk_flush": [c_uint64],
    "disk_discard": [c_uint64, c_uint64, c_uint64],
    "disk_zero": [c_uint64, c_uint64, c_uint64, c_uint32],
    "disk_look": [c_uint64],
    "space_join": [POINTER(SpaceOptions)],
    "space_alloc": [c_uint64, c_uint32, c_uint64],
    "space_free": [c_uint64, c_uint64, c_uint64],
    "space_read": [c_uint64, c_uint64, c_uint64],
    "space_write": [c_uint64, c_uint64, Bytes],
    "space_compare_swap": [c_uint64, c_uint64, c_uint64, c_uint64],
    "space_fetch_add": [c_uint64, c_uint64, c_uint64],
    "space_publish": [c_uint64, c_char_p, c_uint64, c_uint64],
    "space_find": [c_uint64, c_char_p, c_uint64],
    "space_share": [c_uint64, c_char_p, c_uint64],
    "space_withdraw": [c_uint64, c_char_p],
    "space_barrier": [c_uint64],
    "lock_open": [c_uint64, c_char_p, c_uint32],
    "lock_acquire": [c_uint64, c_int32],
    "lock_release": [c_uint64],
    "lock_renew": [c_uint64],
    "map_open": [c_uint64, c_char_p, c_uint32, c_uint64],
    "map_get": [c_uint64, Bytes],
    "map_set": [c_uint64, c_uint32, Bytes, Bytes, Bytes],
    "map_erase": [c_uint64, Bytes],
    "map_items": [c_uint64],
}
OTHERS: dict[str, tuple[Any, list[Any]]] = {
    "python_version": (c_char_p, []),
    "queue_create": (c_uint64, []),
    "queue_fd": (c_int32, [c_uint64]),
    "queue_take": (c_uint64, [c_uint64, c_int32]),
    "call_result": (c_int32, [c_uint64, POINTER(Result)]),
    "call_cancel": (c_int32, [c_uint64]),
    "release": (None, [c_uint64]),
    "shutdown": (None, []),
    "server_take": (c_uint64, [c_uint64, c_int32, POINTER(ServerRequest), POINTER(c_int32)]),
    "server_stop": (None, [c_uint64]),
    "server_answer": (c_int32, [c_uint64, c_int32, c_char_p, Bytes]),
}


def _load() -> ctypes.CDLL:
    own = _place.libraries() / NAME
    try:
        library = ctypes.CDLL(str(own) if own.exists() else NAME)
    except OSError as error:
        raise ImportError(f"the library of feroce cannot be loaded: {error}; "
                          "install the wheel, or start Python by `feroce run`") from error
    for name, more in CALLS.items():
        function = getattr(library, f"feroce_{name}")
        function.restype = c_uint64
        function.argtypes = [c_uint64, c_int64, *more]
    for name, (restype, argtypes) in OTHERS.items():
        function = getattr(library, f"feroce_{name}")
        function.restype = restype
        function.argtypes = argtypes
    version = library.feroce_python_version().decode()
    if version != _place.__version__:
        raise ImportError(f"the package feroce is of version {_place.__version__} and its library "
                          f"of {version}; install both together")
    return library


library = _load()


def bytes_of(data: "bytes | bytearray | memoryview") -> bytes:
    """Of what holds bytes. A number, a list or a text does not: TypeError."""
    return data if isinstance(data, bytes) else bytes(memoryview(data))


def view(data: "bytes | bytearray | memoryview") -> Bytes:
    """As an argument. It keeps the bytes until the function has copied them."""
    kept = bytes_of(data)
    out = Bytes(ctypes.cast(c_char_p(kept), c_void_p), len(kept))
    out.kept = kept
    return out


def copy(data: Bytes) -> bytes:
    return ctypes.string_at(data.data, data.size) if data.size else b""
