#!/usr/bin/env python3
"""http.server on 127.0.0.1: http_server.py PORT FOLDER. Debian 12's librspreload does not know
accept4(), which Python calls: this server calls accept() instead. All else is Python's own."""
import ctypes
import functools
import http.server
import os
import socket
import sys

LIBC = ctypes.CDLL(None, use_errno=True)


class Server(http.server.ThreadingHTTPServer):
    def get_request(self):
        fd = LIBC.accept(self.fileno(), None, None)
        if fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fd), ("127.0.0.1", 0)


def main():
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[2])
    Server(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()


if __name__ == "__main__":
    main()
