#!/usr/bin/env python3
"""What pods ask for names in a cluster: cluster_dns.py ADDRESS.

Answers A questions by UDP at port 53 of that address for the names that it was told: a line of
stdin is NAME ADDRESS and adds one, NAME alone takes it away. Prints a line when it listens, and one
for each line that it has taken. No other name exists.
"""
import selectors
import socket
import struct
import sys

HEADER = struct.Struct("!HHHHHH")
ANSWER, NO_SUCH_NAME = 0x8180, 0x8183  # Of a resolver; with the flags of an answer.
A, IN = 1, 1


def question(query):
    """The name that is asked for, its type, and the bytes of the question."""
    labels, at = [], HEADER.size
    while query[at] != 0:
        labels.append(query[at + 1:at + 1 + query[at]].decode("ascii"))
        at += 1 + query[at]
    kind, _ = struct.unpack_from("!HH", query, at + 1)
    return ".".join(labels).lower(), kind, query[HEADER.size:at + 5]


def answer(query, names):
    name, kind, asked = question(query)
    number = HEADER.unpack_from(query)[0]
    if name not in names:
        return HEADER.pack(number, NO_SUCH_NAME, 1, 0, 0, 0) + asked
    if kind != A:
        return HEADER.pack(number, ANSWER, 1, 0, 0, 0) + asked
    record = struct.pack("!HHHIH", 0xC00C, A, IN, 1, 4) + socket.inet_aton(names[name])
    return HEADER.pack(number, ANSWER, 1, 1, 0, 0) + asked + record


def main():
    names = {}
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((sys.argv[1], 53))
    print("listens", flush=True)
    selector = selectors.DefaultSelector()
    selector.register(server, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is server:
                query, sender = server.recvfrom(512)
                try:
                    server.sendto(answer(query, names), sender)
                except (IndexError, struct.error, UnicodeDecodeError):
                    pass  # No question.
                continue
            words = sys.stdin.readline().split()
            if not words:
                return
            names.pop(words[0], None)
            if len(words) == 2:
                names[words[0]] = words[1]
            print("taken", flush=True)


if __name__ == "__main__":
    main()
