#!/usr/bin/env python3
"""Lint finds the mistakes of small programs, and none in programs of others; sanitizers understand
what the device does:
lint_test.py mistakes|modes|silence|sanitized FOLDER_OF_FEROCE LINT_MISTAKES SANITIZED_C."""
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
PATIENCE = 60
PORT = 20000 + os.getpid() % 10000  # Other tests run beside it.

# The program, the kind that is reported, and words of the sentence: one report, and beside it only
# what OTHERS names: a failed completion is told of too.
FOUND = [
    ("buffer_changed", "buffer-changed", "was changed, first within bytes 8 to 11"),
    ("read_early", "read-early", "WR 8 (SEND of 64 bytes"),
    ("pointer_early", "read-early", "carries bytes of a READ's target"),
    ("no_receive", "no-receive", "no receive was posted here since RESET"),
    ("rnr_exceeded", "no-receive", "failed with IBV_WC_RNR_RETRY_EXC_ERR"),
    ("reg_flags", "access-flags", "without IBV_ACCESS_LOCAL_WRITE"),
    ("remote_access", "access-flags", "they lack IBV_ACCESS_REMOTE_WRITE"),
    ("modify_mask", "modify-qp",
     "attr_mask lacks IBV_QP_ACCESS_FLAGS IBV_QP_PKEY_INDEX, and has IBV_QP_SQ_PSN"),
    ("not_global", "modify-qp", "set is_global"),
    ("cq_too_small", "cq-too-small",
     "5 requests are posted whose completions go to a completion queue of 4"),
    ("unsignaled", "unsignaled", "send 5 in a row without a signal in a queue of max_send_wr 4"),
    ("length_of_failure", "error-ignored", "byte_len of failed completions"),
    ("status_ignored", "error-ignored", "9 sends were posted"),
    ("field_of_failure", "error-ignored", "ibv_wc_read_byte_len was read"),
    ("region_in_use", "region-in-use", "WR 12 (receive of 64 bytes"),
    ("wrong_key", "bad-sge", "no region has that lkey; the memory is in the region of lkey"),
    ("past_the_end", "bad-sge", "that is 96 bytes past the end of the region"),
    ("not_writable", "bad-sge", "lacks IBV_ACCESS_LOCAL_WRITE"),
    ("inline_too_long", "inline-too-long", "takes 64 bytes inline"),
    ("grh_forgotten", "datagram", "no room for the 40 bytes of GRH"),
    ("grh_not_counted", "datagram", "no room for the GRH of 40 bytes and 64 bytes of payload"),
    ("wrong_qkey", "datagram", "they have the Q_Key 0x1112, its own is 0x1111"),
    ("long_datagram", "datagram", "longer than the MTU"),
    ("first_psn", "disagreement", "begin with PSN 100"),
    ("numbers_exchanged", "disagreement", "its number and first PSN were exchanged"),
    ("forked", "forked-object", "ibv_post_send on an object that the process before fork()"),
    ("mtu_mismatch", "access-flags", "the two ends have different path MTUs"),
    ("host_order", "immediate-order", "16 in WR 7 (SEND of 64 bytes"),
    ("length_of_immediate", "immediate-order", "its length, 1073741824, in the network's byte"),
]
# Of two threads; either may be told, or both.
SHARED = [
    ("cq_of_two_threads", "two-threads", "ibv_poll_cq was called on a completion queue while"),
    ("qp_of_two_threads", "two-threads", "ibv_post_send was called on queue pair 0x"),
    ("list_of_two_threads", "two-threads", "was changed while ibv_post_send read it"),
]
# The same with more words in FEROCE_LINT. The twin that follows each must bring no report.
HELD = [
    ("order", "polled_memory", "byte-order", "when only the last bytes of a peer's WRITE were"),
    ("order", "polled_completion", None, ""),
    ("card=mlx5", "long_inline", "card-limit", "max_inline_data 1000 (mlx5 has 912)"),
    ("card=mlx5", "short_inline", None, ""),
    ("card=rxe", "large_cq", "card-limit", "cqe 40000 (rxe has 32767)"),
    ("card=mlx5", "large_cq", None, ""),
    ("card=efa", "atomic", "card-limit", "efa has no atomics"),
    ("card=rxe", "atomic", None, ""),
]
# These wait for ever where they err, as on a card: lint ends them.
ABORTED = [
    ("unacknowledged", "unacknowledged", "1 of 1 events"),
    ("missed_event", "missed-event", "completions (1) were in the queue before it was armed"),
    ("cm_unacknowledged", "unacknowledged", "1 of 1 events of the id that rdma_get_cm_event gave"),
]
# What else such a program must be told.
OTHERS = {"length_of_failure": {"access-flags"}, "status_ignored": {"access-flags"},
          "field_of_failure": {"access-flags"}, "rnr_exceeded": {"no-receive"},
          "pointer_early": {"access-flags"}}

