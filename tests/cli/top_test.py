#!/usr/bin/env python3
"""`feroce top` beside real programs, in a terminal of tmux and in pipes:
top_test.py NAME FOLDER_OF_FEROCE STATE_CROWD. Exit status 77: not here."""
import contextlib
import glob
import json
import os
import pty
import resource
import subprocess
import sys
import tempfile
import time

from own_network import run_named_test

PATIENCE = 100


def await_true(what, condition, shown=lambda: ""):
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, f"waited in vain: {what}\n{shown()}"
        time.sleep(0.05)


class Terminal:
    """A terminal of tmux with one program in it."""

    def __init__(self, scratch, words, columns=80, rows=24):
        self.socket = os.path.join(scratch, "tmux")
        self.ended = os.path.join(scratch, "status")
        # tmux may miss the end of a program, so a shell writes down how it was.
        script = '"$@"; echo $? >"$0.new"; mv "$0.new" "$0"; exec sleep 1000'
        config = os.path.join(scratch, "config")
        with open(config, "w", encoding="ascii") as file:
            file.write("set -g status off\n")
        self.tmux("-f", config, "new-session", "-d", "-x", str(columns), "-y", str(rows), "sh",
                  "-c", script, self.ended, *words)

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", self.socket, *words], check=True, text=True,
                              capture_output=True, timeout=PATIENCE,
                              env=os.environ | {"LC_ALL": "C.UTF-8"}).stdout

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def program(self):
        shell = int(self.tmux("display", "-p", "#{pane_pid}"))
        with open(f"/proc/{shell}/task/{shell}/children", encoding="ascii") as children:
            return int(children.read().split()[0])

    def resize(self, columns, rows):
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def await_screen(self, what, condition):
        await_true(what, lambda: condition(self.screen()), self.screen)
        return self.screen()

    def exit_status(self):
        await_true("the program ends", lambda: os.path.exists(self.ended), self.screen)
        with open(self.ended, encoding="ascii") as file:
            return int(file.read())


@contextlib.contextmanager
def terminal(*words, **options):
    with tempfile.TemporaryDirectory() as scratch:
        made = Terminal(scratch, words, **options)
        try:
            yield made
        finally:
            made.tmux("kill-server")


def listens(port):
    with open("/proc/net/tcp", encoding="ascii") as v4, \
            open("/proc/net/tcp6", encoding="ascii") as v6:
        return any(f":{port:04X} " in line and " 0A " in line for line in [*v4, *v6])


@contextlib.contextmanager
def running(words, **options):
    child = subprocess.Popen(words, **options)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


