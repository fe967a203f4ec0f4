"""RDMA on any machine: sessions, disks and a global address space from Python, and the command
`feroce` for unmodified RDMA programs.

    import feroce

    with feroce.Session("kv", ["10.0.0.1"]) as session:
        session.write(b"key", b"value")
        print(session.read(b"key", 5))

Reads, writes and most other functions that wait have a form for asyncio: `await
session.read_async(...)`. Errors are
feroce.Error. docs/python.md tells the rest."""
from ._calls import Error
from ._place import __version__, command, folder, libraries, main
from .disk import Disk, DiskInfo
from .server import Request, Server
from .session import Session, SessionInfo
from .space import AddressSpace, HashMap, IntMap, Lock, Pointer, join, join_async

__all__ = ["AddressSpace", "Disk", "DiskInfo", "Error", "HashMap", "IntMap", "Lock", "Pointer",
           "Request", "Server", "Session", "SessionInfo", "__version__", "command", "folder",
           "join", "join_async", "libraries", "main"]
