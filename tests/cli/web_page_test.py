#!/usr/bin/env python3
"""The page of `feroce web` in a real browser: web_page_test.py FOLDER_OF_FEROCE [FOLDER].
Pictures go to the second folder, if there is one. Exit status 77: not here."""
import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading

from chromium import Browser, Page
from own_network import enter_own_network
from top_test import await_true, running, running_pair
from web_test import serving

EVIL = "evil.example"


@contextlib.contextmanager
def browsing(*options):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile, *options)
        try:
            yield browser
        finally:
            browser.end()


@contextlib.contextmanager
def failed_program(feroce):
    program = os.path.join(os.path.dirname(feroce), "bad_access")
    with running([feroce, "run", "--", program, "--wait"], stdin=subprocess.PIPE,
                 stdout=subprocess.PIPE) as child:
        assert child.stdout.readline(), "it says how its work request ended"
        yield child


def keep(page, folder, name):
    if folder:
        with open(os.path.join(folder, name), "wb") as file:
            file.write(page.screenshot())


def rows(page):
    return page.value("[...document.querySelectorAll('#table tbody tr')].map(r => r.innerText)")


def check_pair(page, pair):
    for child in pair:
        page.await_value(f"process {child.pid} in the graph",
                         f"!!document.querySelector('[data-node=\"pid {child.pid}\"]')")
    page.await_value("a rate", "document.querySelector('.now dd').innerText",
                     lambda text: text.endswith("B/s") and text[0] in "123456789")
    page.await_value("a connection with packets",
                     "document.querySelector('.edge:not(.failed) text').textContent",
                     lambda text: text.endswith("packets/s"))
    page.await_value("a line in the plot",
                     "document.querySelector('.stroke').getAttribute('d').split('L').length",
                     lambda points: points >= 3)
    assert "live" in page.text("#pulse")
    assert sum("ib_write_bw" in row for row in rows(page)) == 2, rows(page)


def check_failure(page, child):
    said = page.await_value("the failure", "document.querySelector('.failure')?.innerText ?? ''")
    assert f"bad_access (pid {child.pid})" in said and "IBV_WC_REM_ACCESS_ERR" in said, said
    assert "because" in said, said
    assert page.value("document.querySelectorAll('.edge.failed').length") == 1
    red = page.value("getComputedStyle(document.querySelector('.edge.failed path')).stroke")
    good = page.value("getComputedStyle(document.querySelector('.edge:not(.failed) path')).stroke")
    assert red != good, (red, good)


def check_keys(page, pair):
    page.press("2", 50)
    assert page.value("document.querySelector('[aria-selected=true]').innerText") \
        .startswith("Queue pairs")
    assert sum("RTS" in row for row in rows(page)) >= 1, rows(page)
    page.press("/", 191)
    for letter in "bad_access":
        page.press(letter, ord(letter.upper()))
    assert len(rows(page)) == 2 and all("bad_access" in row for row in rows(page)), rows(page)
    page.value("document.getElementById('filter').value = ''")
    page.press("Escape", 27)
    # A process is chosen by keyboard alone.
    page.value(f"document.querySelector('[data-node=\"pid {pair[1].pid}\"]').focus()")
    page.press("Enter", 13)
    assert str(pair[1].pid) in page.text("#scope")
    assert all(str(pair[1].pid) in row for row in rows(page)) and rows(page), rows(page)
    page.press("Escape", 27)
    assert page.value("document.getElementById('scope').hidden")
    page.press("?", 191)
    assert page.value("document.getElementById('keys').open")
    page.press("Escape", 27)
    page.press("p", 80)
    assert "paused" in page.text("#pulse")
    page.press("p", 80)
    page.await_value("it goes on", "document.getElementById('pulse').innerText == 'live'")
    page.press("1", 49)