CORRECT = ["clean", "peer_gone",
           "read_in_time", "failed_read", "half_read", "inline_absent", "network_order",
           "locked_by_two_threads", "request_used_again",
           "late_acknowledgement", "exit_in_handler", "polled_memory", "polled_completion",
           "long_inline", "large_cq", "atomic", "cm_acknowledged"]
SILENT = [
    ["ibv_rc_pingpong", "-g", "0", "-n", "200"],
    ["ibv_rc_pingpong", "-g", "0", "-n", "200", "-e"],
    ["ibv_rc_pingpong", "-g", "0", "-n", "200", "-N"],
    ["ibv_uc_pingpong", "-g", "0", "-n", "200"],
    ["ibv_ud_pingpong", "-g", "0", "-n", "200"],
    ["ibv_srq_pingpong", "-g", "0", "-n", "200"],
    ["ibv_xsrq_pingpong", "-g", "0", "-n", "200"],
    ["ib_send_bw", "-x", "0", "-n", "200"],
    ["ib_send_bw", "-x", "0", "-n", "200", "-e"],
    ["ib_send_lat", "-x", "0", "-n", "200"],
    ["ib_write_bw", "-x", "0", "-n", "200", "-q", "4", "-b"],
    ["ib_write_lat", "-x", "0", "-n", "200"],
    ["ib_read_bw", "-x", "0", "-n", "200"],
    ["ib_read_lat", "-x", "0", "-n", "200"],
    ["ib_atomic_bw", "-x", "0", "-n", "200"],
    ["ib_atomic_lat", "-x", "0", "-n", "200"],
    ["ib_send_bw", "-x", "0", "-n", "200", "-c", "UD"],
    ["ib_send_lat", "-x", "0", "-n", "200", "-c", "UD"],
    ["ib_send_bw", "-x", "0", "-n", "200", "-r", "16", "--use-srq"],
]
# Transports, tests and sizes of UCX. ucp_put_bw is not among them: docs/lint.md says why.
BY_UCX = [("rc", "tag_bw", 65536), ("rc", "tag_lat", 64), ("rc", "ucp_get", 4096),
          ("rc", "ucp_fadd", 8), ("ud_verbs", "tag_bw", 65536)]
# A server and a client each, which find each other by the connection manager.
BY_ADDRESS = [
    (["rping", "-s", "-a", "127.0.0.1", "-C", "9"], ["rping", "-c", "-a", "127.0.0.1", "-C", "9"]),
    (["ucmatose", "-b", "127.0.0.1"], ["ucmatose", "-s", "127.0.0.1"]),
    (["udaddy", "-b", "127.0.0.1"], ["udaddy", "-s", "127.0.0.1"]),
    (["rdma_server", "-p", str(PORT)], ["rdma_client", "-s", "127.0.0.1", "-p", str(PORT)]),
    (["rdma_xserver", "-p", str(PORT)], ["rdma_xclient", "-s", "127.0.0.1", "-p", str(PORT)]),
]


def fail(text):
    sys.exit(text)


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False,
                          **more)


def reports(text):
    return re.findall(r"^feroce: lint: ([a-z-]+): (.*)$", text, re.M)


