"""The global address space: memory of many machines, with atomics, locks and hash maps."""
import ctypes
import dataclasses
import errno
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Optional

from . import _calls, _library
from .session import Data, positive, text, within

ADDRESS_BITS = 48
WORD = 2**64
PUT, INSERT, REPLACE, ADD = range(4)
BYTES_MAP, INTEGER_MAP = range(2)
KINDS = ("alock", "fair", "lease", "spin", "ticket")


@dataclasses.dataclass(frozen=True, order=True)
class Pointer:
    """Where something is in the memory of the cluster. `pointer + 8` is eight bytes further on."""

    bits: int

    def __post_init__(self) -> None:
        if not 0 <= self.bits < WORD:
            raise ValueError(f"{self.bits} is no pointer: it has 64 bits")

    @property
    def node(self) -> int:
        return self.bits >> ADDRESS_BITS

    def __add__(self, offset: int) -> "Pointer":
        address = (self.bits + offset) % 2**ADDRESS_BITS
        return Pointer(self.node << ADDRESS_BITS | address)

    def __bool__(self) -> bool:
        return self.bits != 0


def _number(value: int) -> bytes:
    """As the library has numbers; negative ones as C++ casts them."""
    if not -WORD // 2 <= value < WORD:
        raise ValueError(f"{value} has more than 64 bits")
    return struct.pack("Q", value % WORD)


def _word(value: int) -> int:
    return int(struct.unpack("Q", _number(value))[0])


def _join_options(rank: Optional[int], size: Optional[int], seed: str, port: int, memory: int,
                  patience: float, silence: float) -> _library.SpaceOptions:
    if (rank is None) != (size is None):
        raise ValueError("rank and size are both given, or both left to the environment")
    if rank is not None and size is not None and not 0 <= rank < size < 65536:
        raise ValueError("a rank is less than the number of nodes")
    return _library.SpaceOptions(-1 if rank is None else rank, size or 0,
                                 within("port", port, 1, 65535), text(seed), positive(memory),
                                 _calls.duration(patience), _calls.duration(silence))


def join(*, rank: Optional[int] = None, size: Optional[int] = None, seed: str = "",
         port: int = 7474, memory: int = 16 << 20, patience: float = 30.0,
         silence: float = 4.0) -> "AddressSpace":
    """Joins the cluster: returns when all nodes have. Without rank and size these and the seed, the
    address of rank 0, come from the environment: `feroce launch`, mpirun, srun, torchrun. `memory`
    is what this node shares. `patience`: how long it waits for the others, and for a name.
    `silence`: after how long a node that does not answer is lost."""
    options = _join_options(rank, size, seed, port, memory, patience, silence)
    return AddressSpace(_calls.call("space_join", None, ctypes.byref(options)))


async def join_async(*, rank: Optional[int] = None, size: Optional[int] = None, seed: str = "",
                     port: int = 7474, memory: int = 16 << 20, patience: float = 30.0,
                     silence: float = 4.0) -> "AddressSpace":
    """As join(), awaited."""
    options = _join_options(rank, size, seed, port, memory, patience, silence)
    return AddressSpace(await _calls.call_async("space_join", None, ctypes.byref(options)))


