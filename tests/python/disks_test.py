#!/usr/bin/env python3
"""feroce.Disk against `feroce export`."""
import asyncio
import errno
import os
import unittest

import feroce
import support

PORT = 7487
SIZE = 8 << 20


class Disks(unittest.TestCase):
    def setUp(self):
        self.place = support.folder(self)
        self.file = self.place / "data.img"
        with open(self.file, "wb") as file:
            file.truncate(SIZE)
        server = support.Program(self, support.BUILD / "bin/feroce", "export", "--port", PORT,
                                 f"data={self.file}", STATE_DIRECTORY=str(self.place))
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
