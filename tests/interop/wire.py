"""What was on the wire: captures a device, and has tshark dissect the RoCEv2 packets."""
import collections
import subprocess
import time

# Heuristic dissectors that take good RDMA payload for a protocol of their own.
HEURISTICS = ["rpcordma", "nvme-rdma", "smb_direct", "lnet", "iser", "infiniband_sdp", "smc"]
FIELDS = ["frame.time_epoch", "ip.src", "ipv6.src", "infiniband.bth.opcode",
          "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.mad.attributeid",
          "infiniband.mad.transactionid", "_ws.malformed"]
ACK = 0x11
RESPONSES = range(0x0d, 0x13)
# An emulated guest that is scheduled away causes honest retransmissions. A storm is far beyond.
REPEATED_SHARE = 0.25
REPEATED_FREE = 20
# A starved guest is silent for longer than the retries of ibv_*_pingpong last, whose timeout is
# fixed at 67 ms.
STALL_SECONDS = 0.4


class Capture:
    """Captures RoCEv2 packets of one interface of the private network while in scope."""

    def __init__(self, vm, interface, path):
        self.command = [*vm, "ns", "dumpcap", "-q", "-i", interface, "-f", "udp port 4791",
                        "-w", str(path)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if line.startswith("File:"):
                return self
        raise RuntimeError("dumpcap did not start")

    def __exit__(self, *_):
        # The kernel hands packets over in blocks; the last one is full or 250 ms old.
        time.sleep(0.4)
        self.process.terminate()
        self.process.stderr.read()
        self.process.wait()


class Report:
    def __init__(self, rows):
        seen = collections.Counter()
        self.packets = len(rows)
        self.senders = collections.Counter()
        self.malformed = []
        self.times = []
        for number, row in enumerate(rows, 1):
            time_, v4, v6, opcode, queue_pair, psn, attribute, transaction, malformed = row
            if malformed or not opcode:
                self.malformed.append(f"packet {number} is malformed: opcode {opcode}, PSN {psn}")
                continue
            sender = v4 or v6
            self.senders[sender] += 1
            self.times.append((float(time_), sender))
            if attribute:
                # The connection manager's messages have no PSNs worth the name.
                seen[sender, attribute, transaction] += 1
            elif int(opcode, 0) != ACK:
                seen[sender, queue_pair, psn, int(opcode, 0) in RESPONSES] += 1
        self.repeated = sum(count - 1 for count in seen.values())

    def longest_silence(self):
        """Who was silent for longest while the other kept sending, and came back: name, seconds."""
        longest = ("nobody", 0.0)
        for silent in self.senders:
            last, spoken = None, 0
            for time_, sender in self.times:
                if sender != silent:
                    spoken += 1
                    continue
                if last is not None and spoken > 1 and time_ - last > longest[1]:
                    longest = (silent, time_ - last)
                last, spoken = time_, 0
        return longest

    def __str__(self):
        return f"{self.packets} packets, {self.repeated} repeated"

    def problems(self, is_one_way):
        found = self.malformed[:10]
        if len(self.senders) != (1 if is_one_way else 2):
            found.append(f"unexpected senders: {dict(self.senders)}")
        if self.repeated > max(REPEATED_FREE, REPEATED_SHARE * self.packets):
            found.append(f"a storm: {self.repeated} of {self.packets} packets repeat a PSN")
        return found


def read(path):
    command = ["tshark", "-r", str(path), "-T", "fields", "-E", "separator=,",
               "-E", "occurrence=f"]
    for name in HEURISTICS:
        command += ["--disable-protocol", name]
    for field in FIELDS:
        command += ["-e", field]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return Report([line.split(",") for line in result.stdout.splitlines()])
