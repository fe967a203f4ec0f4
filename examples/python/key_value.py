"""A server that keeps values under keys, and a client: key_value.py serve, key_value.py ADDRESS."""
import errno
import sys

import feroce

values: dict[bytes, bytes] = {}


def handle(request: feroce.Request) -> bytes:
    if not request.is_read:
        values[request.message] = request.data
        return b""
    if request.message not in values:
        raise feroce.Error(errno.ENOENT, "nobody has stored that key")
    return values[request.message]


def serve() -> None:
    with feroce.Server(handle) as server:
        print(f"port {server.port}", flush=True)
        server.serve_forever()


def ask(address: str) -> None:
    with feroce.Session("kv", [address]) as session:
        session.write(b"greeting", b"Hello from Python")
        print(session.read(b"greeting", 100).decode())
        try:
            session.read(b"nothing", 100)
        except feroce.Error as error:
            print(error.strerror)


if sys.argv[1] == "serve":
    serve()
else:
    ask(sys.argv[1])
