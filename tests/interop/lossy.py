"""Programs in pairs on a network that loses packets in both directions, with and without
FEROCE_REPAIR: what a peer that goes back, rxe, makes of one that keeps what follows a loss."""
import time

import pairs

LOSS = 0.01
# Bytes are compared by the last three. Losses of the last packet cost rxe a timeout, of 67 ms here.
PERFTEST = "-u 14 -F -m 1024"
PROGRAMS = [
    pairs.Program(f"lossy_{verb}_bw", f"ib_{verb}_bw -s 16384 -n 200 " + PERFTEST)
    for verb in ("send", "write", "read")
] + [
    pairs.Program("lossy_atomic_bw", "ib_atomic_bw -n 500 " + PERFTEST),
    pairs.cm("lossy_rping", "rping -s -V -C 100 -S 20000 -a {address} -p {port}",
             "rping -c -V -C 100 -S 20000 -a {address} -p {port}"),
    *[pairs.rsockets(f"lossy_rstream_{size}", f"rstream -C 20 -I 3 -S {size} -T v")
      for size in (5000, 100000)],
]


def run(lab, table):
    lab.vm.on_guest("modprobe sch_netem")
    device = lab.vm.on_guest("ip -o route get 198.51.100.1").split(" dev ")[1].split()[0]
    before = dict(lab.vm.environment)
    for repair in ("off", "on"):
        lab.vm.environment.update(FEROCE_FAULTS=f"drop={LOSS}", FEROCE_REPAIR=repair)
        lab.vm.on_guest(f"tc qdisc replace dev {device} root netem loss {LOSS:.0%}")
        try:
            for program in PROGRAMS:
                for client in program.clients:
                    began = time.monotonic()
                    problems = pairs.run(lab, program, client, "IPv4")
                    seconds = time.monotonic() - began
                    what = f"{program.title}, {LOSS:.0%} lost, FEROCE_REPAIR={repair}"
                    print("FAIL" if problems else "ok  ", what, client, f"{seconds:.1f} s",
                          *problems, flush=True)
                    table.add(what, client, "IPv4", None, problems, f", {seconds:.1f} s")
        finally:
            lab.vm.environment.clear()
            lab.vm.environment.update(before)
            lab.vm.on_guest(f"tc qdisc del dev {device} root")
