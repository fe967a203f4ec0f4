#!/usr/bin/env python3
"""`feroce trace --perfetto` beside real programs: perfetto_test.py NAME FOLDER_OF_FEROCE. Exit
status 77: not here."""
import collections
import json
import os
import subprocess
import sys
import tempfile

from metrics_test import PATIENCE, Programs, await_true, listens, running_pair
from own_network import run_named_test

PORT = 18606
MESSAGES = 50


def trace(feroce, *words):
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "trace.json")
        subprocess.run([feroce, "trace", "--perfetto", path, *words], check=True, timeout=PATIENCE,
                       stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def lossy_writes(feroce, capture):
    """Writes of three packets each, some of which are lost; what the writer saw is captured."""
    programs = Programs(feroce)
    words = ["ib_write_bw", "-d", "feroce_lo", "-p", str(PORT), "-s", "10000", "-n", str(MESSAGES)]
    # A capture has no packet that was dropped here. Where the writer goes back, others show.
    faults = {**os.environ, "FEROCE_FAULTS": "drop=0.05,seed=7", "FEROCE_REPAIR": "off"}
    try:
        programs.start(*words, stdout=subprocess.DEVNULL, env=faults)
        await_true("the server listens", lambda: listens(PORT))
        client = programs.start(*words, "127.0.0.1", stdout=subprocess.DEVNULL,
                                env={**faults, "FEROCE_PCAP": capture})
        assert client.wait(PATIENCE) == 0
    finally:
        programs.end()


def check_spans(events):
    """Each work request begins and ends once, with its marks in between, on one track."""
    spans = collections.defaultdict(list)
    for event in events:
        if event["ph"] in "bne":
            spans[event["id"]].append(event)
    for of_one in spans.values():
        assert [e["ph"] for e in of_one] == ["b", *"n" * (len(of_one) - 2), "e"], of_one
        times = [e["ts"] for e in of_one]
        assert times == sorted(times), of_one
        assert len({(e["pid"], e["tid"], e["cat"]) for e in of_one}) == 1, of_one
        end = of_one[-1]["args"]
        assert end["outcome"] == "done" and end["sent again"] == len(of_one) - 2, of_one
        assert of_one[0]["name"] == of_one[-1]["name"] == "RDMA WRITE"
    return spans


def test_capture(feroce):
    with tempfile.TemporaryDirectory() as place:
        capture = os.path.join(place, "file.pcapng")
        lossy_writes(feroce, capture)
        events = trace(feroce, capture)
    spans = check_spans(events)
    assert len(spans) == MESSAGES, len(spans)
    assert any(len(of_one) > 2 for of_one in spans.values()), "nothing was sent again"
    groups = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert len(groups) == 2 and all(n.startswith("QP 0x") for n in groups.values()), groups
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    packets = [e for e in events if e["ph"] == "i"]
    assert all((e["pid"], e["tid"]) in rows and e["ts"] >= 0 for e in packets)
    counts = collections.Counter(rows[e["pid"], e["tid"]] for e in packets)
    assert counts["packets sent"] == counts["packets received"] > 3 * MESSAGES - 20, counts
    assert 0 < counts["sent again"] < counts["packets sent"], counts
    # A request spans packets of its own: its first one is sent when it begins.
    sent = {e["ts"] for e in packets if rows[e["pid"], e["tid"]] == "packets sent"}
    assert all(of_one[0]["ts"] in sent and of_one[-1]["ts"] in sent for of_one in spans.values())


def test_live(feroce):
    with running_pair(feroce) as (_, client):
        events = trace(feroce, "--lines", "5", "--every", "20", str(client.pid))
    assert {e["pid"] for e in events} == {client.pid}
    assert events[0]["args"]["name"] == "ib_write_bw"
    series = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            series[event["name"].split(" ", 2)[2]].append(event)
    assert {"outstanding sends", "in flight", "window", "packets sent"} <= series.keys(), series
    sent = series["packets sent"]
    assert len(sent) == 5, sent
    assert [e["ts"] for e in sent] == sorted(e["ts"] for e in sent)
    values = [e["args"]["packets"] for e in sent]
    assert values == sorted(values) and values[0] < values[-1], values


if __name__ == "__main__":
    sys.exit(run_named_test(globals()))
