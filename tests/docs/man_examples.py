#!/usr/bin/env python3
"""Runs the EXAMPLES of the manual pages: man_examples.py BUILD

Each page gets a folder, a shell, a STATE_DIRECTORY and the network that run_docs.py gives to pages.
What a page takes for granted (a server, a program of the reader's) is set up before; what does not
end by itself runs in the background, and `AFTER` uses it.
"""
import os
import sys
import tempfile

from pages import ROOT
from run_docs import Shell, Step, end_all, make_checkout, own_network

BEFORE = {
    "feroce-attach.1": ["truncate -s 64M image.raw", "feroce export data=memory:64M &"],
    "feroce-export.1": ["mount -t tmpfs tmpfs /srv"],
    "feroce-launch.1": ["cp build/examples/gas/gas_counter my_cluster_program"],
    "feroce-run.1": ["cp $(command -v ibv_devices) my_rdma_program"],
    "feroce-session.1": ["feroce export data=memory:16M &",
                         "build/tools/disk_load 1234 data 600 10.0.0.1 >load.txt &"],
}
ENDLESS = ("feroce export ", "feroce metrics --listen ", "feroce web ", "feroce top --view ",
           "feroce run -- ib_write_bw -d feroce_lo")
AFTER = {
    "feroce-export.1": ["feroce detach $(feroce attach --as nbd 10.0.0.1 data)"],
    "feroce-run.1": ["feroce run -- ib_write_bw -d feroce_lo 127.0.0.1", "wait",
                     "test -s /tmp/x.pcapng && rm /tmp/x.pcapng"],
    "feroce-session.1": ["feroce session show demo | grep -q 10.0.1.1"],
}
STATUS = {("feroce.7", "feroce explain"): 1}  # Nothing has failed there.


def examples(path):
    """The lines of code under EXAMPLES."""
    section, code, out = "", False, []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(".SH"):
            section = line[3:].strip()
        elif line in (".nf", ".fi"):
            code = line == ".nf"
        elif code and section == "EXAMPLES":
            out.append(line.replace("\\-", "-"))
    return out


def run(shell, page, command):
    background = command.startswith(ENDLESS) and not command.endswith(("&", "127.0.0.1"))
    step = Step(0, f"{command} &" if background else command, [])
    status, said = shell.run(step)
    if step.background:
        shell.settle(step, said)
    if status != STATUS.get((page, command), 0):
        sys.exit(f"{page}: {command}\nended with {status}:\n" + "\n".join(said))


def run_page(path, build):
    commands = examples(path)
    if not commands:
        return 0
    page = path.name
    with tempfile.TemporaryDirectory() as folder:
        make_checkout(folder, build)
        shell = Shell(folder, build)
        try:
            for command in [*BEFORE.get(page, []), *commands, *AFTER.get(page, [])]:
                run(shell, page, command)
        finally:
            shell.end()
            end_all()
    return len(commands)


def main():
    own_network()
    build = os.path.abspath(sys.argv[1])
    counts = {path.name: run_page(path, build) for path in sorted((ROOT / "docs/man").glob("*.?"))}
    known = {*BEFORE, *AFTER}
    if not known <= {name for name, count in counts.items() if count}:
        sys.exit(f"no examples were found in some of {sorted(known)}")
    print(f"{sum(counts.values())} examples of {sum(map(bool, counts.values()))} manual pages ran")


if __name__ == "__main__":
    main()
