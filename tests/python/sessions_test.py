#!/usr/bin/env python3
"""feroce.Session against the key-value server in C++, and feroce.Server with a client in C++."""
import asyncio
import errno
import math
import subprocess
import threading
import time
import unittest

import feroce
import support

PORT = 7486
UNUSED_PORT = 7485


def connect(port, **options):
    """The server may not listen yet."""
    for _ in range(200):
        try:
            return feroce.Session("test", [support.ADDRESS], port=port, **options)
        except feroce.Error as error:
            if error.code != errno.ECONNREFUSED:
                raise
            time.sleep(0.05)
    raise AssertionError("the server never listened")


class WithCppServer(unittest.TestCase):
    def setUp(self):
        support.Program(self, support.BUILD / "examples/key_value_server",
                        support.ADDRESS, PORT, 2)
        self.session = connect(PORT)
        self.addCleanup(self.session.close)

    def test_reads_what_it_wrote(self):
        self.session.write(b"key", b"value")
        self.assertEqual(self.session.read(b"key", 5), b"value")
        self.assertEqual(self.session.read(b"key", 5, timeout=math.inf), b"value")
        self.session.write(bytearray(b"key"), memoryview(b"other"))
        self.assertEqual(self.session.read(b"key", 3), b"oth")

    def test_a_refusal_is_an_error_with_its_number_and_a_sentence(self):
        with self.assertRaises(feroce.Error) as raised:
            self.session.read(b"no such key", 4)
        self.assertEqual(raised.exception.code, errno.ENOENT)
        self.assertIn("the server refused or failed the request", raised.exception.strerror)

    def test_tells_of_itself(self):
        info = self.session.info()
        self.assertTrue(info.connected and info.extended)
        self.assertGreaterEqual(info.max_io_size, 64 << 10)
        with self.assertRaises(feroce.Error) as raised:
            self.session.read(b"key", 1 << 40)
        self.assertEqual(raised.exception.code, errno.EMSGSIZE)
        with self.assertRaises(feroce.Error) as raised:
            self.session.add_path(support.ADDRESS)
        self.assertEqual(raised.exception.code, errno.EEXIST)

    def test_bad_arguments_are_told(self):
        for wrong in ({"port": 0}, {"port": 65536 + PORT}, {"policy": "none"},
                      {"connect_timeout": -1}, {"connect_timeout": math.nan},
                      {"connections": 65536}):
            with self.assertRaises(ValueError):
                feroce.Session("test", [support.ADDRESS], **wrong)
        with self.assertRaises(ValueError):
            feroce.Session("te\0st", [support.ADDRESS], port=PORT)
        for wrong in ({"port": -1}, {"port": 65536}, {"queue_depth": 0}, {"queue_depth": 65537},
                      {"chunk_size": 2**32 + 4096}, {"address": "127.0.0.1\0"}):
            with self.assertRaises(ValueError):
                feroce.Server(print, **wrong)
        for paths in ([], [""], ["127.0.0.1\0"], ["not an address"], [("a", "b", "c")]):
            with self.assertRaises(ValueError):
                feroce.Session("test", paths)
        with self.assertRaises(ValueError):
            self.session.read(b"key", -1)
        with self.assertRaises(feroce.Error):
            feroce.Session("test", ["no:address!"])

    def test_many_tasks_at_a_time(self):
        async def one(number):
            key = b"task %d" % number
            await self.session.write_async(key, key * 100)
            return await self.session.read_async(key, len(key) * 100) == key * 100

        async def all_of_them():
            return await asyncio.gather(*(one(i) for i in range(300)))
        self.assertEqual(asyncio.run(all_of_them()), [True] * 300)
        self.assertEqual(asyncio.run(all_of_them()), [True] * 300)  # In another loop.

    def test_many_threads_at_a_time(self):
        wrong = []

        def one(number):
            for i in range(50):
                value = b"%d %d" % (number, i)
                self.session.write(b"thread %d" % number, value)
                if self.session.read(b"thread %d" % number, len(value)) != value:
                    wrong.append(value)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_is_opened_and_closed_by_tasks(self):
        async def use():
            async with await feroce.Session.open_async("other", support.ADDRESS,
                                                       port=PORT) as other:
                await other.write_async(b"a", b"b")
            return other
        other = asyncio.run(use())
        self.assertTrue(other.closed)
        with self.assertRaises(feroce.Error) as raised:
            other.read(b"a", 1)
        self.assertEqual(raised.exception.code, errno.EBADF)
        other.close()

    def test_a_name_is_used_once(self):
        with self.assertRaises(feroce.Error) as raised:
            feroce.Session("test", support.ADDRESS, port=PORT)
        self.assertIn("the session name test is in use", raised.exception.strerror)
        self.session.write(b"x", b"y")
        self.session.close()
        with feroce.Session("test", support.ADDRESS, port=PORT) as other:
            self.assertEqual(other.read(b"x", 1), b"y")


class Lost(unittest.TestCase):
    def test_nobody_listens(self):
        with self.assertRaises(feroce.Error) as raised:
            feroce.Session("test", [support.ADDRESS], port=UNUSED_PORT)
        self.assertIn("nobody listens", raised.exception.strerror)

    def test_the_server_is_killed(self):
        server = support.Program(self, support.BUILD / "examples/key_value_server",
                                 support.ADDRESS, PORT)
        with connect(PORT, queue_if_no_path=0.5) as session:
            session.write(b"a", b"b")
            server.end()
            with self.assertRaises(feroce.Error) as raised:
                session.write(b"a", b"c")
            self.assertNotIn(raised.exception.code, (0, errno.EBADF))
            self.assertNotEqual(raised.exception.strerror, "")


