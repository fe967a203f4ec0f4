#!/usr/bin/env python3
"""Disks through NBD, as users use them: nbd_test.py FOLDER_OF_FEROCE NAME.

Each test exports over loopback, attaches, and lets unmodified programs read and write.
"""
import errno
import fcntl
import filecmp
import json
import os
import signal
import socket as sockets
import subprocess
import sys
import tempfile
import time

from disks import attached, exported, fail, run, use_state_in

# Every fourth, since a test may use the next as well; no other test of this time has the same.
PORT = str(8000 + os.getpid() * 4 % 12000)
MIB = 1 << 20


def image(path, size):
    with open(path, "wb") as out:
        for _ in range(size // MIB // 2):
            out.write(os.urandom(MIB))
            out.seek(MIB, os.SEEK_CUR)  # Holes, too.
        out.truncate(size)


def equal(got, wanted, what):
    if got != wanted:
        fail(f"{what}: wanted {wanted!r}, got {got!r}")


def test_info(feroce, scratch):
    """Size, flags and block sizes are the true ones."""
    path = f"{scratch}/disk"
    image(path, 8 * MIB)
    with exported(feroce, f"data={path}", f"fixed={path},ro", "m=memory:64M", "--port", PORT):
        with attached(feroce, scratch, "127.0.0.1", "data", "--port", PORT) as uri:
            shown = json.loads(run("nbdinfo", "--json", uri))["exports"][0]
            equal(shown["export-size"], 8 * MIB, "size")
            wanted = {"is_read_only": False, "can_flush": True, "can_fua": True, "can_trim": True,
                      "can_zero": True, "can_multi_conn": True, "is_rotational": False,
                      "block_size_minimum": 512, "block_size_preferred": 4096}
            equal({key: shown.get(key) for key in wanted}, wanted, "what nbdinfo shows")
            os.truncate(path, 16 * MIB)
            equal(run("nbdinfo", "--size", uri).strip(), str(16 * MIB), "size after it has grown")
            with attached(feroce, scratch, "127.0.0.1", "fixed", "--port", PORT, "--access",
                          "ro") as other:
                shown = json.loads(run("nbdinfo", "--json", other))["exports"][0]
                equal(shown["is_read_only"], True, "read only")


def test_dissector(feroce, scratch):
    """tshark with our dissector names every message of a server's capture."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    capture, disk = f"{scratch}/server.pcapng", f"{scratch}/disk"
    image(disk, 2 * MIB)
    os.environ["FEROCE_PCAP"] = capture
    server = exported(feroce, f"data={disk}", "--port", PORT)
    with server:
        del os.environ["FEROCE_PCAP"]
        with attached(feroce, scratch, "127.0.0.1", "data", "--port", PORT) as uri:
            run("nbdcopy", uri, f"{scratch}/back")
    print(run(f"{root}/tests/golden/dissector_check.py", f"{root}/tools/wireshark/feroce_rtrs.lua",
              capture))


def test_copies(feroce, scratch):
    """nbdcopy and qemu-img bring an image there and back, unchanged."""
    size = int(os.environ.get("FEROCE_TEST_MIB", "48")) * MIB
    source, disk, back = f"{scratch}/source", f"{scratch}/disk", f"{scratch}/back"
    image(source, size)
    with open(disk, "wb") as out:
        out.truncate(size)
    with exported(feroce, f"data={disk}", f"m=memory:{size}", "--port", PORT):
        for name in ("data", "m"):
            with attached(feroce, scratch, "127.0.0.1", name, "--port", PORT) as uri:
                run("nbdcopy", "--flush", source, uri)
                run("nbdcopy", uri, back)
                if not filecmp.cmp(source, back, shallow=False):
                    fail(f"nbdcopy through {name} changed the image")
                run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", source, uri)
                run("qemu-img", "compare", "-f", "raw", "-F", "raw", source, uri)
        os.remove(back)
    if not filecmp.cmp(source, disk, shallow=False):
        fail("the exported file is not the image")


def test_fio(feroce, scratch):
    """What fio wrote it finds again, in every size from 4 KiB to 1 MiB."""
    with exported(feroce, "m=memory:64M", "--port", PORT):
        with attached(feroce, scratch, "127.0.0.1", "m", "--port", PORT) as uri:
            run("fio", "--name=verify", "--ioengine=nbd", f"--uri={uri}", "--rw=randwrite",
                "--bsrange=4k-1m", "--size=64m", "--iodepth=16", "--verify=crc32c",
                "--verify_fatal=1", "--fsync=32", "--minimal", cwd=scratch)


def test_several(feroce, scratch):
    """Several connections of one client, and clients of several programs, see one disk."""
    with exported(feroce, "m=memory:64M", "--port", PORT):
        with attached(feroce, scratch, "127.0.0.1", "m", "--port", PORT) as uri:
            source, back = f"{scratch}/source", f"{scratch}/back"
            image(source, 48 * MIB)
            run("nbdcopy", "--connections=8", "--requests=64", "--flush", source, uri)
            run("nbdcopy", "--connections=4", "--threads=2", uri, back)
            with open(source, "rb") as one, open(back, "rb") as other:
                equal(other.read(48 * MIB) == one.read(), True, "what eight connections wrote")
            with OneClient(uri) as client, OneClient(uri) as beside:
                client.does("write -P 5 0 4096", "wrote 4096/4096")
                beside.does("read -P 5 0 4096", "read 4096/4096")


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listed:
            return listed.read().split()
    except FileNotFoundError:
        return []


def test_abandoned(feroce, scratch):
    """feroce attach is killed before the server has answered; the disk that comes then goes."""
    socket = f"{scratch}/s"
    words = ("127.0.0.1", "m", "--port", PORT)
    with exported(feroce, "m=memory:2M", "--port", PORT) as server:
        server.process.send_signal(signal.SIGSTOP)
        caller = subprocess.Popen([feroce, "attach", *words, "--socket", socket])
        while not children(caller.pid):
            equal(caller.poll(), None, "an attach whose server does not answer")
            time.sleep(0.01)
        front = int(children(caller.pid)[0])
        caller.kill()
        caller.wait()
        server.process.send_signal(signal.SIGCONT)
        # Not our child: its end is that it is not there, or waits to be collected.
        for _ in range(3000):
            try:
                with open(f"/proc/{front}/stat", encoding="ascii") as stat:
                    if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                        break
            except (FileNotFoundError, ProcessLookupError):
                break
            time.sleep(0.01)
        else:
            fail("the process that nobody knows of stays")
        equal([os.path.exists(socket), os.path.exists(f"{socket}.pid")], [False, False], "files")
        with attached(feroce, scratch, *words) as uri:
            fine, said = qemu_io(uri, "write -P 3 0 4k", "read -P 3 0 4k")
            if not fine or "failed" in said:
                fail(said)


def test_plugin(feroce, scratch):
    """nbdkit serves a disk by our plugin."""
    source, back, socket = f"{scratch}/source", f"{scratch}/back", f"{scratch}/nbdkit"
    image(source, 8 * MIB)
    plugin = os.path.join(os.path.dirname(feroce), "..", "lib", "nbdkit-feroce-plugin.so")
    with exported(feroce, "m=memory:8M", "--port", PORT):
        with subprocess.Popen(["nbdkit", "--foreground", "--unix", socket, plugin,
                               "server=127.0.0.1", "disk=m", "session=plugin",
                               f"port={PORT}"]) as nbdkit:
            try:
                uri = f"nbd+unix:///?socket={socket}"
                for _ in range(600):
                    if nbdkit.poll() is not None or os.path.exists(socket):
                        break
                    time.sleep(0.05)
                run("nbdcopy", "--flush", source, uri)
                run("nbdcopy", uri, back)
                equal(filecmp.cmp(source, back, shallow=False), True, "a copy of the image")
            finally:
                nbdkit.terminate()


def refused(feroce, *words):
    """The one sentence of a command that must fail."""
    done = subprocess.run([feroce, *words], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0 or done.stdout:
        fail(f"{' '.join(words)} went well: {done.stdout}")
    lines = done.stderr.strip().split("\n")
    if len(lines) != 1:
        fail(f"{' '.join(words)} says more than one sentence: {done.stderr}")
    return lines[0]


def test_mistakes(feroce, scratch):
    """Every mistake gets one sentence that says what to do."""
    missing = refused(feroce, "export", f"x={scratch}/none", "--port", PORT)
    equal(missing, f"feroce: {scratch}/none cannot be opened: No such file or directory", "missing")
    if "is no export" not in refused(feroce, "export", "x"):
        fail("a word that is no export")
    if "export needs a disk" not in refused(feroce, "export"):
        fail("nothing to export")
    with open(f"{scratch}/config", "w", encoding="ascii") as out:
        out.write("port = 1\nexport a = memory:1M, wr\n")
    if "config line 2" not in refused(feroce, "export", "--config", f"{scratch}/config"):
        fail("a mistake in the file")
    nobody = refused(feroce, "attach", "127.0.0.1", "m", "--port", PORT, "--socket", f"{scratch}/s")
    if "feroce: " not in nobody:
        fail(nobody)
    with exported(feroce, "m=memory:1M", "--port", PORT):
        words = ("attach", "127.0.0.1", "none", "--port", PORT, "--socket", f"{scratch}/s")
        equal(refused(feroce, *words),
              "feroce: the server refused the disk none: it exports none of this name", "no disk")
        with attached(feroce, scratch, "127.0.0.1", "m", "--port", PORT):
            words = ("attach", "127.0.0.1", "m", "--port", PORT, "--socket", f"{scratch}/s")
            if "another client has it open" not in refused(feroce, *words):
                fail("a second writer")
        if "already" not in refused(feroce, "export", "m=memory:1M", "--port", PORT) and \
                "use" not in refused(feroce, "export", "m=memory:1M", "--port", PORT):
            fail("a port that is taken")
    if "is no disk of feroce attach" not in refused(feroce, "detach", f"{scratch}/s"):
        fail("nothing to detach")


def test_crowded(feroce, scratch):
    """feroce detach ends a disk that has more clients than it takes, waiting ones included."""
    path = f"{scratch}/s"
    with exported(feroce, "m=memory:1M", "--port", PORT):
        run(feroce, "attach", "127.0.0.1", "m", "--port", PORT, "--socket", path)
        clients, deadline = [], time.monotonic() + 30
        while len(clients) < 64 + 65:  # Those that it takes, and those that the kernel lets wait.
            client = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
            client.setblocking(False)
            try:
                client.connect(path)
                clients.append(client)
            except BlockingIOError:
                client.close()
            if time.monotonic() > deadline:
                fail(f"{len(clients)} clients")
        run(feroce, "detach", path)
        equal(os.path.exists(path), False, "the socket")
        for client in clients:
            client.close()


def test_identity(feroce, scratch):
    """Attach and detach touch their own processes and files, whatever became of them."""
    socket = f"{scratch}/s"
    # The server comes a moment after the client.
    words = [feroce, "attach", "127.0.0.1", "m", "--port", PORT, "--socket", socket]
    late = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    with exported(feroce, "m=memory:1M", "--port", PORT):
        uri = late.communicate(timeout=60)[0].strip()
        equal(late.returncode, 0, "attach to a server that starts")
        with open(f"{socket}.pid", encoding="ascii") as pid_file:
            server = int(pid_file.read())
        # It is killed, and its pid is another process's by now.
        os.kill(server, signal.SIGKILL)
        other = subprocess.Popen(["sleep", "600"])
        with open(f"{socket}.pid", "w", encoding="ascii") as pid_file:
            pid_file.write(f"{other.pid}\n")
        run(feroce, "detach", uri)
        equal(other.poll(), None, "a process of somebody else's")
        other.kill()
        other.wait()
        equal([os.path.exists(socket), os.path.exists(f"{socket}.pid")], [False, False], "files")
    # The files of its own are where nobody else can write.
    private = f"{scratch}/runtime"
    os.mkdir(private, 0o777)
    os.chmod(private, 0o777)
    os.environ["XDG_RUNTIME_DIR"] = private
    if "yours alone" not in refused(feroce, "attach", "--as", "nbd", "127.0.0.1", "m", "--port",
                                    PORT):
        fail("a folder that anybody can write")
    del os.environ["XDG_RUNTIME_DIR"]


def test_writers(feroce, scratch):
    """A writer's hold is seen, and can be taken away."""
    with exported(feroce, "m=memory:2M", "--port", PORT), \
            attached(feroce, scratch, "127.0.0.1", "m", "--port", PORT, "--session", "old") as old:
        shown = run(feroce, "export", "--writers").split()
        equal(shown[:4], ["disk", "m", "session", "old"], "writers")
        equal(shown[6:], ["from", "127.0.0.1"], "writers")
        words = ("attach", "127.0.0.1", "m", "--port", PORT, "--socket", f"{scratch}/s")
        if "another client has it open" not in refused(feroce, *words):
            fail("a second writer")
        run(feroce, "export", "--evict", "m")
        if "no client has" not in refused(feroce, "export", "--evict", "m"):
            fail("nobody to evict")
        with attached(feroce, scratch, "127.0.0.1", "m", "--port", PORT) as new:
            fine, said = qemu_io(new, "write -P 7 0 4k")
            if not fine:
                fail(said)
            # A new NBD client would have the disk opened again, which is another's now.
            for _ in range(2):
                fine, said = qemu_io(old, "write -P 8 0 4k")
                if fine:
                    fail(f"the one that was evicted writes: {said}")
            fine, said = qemu_io(new, "read -P 7 0 4k")
            if not fine or "failed" in said:
                fail(said)
        # The other has gone, and the disk is the first one's again.
        fine, said = qemu_io(old, "read -P 7 0 4k", "write -P 9 0 4k")
        if not fine or "failed" in said:
            fail(f"the disk is free, and cannot be opened again: {said}")


class Reloaded:
    """A server and its config file."""

    def __init__(self, feroce, scratch):
        self.feroce, self.path = feroce, f"{scratch}/config"
        self.server = None

    def write(self, *lines):
        with open(self.path + ".new", "w", encoding="ascii") as out:
            out.write("\n".join([f"port = {PORT}", *lines, ""]))
        os.rename(self.path + ".new", self.path)

    def said(self, *wanted):
        """It says these lines next."""
        for line in wanted:
            equal(self.server.process.stdout.readline().strip(), line, "what the server says")

    def reload(self, *lines):
        self.write(*lines)
        run(self.feroce, "export", "--reload", "--config", self.path)

    def refuses(self, *lines):
        self.write(*lines)
        return refused(self.feroce, "export", "--reload", "--config", self.path)


def test_reload(feroce, scratch):
    """A config that is read again: exports come and go, and a mistake changes nothing."""
    one, two = f"{scratch}/one", f"{scratch}/two"
    image(one, 2 * MIB)
    image(two, 4 * MIB)
    config = Reloaded(feroce, scratch)
    data = f"export data = {one}"
    config.write(data, "export m = memory:1M")
    at = ("127.0.0.1", "data", "--port", PORT)
    with exported(feroce, "--config", config.path) as server:
        config.server = server
        config.said(f"m: 1048576 bytes on port {PORT}")
        with exported(feroce, "x=memory:1M", "--port", str(int(PORT) + 1)) as killed:
            killed.kill()  # It leaves its door behind.
            killed.stop = lambda: None
        with attached(feroce, scratch, *at) as uri:
            check_mistakes(config, scratch, data)
            equal(qemu_io(uri, "write -P 1 0 4k", "flush")[0], True, "after mistakes")
            # By the signal: another appears, one goes, and the one that is used goes on.
            config.write(data, f"export other = {two}, ro")
            server.process.send_signal(signal.SIGHUP)
            config.said("m: withdrawn", f"other: {4 * MIB} bytes on port {PORT}")
            equal(qemu_io(uri, "read -P 1 0 4k", "write -P 2 0 4k")[0], True, "one that stays")
            if "exports none" not in refused(feroce, "attach", "127.0.0.1", "m", "--port", PORT,
                                             "--socket", f"{scratch}/s"):
                fail("a disk that was withdrawn")
            check_replaced(config, uri, one, two)
        # The lock went with the export.
        with exported(feroce, f"x={one}", "--port", str(int(PORT) + 1)):
            pass
        config.reload(data)
        with attached(feroce, scratch, *at) as uri:
            equal(qemu_io(uri, "read -P 2 0 4k", "write -P 3 0 4k")[0], True, "one that is back")
            config.reload(data + ", from=10.0.0.0/8")
            equal(qemu_io(uri, "read 0 4k")[0], False, "a client that may not come any more")
            config.reload(data + ", from=127.0.0.0/8")
            equal(qemu_io(uri, "read -P 3 0 4k")[0], True, "a client that may again")


def test_reload_beside_others(feroce, scratch):
    """Servers that are stopped, or that end while they are asked, hold up no reload of another."""
    config = Reloaded(feroce, scratch)
    config.write("export m = memory:1M")
    with exported(feroce, "--config", config.path) as server:
        config.server = server
        for end in (signal.SIGCONT, signal.SIGKILL):
            with exported(feroce, "x=memory:1M", "--port", str(int(PORT) + 1)) as other:
                other.process.send_signal(signal.SIGSTOP)
                with subprocess.Popen([feroce, "export", "--reload", "--config", config.path],
                                      stderr=subprocess.PIPE, text=True) as asked:
                    if end == signal.SIGKILL:
                        other.kill()
                        other.stop = lambda: None
                    said = asked.communicate(timeout=30)[1]
                equal(asked.returncode, 0, said)
                if end == signal.SIGCONT:
                    if f"process {other.process.pid} does not answer" not in said:
                        fail(said)
                    other.process.send_signal(signal.SIGCONT)


def test_switched(feroce, scratch):
    """A config behind a link, and the link leads elsewhere: it is the same config."""
    for name in ("old", "new"):
        os.mkdir(f"{scratch}/{name}")
        with open(f"{scratch}/{name}/config", "w", encoding="ascii") as out:
            out.write(f"port = {PORT}\nexport {name} = memory:1M\n")
    link = f"{scratch}/now"
    os.symlink("old", link)
    with exported(feroce, "--config", f"{link}/config") as server:
        os.symlink("new", link + ".next")
        os.rename(link + ".next", link)
        run(feroce, "export", "--reload", "--config", f"{link}/config")
        lines = [server.process.stdout.readline().strip() for _ in range(2)]
        equal(lines, ["old: withdrawn", f"new: 1048576 bytes on port {PORT}"], "the server")
        # Under another name of the file as it is now.
        run(feroce, "export", "--reload", "--config", f"{scratch}/new/config")


def test_early(feroce, scratch):
    """A server that is asked to reload before it serves does not end by it."""
    disk = f"{scratch}/disk"
    image(disk, 2 * MIB)
    config = f"{scratch}/config"
    with open(config, "w", encoding="ascii") as out:
        out.write(f"port = {int(PORT) + 1}\nexport data = {disk}\n")
    with exported(feroce, f"data={disk}", "--port", PORT), \
            subprocess.Popen([feroce, "export", "--config", config], stderr=subprocess.PIPE,
                             text=True) as late:
        # It waits for the file, which it does not get.
        while not catches(late, signal.SIGHUP):
            if late.poll() is not None:
                fail("it never caught SIGHUP")
            time.sleep(0.01)
        late.send_signal(signal.SIGHUP)
        said = late.communicate(timeout=60)[1]
        equal(late.returncode, 1, f"a server whose file another has: {said}")
        if "exported for writing already" not in said:
            fail(said)


def test_ends_in_reload(feroce, scratch):
    """A server that is asked to end waits for no config that cannot be read."""
    config = Reloaded(feroce, scratch)
    config.write("export m = memory:1M")
    with exported(feroce, "--config", config.path) as server:
        os.unlink(config.path)
        os.mkfifo(config.path)
        server.process.send_signal(signal.SIGHUP)
        fifo = writer_of(config.path)
        try:
            server.stop()  # Nothing was written: a thread still reads.
        finally:
            os.close(fifo)
        server.stop = lambda: None


def writer_of(fifo):
    """Opens it when somebody reads it."""
    for _ in range(3000):
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            time.sleep(0.01)
    return fail("nobody reads the config again")


def catches(process, number):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        caught = next((line for line in status if line.startswith("SigCgt")), "SigCgt: 0")
    return int(caught.split()[1], 16) >> (number - 1) & 1


def check_mistakes(config, scratch, data):
    for mistake, why in (("export b = memory:1M, wr", "config line 3"),
                         (f"export b = {scratch}/none", "No such file"),
                         ("export b = memory:1M, from=10/8", "10.0.0.0/8"),
                         ("queue_depth = 7", "cannot be changed while"),
                         (f"export b = {scratch}/one", "would write one file")):
        said = config.refuses(data, mistake)
        if why not in said or "nothing is changed" not in said:
            fail(f"{mistake}: {said}")
    said = config.refuses()
    if "needs a disk" not in said:
        fail(f"a file without exports: {said}")
    os.remove(config.path)
    words = ("export", "--reload", "--config")
    if "cannot be read" not in refused(config.feroce, *words, config.path):
        fail("a file that is gone")
    if "with such a config file" not in refused(config.feroce, *words, f"{scratch}/none"):
        fail("a file that no server has")


def check_replaced(config, uri, one, two):
    """Another file under the name is another disk; another way of the same file the same."""
    config.reload(f"export data = {one}, ro")
    config.said("data: withdrawn", "other: withdrawn", f"data: {2 * MIB} bytes on port {PORT}")
    fine, said = qemu_io(uri, "write -P 9 0 4k")
    equal(fine, False, f"a disk that is for reading now: {said}")
    config.reload(f"export data = {one}")
    equal(qemu_io(uri, "write -P 2 0 4k", "flush")[0], True, "for writing again")
    with open(two, "rb") as content:
        before = content.read(4096)
    # A client that stays: a new one would have the disk opened again.
    with OneClient(uri) as client:
        client.does("read 0 4k", "read 4096/4096")
        config.reload(f"export data = {two}")
        client.does("write -P 9 0 4k", "Input/output error")
    with open(two, "rb") as content:
        equal(content.read(4096), before, "the other file")


def test_errors(feroce, scratch):
    """NBD clients get errors that NBD knows."""
    disk = f"{scratch}/disk"
    image(disk, 2 * MIB)
    words = ("127.0.0.1", "data", "--port", PORT, "--patience", "1")
    with exported(feroce, f"data={disk}", "--port", PORT) as server, \
            attached(feroce, scratch, *words) as uri, OneClient(uri) as client:
        client.does("read 0 4096", "read 4096/4096")
        server.kill()
        client.does("read 4096 4096", "Input/output error")
        server.stop = lambda: None


def test_shares(feroce, scratch):
    """One writes a file, under whatever name and by whatever server."""
    disk = f"{scratch}/disk"
    image(disk, 2 * MIB)
    os.link(disk, f"{scratch}/link")
    twice = refused(feroce, "export", f"a={disk}", f"b={scratch}/link", "--port", PORT)
    if "exported for writing already" not in twice:
        fail(twice)
    with open(f"{scratch}/empty", "wb"):
        pass
    if "give it a size" not in refused(feroce, "export", f"a={scratch}/empty", "--port", PORT):
        fail("an empty file")


def words_of_start(feroce, *prefix):
    """What a server says on stderr that is started and asked to end."""
    with subprocess.Popen([*prefix, feroce, "export", "m=memory:1M", "--port", PORT],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        if not server.stdout.readline():
            fail(f"feroce export ended with {server.wait()}: {server.stderr.read()}")
        server.terminate()
        said = server.communicate(timeout=60)[1]
    equal(server.returncode, 0, f"a server without a book: {said}")
    return said


def says_no_book(said, why):
    """One sentence: what is not, why, and what to do."""
    parts = ("feroce: this server keeps no book of its clients", why, "STATE_DIRECTORY")
    if said.count("\n") != 1 or not all(part in said for part in parts):
        fail(f"wanted one line with {parts}, got {said!r}")


def test_book(feroce, scratch):
    """A server that cannot remember the kernel's clients says so, and serves."""
    equal(words_of_start(feroce), "", "a server with a book")
    lock = f"{scratch}/state/clients-{PORT}.lock"
    with open(lock, "w", encoding="ascii") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        says_no_book(words_of_start(feroce), f"another server has locked {lock}")
    # Root may write everywhere, unless it has no capabilities.
    os.mkdir(f"{scratch}/closed")
    os.environ["STATE_DIRECTORY"] = f"{scratch}/closed"
    plain = ()
    if os.geteuid() == 0:
        os.chown(f"{scratch}/closed", 65534, 65534)
        plain = ("setpriv", "--inh-caps=-all", "--bounding-set=-all")
    os.chmod(f"{scratch}/closed", 0o555)
    says_no_book(words_of_start(feroce, *plain), f"{scratch}/closed cannot be written: Permission")
    os.environ["STATE_DIRECTORY"] = f"{scratch}/closed/none"
    says_no_book(words_of_start(feroce, *plain),
                 f"{scratch}/closed/none cannot be made: Permission")
    equal(os.listdir(f"{scratch}/closed"), [], "the closed folder")


class OneClient:
    """An NBD client that stays connected."""

    def __init__(self, uri):
        self.process = subprocess.Popen(["qemu-io", "-f", "raw", uri], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate("quit\n", timeout=60)

    def does(self, command, wanted):
        """It says so, and not the other of success and failure."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        # "read 4096/4096 bytes", or "write failed: Input/output error".
        ends = ("4096/4096", "error")
        said = ""
        while not any(end in said for end in ends):
            line = self.process.stdout.readline()
            if not line:
                fail(f"{command}: the client ended: {said}")
            said += line
        if wanted not in said:
            fail(f"{command}: wanted {wanted!r}, got {said!r}")


def qemu_io(uri, *commands):
    """Whether all went well, and what it says."""
    words = [word for command in commands for word in ("-c", command)]
    done = subprocess.run(["qemu-io", "-f", "raw", *words, uri], capture_output=True, text=True,
                          check=False, timeout=60)
    return done.returncode == 0, done.stdout + done.stderr


def fill_up(feroce, small, sockets):
    image(f"{small}/ballast", 4 * MIB)
    with open(f"{small}/disk", "wb") as out:
        out.truncate(64 * MIB)
    with exported(feroce, f"data={small}/disk", "m=memory:8M", "--port", PORT), \
            attached(feroce, sockets, "127.0.0.1", "data", "--port", PORT) as uri, \
            attached(feroce, sockets, "127.0.0.1", "m", "--port", PORT) as other:
        fine, said = qemu_io(uri, "write -P 7 0 2M", "flush")
        equal(fine, True, f"a write that has room: {said}")
        for _ in range(2):
            fine, said = qemu_io(uri, "write -P 8 8M 16M")
            equal((fine, "No space left on device" in said), (False, True), f"no room: {said}")
        fine, said = qemu_io(uri, "read -P 7 0 2M")
        equal(fine, True, f"what was there is there: {said}")
        fine, said = qemu_io(other, "write 0 4M")
        equal(fine, True, f"another disk has room: {said}")
        os.remove(f"{small}/ballast")
        fine, said = qemu_io(uri, "discard 8M 16M", "write -P 9 32M 4M", "flush",
                             "read -P 9 32M 4M", "read -P 7 0 2M")
        equal(fine, True, f"room that was made is used: {said}")


def test_full(feroce, scratch):
    """A full file system: the client is told, nobody is harmed, and room that is made is used."""
    if os.environ.get("FEROCE_TEST_PLACE") != "private":
        # In a name space of its own nobody else sees the mount, and root is anybody.
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        run("unshare", "--mount", *root, sys.executable, *sys.argv,
            env=dict(os.environ, FEROCE_TEST_PLACE="private"))
        return
    small = f"{scratch}/small"
    os.mkdir(small)
    run("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", small)
    try:
        fill_up(feroce, small, scratch)
    finally:
        run("umount", small)


def be_alone():
    """Servers of other tests are not to be found: what is asked of all servers is of ours."""
    if os.geteuid() == 0 and "FEROCE_TEST_ALONE" not in os.environ:
        os.environ["FEROCE_TEST_ALONE"] = "yes"
        os.execvp("unshare", ["unshare", "-m", "sh", "-c",
                              'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh",
                              sys.executable, *sys.argv])


def main():
    be_alone()
    os.environ["FEROCE_DEVICES"] = "lo"
    feroce = os.path.join(os.path.abspath(sys.argv[1]), "feroce")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        use_state_in(scratch)
        globals()[f"test_{sys.argv[2]}"](feroce, scratch)


if __name__ == "__main__":
    main()
