"""What the dashboard for Grafana asks of Prometheus, and a Prometheus that answers."""
import contextlib
import json
import os
import re
import subprocess
import tempfile
import urllib.parse
import urllib.request

FILE = os.path.join(os.path.dirname(__file__), "../../tools/grafana/feroce.json")
PATIENCE = 30
METRIC = re.compile(r"\b(?:feroce|rdma|node_infiniband)_\w+")


class Query:
    def __init__(self, panel, target):
        self.title = f"{panel['title']} {target['refId']}"
        self.text = target["expr"]
        self.labels = re.findall(r"{{(\w+)}}", target["legendFormat"])

    def with_values(self, window):
        """As Grafana sends it with all machines and devices chosen."""
        text = re.sub(r"\$(instance|device)", ".*", self.text)
        return text.replace("$__rate_interval", window)

    def metrics(self):
        return METRIC.findall(self.text)


def load():
    with open(FILE, encoding="utf-8") as file:
        return json.load(file)


def queries(dashboard):
    return [Query(panel, target) for panel in dashboard["panels"] for target in panel["targets"]]


def variables(dashboard):
    """(metric with matchers, label) of each list to choose from."""
    out = []
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            out.append((found[1].replace("$instance", ".*"), found[2]))
    return out


class Prometheus:
    def __init__(self, port):
        self.port = port

    def ask(self, path, **words):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def query(self, text):
        """[(labels, value)]"""
        return [(r["metric"], float(r["value"][1]))
                for r in self.ask("query", query=text)["result"]]


@contextlib.contextmanager
def prometheus(port, scraped_port):
    """Scrapes that port of loopback twice a second."""
    with tempfile.TemporaryDirectory() as place:
        config = os.path.join(place, "prometheus.yml")
        with open(config, "w", encoding="ascii") as file:
            file.write("global: {scrape_interval: 500ms}\n"
                       "scrape_configs:\n"
                       "  - job_name: feroce\n"
                       "    static_configs:\n"
                       f'      - targets: ["127.0.0.1:{scraped_port}"]\n')
        server = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={place}/data",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"],
            stdin=subprocess.DEVNULL)
        try:
            yield Prometheus(port)
        finally:
            server.kill()
            server.wait()