@contextlib.contextmanager
def running_pair(feroce):
    """ib_write_bw, both ends, which goes on until the test ends it."""
    words = [feroce, "run", "--", "ib_write_bw", "-d", "feroce_lo", "-p", "18600", "-s", "8192",
             "--run_infinitely"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with running(words, **quiet) as server:
        await_true("the server listens", lambda: listens(18600))
        with running([*words, "127.0.0.1"], **quiet) as client:
            yield server, client


def look(feroce, *options):
    done = subprocess.run([feroce, "top", "--once", "--every", "0.2", *options], text=True,
                          capture_output=True, timeout=PATIENCE, check=True)
    assert done.stderr == "", done.stderr
    return done.stdout


def flows(sample, pid):
    return any(p["pid"] == pid and (p["sent_bytes_per_second"] or 0) > 0
               for p in sample["processes"])


def fits(screen, columns):
    return all(len(line) <= columns for line in screen.split("\n"))


def test_live_pair(feroce, _):
    with running_pair(feroce) as (server, client), \
            terminal(feroce, "top", "--every", "0.2") as term:
        def shows_pair(screen):
            rows = [line for line in screen.split("\n") if "ib_write_bw" in line]
            return {str(server.pid), str(client.pid)} <= {row.split()[0] for row in rows if row} \
                and any(row.split()[3][-1] in "kMG" for row in rows)
        shown = term.await_screen("both ends, and data that flow", shows_pair)
        assert "feroce top: 2 processes, 2 queue pairs, 0 sessions, 0 disks" in shown, shown
        assert "feroce_lo" in shown and "q quit" in shown, shown
        # In every size, smaller and larger.
        for columns, rows in (40, 10), (132, 50), (20, 3), (80, 24):
            term.resize(columns, rows)
            shown = term.await_screen(
                f"{columns} x {rows}",
                lambda s, columns=columns, rows=rows:
                s.startswith("feroce top: 2 proces"[:columns]) and fits(s, columns) and
                (rows < 6 or s.rstrip("\n").split("\n")[-1].startswith("q quit") and
                 s.rstrip("\n").count("\n") == rows - 1))
        # Another table, sorted otherwise, filtered.
        term.press("3")
        shown = term.await_screen("queue pairs", lambda s: "[3 qps]" in s and s.count("0x") >= 2)
        assert all(title in shown for title in ("QPN", "OUTST", "WINDOW", "RTT")), shown
        assert "RTS" in shown, shown
        term.press("s")
        term.await_screen("another column", lambda s: "by RX-P/s" in s)
        term.press("/", "n", "o", "s", "u", "c", "h", "Enter")
        term.await_screen("a filter without rows", lambda s: "/nosuch" in s and "0x" not in s)
        term.press("Escape")
        term.await_screen("no filter", lambda s: s.count("0x") >= 2)
        term.press("q")
        assert term.exit_status() == 0, term.screen()


def test_plain(feroce, _):
    with running_pair(feroce) as (server, client):
        await_true("data flow", lambda: flows(json.loads(look(feroce, "-j")), client.pid))
        sample = json.loads(look(feroce, "-j"))
        assert {p["pid"] for p in sample["processes"]} == {server.pid, client.pid}, sample
        assert [d["ifname"] for d in sample["devices"]] == ["feroce_lo"], sample["devices"]
        assert sample["devices"][0]["sent_bytes_per_second"] > 0
        assert sample["sessions"] == sample["disks"] == []
        assert len(sample["qps"]) == 2
        for qp in sample["qps"]:
            assert qp["state"] in ("RTR", "RTS") and qp["by"] == "ring", qp
            assert qp["last_error"] == "", qp
        sender = next(qp for qp in sample["qps"] if qp["pid"] == client.pid)
        assert sender["posts_per_second"] > 0 and sender["window_bytes"] > 0, sender
        assert set(sample["processes"][0]["resent_packets"]) == \
            {"timeout", "probe", "nak_seq", "rnr", "lost_response"}
        text = look(feroce)
        assert [line.split()[0] for line in text.split("\n") if line.isupper() or "/s" in line] == \
            ["DEVICE", "PID", "QPN"], text
        assert "\x1b" not in text
        assert look(feroce, "--view", "qps", "--filter", "nosuch").count("\n") == 1, "the head"
        # In a pipe it goes on, until nobody reads any more.
        with subprocess.Popen([feroce, "top", "--every", "0.1"], text=True,
                              stdout=subprocess.PIPE) as endless:
            lines = [endless.stdout.readline() for _ in range(20)]
            endless.stdout.close()
            assert sum(line.startswith("DEVICE") for line in lines) >= 2, lines
            assert endless.wait(PATIENCE) != 0
    for wrong, said in ((["--every", "0"], "top looks every"), (["--view", "x"], "no table x"),
                        (["--sort", "x"], "no column x")):
        done = subprocess.run([feroce, "top", "--once", *wrong], text=True, capture_output=True,
                              timeout=PATIENCE, check=False)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done
    assert "feroce_lo" in look(feroce), "devices are there without programs"
    check_terminals(feroce)


def in_terminal(words, name):
    """What a program says on stderr, and its exit status, with a terminal for all else."""
    outer, inner = pty.openpty()
    done = subprocess.run(words, stdin=inner, stdout=inner, stderr=subprocess.PIPE, text=True,
                          timeout=PATIENCE, check=False, env=os.environ | {"TERM": name})
    os.close(outer)
    os.close(inner)
    return done.returncode, done.stderr


def check_lost_terminal(feroce):
    """No terminal controls it, so no signal tells it."""
    outer, inner = pty.openpty()
    with running([feroce, "top", "--every", "0.1"], stdin=inner, stdout=inner,
                 stderr=subprocess.PIPE, text=True, start_new_session=True,
                 env=os.environ | {"TERM": "xterm"}) as child:
        os.close(inner)
        assert os.read(outer, 1), "it draws"
        os.close(outer)
        assert child.wait(PATIENCE) == 1
        assert child.stderr.read() == "feroce: the terminal is gone\n"


def check_terminals(feroce):
    check_lost_terminal(feroce)
    status, said = in_terminal([feroce, "top"], "nosuchterminal")
    assert status == 1 and said.startswith("feroce: top does not know how to draw on a terminal "
                                           "nosuchterminal"), (status, said)
    # Without ncurses; the mounts end with this test.
    libraries = [name for place in ("/lib/*", "/usr/lib/*")
                 for name in glob.glob(f"{place}/libncurses*.so.6*")]
    for library in {os.path.realpath(name) for name in libraries}:
        subprocess.run(["mount", "--bind", "/dev/null", library], check=True)
    status, said = in_terminal([feroce, "top"], "xterm")
    assert (status, said) == (1, "feroce: top needs ncurses to draw: apt install libncursesw6, or "
                                 "use --once\n"), (status, said)
    assert "feroce_lo" in look(feroce), "without it there is the plain table"


def test_errors(feroce, _):
    failing = os.path.join(os.path.dirname(feroce), "bad_access")
    with running([feroce, "run", "--", failing, "--wait"], stdin=subprocess.PIPE,
                 stdout=subprocess.PIPE) as child:
        assert child.stdout.readline(), "it says how its work request ended"
        sample = json.loads(look(feroce, "-j"))
        process = next(p for p in sample["processes"] if p["pid"] == child.pid)
        assert process["errors"] == 1, process
        assert {qp["state"] for qp in sample["qps"]} == {"ERR"}
        said = [qp["last_error"] for qp in sample["qps"]]
        assert all("key" in sentence for sentence in said), said
        assert any("IBV_WC_REM_ACCESS_ERR" in sentence for sentence in said), said
        assert max(said, key=len) in look(feroce, "--view", "qps")
        # On 80 columns the sentence of the chosen row has its own lines.
        with terminal(feroce, "top") as term:
            term.await_screen("the sentence", lambda s: "key" in s)
            term.press("q")
            assert term.exit_status() == 0
        # A program that is stopped does not answer, and is shown all the same.
        os.kill(child.pid, 19)
        sample = json.loads(look(feroce, "-j"))
        process = next(p for p in sample["processes"] if p["pid"] == child.pid)
        assert not process["answers"] and process["sent_bytes_per_second"] is None, process


def test_disks(feroce, _):
    with tempfile.TemporaryDirectory() as scratch, \
            running([feroce, "export", "d=memory:16M", "--address", "127.0.0.1"],
                    env=dict(os.environ, STATE_DIRECTORY=scratch), stdout=subprocess.PIPE,
                    text=True) as server:
        assert server.stdout.readline(), "it serves"
        socket = os.path.join(scratch, "socket")
        with running([feroce, "attach", "127.0.0.1", "d", "--session", "reader", "--socket", socket,
                      "--foreground"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            await_true("the disk is attached", lambda: os.path.exists(socket))
            subprocess.run(["nbdcopy", f"nbd+unix:///?socket={socket}", "null:"], check=True,
                           timeout=PATIENCE)
            sample = json.loads(look(feroce, "-j"))
            disk, = sample["disks"]
            assert (disk["disk"], disk["pid"], disk["size"]) == ("d", server.pid, 16 << 20), disk
            assert disk["read_bytes"] >= 16 << 20 and disk["reads"] > 0, disk
            assert disk["writer"] == "reader" and disk["addresses"] == "127.0.0.1", disk
            session, = sample["sessions"]
            assert session["session"] == "reader" and session["failed"] == 0, session
            assert [path["state"] for path in session["paths"]] == ["connected"], session
            assert session["requests_per_second"] == 0, "nothing is asked of it now"
            text = look(feroce)
            assert "reader" in text.split("DISK")[1] and "1/1" in text.split("SESSION")[1], text


def seconds_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def look_at_crowd(feroce):
    before, began = seconds_of_children(), time.monotonic()
    text = look(feroce, "-j")
    took, used = time.monotonic() - began - 0.2, seconds_of_children() - before
    print(f"--once -j: two looks in {took:.2f} s, {used:.2f} s of CPU, {len(text)} bytes")
    sample = json.loads(text)
    return len(sample["processes"]) == 250 and len(sample["qps"]) == 10_000 and \
        all(p["answers"] and (p["sent_bytes_per_second"] or 0) > 0
            for p in sample["processes"])


def test_crowd(feroce, crowd):
    with running([crowd, "250", "40"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                 text=True) as members:
        assert members.stdout.readline() == "ready\n"
        # On a busy machine not all of them may answer in time at once.
        await_true("all answer", lambda: look_at_crowd(feroce))
        with terminal(feroce, "top", "--view", "qps") as term:
            began = time.monotonic()
            term.await_screen("all of them", lambda s: "250 processes, 10000 queue pairs" in s
                              and s.count("0x") > 5)
            print(f"first table after {time.monotonic() - began:.2f} s")
            pid = term.program()
            ticks, began = cpu_ticks(pid), time.monotonic()
            for _ in range(10):
                term.press("NPage")
            term.press("/", "0", "x", "f", "a", "0", "0", "2", "7")
            term.await_screen("one of them", lambda s: s.count("0xfa00") == 2)
            print(f"ten pages and a filter after {time.monotonic() - began:.2f} s")
            await_true("some looks", lambda: time.monotonic() - began > 5)
            share = (cpu_ticks(pid) - ticks) / os.sysconf("SC_CLK_TCK") / \
                (time.monotonic() - began)
            print(f"{share:.0%} of a core")
            term.press("Escape", "q")
            assert term.exit_status() == 0


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return int(words[11]) + int(words[12])


if __name__ == "__main__":
    sys.exit(run_named_test(globals()))