class AddressSpace:
    """This process in its cluster. Any number of threads and tasks may use it at the same time.

    Names and barriers take their turns: one that is given up (Ctrl-C, a cancelled task) goes on
    until it has ended, and the next ones wait for it."""

    def __init__(self, joined: _calls.Outcome) -> None:
        """What join() has."""
        self._handle = _calls.Handle(joined.made, "address space")
        self.rank: int = joined.value >> 16
        self.size: int = joined.value & 0xffff

    # Memory.

    def alloc(self, size: int, *, node: Optional[int] = None,
              timeout: Optional[float] = None) -> Pointer:
        """Zeroed memory of this node or another."""
        return Pointer(_calls.call("space_alloc", timeout, self._handle.get(), self._on(node),
                                   positive(size), undo=self._undo_alloc(size)).value)

    async def alloc_async(self, size: int, *, node: Optional[int] = None,
                          timeout: Optional[float] = None) -> Pointer:
        return Pointer((await _calls.call_async("space_alloc", timeout, self._handle.get(),
                                                self._on(node), positive(size),
                                                undo=self._undo_alloc(size))).value)

    def free(self, pointer: Pointer, size: int, *, timeout: Optional[float] = None) -> None:
        """Gives memory back; the size is that of alloc()."""
        _calls.call("space_free", timeout, self._handle.get(), pointer.bits, positive(size))

    async def free_async(self, pointer: Pointer, size: int, *,
                         timeout: Optional[float] = None) -> None:
        await _calls.call_async("space_free", timeout, self._handle.get(), pointer.bits,
                                positive(size))

    def read(self, pointer: Pointer, size: int, *, timeout: Optional[float] = None) -> bytes:
        """One round trip. What a writer changes meanwhile may be seen in part."""
        return _calls.call("space_read", timeout, self._handle.get(), pointer.bits,
                           positive(size)).data

    async def read_async(self, pointer: Pointer, size: int, *,
                         timeout: Optional[float] = None) -> bytes:
        return (await _calls.call_async("space_read", timeout, self._handle.get(), pointer.bits,
                                        positive(size))).data

    def write(self, pointer: Pointer, data: Data, *, timeout: Optional[float] = None) -> None:
        """One round trip."""
        _calls.call("space_write", timeout, self._handle.get(), pointer.bits,
                    _library.view(data))

    async def write_async(self, pointer: Pointer, data: Data, *,
                          timeout: Optional[float] = None) -> None:
        await _calls.call_async("space_write", timeout, self._handle.get(), pointer.bits,
                                _library.view(data))

    def compare_swap(self, word: Pointer, expected: int, desired: int, *,
                     timeout: Optional[float] = None) -> int:
        """Replaces 8 aligned bytes if they are `expected`; gives what was there."""
        return _calls.call("space_compare_swap", timeout, self._handle.get(), word.bits,
                           _word(expected), _word(desired)).value

    async def compare_swap_async(self, word: Pointer, expected: int, desired: int, *,
                                 timeout: Optional[float] = None) -> int:
        return (await _calls.call_async("space_compare_swap", timeout, self._handle.get(),
                                        word.bits, _word(expected), _word(desired))).value

    def fetch_add(self, word: Pointer, amount: int, *, timeout: Optional[float] = None) -> int:
        """Adds to 8 aligned bytes, modulo 2**64; gives what was there."""
        return _calls.call("space_fetch_add", timeout, self._handle.get(), word.bits,
                           _word(amount)).value

    async def fetch_add_async(self, word: Pointer, amount: int, *,
                              timeout: Optional[float] = None) -> int:
        return (await _calls.call_async("space_fetch_add", timeout, self._handle.get(), word.bits,
                                        _word(amount))).value

    # Names and barriers.

    def publish(self, name: str, pointer: Pointer, size: int) -> None:
        """Gives memory a name that all nodes find it by. EEXIST: it is taken."""
        _calls.call("space_publish", None, self._handle.get(), text(name), pointer.bits,
                    positive(size))

    async def publish_async(self, name: str, pointer: Pointer, size: int) -> None:
        await _calls.call_async("space_publish", None, self._handle.get(), text(name),
                                pointer.bits, positive(size))

    def find(self, name: str, size: int) -> Pointer:
        """Waits until somebody has published it, with that size."""
        return Pointer(_calls.call("space_find", None, self._handle.get(), text(name),
                                   positive(size)).value)

    async def find_async(self, name: str, size: int) -> Pointer:
        return Pointer((await _calls.call_async("space_find", None, self._handle.get(),
                                                text(name), positive(size))).value)

    def share(self, name: str, size: int) -> Pointer:
        """Memory of that name for all: the first node that lives makes it, zeroed, the others find
        it."""
        return Pointer(_calls.call("space_share", None, self._handle.get(), text(name),
                                   positive(size)).value)

    async def share_async(self, name: str, size: int) -> Pointer:
        return Pointer((await _calls.call_async("space_share", None, self._handle.get(),
                                                text(name), positive(size))).value)

    def withdraw(self, name: str) -> None:
        """Frees a name, not the memory."""
        _calls.call("space_withdraw", None, self._handle.get(), text(name))

    def barrier(self) -> None:
        """Returns when all nodes that live have called it. Fails if one was lost meanwhile."""
        _calls.call("space_barrier", None, self._handle.get())

    async def barrier_async(self) -> None:
        await _calls.call_async("space_barrier", None, self._handle.get())

    # What is made of memory.

    def lock(self, name: str, *, kind: str = "alock") -> "Lock":
        """A lock of that name for all, of the same kind everywhere. "lease" survives its holder."""
        if kind not in KINDS:
            raise ValueError(f"the kinds of locks are {', '.join(KINDS)}, not {kind}")
        outcome = _calls.call("lock_open", None, self._handle.get(), text(name),
                              KINDS.index(kind))
        return Lock(outcome.made, name)

    def map(self, name: str, *, buckets: int = 1024) -> "HashMap":
        """A map of that name for all: keys of up to 56 bytes, values of up to 120. It has so many
        buckets on each node, of four entries; full ones are continued elsewhere, which costs round
        trips."""
        outcome = _calls.call("map_open", None, self._handle.get(), text(name), BYTES_MAP,
                              positive(buckets))
        return HashMap(outcome.made)

    def int_map(self, name: str, *, buckets: int = 1024) -> "IntMap":
        """The same for numbers of 64 bits."""
        outcome = _calls.call("map_open", None, self._handle.get(), text(name), INTEGER_MAP,
                              positive(buckets))
        return IntMap(outcome.made)

    # The end.

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def leave(self) -> None:
        """A last barrier; then the others go on without this node, as agreed."""
        try:
            _calls.call("close", None, self._handle.get())
        finally:
            self._handle.release()

    async def leave_async(self) -> None:
        try:
            await _calls.call_async("close", None, self._handle.get())
        finally:
            self._handle.release()

    def abandon(self) -> None:
        """Ends at once: the others see this node as lost."""
        self._handle.release()

    def __enter__(self) -> "AddressSpace":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        """Leaves. After an exception it does not wait for the others: it is lost for them."""
        if self.closed:
            return
        if kind is None:
            self.leave()
        else:
            self.abandon()

    def _on(self, node: Optional[int]) -> int:
        if node is None:
            return self.rank
        if not 0 <= node < self.size:
            raise ValueError(f"there is no node {node}: the cluster has {self.size}")
        return node

    def _undo_alloc(self, size: int) -> _calls.Undo:
        space = self._handle.get()
        return lambda outcome: _calls.begin_quietly("space_free", space, outcome.value, size)


