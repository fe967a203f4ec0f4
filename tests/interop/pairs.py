"""Unmodified programs in pairs: a server on one side, a client on the other."""
import re
import time

from lab import ADDRESS, AFTERMATH_SECONDS, DEVICES, PAIR_SECONDS, other

# An emulated guest is scheduled away for longer than real hardware ever is: the programs get a
# QP timeout of 1 s (18) where they let one choose, and few iterations.
PERFTEST = "-u 18 -F -n {n} -m {mtu}"
BOTH = ("IPv4", "IPv6")
SIDES = ("feroce", "rxe")


class Program:
    """A program that meets itself: `verbs` ones agree over TCP, the others by rdma_cm."""

    def __init__(self, name, server, client=None, space=None, families=BOTH, clients=SIDES,
                 port=None, is_one_way=False):
        self.name = name
        self.server_form = server
        # The command without what differs from run to run.
        self.title = re.sub(r" -\w \{\w+\}", "", server)
        self.client_form = client
        self.space = space
        self.families = families
        self.clients = clients
        self.port = port
        # Neither acknowledged nor answered: only one side ever sends.
        self.is_one_way = is_one_way

    def commands(self, lab, server, family):
        """The server's command, the client's, and the port they meet at."""
        port = self.port or lab.next_port()
        address = ADDRESS[server][family]
        if self.client_form:
            words = {"address": address, "port": port, "format": family.lower().replace("v4", "")}
            return self.server_form.format(**words), self.client_form.format(**words), port
        gid = "-x" if self.server_form.startswith("ib_") else "-g"
        forms = {side: f"{self.server_form} -p {port} -d {DEVICES[side]} {gid} "
                       f"{lab.gids[side][family]}" for side in DEVICES}
        # The control connection is always IPv4.
        return forms[server], forms[other(server)] + " " + ADDRESS[server]["IPv4"], port


def cm(name, server, client, space="tcp", **more):
    return Program(name, server, client, space, **more)


def rsockets(name, command, **more):
    """rdma-core's rsockets are the peer."""
    return cm(name, command + " -b {address} -p {port}", command + " -s {address} -p {port}",
              **more)


def perftest_cm(name, command):
    """With -R, Debian's perftest resolves only IPv4 addresses. And it connects twice, where the
    client does not wait for the server to listen again: a server in the guest loses that race."""
    return cm(name, command + " -p {port}", command + " -p {port} {address}", families=("IPv4",),
              clients=("rxe",))


PROGRAMS = [
    Program("rc_pingpong", "ibv_rc_pingpong -n 20 -s 3001 -m 1024"),
    Program("rc_pingpong_4096", "ibv_rc_pingpong -n 20 -s 9001 -m 4096"),
    Program("uc_pingpong", "ibv_uc_pingpong -n 20 -s 3001 -m 1024"),
    Program("ud_pingpong", "ibv_ud_pingpong -n 20 -s 1000"),
    Program("srq_pingpong", "ibv_srq_pingpong -n 20 -s 3001 -m 1024 -q 4"),
    *[Program(f"{verb}_bw{suffix}", f"ib_{verb}_bw -s 16384 " + PERFTEST.format(n=20, mtu=mtu))
      for verb in ("send", "write", "read") for mtu, suffix in ((1024, ""), (4096, "_4096"))],
    *[Program(f"{verb}_lat", f"ib_{verb}_lat -s 64 " + PERFTEST.format(n=20, mtu=1024))
      for verb in ("send", "write", "read")],
    Program("atomic_bw", "ib_atomic_bw " + PERFTEST.format(n=20, mtu=1024)),
    Program("atomic_lat", "ib_atomic_lat -A CMP_AND_SWAP " + PERFTEST.format(n=20, mtu=1024)),
    Program("write_bw_uc", "ib_write_bw -c UC -s 3001 " + PERFTEST.format(n=5, mtu=1024),
            is_one_way=True),
    Program("send_bw_ud", "ib_send_bw -c UD -s 1000 " + PERFTEST.format(n=5, mtu=1024),
            is_one_way=True),
    cm("rping", "rping -s -V -C 20 -S 5000 -a {address} -p {port}",
       "rping -c -V -C 20 -S 5000 -a {address} -p {port}"),
    cm("ucmatose", "ucmatose -f {format} -b {address} -p {port} -c 3 -C 10 -S 3001",
       "ucmatose -f {format} -s {address} -p {port} -c 3 -C 10 -S 3001"),
    cm("udaddy", "udaddy -f {format} -b {address} -c 2 -C 10 -S 1000",
       "udaddy -f {format} -s {address} -c 2 -C 10 -S 1000", space="udp", port=7174),
    *[rsockets(f"rstream_{name}", f"rstream -C 20 -I 2 {words}")
      for name, words in (("64", "-S 64 -T v"), ("5000", "-S 5000 -T v"),
                          ("300000", "-S 300000 -C 3 -T v"), ("blocking", "-S 5000 -T b"),
                          ("nonblocking", "-S 5000 -T n"))],
    # rdma-core's rpoll tells of the server's end beside its last bytes, which rstream takes for a
    # failure: a slow client in the guest meets both at once.
    rsockets("rstream_async", "rstream -C 20 -I 2 -S 5000 -T a", clients=("feroce",)),
    rsockets("riostream", "riostream -C 10 -I 2 -S 5000 -T v"),
    rsockets("riostream_64", "riostream -C 10 -I 2 -S 64 -T b"),
    perftest_cm("send_bw_cm", "ib_send_bw -R -F -n 20 -s 16384"),
    perftest_cm("write_lat_cm", "ib_write_lat -R -F -n 20 -s 64"),
    perftest_cm("read_bw_cm", "ib_read_bw -R -F -n 20 -s 16384"),
    perftest_cm("atomic_lat_cm", "ib_atomic_lat -R -F -n 20"),
]


def run(lab, program, client, family):
    """Runs the pair; what went wrong, in words."""
    server = other(client)
    server_command, client_command, port = program.commands(lab, server, family)
    commands = {server: server_command, client: client_command}
    jobs = {server: lab.start(server, commands[server])}
    lab.wait_for_listener(server, port, jobs[server], program.space)
    jobs[client] = lab.start(client, commands[client])
    deadline = time.monotonic() + PAIR_SECONDS
    problems = []
    for side in (client, server):
        status, output = jobs[side].finish(max(2, deadline - time.monotonic()))
        if status != 0:
            problems.append(f"{side} ended with status {status}: {commands[side]}\n{output}")
            deadline = time.monotonic() + AFTERMATH_SECONDS
    return problems
