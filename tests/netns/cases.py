"""Which programs run across two namespaces, with what options, and which of them every day.

In commands {gid} is the GID index of the family, {server} and {client} the two addresses; rdma_cm
programs also get {port}.
"""
import dataclasses

BOTH = ("ipv4", "ipv6")


@dataclasses.dataclass
class Case:
    name: str
    kind: str  # alone, verbs (a TCP handshake of its own), connected (by rdma_cm)
    command: list = dataclasses.field(default_factory=list)  # alone and verbs
    expect: str = ""  # alone: what its output must have
    server: str = ""  # connected
    client: str = ""
    options: list = dataclasses.field(default_factory=list)  # connected: for run_cm.py
    families: tuple = BOTH
    everyday: tuple = ()  # the families of the everyday choice
    pairs: int = 1
    timeout: float = 120


def verbs(name, line, **more):
    return Case(name, "verbs", line.split(), **more)


def connected(name, server, client, **more):
    return Case(name, "connected", server=server, client=client, **more)


CASES = [
    Case("devices", "alone", ["ibv_devices"], "feroce_net0", families=("ipv4",),
         everyday=("ipv4",)),
    Case("devinfo", "alone", ["ibv_devinfo", "-v"], "PORT_ACTIVE", families=("ipv4",),
         everyday=("ipv4",)),
]

# ---- ibverbs-utils ----------------------------------------------------------------------------

for kind in ("rc", "uc", "ud", "srq"):
    CASES += [
        verbs(f"{kind}_pingpong", f"ibv_{kind}_pingpong -g {{gid}}", everyday=("ipv4",)),
        verbs(f"{kind}_pingpong_events", f"ibv_{kind}_pingpong -g {{gid}} -e", everyday=("ipv6",)),
    ]

# ---- perftest ---------------------------------------------------------------------------------

# All sizes up to 8 MiB, so few of each.
for operation in ("send", "write", "read"):
    CASES += [
        verbs(f"{operation}_bw_all", f"ib_{operation}_bw -x {{gid}} -a -n 20"),
        verbs(f"{operation}_lat_all", f"ib_{operation}_lat -x {{gid}} -a -n 5"),
    ]
# Atomics have one size.
for test in ("bw", "lat"):
    CASES.append(verbs(f"atomic_{test}", f"ib_atomic_{test} -x {{gid}} -n 1000",
                       everyday=("ipv4",)))
for operation in ("send", "write", "read", "atomic"):
    CASES += [
        verbs(f"{operation}_bw_16_qps", f"ib_{operation}_bw -x {{gid}} -q 16 -n 100",
              everyday=("ipv4",) if operation == "write" else ()),
        verbs(f"{operation}_bw_both_ways", f"ib_{operation}_bw -x {{gid}} -b -n 200",
              everyday=("ipv6",) if operation in ("send", "write") else ()),
        verbs(f"{operation}_bw_two_pairs", f"ib_{operation}_bw -x {{gid}} -n 200", pairs=2,
              everyday=("ipv4",) if operation == "read" else ()),
        verbs(f"{operation}_lat_two_pairs", f"ib_{operation}_lat -x {{gid}} -n 200", pairs=2),
    ]
CASES += [
    verbs("write_bw_16_qps_both_ways", "ib_write_bw -x {gid} -q 16 -b -n 100"),
]
for operation in ("send", "write"):
    # Without acknowledgements nothing but the receive buffer limits a sender: keep within it.
    CASES += [
        verbs(f"{operation}_bw_uc", f"ib_{operation}_bw -x {{gid}} -c UC -s 4096 -n 40",
              everyday=("ipv6",) if operation == "write" else ()),
        verbs(f"{operation}_lat_uc", f"ib_{operation}_lat -x {{gid}} -c UC -s 65536 -n 100"),
        verbs(f"{operation}_lat_inline", f"ib_{operation}_lat -x {{gid}} --inline_size=64 -n 200",
              everyday=("ipv6",) if operation == "send" else ()),
        verbs(f"{operation}_bw_inline", f"ib_{operation}_bw -x {{gid}} --inline_size=64 -s 64"),
    ]
CASES += [
    verbs("send_bw_ud", "ib_send_bw -x {gid} -c UD -n 200"),
    verbs("send_lat_ud", "ib_send_lat -x {gid} -c UD -n 100", everyday=("ipv4",)),
    verbs("send_lat_ud_all", "ib_send_lat -x {gid} -c UD -a -n 5"),
    verbs("send_bw_ud_16_qps", "ib_send_bw -x {gid} -c UD -q 16 -n 20 -s 1024"),
    verbs("send_lat_events", "ib_send_lat -x {gid} -e -n 200", everyday=("ipv4",)),
    verbs("write_lat_large_mtu", "ib_write_lat -x {gid} -m 1024 -n 200"),
]

# ---- rdma_cm ----------------------------------------------------------------------------------

CASES += [
    connected("rping", "rping -s -a {server} -p {port} -C 100 -V",
              "rping -c -a {server} -p {port} -C 100 -V", everyday=BOTH),
    connected("rping_four_pairs", "rping -s -a {server} -p {port} -C 100 -V",
              "rping -c -a {server} -p {port} -C 100 -V", pairs=4),
    connected("ucmatose", "ucmatose -b {server} -p {port} -c 10 -C 20",
              "ucmatose -s {server} -p {port} -c 10 -C 20", everyday=("ipv4",)),
    connected("udaddy", "udaddy -b {server} -c 5 -C 20", "udaddy -s {server} -c 5 -C 20",
              options=["--space", "udp", "--port", "7174"], everyday=("ipv6",)),
    connected("endpoints", "rdma_server -s {server} -p {port}", "rdma_client -s {server} -p {port}",
              everyday=("ipv4",)),
    # Its server listens on the IPv4 wildcard only.
    connected("endpoints_xrc", "rdma_xserver -p {port}", "rdma_xclient -s {server} -p {port}",
              families=("ipv4",)),
    connected("cmtime", "cmtime -b {server} -p {port} -c 500",
              "cmtime -s {server} -p {port} -c 500", options=["--endless-server"]),
]
for family, group in (("ipv4", "239.47.91.1"), ("ipv6", "ff15::47:91")):
    CASES.append(connected("mckey", f"mckey -m {group} -b {{server}} -C 20",
                           f"mckey -m {group} -b {{client}} -s -C 20", options=["--group", group],
                           families=(family,), everyday=(family,)))
# perftest 4.5 resolves names for rdma_cm to IPv4 only.
for test in ("send_bw", "send_lat", "write_bw", "write_lat", "read_bw", "read_lat", "atomic_bw",
             "atomic_lat"):
    CASES.append(connected(f"{test}_cm", f"ib_{test} -R -p {{port}} -n 500",
                           f"ib_{test} -R -p {{port}} -n 500 {{server}}", families=("ipv4",),
                           everyday=("ipv4",) if test == "write_bw" else ()))
CASES += [
    connected("send_bw_cm_ud", "ib_send_bw -R -c UD -p {port} -n 500",
              "ib_send_bw -R -c UD -p {port} -n 500 {server}", families=("ipv4",)),
    connected("write_bw_cm_16_qps", "ib_write_bw -R -q 16 -p {port} -n 100",
              "ib_write_bw -R -q 16 -p {port} -n 100 {server}", families=("ipv4",)),
    connected("write_bw_cm_two_pairs", "ib_write_bw -R -p {port} -n 200",
              "ib_write_bw -R -p {port} -n 200 {server}", families=("ipv4",), pairs=2),
]
