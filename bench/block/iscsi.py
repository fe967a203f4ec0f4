"""tgt's disk, a file in memory, over iSCSI on TCP and over iSER on Feroce, read by iscsi-perf."""
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


def read_rate(running, transport, load, seconds):
    """Requests a second; iscsi-perf only reads."""
    pattern, block, depth = load
    words = ["-r"] if pattern.startswith("rand") else []
    output = running.place.check("iscsi-perf", "-b", str(block // SECTOR), "-m", str(depth),
                                 "-t", str(seconds), *words, running.url(transport))
    # It writes over its line; the last average counts.
    return float(re.findall(r"iops average (\d+)", output)[-1])
