"""What sessions and disks have in common: they are closed, by a call or at the end of a block."""
from types import TracebackType
from typing import Optional, TypeVar

from . import _calls

Own = TypeVar("Own", bound="Closable")


class Closable:
    """Something with a handle, which the library closes by a call."""
    _handle: _calls.Handle

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def close(self) -> None:
        """Ends requests in flight with ECANCELED, and tells the server. May be called again."""
        if not self._handle.closed:
            try:
                _calls.call("close", None, self._handle.get())
            finally:
                self._handle.release()

    async def close_async(self) -> None:
        if not self._handle.closed:
            try:
                await _calls.call_async("close", None, self._handle.get())
            finally:
                self._handle.release()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    async def __aenter__(self: Own) -> Own:
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.close_async()
