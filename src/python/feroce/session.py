"""Sessions: reads and writes that survive the loss of paths."""
import ctypes
import hashlib
import os
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple, Optional, Union

from . import _calls, _library
from ._closable import Closable

Data = Union[bytes, bytearray, memoryview]
# An address or name, or two: where to, and from which of this machine's addresses.
Path = Union[str, tuple[str, str]]
POLICIES = ("round-robin", "min-inflight", "min-latency", "fill-first")
DEFAULT_PORT = 1234


def lines_of(paths: Union[str, Sequence[Path]]) -> bytes:
    """Paths as the library takes them."""
    listed: list[Path] = [paths] if isinstance(paths, str) else list(paths)
    lines = []
    for path in listed:
        words = [path] if isinstance(path, str) else list(path)
        if not 1 <= len(words) <= 2 or any(not word or word.split() != [word] for word in words):
            raise ValueError(f"{path!r} is no path: an address, or a pair of two")
        lines.append(" ".join(words))
    if not lines:
        raise ValueError("there is no path to the server")
    return text("\n".join(lines))


def session_options(port: int, connections: int, policy: str, connect_timeout: float,
                    queue_if_no_path: float) -> _library.SessionOptions:
    if policy not in POLICIES:
        raise ValueError(f"the policies are {', '.join(POLICIES)}, not {policy}")
    within("port", port, 1, 65535)
    within("connections", connections, 0, 4095)
    return _library.SessionOptions(port, connections, POLICIES.index(policy),
                                   _calls.duration(connect_timeout),
                                   _calls.duration(queue_if_no_path))


class SessionInfo(NamedTuple):
    connected: bool     #: At least one path is up.
    max_io_size: int    #: Bytes of one request.
    queue_depth: int    #: Requests at a time; more wait.
    extended: bool      #: The server is Feroce's: failover repeats no request.


class Session(Closable):
    """A session with a server: Session("kv", ["10.0.0.1", "10.0.1.1"]). A server has one session of
    a name at a time. Any number of threads and tasks may use it at the same time. `timeout`, of the
    session for all of its requests or of one request, is in seconds; None: until the server
    answers, or no path came back in `queue_if_no_path`."""

    def __init__(self, name: str, paths: Union[str, Sequence[Path]], *, port: int = DEFAULT_PORT,
                 timeout: Optional[float] = None, connect_timeout: float = 5.0,
                 queue_if_no_path: float = 30.0, connections: int = 0,
                 policy: str = "min-inflight") -> None:
        arguments = self._prepare(name, paths, port, timeout, connect_timeout, queue_if_no_path,
                                  connections, policy)
        self._opened(_calls.call("session_open", None, *arguments))

    @classmethod
    async def open_async(cls, name: str, paths: Union[str, Sequence[Path]], *,
                         port: int = DEFAULT_PORT, timeout: Optional[float] = None,
                         connect_timeout: float = 5.0, queue_if_no_path: float = 30.0,
                         connections: int = 0, policy: str = "min-inflight") -> "Session":
        """As Session(...), awaited."""
        self = cls.__new__(cls)
        arguments = self._prepare(name, paths, port, timeout, connect_timeout, queue_if_no_path,
                                  connections, policy)
        self._opened(await _calls.call_async("session_open", None, *arguments))
        return self

    def _prepare(self, name: str, paths: Union[str, Sequence[Path]], port: int,
                 timeout: Optional[float], connect_timeout: float, queue_if_no_path: float,
                 connections: int, policy: str) -> tuple[object, ...]:
        self.name = name
        self.timeout = timeout
        options = session_options(port, connections, policy, connect_timeout, queue_if_no_path)
        return text(name), lines_of(paths), ctypes.byref(options)

    def _opened(self, outcome: _calls.Outcome) -> None:
        self._handle = _calls.Handle(outcome.made, "session")

    def _limit(self, timeout: Optional[float]) -> Optional[float]:
        return self.timeout if timeout is None else timeout

    def read(self, message: Data, size: int, *, timeout: Optional[float] = None) -> bytes:
        """Asks the server for up to `size` bytes; what the message means is the server's."""
        return _calls.call("session_read", self._limit(timeout), self._handle.get(),
                           _library.view(message), positive(size)).data

    async def read_async(self, message: Data, size: int, *,
                         timeout: Optional[float] = None) -> bytes:
        return (await _calls.call_async("session_read", self._limit(timeout), self._handle.get(),
                                        _library.view(message), positive(size))).data

    def write(self, message: Data, data: Data, *, timeout: Optional[float] = None) -> None:
        """Message and data reach the server's handler together, once."""
        _calls.call("session_write", self._limit(timeout), self._handle.get(),
                    _library.view(message), _library.view(data))

    async def write_async(self, message: Data, data: Data, *,
                          timeout: Optional[float] = None) -> None:
        await _calls.call_async("session_write", self._limit(timeout), self._handle.get(),
                                _library.view(message), _library.view(data))

    def add_path(self, path: Path) -> int:
        """One path more, which connects by itself; its number."""
        return _calls.call("session_add_path", None, self._handle.get(), lines_of([path])).value

    def info(self) -> SessionInfo:
        """As it is now."""
        data = _calls.call("session_look", None, self._handle.get()).data
        connected, size, depth, extended = struct.unpack("4Q", data)
        return SessionInfo(bool(connected), size, depth, bool(extended))


def positive(number: int) -> int:
    """As the library has sizes and offsets."""
    if not 0 <= number < 2**64:
        raise ValueError(f"{number} is no size or offset")
    return number


def within(what: str, number: int, least: int, most: int) -> int:
    """A number that the library has in fewer bits, which would cut it."""
    if not least <= number <= most:
        raise ValueError(f"{what} is from {least} to {most}, not {number}")
    return number


def text(name: str) -> bytes:
    """A name as the library has it: it ends at the first NUL."""
    if "\0" in name:
        raise ValueError(f"{name!r} has a NUL character in it")
    return name.encode()


def own_name(paths: bytes, port: int) -> str:
    """Of a session that has no name given, with the server of these lines of paths: two servers
    have two sessions."""
    server = hashlib.sha256(b"\n".join([*sorted(paths.split(b"\n")), b"%d" % port]))
    host = socket.gethostname().replace(".", "-")  # Names of sessions have no dots.
    return f"python-{host}-{os.getpid()}-{server.hexdigest()[:12]}"
