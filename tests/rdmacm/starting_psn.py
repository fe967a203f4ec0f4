#!/usr/bin/env python3
"""Checks in captures that each side begins to send at the PSN which the other side asked for.

starting_psn.py CAPTURE                        a capture of one rdma_cm connection
starting_psn.py --run ARGUMENTS of run_cm.py   captures the client of that pair
The Starting PSN of a REQ or REP is where its receiver begins, not its sender: two sides that both
take it the wrong way round understand each other and nobody else.
"""
import pathlib
import subprocess
import sys
import tempfile

FIELDS = ["ip.src", "ipv6.src", "ip.dst", "ipv6.dst", "infiniband.bth.opcode",
          "infiniband.bth.destqp", "infiniband.bth.psn",
          "infiniband.cm.req.localqpn", "infiniband.cm.req.startpsn",
          "infiniband.cm.rep.localqpn", "infiniband.cm.rep.startpsn"]
RESPONSES = range(0x0d, 0x13)
UD_SEND = 0x64


def read(path):
    """Queue pair to the PSN it asked for, and to the PSN of the first request that came for it.

    Numbers are unique in one machine only, so the owner's address is part of the key.
    """
    command = ["tshark", "-r", str(path), "-T", "fields", "-E", "separator=,",
               "-E", "occurrence=f"]
    for field in FIELDS:
        command += ["-e", field]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    asked, first = {}, {}
    for line in output.splitlines():
        words = line.split(",")
        source, destination = words[0] or words[1], words[2] or words[3]
        opcode, queue_pair, psn, *endpoints = [int(x, 0) if x else None for x in words[4:]]
        for qpn, start in (endpoints[0:2], endpoints[2:4]):
            if qpn is not None:
                asked[source, qpn] = start
        if opcode not in RESPONSES and opcode != UD_SEND:
            first.setdefault((destination, queue_pair), psn)
    return asked, first


def check(path):
    asked, first = read(path)
    if len(asked) != 2 or set(asked) != set(first):
        return [f"expected one connection with requests both ways: asked {asked}, sent {first}"]
    return [f"QP {key[1]:#x} asked for PSN {psn:#x}, but its peer began at {first[key]:#x}"
            for key, psn in asked.items() if first[key] != psn]


def capture(words):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "client.pcapng"
        script = pathlib.Path(__file__).with_name("run_cm.py")
        index = words.index("--client") + 1
        words[index] = f"env FEROCE_PCAP={path} {words[index]}"
        pair = subprocess.run([sys.executable, str(script), *words], check=False)
        return ["the pair failed"] if pair.returncode else check(path)


def main():
    if sys.argv[1] == "--run":
        problems = capture(sys.argv[2:])
    else:
        problems = check(sys.argv[1])
    print("\n".join(problems) or "each side began where the other asked it to")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
