"""Disks of `feroce export`, or of the Linux kernel's rnbd-server."""
import ctypes
import struct
from collections.abc import Sequence
from typing import NamedTuple, Optional, Union

from . import _calls, _library
from ._closable import Closable
from .session import (DEFAULT_PORT, Data, Path, lines_of, own_name, positive, session_options,
                      text)

FUA, KEEP_SPACE = 1, 2


class DiskInfo(NamedTuple):
    size: int          #: Bytes.
    block_size: int    #: What offsets and sizes are multiples of.
    read_only: bool
    max_discard: int   #: Bytes of one discard; 0: the disk cannot.


class Disk(Closable):
    """A disk: Disk("10.0.0.1", "data"), or with several addresses for several paths. Open for
    writing, it is this program's alone. Disks of one server with the same session name share
    its paths: by default, those with the same addresses and port. EINVAL: the name is that of a
    session with another server. close() does not flush. Any number of threads and tasks may
    use it at the same time."""

    def __init__(self, paths: Union[str, Sequence[Path]], name: str, *, read_only: bool = False,
                 port: int = DEFAULT_PORT, session: Optional[str] = None,
                 timeout: Optional[float] = None, connect_timeout: float = 5.0,
                 queue_if_no_path: float = 30.0) -> None:
        arguments = self._prepare(paths, name, read_only, port, session, timeout, connect_timeout,
                                  queue_if_no_path)
        self._opened(_calls.call("disk_open", None, *arguments))

    @classmethod
    async def open_async(cls, paths: Union[str, Sequence[Path]], name: str, *,
                         read_only: bool = False, port: int = DEFAULT_PORT,
                         session: Optional[str] = None, timeout: Optional[float] = None,
                         connect_timeout: float = 5.0, queue_if_no_path: float = 30.0) -> "Disk":
        """As Disk(...), awaited."""
        self = cls.__new__(cls)
        arguments = self._prepare(paths, name, read_only, port, session, timeout, connect_timeout,
                                  queue_if_no_path)
        self._opened(await _calls.call_async("disk_open", None, *arguments))
        return self

    def _prepare(self, paths: Union[str, Sequence[Path]], name: str, read_only: bool, port: int,
                 session: Optional[str], timeout: Optional[float], connect_timeout: float,
                 queue_if_no_path: float) -> tuple[object, ...]:
        self.name = name
        self.timeout = timeout
        options = session_options(port, 0, "min-inflight", connect_timeout, queue_if_no_path)
        lines = lines_of(paths)
        return (text(session or own_name(lines, port)), lines, text(name), int(read_only),
                ctypes.byref(options))

    def _opened(self, outcome: _calls.Outcome) -> None:
        self._info = _info_of(outcome.data)
        self._handle = _calls.Handle(outcome.made, "disk")

    def _limit(self, timeout: Optional[float]) -> Optional[float]:
        return self.timeout if timeout is None else timeout

    @property
    def info(self) -> DiskInfo:
        """As it was when it was opened or last refreshed."""
        return self._info

    @property
    def size(self) -> int:
        """Bytes."""
        return self._info.size

    def read(self, offset: int, size: int, *, timeout: Optional[float] = None) -> bytes:
        """Whole blocks: offset and size are multiples of info.block_size."""
        return _calls.call("disk_read", self._limit(timeout), self._handle.get(), positive(offset),
                           positive(size)).data

    async def read_async(self, offset: int, size: int, *,
                         timeout: Optional[float] = None) -> bytes:
        return (await _calls.call_async("disk_read", self._limit(timeout), self._handle.get(),
                                        positive(offset), positive(size))).data

    def write(self, offset: int, data: Data, *, fua: bool = False,
              timeout: Optional[float] = None) -> None:
        """Durable after the next flush(), or at once with `fua`."""
        _calls.call("disk_write", self._limit(timeout), self._handle.get(), positive(offset),
                    _library.view(data), FUA if fua else 0)

    async def write_async(self, offset: int, data: Data, *, fua: bool = False,
                          timeout: Optional[float] = None) -> None:
        await _calls.call_async("disk_write", self._limit(timeout), self._handle.get(),
                                positive(offset), _library.view(data), FUA if fua else 0)

    def flush(self, *, timeout: Optional[float] = None) -> None:
        """What was written before it is durable."""
        _calls.call("disk_flush", self._limit(timeout), self._handle.get())

    async def flush_async(self, *, timeout: Optional[float] = None) -> None:
        await _calls.call_async("disk_flush", self._limit(timeout), self._handle.get())

    def discard(self, offset: int, size: int, *, timeout: Optional[float] = None) -> None:
        """The content is of no use any more."""
        _calls.call("disk_discard", self._limit(timeout), self._handle.get(), positive(offset),
                    positive(size))

    async def discard_async(self, offset: int, size: int, *,
                            timeout: Optional[float] = None) -> None:
        await _calls.call_async("disk_discard", self._limit(timeout), self._handle.get(),
                                positive(offset), positive(size))

    def zero(self, offset: int, size: int, *, keep_space: bool = False,
             timeout: Optional[float] = None) -> None:
        """Reads as zeroes from then on; the space may be given back, unless it is to be kept."""
        _calls.call("disk_zero", self._limit(timeout), self._handle.get(), positive(offset),
                    positive(size), KEEP_SPACE if keep_space else 0)

    async def zero_async(self, offset: int, size: int, *, keep_space: bool = False,
                         timeout: Optional[float] = None) -> None:
        await _calls.call_async("disk_zero", self._limit(timeout), self._handle.get(),
                                positive(offset), positive(size), KEEP_SPACE if keep_space else 0)

    def refresh(self, *, timeout: Optional[float] = None) -> DiskInfo:
        """Asks the server for the size again."""
        self._info = _info_of(
            _calls.call("disk_look", self._limit(timeout), self._handle.get()).data)
        return self._info


def _info_of(data: bytes) -> DiskInfo:
    size, block, read_only, discard = struct.unpack("4Q", data)
    return DiskInfo(size, block, bool(read_only), discard)
