#!/usr/bin/env python3
"""What an rsocket tells when its peer is killed: an error or the end, and soon.

death.py --library DIR. In each case a second process connects, does its part, and is killed by
SIGKILL while the first one waits in a call. The call must end by itself.
"""
import argparse
import ctypes
import errno
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import sys

LIMIT = 60  # Seconds; a peer on the same machine is missed within a few.


def library(folder):
    return ctypes.CDLL(str(pathlib.Path(folder) / "librdmacm.so.1"), use_errno=True)


def address(port):
    return struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), socket.inet_aton("127.0.0.1"))


def checked(value, what):
    if value < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return value


class Poll(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


def victim(lib, port):
    fd = checked(lib.rsocket(socket.AF_INET, socket.SOCK_STREAM, 0), "rsocket")
    checked(lib.rconnect(fd, address(port), 16), "rconnect")
    checked(lib.rsend(fd, b"here", 4, 0), "rsend")
    print("connected", flush=True)
    sys.stdin.read()  # Until it is killed.


def in_receive(lib, fd):
    room = ctypes.create_string_buffer(100)
    return lib.rrecv(fd, room, 100, 0), ctypes.get_errno()


def in_send(lib, fd):
    data = b"x" * (1 << 22)  # More than the victim, which reads nothing, takes.
    got, code = 1, 0
    while got > 0:
        got, code = lib.rsend(fd, data, len(data), 0), ctypes.get_errno()
    return got, code


def in_poll(lib, fd):
    entry = Poll(fd, select.POLLIN, 0)
    checked(lib.rpoll(ctypes.byref(entry), 1, -1), "rpoll")
    if not entry.revents & (select.POLLHUP | select.POLLERR):
        raise AssertionError(f"rpoll tells of {entry.revents:#x}")
    return in_receive(lib, fd)


def case(lib, options, name, wait):
    listener = checked(lib.rsocket(socket.AF_INET, socket.SOCK_STREAM, 0), "rsocket")
    checked(lib.rbind(listener, address(0), 16), "rbind")
    checked(lib.rlisten(listener, 5), "rlisten")
    room, length = ctypes.create_string_buffer(16), ctypes.c_uint(16)
    checked(lib.rgetsockname(listener, room, ctypes.byref(length)), "rgetsockname")
    port = socket.ntohs(struct.unpack_from("=HH", room.raw)[1])
    peer = subprocess.Popen([sys.executable, __file__, "--library", options.library,
                             "--victim", str(port)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    try:
        fd = checked(lib.raccept(listener, None, None), "raccept")
        word = ctypes.create_string_buffer(4)
        assert lib.rrecv(fd, word, 4, 0x100) == 4 and word.raw == b"here"  # MSG_WAITALL
        assert peer.stdout.readline() == "connected\n"
        # Killed while the call waits: another process sees from the kernel that this one sleeps.
        asleep = f"until grep -q 'State:.S' /proc/{os.getpid()}/status; do :; done"
        killer = subprocess.Popen(["sh", "-c", f"{asleep}; kill -9 {peer.pid}"])
        got, code = wait(lib, fd)
        killer.wait()
    finally:
        peer.kill()
        peer.wait()
    print(f"{name}: {got} {errno.errorcode.get(code, code) if got < 0 else ''}")
    checked(lib.rclose(fd), "rclose")
    checked(lib.rclose(listener), "rclose")
    return got == 0 or (got < 0 and code == errno.ECONNRESET)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--victim", type=int)
    options = parser.parse_args()
    lib = library(options.library)
    for name in ("rsend", "rrecv"):
        getattr(lib, name).restype = ctypes.c_ssize_t
        getattr(lib, name).argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if options.victim is not None:
        return victim(lib, options.victim)
    signal.alarm(LIMIT)
    cases = {"rrecv": in_receive, "rsend": in_send, "rpoll": in_poll}
    good = [case(lib, options, name, wait) for name, wait in cases.items()]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
