#!/usr/bin/env python3
"""Faults of calls (FEROCE_FAULTS=CALL:ERRNO@N), with programs of ours and of others.

faults_test.py NAME LIBRARIES FEROCE PROGRAM
NAME: walk, codes, late, events, child, strangers, clients, closed or explain.
"""
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "abi"))
from run_pair import free_port, listening  # pylint: disable=wrong-import-position

LIBRARIES, FEROCE, PROGRAM = sys.argv[2:5]
DEADLINE = 120

# What programs say when the call fails, in their own words, before they need a peer.
STRANGERS = [
    ("ibv_get_device_list:ENOMEM@1", ["ibv_rc_pingpong"], "Failed to get IB devices list"),
    ("ibv_open_device:EMFILE@1", ["ibv_rc_pingpong"], "Couldn't get context for feroce_lo"),
    ("ibv_create_comp_channel:EMFILE@1", ["ibv_rc_pingpong", "-e"],
     "Couldn't create completion channel"),
    ("ibv_alloc_pd:ENOMEM@1", ["ibv_rc_pingpong"], "Couldn't allocate PD"),
    ("ibv_reg_mr:ENOMEM@1", ["ibv_rc_pingpong"], "Couldn't register MR"),
    ("ibv_create_cq:ENOMEM@1", ["ibv_rc_pingpong"], "Couldn't create CQ"),
    ("ibv_create_qp:ENOMEM@1", ["ibv_rc_pingpong"], "Couldn't create QP"),
    ("ibv_modify_qp:EINVAL@1", ["ibv_rc_pingpong"], "Failed to modify QP to INIT"),
    ("ibv_post_recv:ENOMEM@1", ["ibv_rc_pingpong"], "Couldn't post receive (0)"),
    ("ibv_req_notify_cq:EIO@1", ["ibv_rc_pingpong", "-e"], "Couldn't request CQ notification"),
    ("ibv_query_port:EIO@1", ["ibv_rc_pingpong"], "Couldn't get port info"),
    ("ibv_create_ah:EINVAL@1", ["ibv_devinfo"], None),  # It makes none.
    ("rdma_create_id:ENOMEM@1", ["rping", "-s", "-a", "127.0.0.1"], "rdma_create_id"),
    ("rdma_bind_addr:EADDRINUSE@1", ["rping", "-s", "-a", "127.0.0.1"], "rdma_bind_addr"),
    ("rdma_listen:EADDRINUSE@1", ["rping", "-s", "-a", "127.0.0.1"], "rdma_listen"),
    ("rdma_resolve_addr:EHOSTUNREACH@1", ["rping", "-c", "-a", "127.0.0.1"],
     "rdma_resolve_addr"),
]

# The same of ib_write_bw as client, whose server has no faults.
CLIENTS = [
    ("ibv_alloc_pd:ENOMEM@1", "Couldn't allocate PD"),
    ("ibv_create_cq:ENOMEM@1", "Couldn't create CQ"),
    ("ibv_reg_mr:ENOMEM@1", "Failed to create MR"),
    ("ibv_create_qp:ENOMEM@1", "Unable to create QP"),
    ("ibv_modify_qp:EINVAL@2", "Failed to modify QP"),
    ("ibv_post_send:ENOMEM@3", "Couldn't post send"),
    ("ibv_poll_cq:EIO@2", "poll CQ failed"),
]

# Not understood: an unknown call, errno and event, counts and times that cannot be.
WRONG = ["ibv_destroy_cq:EBUSY@1", "ibv_create_cq:EWHAT@1", "ibv_create_cq:ENOMEM@0",
         "ibv_create_cq:ENOMEM@99999999999999999999", "ibv_create_cq:ENOMEM",
         "ibv_create_cq:ENOMEM=2", "ibv_create_cq:QP_FATAL@1", "PORT_ERR@1", "QP_FATAL@1ms",
         "rdma_connect:PORT_ERR@1", "ibv_open_device:PORT_ERR@1", "drop=2,ibv_create_cq:ENOMEM@1",
         "ibv_create_cq:ENOMEM@1,"]


def environment(faults, **more):
    return {**os.environ, "LD_LIBRARY_PATH": LIBRARIES, "FEROCE_DEVICES": "lo",
            "FEROCE_FAULTS": faults, **more}