def check_report(name, kind, words, text, function="", most=1):
    """The sentence, where it was posted, and the mend."""
    hits = [said for what, said in reports(text) if what == kind and words in said]
    if not 1 <= len(hits) <= most:
        fail(f"{name}: not one report of {kind} with `{words}`, but {len(hits)}:\n{text}")
    strange = {what for what, _ in reports(text)} - {kind} - OTHERS.get(name, set())
    if strange:
        fail(f"{name}: also reported {strange}:\n{text}")
    place = rf"#\d+ .*{function or name + '[(][)]'}.* \(lint_mistakes\+0x[0-9a-f]+\)"
    if not re.search(place, text) or "  mend: " not in text:
        fail(f"{name}: no backtrace with {name}(), or no mend:\n{text}")


def mistakes(feroce, program):
    for name, kind, words in FOUND:
        done = run([feroce, "run", "--lint", "--", program, name])
        if done.returncode != 0:
            fail(f"{name} ended with {done.returncode}:\n{done.stderr}")
        check_report(name, kind, words, done.stderr)
    for name, kind, words in SHARED:
        done = run([feroce, "run", "--lint", "--", program, name])
        if done.returncode != 0:
            fail(f"{name} ended with {done.returncode}:\n{done.stderr}")
        check_report(name, kind, words, done.stderr, "share_", 2)
    for name, kind, words in ABORTED:
        done = run([feroce, "run", "--lint=abort", "--", program, name])
        if done.returncode != -signal.SIGABRT:
            fail(f"{name} ended with {done.returncode} and should have aborted:\n{done.stderr}")
        check_report(name, kind, words, done.stderr)
    done = run([feroce, "run", "--lint", "--", program, "destroyed_while_polled"])
    if done.returncode != 0:
        fail(f"destroyed_while_polled ended with {done.returncode}:\n{done.stderr}")
    for word, name, kind, words in HELD:
        option = "--any-order" if word == "order" else "--" + word
        done = run([feroce, "run", "--lint", option, "--", program, name])
        if done.returncode != 0 or (kind is None and reports(done.stderr)):
            fail(f"{name} with {word} ended with {done.returncode}:\n{done.stderr}")
        if kind is not None:
            check_report(name, kind, words, done.stderr)
    for option in ["--lint", "--lint=abort"]:
        for name in CORRECT:
            done = run([feroce, "run", option, "--", program, name])
            if done.returncode != 0 or "lint" in done.stderr:
                fail(f"{name}, a correct program, ended with {done.returncode}:\n{done.stderr}")


def modes(feroce, program):
    """Off says nothing; a value that is not understood keeps the device closed."""
    for value in ["", "off"]:
        done = run([feroce, "run", "--", program, "buffer_changed"],
                   env={**os.environ, "FEROCE_LINT": value})
        if done.returncode != 0 or "lint" in done.stderr:
            fail(f"FEROCE_LINT={value}: {done.returncode}:\n{done.stderr}")
    done = run([feroce, "run", "--", program, "clean"], env={**os.environ, "FEROCE_LINT": "yes"})
    if done.returncode == 0 or "FEROCE_LINT is none of off, warn, abort" not in done.stderr:
        fail(f"FEROCE_LINT=yes: {done.returncode}:\n{done.stderr}")
    done = run([feroce, "run", "--card", "cx9", "--", program, "clean"])
    if done.returncode == 0 or "FEROCE_LINT knows the cards mlx5, rxe and efa" not in done.stderr:
        fail(f"--card cx9: {done.returncode}:\n{done.stderr}")
    done = run([feroce, "run", "--", program, "buffer_changed"],
               env={**os.environ, "FEROCE_LINT": "abort"})
    if done.returncode != -signal.SIGABRT:
        fail(f"FEROCE_LINT=abort: {done.returncode}:\n{done.stderr}")


