"""The server's end of sessions: a function of Python answers requests of clients."""
import ctypes
import errno
import logging
import threading
from types import TracebackType
from typing import Callable, NamedTuple, Optional, Union

from . import _calls, _library
from .session import DEFAULT_PORT, text, within

PATIENCE_MS = 500
log = logging.getLogger("feroce")


class Request(NamedTuple):
    """What a client asks."""

    is_read: bool   #: Else it is a write, with data.
    message: bytes
    data: bytes     #: Of a write.
    size: int       #: How many bytes may answer a read, or have been written.
    session: str    #: As the client calls it.


Answer = Union[bytes, bytearray, memoryview, None]
Handler = Callable[[Request], Answer]


class Server:
    """Serves sessions: Server(handler, port=7480). The handler is called in one of `threads`
    threads, so it may wait; what it returns answers a read. What it raises fails the request: an
    OSError, as feroce.Error is one, with its errno and sentence, anything else (also SystemExit)
    with EIO, and the log has the trace. A request that failover repeats is not given to it
    again."""

    def __init__(self, handler: Handler, *, address: str = "", port: int = DEFAULT_PORT,
                 threads: int = 1, queue_depth: int = 512, chunk_size: int = 128 << 10) -> None:
        if threads < 1:
            raise ValueError("a server has at least one thread")
        options = _library.ServerOptions(text(address), within("port", port, 0, 65535),
                                         within("queue_depth", queue_depth, 1, 65535),
                                         within("chunk_size", chunk_size, 1, 2**32 - 1))
        outcome = _calls.call("server_open", None, ctypes.byref(options))
        self._handle = _calls.Handle(outcome.made, "server")
        self.port: int = outcome.value
        # Threads know the handler, not the server, which ends when nobody has it.
        self._threads = [threading.Thread(target=_serve, args=(outcome.made, handler), daemon=True,
                                          name=f"feroce server {i}") for i in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def close(self) -> None:
        """Takes nothing more in: requests that no handler has yet fail with ECANCELED. Handlers
        that run now are waited for, and answer their clients; then the sessions end."""
        if self._handle.closed:
            return
        try:
            _library.library.feroce_server_stop(self._handle.get())
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join()
            _calls.call("close", None, self._handle.get())
        finally:
            self._handle.release()

    def serve_forever(self) -> None:
        """Until close(), or a signal's exception such as KeyboardInterrupt."""
        for thread in self._threads:
            while thread.is_alive():
                thread.join(PATIENCE_MS / 1000)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()


def _serve(server: int, handler: Handler) -> None:
    """A thread's work, until the server is closed."""
    asked = _library.ServerRequest()
    closed = ctypes.c_int32()
    while True:
        number = _library.library.feroce_server_take(server, PATIENCE_MS, ctypes.byref(asked),
                                                     ctypes.byref(closed))
        if number:
            _answer(number, asked, handler)
        elif closed.value:
            return


def _request_of(asked: _library.ServerRequest) -> Request:
    is_read = bool(asked.is_read)
    return Request(is_read, _library.copy(asked.message),
                   b"" if is_read else _library.copy(asked.data), asked.data.size,
                   asked.session.decode(errors="replace"))


def _answer(number: int, asked: _library.ServerRequest, handler: Handler) -> None:
    """Never raises: the thread answers the next request whatever became of this one."""
    try:
        code, why, data = _ask(_request_of(asked), handler)
        # A C string, which ends at the first NUL.
        sentence = why.encode(errors="replace").replace(b"\0", b"?")
        _library.library.feroce_server_answer(number, code, sentence, _library.view(data))
    except BaseException:  # pylint: disable=broad-except
        log.exception("feroce: a request could not be answered")
    finally:
        _library.library.feroce_release(number)  # Not answered: the client is told EIO.


def _ask(request: Request, handler: Handler) -> tuple[int, str, bytes]:
    try:
        answer = handler(request)
        data = b"" if answer is None else _library.bytes_of(answer)
    except OSError as error:
        # Numbers of the wire are less than 512.
        known = error.errno is not None and 0 < error.errno < 512
        return (error.errno or 0) if known else errno.EIO, str(error.strerror or error), b""
    except BaseException as error:  # pylint: disable=broad-except
        log.exception("feroce: the handler of a server failed")
        return errno.EIO, f"{type(error).__name__}: {error}", b""
    if request.is_read and len(data) > request.size:
        log.error("feroce: a handler gave %d bytes for a read of %d", len(data), request.size)
        return errno.EMSGSIZE, f"the answer has {len(data)} bytes", b""
    return 0, "", data