class Lock:
    """A lock of the cluster, by `with`, `async with`, or acquire() and release(). An object holds
    its lock at most once: each thread or task has one of its own, by AddressSpace.lock(). One that
    is forgotten while it is held is released."""

    def __init__(self, handle: int, name: str) -> None:
        """What AddressSpace.lock() makes."""
        self._handle = _calls.Handle(handle, "lock")
        self.name = name
        self.token = 0  #: Of a lease that is held: larger than that of every holder before.

    def acquire(self, *, blocking: bool = True, timeout: Optional[float] = None) -> bool:
        """False if it was not free: at once without `blocking`, else in time."""
        try:
            outcome = _calls.call("lock_acquire", timeout, self._handle.get(), int(blocking),
                                  undo=self._undo())
        except _calls.Error as error:
            return _not_in_time(error)
        self.token = outcome.value
        return outcome.value != 0

    async def acquire_async(self, *, blocking: bool = True,
                            timeout: Optional[float] = None) -> bool:
        try:
            outcome = await _calls.call_async("lock_acquire", timeout, self._handle.get(),
                                              int(blocking), undo=self._undo())
        except _calls.Error as error:
            return _not_in_time(error)
        self.token = outcome.value
        return outcome.value != 0

    def release(self) -> None:
        """ESTALE: the lease had ended, and another node has had the lock since."""
        self.token = 0
        _calls.call("lock_release", None, self._handle.get())

    async def release_async(self) -> None:
        self.token = 0
        await _calls.call_async("lock_release", None, self._handle.get())

    def renew(self) -> None:
        """Begins the time of a lease again."""
        _calls.call("lock_renew", None, self._handle.get())

    def __enter__(self) -> "Lock":
        self.acquire()
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.release()

    async def __aenter__(self) -> "Lock":
        await self.acquire_async()
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.release_async()

    def _undo(self) -> _calls.Undo:
        lock = self._handle.get()
        return lambda outcome: _calls.begin_quietly("lock_release", lock)


def _not_in_time(error: _calls.Error) -> bool:
    if error.errno == errno.ETIMEDOUT:
        return False
    raise error


class _Map:
    """What both maps have: calls with keys and values as the library has them."""

    def __init__(self, handle: int) -> None:
        """What AddressSpace.map() and int_map() make."""
        self._handle = _calls.Handle(handle, "map")

    def _get_arguments(self, key: Data) -> tuple[object, ...]:
        return self._handle.get(), _library.view(key)

    def _set_arguments(self, how: int, key: bytes, value: bytes,
                       expected: bytes = b"") -> tuple[object, ...]:
        return (self._handle.get(), how, _library.view(key), _library.view(value),
                _library.view(expected))

    def __bool__(self) -> bool:
        """That there is one: `if space_map` does not read it. Whether it is empty len() says."""
        return True

    def __len__(self) -> int:
        """Reads the whole map."""
        return _calls.call("map_items", None, self._handle.get()).value

    def _pairs(self, outcome: _calls.Outcome) -> Iterator[tuple[bytes, bytes]]:
        data, at = outcome.data, 0
        while at < len(data):
            left, right = struct.unpack_from("QQ", data, at)
            at += 16
            yield data[at:at + left], data[at + left:at + left + right]
            at += left + right


