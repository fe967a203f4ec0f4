"""dma-bufs of the kernel's udmabuf, registered with Feroce in the guest.

The tests of such regions run there, on Feroce, in a network namespace of their own: rxe has the
UDP port of the guest's. Debian's 6.1 has no udmabuf; its backports have.
"""
import re
import shutil
import subprocess

from lab import Failure

DEVICE = "/dev/udmabuf"
FOLDER = "dma_buffer"  # In the folder that both sides share.
SECONDS = 300
# Those of a real descriptor: the first maker is a file in place of one.
REAL = "Makers/DmaBufferTest.*/1"


def libraries_of(program, folders):
    """Paths of what it is linked with, the loader too."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True,
                          env={"LD_LIBRARY_PATH": str(folders), "PATH": "/usr/bin:/bin"}).stdout
    return re.findall(r"(/\S+) \(0x", text)


def carry_over(lab):
    """The test program and its libraries: the guest has few. The loader's name there."""
    program = lab.vm.build / "src/verbs/verbs_test"
    folder = lab.vm.share / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    loader = None
    for path in [str(program), *libraries_of(program, lab.vm.build / "lib")]:
        shutil.copy(path, folder)
        name = path.rpartition("/")[2]
        loader = name if name.startswith("ld-linux") else loader
    if loader is None:
        raise Failure(f"{program} names no loader")
    return loader


def udmabuf(lab):
    if "yes" not in lab.vm.on_guest(f"test -c {DEVICE} && echo yes || echo no"):
        raise Failure(f"the guest's kernel has no {DEVICE}: take --suite backports")
    loader = carry_over(lab)
    place = f"/share/{FOLDER}"
    tests = f"{place}/{loader} --library-path {place} {place}/verbs_test --gtest_filter='{REAL}'"
    said = lab.vm.on_guest(
        f"unshare -n /bin/dash -c \"ip link set lo up; FEROCE_DEVICES=lo {tests}\"", SECONDS)
    passed = re.search(r"\[  PASSED  \] (\d+) test", said)
    if passed is None or int(passed[1]) == 0 or "FAILED" in said:
        raise Failure(f"the tests of dma-bufs fail in the guest:\n{said}")
    return f"{passed[1]} tests on a descriptor of {DEVICE}"


CASES = {"dma-bufs: udmabuf": ("feroce", udmabuf)}