def check_themes(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.value(ground)
    page.call("Emulation.setEmulatedMedia",
              features=[{"name": "prefers-color-scheme", "value": "dark"}])
    dark = page.value(ground)
    assert light != dark, light
    page.press("t", 84)
    assert page.value(ground) == light, "light was chosen"
    page.call("Emulation.setEmulatedMedia", features=[])
    page.press("t", 84)
    assert page.value(ground) == dark, "dark was chosen"
    page.press("t", 84)
    assert page.value(ground) == light, "the system's"


def check_failure_count(page):
    """Those that are left out count only where they concern what is shown."""
    said = page.value("""(async () => {
        const { Failures } = await import("./failures.js");
        const count = document.createElement("p");
        const part = new Failures(document.createElement("ul"), count);
        const failure = (pid) => ({ pid, who: "a", reason: "b", kind: "c", because: [] });
        const state = { failures: [failure(1), failure(2), failure(3)], failures_more: 9,
                        failures_more_of: { 1: 9, 3: 2 } };
        return ["all", "pid 1", "pid 2", "pid 3", "pid 4"].map((scope) => {
            part.show(state, scope);
            return count.textContent;
        }).join("; ");
    })()""")
    assert said == ("12, of which 3 are shown; 10, of which 1 are shown; 1; "
                    "3, of which 1 are shown; "), said


def check_own_requests(page, origin):
    requests = page.requests()
    assert f"{origin}/" in requests and f"{origin}/state.json" in requests, requests
    assert all(url.startswith(f"{origin}/") for url in requests), requests
    assert not page.complaints(), page.complaints()


def test_page(feroce, folder):
    with serving(feroce) as server, browsing() as browser:
        origin = f"http://127.0.0.1:{server.port}"
        page = Page(browser)
        page.open(f"{origin}/")
        page.await_value("nobody is there", "document.getElementById('graph').innerText",
                         lambda text: "No program uses Feroce now" in text)
        with running_pair(feroce) as pair:
            check_pair(page, pair)
            with failed_program(feroce) as child:
                check_failure(page, child)
                check_keys(page, pair)
                check_themes(page)
                check_failure_count(page)
                page.value("new Promise(done => setTimeout(done, 300))")
                keep(page, folder, "light.png")
                page.press("t", 84)
                page.press("t", 84)
                keep(page, folder, "dark.png")
            page.await_value("what ended is no longer told of as alive",
                             "document.querySelector('.failure.ended')?.innerText ?? ''",
                             lambda text: "ended" in text)
        check_own_requests(page, origin)
        server.end()
        page.await_value("the server is gone", "document.getElementById('pulse').innerText",
                         lambda text: text == "feroce web does not answer")


RAILS = 0, 1


def in_network_of(process, *words):
    subprocess.run(["nsenter", "--net", "--target", str(process.pid), *words], check=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def disk_behind_two_cables(feroce, scratch):
    """Its server is in a network namespace of its own."""
    wait = 'read word && exec "$@"'
    with running(["unshare", "--net", "sh", "-c", wait, "sh", feroce, "export", "d=memory:16M"],
                 env=dict(os.environ, STATE_DIRECTORY=scratch), stdin=subprocess.PIPE,
                 stdout=subprocess.PIPE, text=True) as server:
        own = os.readlink("/proc/self/ns/net")
        await_true("it has a network",
                   lambda: os.readlink(f"/proc/{server.pid}/ns/net") != own)
        in_network_of(server, "ip", "link", "set", "lo", "up")
        for rail in RAILS:
            ip("link", "add", f"near{rail}", "type", "veth", "peer", "name", f"far{rail}", "netns",
               str(server.pid))
            ip("addr", "add", f"10.77.{rail}.1/24", "dev", f"near{rail}")
            ip("link", "set", f"near{rail}", "up")
            in_network_of(server, "ip", "addr", "add", f"10.77.{rail}.2/24", "dev", f"far{rail}")
            in_network_of(server, "ip", "link", "set", f"far{rail}", "up")
        server.stdin.write("go\n")
        server.stdin.flush()
        assert server.stdout.readline(), "it serves"
        addresses = ",".join(f"10.77.{rail}.2" for rail in RAILS)
        with running([feroce, "attach", addresses, "d", "--session", "reader", "--socket",
                      os.path.join(scratch, "socket"), "--foreground"],
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            yield server


def await_paths(page, cut):
    """Until the paths of these rails, and no others, are shown as cut; their colours: left edge,
    ground and state."""
    shown = "[...document.querySelectorAll('.path')].map(path => [path.innerText, " \
            "path.classList.contains('down'), getComputedStyle(path).borderLeftColor, " \
            "getComputedStyle(path).backgroundColor, " \
            "getComputedStyle(path.querySelector('strong')).color])"
    wanted = [(f"10.77.{rail}.2", rail in cut) for rail in RAILS]

    def right(paths):
        return len(paths) == len(wanted) and all(
            any(address in path[0] and path[1] == is_cut for path in paths)
            for address, is_cut in wanted)
    paths = page.await_value(f"paths {cut} are cut", shown, right)
    return {path[1]: path[2:] for path in paths}


def is_red(colour):
    red, green, blue = (int(word) for word in colour.strip("rgb()").split(",")[:3])
    return red > 150 and red > 2 * green and red > 2 * blue


def test_cut_path(feroce, folder):
    with tempfile.TemporaryDirectory() as scratch, serving(feroce) as server, \
            browsing() as browser, disk_behind_two_cables(feroce, scratch) as disk:
        page = Page(browser)
        page.open(f"http://127.0.0.1:{server.port}/")
        page.await_value("the page", "document.getElementById('pulse').innerText == 'live'")
        page.press("3", 51)
        good = await_paths(page, ())[False]
        assert not is_red(good[0]) and not is_red(good[2]), good
        in_network_of(disk, "ip", "link", "set", "far0", "down")
        colours = await_paths(page, (0,))
        assert is_red(colours[True][0]) and is_red(colours[True][2]), colours
        assert colours[True][1] != colours[False][1], "the ground too"
        assert colours[False] == good, (colours, good)
        why = page.await_value("why", "document.querySelector('.path.down .error')?.innerText")
        print(f"the cut path says: {why}")
        keep(page, folder, "cut.png")
        in_network_of(disk, "ip", "link", "set", "far0", "up")
        assert await_paths(page, ())[False] == good, "green again"


# Of the kernel's rxe: a READ that the peer refuses.
CAPTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "../golden/data/rc-badread-v6.pcapng")


def test_capture(feroce, folder):
    traced = subprocess.run([feroce, "trace", CAPTURE], capture_output=True, text=True, check=True,
                            timeout=60).stdout.splitlines()
    with serving(feroce, "--pcap", CAPTURE) as server, browsing() as browser:
        origin = f"http://127.0.0.1:{server.port}"
        page = Page(browser)
        page.open(f"{origin}/#packets")
        page.await_value("packets", "document.querySelectorAll('.packet').length")
        # First the connection manager's packets, then those of the connection.
        arrows = "document.querySelectorAll('.packet').length"
        ends = page.value("document.querySelector('.capture select').innerText")
        assert ends.count("\n") == 1 and "QP 0x00002e" in ends and "QP 0x000030" in ends, ends
        managed = page.value(arrows)
        page.value("const list = document.querySelector('.capture select'); list.value = 1;"
                   "list.dispatchEvent(new Event('change'))")
        assert managed + page.value(arrows) == len(traced) == 7, traced
        words = page.value("document.querySelector('.packet.remarked').textContent")
        assert "refused at PSN" in words, words
        left = page.value("""import("./ladder.js").then(({ Ladders }) =>
            [["", 0], ["", 7], ["only a beginning", 7]].map(([cut, more]) =>
                new Ladders({ ladders: [], more, cut }).left.textContent).join("|"))""")
        connections = "7 more connections, which have fewer packets; feroce trace has them all"
        assert left == f"|{connections}|only a beginning; {connections}", left
        check_own_requests(page, origin)
        keep(page, folder, "capture.png")


# Tries what a page of another origin can: each line is what it read.
HOSTILE = """<!doctype html><title>hostile</title><ul id=read></ul><script type=module>
const port = %d, read = document.getElementById("read");
const note = (how, what) => {
  const line = document.createElement("li");
  line.textContent = how + ": " + what;
  read.append(line);
};
const attempt = async (how, url, options) => {
  try {
    const answer = await fetch(url, options);
    note(how, answer.type + " " + answer.status + " " + (await answer.text()));
  } catch (error) {
    note(how, "nothing");
  }
};
await attempt("cors", `http://127.0.0.1:${port}/state.json`);
await attempt("no-cors", `http://127.0.0.1:${port}/state.json`, { mode: "no-cors" });
await attempt("rebound", `http://%s:${port}/state.json`);
const load = (how, tag, url) => new Promise((done) => {
  const element = document.createElement(tag);
  element.onload = () => done(note(how, "loaded"));
  element.onerror = () => done(note(how, "nothing"));
  element.src = url;
  document.body.append(element);
});
await load("script", "script", `http://127.0.0.1:${port}/main.js`);
await load("image", "img", `http://127.0.0.1:${port}/icon.svg`);
await load("frame", "iframe", `http://127.0.0.1:${port}/`);
try {
  note("framed", document.querySelector("iframe").contentDocument?.body.innerText ?? "nothing");
} catch (error) {
  note("framed", "nothing");
}
note("end", "");
</script>"""


class Hostile(http.server.BaseHTTPRequestHandler):
    def __init__(self, target, *words):
        self.target = target
        super().__init__(*words)

    def do_GET(self):  # pylint: disable=invalid-name
        text = (HOSTILE % (self.target, EVIL)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def test_hostile_page(feroce, _):
    with serving(feroce) as server, running_pair(feroce), \
            browsing(f"--host-resolver-rules=MAP {EVIL} 127.0.0.1") as browser:
        hostile = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Hostile, server.port))
        threading.Thread(target=hostile.serve_forever, daemon=True).start()
        page = Page(browser)
        page.open(f"http://{EVIL}:{hostile.server_port}/")
        read = page.await_value("its attempts", "document.getElementById('read').innerText",
                                lambda text: "end:" in text)
        for how in "cors", "no-cors", "script", "image", "framed":
            assert f"{how}: nothing" in read, read
        assert "ib_write_bw" not in read and "feroce_lo" not in read, read
        # The browser takes the server for one of the hostile name: what it gets says no.
        page.open(f"http://{EVIL}:{server.port}/")
        page.await_value("a refusal", "document.body?.innerText ?? ''",
                         lambda text: "the Host header names another machine" in text)
        said = page.value("fetch('/state.json').then(a => a.text().then(t => a.status + t))")
        assert said.startswith("403") and "feroce_lo" not in said, said
        hostile.shutdown()
        hostile.server_close()


def main():
    folder = os.path.abspath(sys.argv[1])
    if shutil.which("chromium") is None:
        print("chromium is not installed")
        return 77
    if not enter_own_network():
        return 77
    feroce = os.path.join(folder, "feroce")
    for test in test_page, test_cut_path, test_capture, test_hostile_page:
        test(feroce, sys.argv[2] if len(sys.argv) > 2 else None)
        print(f"{test.__name__}: good")
    return 0


if __name__ == "__main__":
    sys.exit(main())
