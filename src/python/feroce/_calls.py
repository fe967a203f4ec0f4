"""How a call of the library is begun and waited for, by a thread or by an asyncio task.

The library owns all memory that a call uses, so a caller may leave at any time: a signal, a
cancelled task or the end of the interpreter leave nothing that could be written later."""
import asyncio
import atexit
import ctypes
import errno
import math
import os
import threading
import weakref
from typing import Callable, Optional  # Python 3.9.0 has no Optional of another Callable.

from . import _library

# How long a thread waits before Python looks whether there was a signal that came just before.
PATIENCE_MS = 500


class Error(OSError):
    """What failed: `errno` says what kind, `strerror` is the sentence: what failed, why, and what
    to do about it."""

    @property
    def code(self) -> int:
        """The errno."""
        return self.errno if self.errno is not None else errno.EIO


class Outcome:
    """What a call brought, copied from the library."""

    def __init__(self, result: _library.Result) -> None:
        self.value: int = result.value
        self.made: int = result.made
        self.data = _library.copy(result.data)


def nanoseconds(timeout: Optional[float]) -> int:
    """A limit as the library has it; None or infinity: none."""
    return -1 if timeout is None or timeout == math.inf else duration(timeout)


def duration(seconds: float) -> int:
    """In nanoseconds; infinity is longer than any program runs."""
    if not seconds >= 0:  # Nor is it "not a number".
        raise ValueError("a timeout is not negative")
    return int(min(seconds * 1e9, 2**62))


def outcome_of(call: int) -> Outcome:
    """Of a call that is done, which is released."""
    result = _library.Result()
    try:
        code = _library.library.feroce_call_result(call, ctypes.byref(result))
        if code:
            raise Error(code, "the call is of another process, or of one that ends")
        if result.code:
            raise Error(result.code, result.why.decode(errors="replace"))
        return Outcome(result)
    finally:
        _library.library.feroce_release(call)


def known(call: int) -> bool:
    """Whether the library still has it."""
    result = _library.Result()
    code: int = _library.library.feroce_call_result(call, ctypes.byref(result))
    return code != errno.EBADF


class Queue:
    """Where the library tells which calls are done. One a thread, and one an asyncio loop."""

    def __init__(self) -> None:
        self.handle = _library.library.feroce_queue_create()
        if not self.handle:
            raise Error(errno.EMFILE, "there is no descriptor left for a queue of calls")
        weakref.finalize(self, _library.library.feroce_release, self.handle)


class Waiter(Queue):
    """Of a thread. One call at a time."""

    def wait(self, call: int) -> None:
        while True:
            done = _library.library.feroce_queue_take(self.handle, PATIENCE_MS)
            if done == call:
                return
            if not done and not known(call):
                raise Error(errno.ESHUTDOWN, "feroce was shut down")
            # Another one was given up when it was just done.


class Courier(Queue):
    """Of an asyncio loop: its descriptor is readable when calls are done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.futures: "dict[int, asyncio.Future[None]]" = {}
        # Ours: the library's may be closed while the loop still has it.
        self.fd = os.dup(_library.library.feroce_queue_fd(self.handle))
        weakref.finalize(self, os.close, self.fd)
        loop.add_reader(self.fd, self.deliver)

    def deliver(self) -> None:
        while True:
            done = _library.library.feroce_queue_take(self.handle, 0)
            if not done:
                return
            future = self.futures.pop(done, None)
            if future is not None and not future.done():
                future.set_result(None)


_waiters = threading.local()
# A loop that has ended takes its courier with it.
_couriers: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Courier]" = \
    weakref.WeakKeyDictionary()


def _waiter() -> Waiter:
    waiter: Optional[Waiter] = getattr(_waiters, "own", None)
    if waiter is None:
        waiter = _waiters.own = Waiter()
    return waiter


def _courier() -> Courier:
    loop = asyncio.get_running_loop()
    courier = _couriers.get(loop)
    if courier is None:
        courier = _couriers[loop] = Courier(loop)
    return courier


def _begin(queue: Queue, name: str, timeout: Optional[float], arguments: tuple[object, ...]) -> int:
    function = getattr(_library.library, f"feroce_{name}")
    call: int = function(queue.handle, nanoseconds(timeout), *arguments)
    if not call:
        raise Error(errno.EBADF, "feroce was shut down")
    return call


Undo = Optional[Callable[[Outcome], None]]


def _give_up(call: int, undo: Undo) -> None:
    """What the call brings is undone: by the library, or here if it was just done."""
    if _library.library.feroce_call_cancel(call):
        _library.library.feroce_release(call)
        return
    try:
        outcome = outcome_of(call)
    except Error:
        return  # It brought nothing.
    if outcome.made:
        _library.library.feroce_release(outcome.made)
    if undo is not None:
        undo(outcome)


def call(name: str, timeout: Optional[float], *arguments: object, undo: Undo = None) -> Outcome:
    """Begins a call and waits for it. Other threads run meanwhile, and signals end it."""
    waiter = _waiter()
    number = _begin(waiter, name, timeout, arguments)
    try:
        waiter.wait(number)
    except BaseException:
        _give_up(number, undo)
        raise
    return outcome_of(number)


async def call_async(name: str, timeout: Optional[float], *arguments: object,
                     undo: Undo = None) -> Outcome:
    """Begins a call and awaits it. If the task is cancelled, so is the call."""
    courier = _courier()
    number = _begin(courier, name, timeout, arguments)
    future = asyncio.get_running_loop().create_future()
    courier.futures[number] = future
    try:
        await future
    except BaseException:
        courier.futures.pop(number, None)
        _give_up(number, undo)
        raise
    return outcome_of(number)


def begin_quietly(name: str, *arguments: object) -> None:
    """A call that nobody waits for."""
    try:
        _library.library.feroce_release(_begin(_waiter(), name, None, arguments))
    except Error:
        return


class Handle:
    """Something open, as the library names it. Ends with its object, or by close()."""

    def __init__(self, number: int, what: str) -> None:
        self.number = number
        self.what = what
        self._release = weakref.finalize(self, _library.library.feroce_release, number)

    def get(self) -> int:
        if not self._release.alive:
            raise Error(errno.EBADF, f"the {self.what} is closed")
        return self.number

    @property
    def closed(self) -> bool:
        return not self._release.alive

    def release(self) -> None:
        self._release()


def _after_fork() -> None:
    """A child has no threads of the library: its objects are new ones."""
    _waiters.__dict__.clear()
    _couriers.clear()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_library.library.feroce_shutdown)
