#!/usr/bin/env python3
"""What happens around a call: Ctrl-C, the end of the interpreter, fork(), garbage, a closed asyncio
loop. Each in a process of its own, which must end by itself, without a crash."""
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

import feroce
import support

# A server of which the handler never answers b"wait", and a session with it.
BEGIN = """
import asyncio, errno, gc, os, sys, threading, time
import feroce
never = threading.Event()
def handle(request):
    if request.message == b"wait":
        print("asked", flush=True)
        never.wait()
    return b"answer"
server = feroce.Server(handle, address="127.0.0.1", port=0, threads=2)
session = feroce.Session("life", "127.0.0.1", port=server.port)
"""


class Life(unittest.TestCase):
    def run_lines(self, text, **options):
        return support.python(self, BEGIN + text, **options)

    def interrupt(self, text):
        """Sends SIGINT when the process says that it is asked; what it prints besides."""
        with subprocess.Popen([sys.executable, "-c", BEGIN + text], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), "asked\n")
            time.sleep(0.1)  # A signal that comes before the wait is seen later, not lost.
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=support.PATIENCE)
            return process.returncode, out, err, time.monotonic() - begin

    def test_ctrl_c_ends_a_wait(self):
        status, out, err, _seconds = self.interrupt("""
try:
    session.read(b"wait", 10)
except KeyboardInterrupt:
    print("interrupted")
print(session.read(b"other", 10).decode())
""")
        self.assertEqual((status, out), (0, "interrupted\nanswer\n"), err)

    def test_ctrl_c_ends_a_join(self):
        status, out, err, _seconds = self.interrupt("""
print("asked", flush=True)
try:
    feroce.join(rank=0, size=2, seed="127.0.0.1", port=7489, patience=600)
except KeyboardInterrupt:
    print("interrupted")
""")
        self.assertEqual((status, out), (0, "interrupted\n"), err)

    def test_ctrl_c_ends_a_server(self):
        status, out, err, _seconds = self.interrupt("""
print("asked", flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    print("interrupted")
""")
        self.assertEqual((status, out), (0, "interrupted\n"), err)

    def test_ends_with_requests_in_flight(self):
        self.run_lines("""
thread = threading.Thread(target=lambda: session.read(b"wait", 10), daemon=True)
thread.start()
time.sleep(0.1)
""")
        self.run_lines("""
async def leave():
    asyncio.create_task(session.read_async(b"wait", 10))
    await asyncio.sleep(0.1)
asyncio.run(leave())
""")
        self.run_lines("""
thread = threading.Thread(target=lambda: session.read(b"wait", 10), daemon=True)
thread.start()
time.sleep(0.1)
sys.exit(3)
""", status=3)

    def test_ends_within_an_address_space(self):
        self.run_lines("""
space = feroce.join(rank=0, size=1)
lock = space.lock("lock")
lock.acquire()
""")

    def test_a_child_has_objects_of_its_own(self):
        done = self.run_lines("""
space = feroce.join(rank=0, size=1)
lock = space.lock("lock")
print(session.read(b"a", 10).decode(), flush=True)
child = os.fork()
if child == 0:
    try:
        session.read(b"a", 10)
    except feroce.Error as error:
        print(error.code == errno.EBADF, flush=True)
    try:
        lock.acquire()
    except feroce.Error as error:
        print(error.code == errno.EBADF, flush=True)
    del lock, space
    gc.collect()
    own = feroce.Session("child", "127.0.0.1", port=server.port)
    print(own.read(b"a", 10).decode(), flush=True)
    async def read():
        return await own.read_async(b"a", 10)
    print(asyncio.run(read()).decode(), flush=True)
    own.close()
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(session.read(b"a", 10).decode())
""")
        self.assertEqual(done.stdout.splitlines(),
                         ["answer", "True", "True", "answer", "answer", "5", "answer"])

    def test_garbage_ends(self):
        done = self.run_lines("""
count = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
for i in range(20):
    other = feroce.Session(f"garbage {i}", "127.0.0.1", port=server.port)
    other.write(b"a", b"b")
    space = feroce.join(rank=0, size=1)
    space.lock("lock").acquire()
    del other, space
gc.collect()
session.read(b"a", 10)
for _ in range(1000):
    now = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    if now[0] <= count[0] + 1 and now[1] <= count[1] + 4:
        break
    time.sleep(0.01)
else:
    print("there were", count, "threads and descriptors, and are", now)
""")
        self.assertEqual(done.stdout, "")

    def test_a_server_that_is_forgotten_ends(self):
        done = self.run_lines("""
session.close()
threads = list(server._threads)
del server
gc.collect()
for thread in threads:
    thread.join(30)
print([thread.is_alive() for thread in threads])
""")
        self.assertEqual(done.stdout, "[False, False]\n")

    def test_a_loop_that_is_closed(self):
        self.run_lines("""
loop = asyncio.new_event_loop()
task = loop.create_task(session.read_async(b"wait", 10))
loop.run_until_complete(asyncio.sleep(0.1))
task.cancel()
loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
loop.close()
del loop, task
gc.collect()
assert session.read(b"a", 10) == b"answer"
""")

    def test_signals_of_threads_are_the_programs(self):
        done = self.run_lines("""
import signal
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.current_thread().name))
for _ in range(20):
    os.kill(os.getpid(), signal.SIGUSR1)
    session.read(b"a", 10)
print(set(seen))
""")
        self.assertEqual(done.stdout, "{'MainThread'}\n")


class Places(unittest.TestCase):
    def test_finds_the_libraries(self):
        """Of an archive, and of Debian's packages."""
        for where in ("lib/feroce", "lib/some-linux-gnu/feroce"):
            place = support.folder(self)
            package = place / "share/feroce/python/feroce"
            (place / where).mkdir(parents=True)
            (place / where / "libibverbs.so.1").touch()
            package.mkdir(parents=True)
            shutil.copy(feroce._place.__file__, package / "_place.py")
            done = support.python(self, "import _place; print(_place.libraries())",
                                  PYTHONPATH=str(package))
            self.assertEqual(done.stdout.strip(), str((place / where).resolve()))


class Types(unittest.TestCase):
    def test_mypy_finds_nothing(self):
        """Where Debian's mypy is installed."""
        try:
            from mypy import api
        except ImportError:
            self.skipTest("mypy is not installed")
        place = os.environ["PYTHONPATH"].split(":")[0]
        out, err, status = api.run(["--strict", "--cache-dir", os.devnull, f"{place}/feroce"])
        self.assertEqual(status, 0, out + err)


if __name__ == "__main__":
    support.main()