class Handlers(unittest.TestCase):
    """feroce.Server: what it does with requests and with what handlers do."""

    def setUp(self):
        self.values = {}
        self.gate = threading.Event()
        self.addCleanup(self.gate.set)
        self.server = feroce.Server(self.handle, address=support.ADDRESS, port=0, threads=2)
        self.addCleanup(self.server.close)
        self.addCleanup(self.gate.set)
        self.session = feroce.Session("test", support.ADDRESS, port=self.server.port)
        self.addCleanup(self.session.close)

    def handle(self, request):
        if request.message == b"wait":
            self.gate.wait(support.PATIENCE)
        if request.message == b"wrong":
            raise KeyError("wrong")
        if request.message == b"surrogate":
            raise OSError(errno.ENOENT, "no \udcff\0 here")
        if request.message == b"number":
            return 5
        if request.message == b"exit":
            raise SystemExit(3)
        if request.message == b"long":
            return bytes(request.size + 1)
        if not request.is_read:
            self.values[request.message] = request.data
        elif request.message not in self.values and request.message != b"wait":
            raise feroce.Error(errno.ENOENT, f"{request.session} asked for nothing")
        return self.values.get(request.message, b"")

    def code_of(self, work):
        with self.assertRaises(feroce.Error) as raised:
            work()
        return raised.exception.code, raised.exception.strerror

    def test_a_cpp_client(self):
        with feroce.Server(self.handle, address=support.ADDRESS, port=PORT):
            done = subprocess.run([support.BUILD / "examples/key_value_ping", str(PORT),
                                   support.ADDRESS], text=True, capture_output=True,
                                  timeout=support.PATIENCE, check=True)
        self.assertEqual(done.stdout, "Hello over 1 path(s)\n"
                         "the server says: ping asked for nothing (No such file or directory)\n")

    def test_answers_and_errors(self):
        self.session.write(b"a", b"1234")
        self.assertEqual(self.session.read(b"a", 100), b"1234")
        code, why = self.code_of(lambda: self.session.read(b"b", 1))
        self.assertEqual(code, errno.ENOENT)
        self.assertIn("test asked for nothing", why)
        with self.assertLogs("feroce"):
            code, why = self.code_of(lambda: self.session.read(b"wrong", 1))
        self.assertEqual(code, errno.EIO)
        self.assertIn("KeyError: 'wrong'", why)
        with self.assertLogs("feroce"):
            code, _why = self.code_of(lambda: self.session.read(b"long", 10))
        self.assertEqual(code, errno.EMSGSIZE)

    def test_only_bytes_are_data(self):
        for wrong in (5, [1, 2], "text", None):
            with self.assertRaises(TypeError):
                self.session.write(b"a", wrong)
            with self.assertRaises(TypeError):
                self.session.read(wrong, 5)
        with self.assertLogs("feroce"):
            code, why = self.code_of(lambda: self.session.read(b"number", 10))
        self.assertEqual(code, errno.EIO)
        self.assertIn("TypeError", why)

    def test_nothing_that_is_raised_ends_the_threads(self):
        for _ in range(5):  # There are two threads.
            code, why = self.code_of(lambda: self.session.read(b"surrogate", 1, timeout=30))
            self.assertEqual(code, errno.ENOENT)
            self.assertIn("no ?? here", why)
            with self.assertLogs("feroce"):
                code, why = self.code_of(lambda: self.session.read(b"exit", 1, timeout=30))
            self.assertEqual(code, errno.EIO)
            self.assertIn("SystemExit", why)

    def test_a_timeout_ends_a_request(self):
        code, _why = self.code_of(lambda: self.session.read(b"wait", 1, timeout=0.05))
        self.assertEqual(code, errno.ETIMEDOUT)
        self.gate.set()
        self.session.write(b"a", b"1")

    def test_a_cancelled_task_ends_its_request(self):
        async def give_up():
            task = asyncio.create_task(self.session.read_async(b"wait", 100))
            await asyncio.sleep(0.05)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(self.session.read_async(b"wait", 100), 0.05)
            self.gate.set()
            await self.session.write_async(b"a", b"2")
            return await self.session.read_async(b"a", 1)
        self.assertEqual(asyncio.run(give_up()), b"2")

    def test_closing_a_session_ends_what_is_in_flight(self):
        codes = []

        def read():
            codes.append(self.code_of(lambda: self.session.read(b"wait", 1))[0])
        thread = threading.Thread(target=read)
        thread.start()
        time.sleep(0.05)
        self.session.close()
        thread.join(support.PATIENCE)
        self.assertIn(codes, ([errno.ECANCELED], [errno.EBADF]))

    def test_closing_a_server_ends_what_waits(self):
        """Two handlers wait, a third request has none."""
        async def ask():
            tasks = [asyncio.create_task(self.session.read_async(b"wait", 1, timeout=5))
                     for _ in range(3)]
            await asyncio.sleep(0.1)
            asyncio.get_running_loop().call_later(0.1, self.gate.set)
            await asyncio.to_thread(self.server.close)
            await self.session.close_async()
            return await asyncio.gather(*tasks, return_exceptions=True)
        answers = asyncio.run(ask())
        self.assertEqual(answers.count(b""), 2, answers)  # Of the handlers that ran.
        self.assertEqual([answer.code for answer in answers if answer != b""], [errno.ECANCELED])


if __name__ == "__main__":
    support.main()
