#!/usr/bin/env python3
"""feroce.join() with a second node in C++."""
import asyncio
import errno
import threading
import unittest

import feroce
import support

PORT = 7488
ROUNDS = 200  # As node_peer.cpp has it.


class WithCppNode(unittest.TestCase):
    def join(self, *words):
        self.peer = support.Program(self, support.BUILD / "tests/python/node_peer", PORT, *words)
        return feroce.join(rank=0, size=2, seed=support.ADDRESS, port=PORT, silence=2)

    def use_memory(self, space):
        counter = space.share("counter", 8)
        text = space.alloc(32)
        space.write(text, b"written by Python".ljust(32, b"\0"))
        space.publish("text", text, 32)
        own = space.find("own", 32)
        self.assertEqual(own.node, 1)
        self.assertEqual(space.read(own, 13), b"memory of C++")
        self.assertEqual(space.read(own + 10, 3), b"C++")
        space.barrier()
        self.assertEqual(space.fetch_add(counter, 2), 5)
        self.assertEqual(space.compare_swap(counter, 0, 1), 7)
        self.assertEqual(space.compare_swap(counter, 7, 2**64 - 1), 7)
        self.assertEqual(space.fetch_add(counter, 2), 2**64 - 1)
        self.assertEqual(space.read(counter, 8), b"\1" + bytes(7))
        self.assertEqual(space.read(text, 15), b"written by C++\0")
        space.withdraw("text")
        space.free(text, 32)

    def count_under_lock(self, space):
        lock = space.lock("lock")
        counter = space.share("guarded", 8)
        for _ in range(ROUNDS):
            with lock:
                seen = int.from_bytes(space.read(counter, 8), "little")
                space.write(counter, (seen + 1).to_bytes(8, "little"))
        space.barrier()

    def use_maps(self, space):
        map_, numbers = space.map("map", buckets=64), space.int_map("numbers", buckets=64)
        self.assertTrue(map_.put(b"of Python", b"value of Python"))
        for key in range(10):
            numbers.add(key, 2)
        space.barrier()
        self.assertEqual(map_.get(b"of C++"), b"value of C++")
        self.assertEqual(dict(map_.items()), {b"of C++": b"value of C++",
                                              b"of Python": b"value of Python"})
        self.assertEqual(dict(numbers.items()), {key: 3 for key in range(10)})

    def test_what_a_cpp_node_uses_too(self):
        with self.join() as space:
            self.assertEqual((space.rank, space.size), (0, 2))
            self.use_memory(space)
            self.count_under_lock(space)
            self.use_maps(space)
            lease = space.lock("lease", kind="lease")
            space.barrier()
            with lease:
                self.assertGreater(lease.token, 0)
                lease.renew()
        said, wrong = self.peer.process.communicate(timeout=support.PATIENCE)
        self.assertEqual(said.splitlines(), ["text written by Python", f"guarded {2 * ROUNDS}",
                                             "map value of Python", "number 3", "left"], wrong)
        self.assertTrue(space.closed)

    def test_a_node_that_dies_is_told(self):
        space = self.join("die")
        try:
            other = space.alloc(8, node=1)
            space.lock("lease", kind="lease")
            space.barrier()
            self.peer.process.wait(support.PATIENCE)
            with self.assertRaises(feroce.Error) as raised:
                for _ in range(1000):
                    space.read(other, 8)
            self.assertIn("node 1", raised.exception.strerror)
            with self.assertRaises(feroce.Error) as raised:
                space.barrier()
            self.assertIn("node 1 is lost", raised.exception.strerror)
            space.barrier()
        finally:
            space.abandon()


