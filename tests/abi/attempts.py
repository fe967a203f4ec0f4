"""Runs server and client pairs at once, and once more when the machine, not the library, failed."""
import time

ATTEMPTS = 3

# perftest measures the CPU's clock at its start and gives up if other programs disturb that.
DISTURBED = "Correlation coefficient r^2"


def run_pairs(make_pair, count, timeout):
    """True if all pairs succeed. make_pair starts a server; its connect() starts the client and its
    finish() reports how both ended, keeping what they wrote in `output`."""
    for _ in range(ATTEMPTS):
        deadline = time.monotonic() + timeout
        pairs = [make_pair() for _ in range(count)]
        for pair in pairs:
            pair.connect(deadline)
        if all([pair.finish(deadline) for pair in pairs]):
            return True
        if not any(DISTURBED in pair.output for pair in pairs):
            return False
    return False
