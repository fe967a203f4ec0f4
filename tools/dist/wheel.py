#!/usr/bin/env python3
"""./feroce dist --wheel: wheel.py ARCHIVE. The files of an archive of ./feroce dist as a Python
wheel beside it: `pip install` gives the command `feroce` and the package of the same name.
The same archive gives the same bytes."""
import base64
import hashlib
import io
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

FLOOR = "manylinux_2_31"  # The oldest glibc that the archive runs with.
TIME = (1980, 1, 1, 0, 0, 0)
PACKAGE = "share/feroce/python/feroce/"  # In the archive.
METADATA = """Metadata-Version: 2.1
Name: feroce
Version: {version}
Summary: RDMA on any machine: a RoCEv2 network card in user space
License: BSD-2-Clause
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/plain

feroce run -- PROGRAM runs an unmodified RDMA program without RDMA hardware, kernel module or root.
`import feroce` gives Python sessions, disks and a global address space over RDMA.
"""
WHEEL = """Wheel-Version: 1.0
Generator: feroce dist
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""
ENTRY_POINTS = "[console_scripts]\nferoce = feroce:main\n"


class Wheel:
    """The zip file and the record of what is in it."""

    def __init__(self, path, info):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.info = info
        self.record = []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, TIME)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def finish(self):
        name = f"{self.info}/RECORD"
        self.record.append(f"{name},,")
        entry = zipfile.ZipInfo(name, TIME)
        entry.external_attr = 0o100644 << 16
        self.zip.writestr(entry, "\n".join(self.record) + "\n")
        self.zip.close()


def files_of(archive):
    """Name below the archive's folder, bytes and mode. A wheel holds no links: each is the file
    that it leads to."""
    data = subprocess.run(["zstd", "-dcq", archive], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in sorted(tar.getmembers(), key=lambda entry: entry.name):
            if member.isdir():
                continue
            if not member.isfile() and not member.issym():
                sys.exit(f"feroce: {member.name} in {archive} is neither a file nor a link")
            yield member.name.split("/", 1)[1], tar.extractfile(member).read(), \
                0o755 if target_mode(tar, member) & 0o111 else 0o644


def target_mode(tar, member):
    while member.issym():
        member = tar.getmember(str(pathlib.PurePosixPath(member.name).parent / member.linkname))
    return member.mode


def main():
    archive = pathlib.Path(sys.argv[1])
    found = re.fullmatch(r"feroce-([^-]+)-linux-(x86_64|aarch64)\.tar\.zst", archive.name)
    if not found:
        sys.exit(f"feroce: {archive} is no archive of ./feroce dist")
    version, machine = found.groups()
    platform = f"{FLOOR}_{machine}"
    path = archive.parent / f"feroce-{version}-py3-none-{platform}.whl"
    wheel = Wheel(path, f"feroce-{version}.dist-info")
    for name, data, mode in files_of(archive):
        if name.startswith(PACKAGE):
            wheel.add(f"feroce/{name.removeprefix(PACKAGE)}", data)
        else:
            wheel.add(f"feroce/files/{name}", data, mode)
    for name, text in (("METADATA", METADATA.format(version=version)),
                       ("WHEEL", WHEEL.format(platform=platform)),
                       ("entry_points.txt", ENTRY_POINTS)):
        wheel.add(f"{wheel.info}/{name}", text.encode())
    wheel.finish()
    print(path)


main()
