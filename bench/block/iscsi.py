"""tgt's disk, a file in memory, over iSCSI on TCP and over iSER on Feroce, by libiscsi."""
import contextlib
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "iser"))
import target  # pylint: disable=wrong-import-position
from place import Place  # pylint: disable=wrong-import-position

SECTOR = 512
CALIBRATION = 1000  # Requests.


def is_installed():
    return shutil.which("tgtd", path="/usr/sbin:/usr/bin") and shutil.which("iscsi-perf")


@contextlib.contextmanager
def disk(feroce, size):
    """A running tgtd with a disk of that many bytes."""
    place = Place(dict(os.environ, FEROCE_DEVICES="lo"), [], [feroce, "run", "--"])
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        path = pathlib.Path(folder) / "disk"
        path.touch()
        os.truncate(path, size)
        with target.running(place, folder, "127.0.0.1", path) as running:
            yield running


def rate(running, transport, load, seconds):
    """Requests a second."""
    return (read_rate if "read" in load[0] else write_rate)(running, transport, load, seconds)


def read_rate(running, transport, load, seconds):
    pattern, block, depth = load
    words = ["-r"] if pattern.startswith("rand") else []
    output = running.place.check("iscsi-perf", "-b", str(block // SECTOR), "-m", str(depth),
                                 "-t", str(seconds), *words, running.url(transport))
    # It writes over its line; the last average counts.
    return float(re.findall(r"iops average (\d+)", output)[-1])


def write_rate(running, transport, load, seconds):
    """iscsi-perf only reads. qemu-img writes through libiscsi too, though always in order, and a
    number of requests instead of a time: a few first, to know how many."""
    _, block, depth = load
    count = CALIBRATION
    for _ in range(2):
        output = running.place.check("qemu-img", "bench", "-w", "-c", str(count), "-d", str(depth),
                                     "-s", str(block), "--image-opts", running.image(transport))
        spent = float(re.search(r"completed in ([\d.]+) seconds", output)[1])
        requests, count = count, max(CALIBRATION, int(count / spent * seconds))
    return requests / spent
