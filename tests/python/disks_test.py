#!/usr/bin/env python3
"""feroce.Disk against `feroce export`."""
import asyncio
import errno
import os
import unittest

import feroce
import support

PORT = 7487
OTHER_PORT = 7497
SIZE = 8 << 20


class Disks(unittest.TestCase):
    def setUp(self):
        self.place = support.folder(self)
        self.file = self.place / "data.img"
        with open(self.file, "wb") as file:
            file.truncate(SIZE)
        self.export(PORT, self.file)

    def export(self, port, file):
        state = support.folder(self)
        server = support.Program(self, support.BUILD / "bin/feroce", "export", "--port", port,
                                 f"data={file}", STATE_DIRECTORY=str(state))
        server.line(r"data: .* bytes on port")

    def open(self, **options):
        disk = feroce.Disk(support.ADDRESS, "data", port=PORT, session="test", **options)
        self.addCleanup(disk.close)
        return disk

    def test_reads_what_it_wrote(self):
        disk = self.open()
        self.assertEqual(disk.size, SIZE)
        block = disk.info.block_size
        data = os.urandom(1 << 20)
        disk.write(block, data)
        disk.flush()
        self.assertEqual(disk.read(block, len(data)), data)
        with open(self.file, "rb") as file:
            file.seek(block)
            self.assertEqual(file.read(len(data)), data)

    def test_zeroes_and_discards(self):
        disk = self.open()
        disk.write(0, b"x" * 65536, fua=True)
        disk.zero(4096, 4096)
        disk.zero(8192, 4096, keep_space=True)
        self.assertEqual(disk.read(0, 65536), b"x" * 4096 + bytes(8192) + b"x" * (65536 - 12288))
        if disk.info.max_discard:
            disk.discard(0, 65536)
        disk.write(0, b"y" * 4096)
        self.assertEqual(disk.read(0, 4096), b"y" * 4096)

    def test_grows(self):
        disk = self.open()
        with open(self.file, "r+b") as file:
            file.truncate(2 * SIZE)
        self.assertEqual(disk.refresh().size, 2 * SIZE)
        self.assertEqual(disk.size, 2 * SIZE)
        disk.write(2 * SIZE - 4096, b"z" * 4096)

    def test_refuses_what_makes_no_sense(self):
        disk = self.open()
        for offset, size in ((SIZE, 4096), (0, SIZE + 4096), (2**63, 4096), (1, 4096), (0, 100)):
            with self.assertRaises(feroce.Error) as raised:
                disk.read(offset, size)
            self.assertEqual(raised.exception.code, errno.EINVAL, (offset, size))
        with self.assertRaises(ValueError):
            disk.read(-1, 4096)
        with self.assertRaises(feroce.Error) as raised:
            feroce.Disk(support.ADDRESS, "no such disk", port=PORT, session="test")
        self.assertEqual(raised.exception.code, errno.ENOENT)

    def test_one_writes_and_many_read(self):
        with self.open() as first:
            with self.assertRaises(feroce.Error):
                feroce.Disk(support.ADDRESS, "data", port=PORT, session="other")
            with feroce.Disk(support.ADDRESS, "data", port=PORT, session="reader",
                             read_only=True) as reader:
                self.assertTrue(reader.info.read_only)
                first.write(0, b"a" * 4096)
                self.assertEqual(reader.read(0, 4096), b"a" * 4096)
                with self.assertRaises(feroce.Error):
                    reader.write(0, b"b" * 4096)
        self.assertTrue(first.closed)
        with self.assertRaises(feroce.Error) as raised:
            first.read(0, 4096)
        self.assertEqual(raised.exception.code, errno.EBADF)
        self.open()

    def test_two_servers_have_two_sessions(self):
        other_file = self.place / "other.img"
        with open(other_file, "wb") as file:
            file.truncate(SIZE)
        self.export(OTHER_PORT, other_file)
        with feroce.Disk(support.ADDRESS, "data", port=PORT) as one, \
                feroce.Disk(support.ADDRESS, "data", port=OTHER_PORT) as other:
            for i in range(64):
                one.write(i * 4096, b"1" * 4096)
                other.write(i * 4096, b"2" * 4096)
            self.assertEqual(one.read(0, 64 * 4096), b"1" * 64 * 4096)
            self.assertEqual(other.read(0, 64 * 4096), b"2" * 64 * 4096)

    def test_a_session_name_is_of_one_server(self):
        disk = self.open()
        for address, port in ((support.ADDRESS, OTHER_PORT), ("127.0.0.2", PORT)):
            with self.assertRaises(feroce.Error) as raised:
                feroce.Disk(address, "data", port=port, session="test", read_only=True)
            self.assertEqual(raised.exception.code, errno.EINVAL)
            self.assertIn("belongs to another server", raised.exception.strerror)
        disk.write(0, b"a" * 4096)
        disk.close()
        with self.assertRaises(feroce.Error) as raised:  # Nobody listens there; the name is free.
            feroce.Disk(support.ADDRESS, "data", port=OTHER_PORT, session="test")
        self.assertEqual(raised.exception.code, errno.ECONNREFUSED)

    def test_many_tasks(self):
        async def use():
            async with await feroce.Disk.open_async(support.ADDRESS, "data", port=PORT,
                                                    session="async") as disk:
                async def one(number):
                    await disk.write_async(number * 4096, bytes([number]) * 4096)
                    return await disk.read_async(number * 4096, 4096)
                blocks = await asyncio.gather(*(one(i) for i in range(100)))
                await disk.flush_async()
                await disk.zero_async(0, 4096)
                return blocks, await disk.read_async(0, 4096)
        blocks, first = asyncio.run(use())
        self.assertEqual(blocks, [bytes([i]) * 4096 for i in range(100)])
        self.assertEqual(first, bytes(4096))


if __name__ == "__main__":
    support.main()
