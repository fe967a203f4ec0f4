#!/usr/bin/env python3
"""Counts RoCEv2 packets inside of VXLAN on an interface: overlay_watch.py INTERFACE.

Says `ready`, counts until a line comes on standard input, and prints two numbers: packets whose
outer UDP header has no checksum, and packets whose outer UDP header has one.
"""
import select
import socket
import struct
import sys

ETH_P_ALL = 3
VXLAN, ROCE = 4789, 4791
ETHERNET, VXLAN_HEADER = 14, 8


def udp(packet, start):
    """(destination port, checksum, offset of the payload) of IPv4 with UDP; None of others."""
    if len(packet) < start + 28 or packet[start] >> 4 != 4:
        return None
    if packet[start + 9] != socket.IPPROTO_UDP:
        return None
    header = start + (packet[start] & 15) * 4
    _, port, _, checksum = struct.unpack_from("!HHHH", packet, header)
    return port, checksum, header + 8


def main():
    counts = [0, 0]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        wire.bind((sys.argv[1], 0))
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([wire, sys.stdin], [], [])
            if sys.stdin in readable:
                break
            packet = wire.recv(2048)
            outer = udp(packet, ETHERNET)
            if outer and outer[0] == VXLAN:
                inner = udp(packet, outer[2] + VXLAN_HEADER + ETHERNET)
                if inner and inner[0] == ROCE:
                    counts[outer[1] != 0] += 1
    print(*counts)


if __name__ == "__main__":
    main()