class HashMap(_Map):
    """Short bytes under short bytes. Every operation on a key is atomic."""

    def get(self, key: bytes, *, timeout: Optional[float] = None) -> Optional[bytes]:
        """None if the key is not there. One round trip."""
        outcome = _calls.call("map_get", timeout, *self._get_arguments(key))
        return outcome.data if outcome.value else None

    async def get_async(self, key: bytes, *, timeout: Optional[float] = None) -> Optional[bytes]:
        outcome = await _calls.call_async("map_get", timeout, *self._get_arguments(key))
        return outcome.data if outcome.value else None

    def put(self, key: bytes, value: bytes, *, timeout: Optional[float] = None) -> bool:
        """Sets the value; true if the key is new. Two round trips."""
        return _calls.call("map_set", timeout, *self._set_arguments(PUT, key, value)).value != 0

    async def put_async(self, key: bytes, value: bytes, *,
                        timeout: Optional[float] = None) -> bool:
        return (await _calls.call_async("map_set", timeout,
                                        *self._set_arguments(PUT, key, value))).value != 0

    def insert(self, key: bytes, value: bytes, *, timeout: Optional[float] = None) -> bool:
        """Sets the value of a new key; false if it is there, and stays as it is."""
        return _calls.call("map_set", timeout, *self._set_arguments(INSERT, key, value)).value != 0

    def replace(self, key: bytes, expected: bytes, value: bytes, *,
                timeout: Optional[float] = None) -> bool:
        """Sets the value if it is `expected` now."""
        return _calls.call("map_set", timeout,
                           *self._set_arguments(REPLACE, key, value, expected)).value != 0

    def erase(self, key: bytes, *, timeout: Optional[float] = None) -> bool:
        """True if it was there."""
        return _calls.call("map_erase", timeout, *self._get_arguments(key)).value != 0

    async def erase_async(self, key: bytes, *, timeout: Optional[float] = None) -> bool:
        outcome = await _calls.call_async("map_erase", timeout, *self._get_arguments(key))
        return outcome.value != 0

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries, each bucket as it was at one moment."""
        return self._pairs(_calls.call("map_items", None, self._handle.get()))


class IntMap(_Map):
    """Numbers of 64 bits under numbers: what HashMap<std::uint64_t, std::uint64_t> is in C++."""

    def get(self, key: int, *, timeout: Optional[float] = None) -> Optional[int]:
        outcome = _calls.call("map_get", timeout, *self._get_arguments(_number(key)))
        return _unpacked(outcome.data) if outcome.value else None

    async def get_async(self, key: int, *, timeout: Optional[float] = None) -> Optional[int]:
        outcome = await _calls.call_async("map_get", timeout, *self._get_arguments(_number(key)))
        return _unpacked(outcome.data) if outcome.value else None

    def put(self, key: int, value: int, *, timeout: Optional[float] = None) -> bool:
        """Sets the value; true if the key is new."""
        return _calls.call("map_set", timeout,
                           *self._set_arguments(PUT, _number(key), _number(value))).value != 0

    def add(self, key: int, amount: int, *, timeout: Optional[float] = None) -> int:
        """Adds to the value, 0 for a new key, modulo 2**64; gives the sum."""
        outcome = _calls.call("map_set", timeout,
                              *self._set_arguments(ADD, _number(key), _number(amount)))
        return _unpacked(outcome.data)

    async def add_async(self, key: int, amount: int, *, timeout: Optional[float] = None) -> int:
        outcome = await _calls.call_async("map_set", timeout,
                                          *self._set_arguments(ADD, _number(key), _number(amount)))
        return _unpacked(outcome.data)

    def erase(self, key: int, *, timeout: Optional[float] = None) -> bool:
        """True if it was there."""
        return _calls.call("map_erase", timeout, *self._get_arguments(_number(key))).value != 0

    def items(self) -> Iterator[tuple[int, int]]:
        for key, value in self._pairs(_calls.call("map_items", None, self._handle.get())):
            yield _unpacked(key), _unpacked(value)


def _unpacked(data: bytes) -> int:
    return int(struct.unpack("Q", data)[0])