def wait_for_listener(server):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and server.poll() is None:
        tables = [pathlib.Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
        text = "".join(table.read_text(encoding="ascii") for table in tables if table.exists())
        if re.search(rf":{PORT:04X} 0+:0000 0A", text):
            return
        time.sleep(0.02)  # Between looks, with an end.
    fail(f"{server.args} does not listen")


def check_silence(server_words, client_words, ready):
    with subprocess.Popen(server_words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as server:
        try:
            client = ready(server)
            said, _ = server.communicate(timeout=PATIENCE)
        finally:
            server.kill()
    text = said + client.stdout + client.stderr
    if client.returncode != 0 or server.returncode != 0 or "feroce: lint" in text:
        fail(f"{' '.join(client_words)}: {server.returncode} {client.returncode}\n{text}")


def client_of_listener(words):
    def ready(server):
        wait_for_listener(server)
        return run(words)
    return ready


def client_that_tries(words):
    """Nothing of the system's tables shows that a connection manager listens. What is returned is
    the last try, with what all tries said."""
    def ready(server):
        deadline = time.monotonic() + PATIENCE
        said = ""
        while True:
            client = run(words)
            said += client.stdout + client.stderr
            if client.returncode == 0 or time.monotonic() > deadline or server.poll() is not None:
                client.stdout, client.stderr = said, ""
                return client
            time.sleep(0.1)  # Between tries, with an end.
    return ready


def silence(feroce, _):
    commands = [*SILENT, *(server for server, _ in BY_ADDRESS), ["ucx_perftest"]]
    if not all(shutil.which(command[0]) for command in commands):
        sys.exit(SKIPPED)
    lint = [feroce, "run", "--lint", "--"]
    for command in SILENT:
        words = [*lint, *command, "-d", "feroce_lo", "-p", str(PORT)]
        client = [*words, "localhost"]
        check_silence(words, client, client_of_listener(client))
    # One that is built with MPI waits for a launcher, unless told not to.
    needs = run(["ldd", shutil.which("ucx_perftest")]).stdout
    for transport, test, size in BY_UCX:
        words = [*lint, "env", f"UCX_TLS={transport}", "ucx_perftest",
                 *(["-P", "0"] if "libmpi" in needs else []),
                 "-t", test, "-s", str(size), "-n", "200", "-p", str(PORT)]
        client = [*words, "localhost"]
        check_silence(words, client, client_of_listener(client))
    for server, client in BY_ADDRESS:
        check_silence([*lint, *server], client, client_that_tries([*lint, *client]))


# How sanitized.c is built and run, the mistake that the tool must still find, and its words.
SANITIZERS = [
    (["clang-14", "-fsanitize=memory"], [], "unset", "use-of-uninitialized-value"),
    (["clang-14", "-fsanitize=thread"], [], "race", "ThreadSanitizer: data race"),
    (["gcc", "-fsanitize=thread"], [], "race", "ThreadSanitizer: data race"),
    (["gcc"], ["valgrind", "-q", "--fair-sched=yes", "--error-exitcode=9"], "unset",
     "uninitialised value"),
]


def sanitized(feroce, source):
    """No report about a correct program, with lint and without; one about a mistake."""
    if not all(shutil.which((run_by or build)[0]) for build, run_by, _, _ in SANITIZERS):
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        for build, run_by, mistake, words in SANITIZERS:
            program = folder + "/sanitized"
            built = run([*build, "-g", "-O1", "-o", program, source, "-libverbs", "-lpthread"])
            if built.returncode != 0:
                fail(f"{build}: {built.stderr}")
            for option in [[], ["--lint"]]:
                done = run([feroce, "run", *option, "--", *run_by, program])
                if done.returncode != 0 or done.stdout != "done\n" or "WARNING: Th" in done.stderr:
                    fail(f"{build} {option}: {done.returncode}\n{done.stderr}")
            done = run([feroce, "run", "--", *run_by, program, mistake])
            if done.returncode == 0 or words not in done.stderr:
                fail(f"{build} does not find {mistake}: {done.returncode}\n{done.stderr}")


def main():
    test, folder, program = sys.argv[1:4]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["FEROCE_DEVICES"] = "lo"
    tests = {"mistakes": mistakes, "modes": modes, "silence": silence,
             "sanitized": lambda feroce, _: sanitized(feroce, sys.argv[4])}
    tests[test](folder + "/feroce", program)


main()