def run(command, faults, **more):
    done = subprocess.run(command, env=environment(faults, **more), text=True, timeout=DEADLINE,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def check(good, *what):
    if not good:
        print("FAILED:", *what)
        sys.exit(1)


def succeeds(words, faults, **more):
    status, output = run([PROGRAM, *words], faults, **more)
    check(status == 0 and "UNEXPECTED" not in output, faults, words, status, output)
    return output


def test_walk():
    """As in CI: each call fails at its first, second, ... time, until the program needs no more."""
    calls = ["ibv_get_device_list", "ibv_open_device", "ibv_create_comp_channel", "ibv_alloc_pd",
             "ibv_reg_mr", "ibv_create_cq", "ibv_create_qp", "ibv_query_gid", "ibv_modify_qp",
             "ibv_post_recv", "ibv_req_notify_cq", "ibv_post_send", "ibv_poll_cq"]
    for call in calls:
        for number in range(1, 20):
            output = succeeds(["walk", "events"], f"{call}:ENOMEM@{number}")
            if "after 0 failures" in output:
                break
            check("failed: ENOMEM" in output and "after 1 failures" in output, call, output)
        else:
            check(False, call, "never succeeds")
        # What comes after the first session is met by the three that follow.
        check(number > 1, call, "never failed")
    output = succeeds(["walk"], ",".join(f"{call}:ENOMEM=0.05" for call in calls) + ",seed=3")
    again = succeeds(["walk"], ",".join(f"{call}:ENOMEM=0.05" for call in calls) + ",seed=3")
    check(output == again, "a seed gives the same run", output, again)


def test_codes():
    calls = ["ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd", "ibv_query_device",
             "ibv_query_port", "ibv_query_gid", "ibv_query_gid_ex", "ibv_query_gid_table",
             "ibv_reg_mr", "ibv_rereg_mr", "ibv_alloc_mw", "ibv_create_srq", "ibv_modify_srq",
             "ibv_post_srq_recv", "ibv_create_ah", "ibv_create_comp_channel", "ibv_create_cq",
             "ibv_resize_cq", "ibv_req_notify_cq", "ibv_create_qp", "ibv_query_qp",
             "ibv_modify_qp", "ibv_post_recv", "ibv_post_send", "ibv_poll_cq",
             "rdma_create_event_channel", "rdma_create_id", "rdma_getaddrinfo", "rdma_bind_addr",
             "rdma_listen", "rdma_resolve_addr", "rdma_resolve_route", "rdma_connect",
             "rdma_accept", "rdma_create_qp"]
    faults = ",".join(f"{call}:EPROTO@1" for call in calls)
    succeeds(["codes"], faults)
    succeeds(["codes"], faults, FEROCE_LINT="warn")


def test_late():
    for words in (["late"], ["late", "events"]):
        for lint in ("off", "warn"):
            succeeds(words, "ibv_poll_cq:LATE=0.7,seed=2", FEROCE_LINT=lint)


def test_events():
    succeeds(["qp"], "ibv_post_send:QP_FATAL@2")
    succeeds(["cq"], "ibv_poll_cq:CQ_ERR@2")
    succeeds(["device"], "PORT_ERR@1ms,PORT_ACTIVE@2ms,ibv_alloc_pd:DEVICE_FATAL@1")
    succeeds(["port"], "ibv_query_port:PORT_ERR@1")


def test_child():
    succeeds(["child"], "ibv_alloc_pd:EPROTO@2")


def test_strangers():
    for faults, command, sentence in STRANGERS:
        words = command + (["-d", "feroce_lo", "-g", "0"] if "pingpong" in command[0] else [])
        status, output = run(words, faults)
        if sentence is None:
            check(status == 0, faults, command, output)
        else:
            check(status not in (0, -6, -11) and sentence in output, faults, command, status,
                  output)


def test_clients():
    for faults, sentence in CLIENTS:
        port = free_port()
        command = ["ib_write_bw", "-d", "feroce_lo", "-x", "0", "-p", str(port)]
        server = subprocess.Popen(command, env=environment(""), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + DEADLINE
            while not listening(port) and time.monotonic() < deadline:
                time.sleep(0.02)
            status, output = run(command + ["127.0.0.1"], faults)
        finally:
            server.kill()
            server.wait()
        check(status not in (0, -6, -11) and sentence in output, faults, status, output)


def test_closed():
    for wrong in WRONG:
        status, output = run(["ibv_devinfo", "-d", "feroce_lo"], wrong)
        check(status != 0 and output.count("error: feroce_lo: FEROCE_FAULTS ") == 1, wrong, output)


def explained(pid, sentence):
    """Whether feroce explain tells it of the process, and what it said."""
    status, output = run([FEROCE, "explain", str(pid)], "")
    good = status == 0 and sentence in output and "FEROCE_FAULTS asked for it" in output
    return good, output


def test_explain():
    """While the process is there, or has not been waited for, and after its end."""
    for faults, sentence in (("ibv_create_cq:ENOMEM@1", "ibv_create_cq was refused (ENOMEM)"),
                             ("ibv_query_port:EIO@1", "ibv_query_port was refused (EIO)"),
                             ("ibv_post_recv:QP_FATAL@1", "came with the event QP_FATAL")):
        command = ["ibv_rc_pingpong", "-d", "feroce_lo", "-g", "0", "-p", str(free_port())]
        server = subprocess.Popen(command, env=environment(faults), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + DEADLINE / 2
            while not explained(server.pid, sentence)[0] and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            server.kill()
            server.wait()
        good, output = explained(server.pid, sentence)
        check(good, faults, output)


if __name__ == "__main__":
    globals()["test_" + sys.argv[1]]()
