#!/usr/bin/env python3
"""Programs of Prometheus with what `feroce metrics` gives: exporters_test.py FOLDER_OF_FEROCE.
promtool finds nothing to say of the text, and node_exporter's collector `infiniband` reads the
tree of --sysfs and makes the same metrics of it as we do. Exit status 77: not here."""
import os
import subprocess
import sys
import urllib.error
import urllib.request

from metrics_test import DEVICE, Metrics, PATIENCE, await_true, kept_folder, look, running_pair
from own_network import enter_own_network

PORT = 18601
# What is read of the tree: later versions of node_exporter know hw_counters too.
NAMES = ("node_infiniband_port_data_transmitted_bytes_total",
         "node_infiniband_port_data_received_bytes_total",
         "node_infiniband_port_packets_transmitted_total",
         "node_infiniband_port_packets_received_total",
         "node_infiniband_port_errors_received_total",
         "node_infiniband_state_id", "node_infiniband_physical_state_id",
         "node_infiniband_rate_bytes_per_second")


def fetch():
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=PATIENCE) as page:
            return Metrics(page.read().decode(), "text")
    except urllib.error.URLError:
        return None


def check_promtool(feroce):
    text = look(feroce, "--format", "text", "--qps", "10")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                          capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0 and done.stdout + done.stderr == "", done


def check_node_exporter(folder):
    exporter = subprocess.Popen(
        ["prometheus-node-exporter", f"--path.sysfs={folder.path}", "--collector.disable-defaults",
         "--collector.infiniband", f"--web.listen-address=127.0.0.1:{PORT}"],
        stderr=subprocess.DEVNULL)
    try:
        await_true("the exporter answers", lambda: fetch() is not None)
        await_true("it sees traffic", lambda: fetch().value(NAMES[0], **DEVICE) > 1_000_000)
        seen = fetch()
        assert seen.value("node_scrape_collector_success", collector="infiniband") == 1
        assert seen.value("node_infiniband_info", device="feroce_lo", hca_type="feroce") == 1
        for name in NAMES:
            assert len(seen.all(name, **DEVICE)) == 1, f"node_exporter has no {name}"
        known = {s.name for s in seen.samples if s.name.startswith("node_infiniband")}
        print(len(known), "metrics of node_exporter")
        return known
    finally:
        exporter.kill()
        exporter.wait()


def main():
    if not enter_own_network():
        return 77
    feroce = os.path.join(os.path.abspath(sys.argv[1]), "feroce")
    with kept_folder(feroce) as folder, running_pair(feroce):
        check_promtool(feroce)
        theirs = check_node_exporter(folder)
        ours = {s.name for s in Metrics(look(feroce)).samples}
        assert theirs <= ours, f"names that differ: {theirs - ours}"
    return 0


sys.exit(main())