class Alone(unittest.TestCase):
    """A cluster of one."""

    def setUp(self):
        self.space = feroce.join(rank=0, size=1)
        self.addCleanup(self.space.abandon)

    def code_of(self, work):
        with self.assertRaises(feroce.Error) as raised:
            work()
        return raised.exception.code

    def test_memory_is_clear_and_checked(self):
        space = self.space
        for size in (1, 8, 100, 300_000):
            block = space.alloc(size)
            self.assertEqual(space.read(block, size), bytes(size))
            space.write(block, b"x" * size)
            space.free(block, size)
        block = space.alloc(8)
        self.assertEqual(self.code_of(lambda: space.fetch_add(block + 1, 1)), errno.EINVAL)
        self.assertNotEqual(self.code_of(lambda: space.read(feroce.Pointer(0), 8)), 0)
        self.assertNotEqual(self.code_of(lambda: space.read(feroce.Pointer(7 << 48 | 64), 8)), 0)
        self.assertEqual(self.code_of(lambda: space.read(block, 1 << 40)), errno.EMSGSIZE)
        self.assertEqual(self.code_of(lambda: space.alloc(1 << 40)), errno.ENOMEM)
        with self.assertRaises(ValueError):
            space.alloc(8, node=1)
        with self.assertRaises(ValueError):
            space.fetch_add(block, 2**64)
        self.assertEqual(space.fetch_add(block, -1), 0)
        self.assertEqual(space.read(block, 8), b"\xff" * 8)

    def test_names(self):
        block = self.space.alloc(16)
        self.space.publish("name", block, 16)
        self.assertEqual(self.space.find("name", 16), block)
        self.assertEqual(self.code_of(lambda: self.space.find("name", 8)), errno.EINVAL)
        self.assertEqual(self.code_of(lambda: self.space.publish("name", block, 16)),
                         errno.EEXIST)
        self.assertEqual(self.space.share("name", 16), block)
        self.assertNotEqual(self.space.share("other", 16), block)
        self.space.withdraw("name")
        self.assertEqual(self.code_of(lambda: self.space.withdraw("name")), errno.ENOENT)
        self.assertEqual(self.code_of(lambda: self.space.publish("", block, 16)), errno.EINVAL)

    def test_a_lock_is_held_once(self):
        for kind in ("alock", "fair", "lease", "spin", "ticket"):
            first = self.space.lock(kind, kind=kind)
            second = self.space.lock(kind, kind=kind)
            self.assertTrue(first.acquire())
            self.assertEqual(self.code_of(first.acquire), errno.EDEADLK, kind)
            self.assertFalse(second.acquire(blocking=False), kind)
            self.assertFalse(second.acquire(timeout=0.02), kind)
            self.assertIn(self.code_of(second.release), (errno.EPERM, errno.ESTALE), kind)
            first.release()
            self.assertTrue(second.acquire(timeout=support.PATIENCE), kind)
            del second  # Held: it is released.
            self.assertTrue(first.acquire(timeout=support.PATIENCE), kind)
            first.release()
            if kind != "lease":
                self.assertEqual(self.code_of(first.renew), errno.EINVAL)
        with self.assertRaises(ValueError):
            self.space.lock("x", kind="none")

    def test_a_cancelled_task_holds_no_lock(self):
        async def give_up():
            first, second = self.space.lock("lock"), self.space.lock("lock")
            # It waits; it has not begun, runs, or has just ended.
            async with first:
                task = asyncio.create_task(second.acquire_async())
                await asyncio.sleep(0.01)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            for pause in (None, 0, 0, 0.0001, 0.001, 0.01):
                task = asyncio.create_task(second.acquire_async())
                if pause is not None:
                    await asyncio.sleep(pause)
                task.cancel()
                try:
                    await task
                    await second.release_async()
                except asyncio.CancelledError:
                    pass
                self.assertTrue(await first.acquire_async(timeout=support.PATIENCE))
                await first.release_async()
            async with second:
                pass
        asyncio.run(give_up())

    def test_threads_count_under_locks(self):
        counter = self.space.alloc(8)

        def count():
            lock = self.space.lock("lock", kind="fair")
            for _ in range(50):
                with lock:
                    seen = int.from_bytes(self.space.read(counter, 8), "little")
                    self.space.write(counter, (seen + 1).to_bytes(8, "little"))
        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(int.from_bytes(self.space.read(counter, 8), "little"), 200)

    def test_maps(self):
        map_ = self.space.map("map", buckets=8)
        self.assertTrue(map_)  # It is empty, but there.
        self.assertEqual(len(map_), 0)
        self.assertIsNone(map_.get(b"a"))
        self.assertTrue(map_.put(b"a", b"1"))
        self.assertFalse(map_.put(b"a", b"2"))
        self.assertFalse(map_.insert(b"a", b"3"))
        self.assertTrue(map_.insert(b"b", b""))
        self.assertEqual((map_.get(b"a"), map_.get(b"b")), (b"2", b""))
        self.assertFalse(map_.replace(b"a", b"1", b"4"))
        self.assertTrue(map_.replace(b"a", b"2", b"4"))
        self.assertFalse(map_.replace(b"none", b"2", b"4"))
        self.assertEqual(len(map_), 2)
        self.assertTrue(map_.erase(b"a"))
        self.assertFalse(map_.erase(b"a"))
        self.assertEqual(self.code_of(lambda: map_.put(b"k" * 57, b"")), errno.EMSGSIZE)
        self.assertEqual(self.code_of(lambda: map_.put(b"k", b"v" * 121)), errno.EMSGSIZE)
        map_.put(b"k" * 56, b"v" * 120)
        self.assertEqual(map_.get(b"k" * 56), b"v" * 120)
        numbers = self.space.int_map("numbers", buckets=8)
        self.assertEqual(numbers.add(-1, 2**64 - 1), 2**64 - 1)
        self.assertEqual(numbers.get(2**64 - 1), 2**64 - 1)
        self.assertEqual(numbers.add(-1, 2), 1)
        self.assertTrue(numbers.put(5, 6))
        self.assertTrue(numbers.erase(5))
        self.assertIsNone(numbers.get(5))
        self.assertEqual(self.code_of(lambda: self.space.map("none", buckets=0)), errno.EINVAL)

    def test_tasks(self):
        async def use():
            word = await self.space.alloc_async(8)
            await asyncio.gather(*(self.space.fetch_add_async(word, 1) for _ in range(500)))
            map_ = self.space.map("map")
            await map_.put_async(b"a", b"b")
            await self.space.barrier_async()
            found = await self.space.read_async(word, 8), await map_.get_async(b"a")
            await self.space.free_async(word, 8)
            return found
        self.assertEqual(asyncio.run(use()), ((500).to_bytes(8, "little"), b"b"))

    def test_after_it_has_left(self):
        lock, map_ = self.space.lock("lock"), self.space.map("map")
        self.space.leave()
        for work in (lambda: self.space.alloc(8), self.space.barrier, lock.acquire,
                     lambda: map_.get(b"a"), self.space.leave):
            self.assertEqual(self.code_of(work), errno.EBADF)

    def test_a_join_in_vain(self):
        with self.assertRaises(feroce.Error) as raised:
            feroce.join(rank=0, size=2, seed=support.ADDRESS, port=PORT + 1, patience=0.2)
        self.assertEqual(raised.exception.code, errno.ETIMEDOUT)
        with self.assertRaises(ValueError):
            feroce.join(rank=1)


if __name__ == "__main__":
    support.main()
