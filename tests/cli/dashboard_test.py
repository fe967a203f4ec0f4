#!/usr/bin/env python3
"""The dashboard for Grafana on a real Prometheus: dashboard_test.py FOLDER_OF_FEROCE. It scrapes
`feroce metrics --listen` beside programs that work, programs whose packets are lost and a program
that fails; every query must find something, and the failures. Exit status 77: not here."""
import math
import os
import subprocess
import sys
import urllib.error

import dashboard
from metrics_test import Metrics, Programs, await_true, listens, running_pair, serving
from own_network import enter_own_network

PROMETHEUS = 18603
LOSSY = 18604
WINDOW = "10s"
# Must be there with more than zero: so much is certain of the programs below.
CERTAIN = ("Processes A", "Queue pairs A", "Ports A", "Failed work requests A", "Data A", "Data B",
           "Packets A", "Packets B", "Sent again A", "Round trip A", "Round trip B", "Round trip C",
           "Round trip D", "Round trip E", "Round trips by duration A", "Failures by cause A",
           "Failures by cause B", "Outstanding A", "Busiest processes A", "Objects A")


def start_failures(programs, feroce):
    """A work request that fails, and a pair whose packets are lost."""
    failing = programs.start(os.path.join(os.path.dirname(feroce), "bad_access"), "--wait",
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert failing.stdout.readline(), "it says how its work request ended"
    words = ["ib_write_bw", "-d", "feroce_lo", "-p", str(LOSSY), "--run_infinitely"]
    lossy = {**os.environ, "FEROCE_FAULTS": "drop=0.02,seed=7"}
    programs.start(*words, stdout=subprocess.DEVNULL, env=lossy)
    await_true("the server listens", lambda: listens(LOSSY))
    programs.start(*words, "127.0.0.1", stdout=subprocess.DEVNULL, env=lossy)


def is_up(prometheus):
    try:
        return prometheus.query("up") != [] and prometheus.query("up")[0][1] == 1
    except urllib.error.URLError:
        return False


def lacks(prometheus, query):
    """What its answer lacks, as a word; empty if nothing."""
    found = [f for f in prometheus.query(query.with_values(WINDOW)) if not math.isnan(f[1])]
    if not found:
        return "any answer"
    if query.title in CERTAIN and not any(value > 0 for _, value in found):
        return "a value above zero"
    named = [label for label in query.labels if not all(label in labels for labels, _ in found)]
    return " ".join(named)


def check_failures(prometheus):
    errors = prometheus.query("sum by (status, reason) (feroce_errors_total)")
    assert ({"status": "IBV_WC_REM_ACCESS_ERR", "reason": "peer_refused"}, 1) in errors, errors
    again = prometheus.query("sum(feroce_retransmitted_packets_total)")
    assert again[0][1] > 0, again
    half = prometheus.query("histogram_quantile(0.5, sum by (le) (feroce_rtt_seconds_bucket))")
    assert 1e-7 < half[0][1] < 10, half


def check(prometheus, server):
    await_true("Prometheus has scraped", lambda: is_up(prometheus))
    board = dashboard.load()
    queries = dashboard.queries(board)
    assert len(queries) > 25 and {q.title for q in queries} >= set(CERTAIN)
    for query in queries:
        await_true(f"{query.title}: {query.text} lacks nothing",
                   lambda query=query: lacks(prometheus, query) == "")
    for metric, label in dashboard.variables(board):
        assert all(label in labels for labels, _ in prometheus.query(metric)), (metric, label)
    check_failures(prometheus)
    assert prometheus.query("scrape_samples_scraped")[0][1] > 100
    # The same text as python's parser reads it: no name is another one there.
    scraped = {s.name for s in Metrics(server.get()[1]).samples}
    known = set(prometheus.ask("label/__name__/values"))
    assert scraped <= known, scraped - known
    print(len(queries), "queries,", len(scraped), "names")


def main():
    if not enter_own_network():
        return 77
    feroce = os.path.join(os.path.abspath(sys.argv[1]), "feroce")
    programs = Programs(feroce)
    try:
        with serving(feroce) as server, running_pair(feroce), \
                dashboard.prometheus(PROMETHEUS, server.port) as prometheus:
            start_failures(programs, feroce)
            check(prometheus, server)
    finally:
        programs.end()
    return 0


sys.exit(main())
