#!/usr/bin/env python3
"""The pods of docs/kubernetes.md without Kubernetes: pods.py BUILD.

Two network namespaces stand for pods, two for nodes. A node joins its pod by a bridge to a VXLAN
overlay that has no UDP checksums, as network plugins make it. The commands of the manifests run
there as an ordinary user without capabilities: first the init container's, with an installed Feroce
in place of the image's, then the container's. Root also makes the file system read-only.
"""
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("netns", "abi")]
from attempts import run_pairs  # noqa: E402  (found by the path above)
from manifests import manifests  # noqa: E402
from namespaces import Namespace, command, enter_user_namespace  # noqa: E402
from run_pair import Pair  # noqa: E402

ADDRESSES = ["10.244.1.7", "10.244.2.9"]
NODES = ["192.0.2.1", "192.0.2.2"]
PORT = 18515  # perftest's.
SKIPPED = 77  # For ctest.
# Of a container: /dev/shm of its own, what is not a volume read-only, no capability.
CONTAINER = """set -e
mount -t tmpfs -o mode=1777,size=64m tmpfs /dev/shm
if [ "$1" = root ]; then
    mount --bind "$2" "$2"
    mount -o remount,bind,ro /
    who="--reuid 1000 --regid 1000 --clear-groups"
fi
shift 2
exec setpriv $who --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""


def join(side, node, pod):
    """The pod's eth0, the node's bridge and its end of the overlay."""
    ip = node.place("ip")
    command(*ip, "link", "add", "pod0", "type", "veth", "peer", "name", "eth0", "netns",
            str(pod.holder.pid))
    command(*ip, "link", "add", "overlay", "type", "vxlan", "id", "42", "dev", "under0",
            "local", NODES[side], "remote", NODES[1 - side], "dstport", "4789", "noudpcsum")
    command(*ip, "link", "add", "bridge0", "type", "bridge")
    for name in ("pod0", "overlay"):
        command(*ip, "link", "set", name, "master", "bridge0", "mtu", "1450", "up")
    command(*ip, "link", "set", "bridge0", "up")
    inside = pod.place("ip")
    command(*inside, "link", "set", "lo", "up")
    command(*inside, "address", "add", f"{ADDRESSES[side]}/16", "dev", "eth0")
    command(*inside, "link", "set", "eth0", "mtu", "1450", "up")


@contextlib.contextmanager
def two_pods():
    """The network of the first node, and those of both pods."""
    spaces = [Namespace() for _ in range(4)]
    nodes, pods = spaces[:2], spaces[2:]
    try:
        command("ip", "link", "add", "under0", "netns", str(nodes[0].holder.pid), "type", "veth",
                "peer", "name", "under0", "netns", str(nodes[1].holder.pid))
        for side in range(2):
            ip = nodes[side].place("ip")
            command(*ip, "address", "add", f"{NODES[side]}/24", "dev", "under0")
            command(*ip, "link", "set", "under0", "up")
            join(side, nodes[side], pods[side])
        yield nodes[0], pods
    finally:
        for space in spaces:
            space.close()


def placed(words, volume, image):
    """The words of a manifest, on this machine: other folders, and an address for a name."""
    others = {"/opt/feroce": str(image), "/feroce": str(volume), "server.rdma": ADDRESSES[0]}
    pattern = re.compile(r"^(" + "|".join(map(re.escape, others)) + r")(?=/|$)")
    return [pattern.sub(lambda match: others[match.group()], word) for word in words]


class Pod:
    """A manifest with its network and its volume."""

    script = CONTAINER
    spaces = ("--mount", "--ipc")  # Its own.
    given = {}                     # What the kubelet adds to the environment.

    def __init__(self, manifest, network, folder, image):
        self.spec, self.network, self.image = manifest["spec"], network, image
        self.volume = folder / manifest["metadata"]["name"]
        self.volume.mkdir()
        self.volume.chmod(0o777)  # As that of an emptyDir.

    def start(self, container):
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", **self.given}
        for setting in container.get("env", []):
            environment[setting["name"]] = placed([setting["value"]], self.volume, self.image)[0]
        inside = os.environ.get("FEROCE_NETNS_INSIDE")
        words = self.network.place("unshare", *self.spaces, "--", "sh", "-c", self.script, "sh",
                                   "user" if inside else "root", str(self.volume),
                                   *placed(container["command"], self.volume, self.image))
        return subprocess.Popen(words, env=environment, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def initialize(self):
        for container in self.spec["initContainers"]:
            process = self.start(container)
            said, _ = process.communicate(timeout=60)
            if process.returncode != 0:
                sys.exit(f"kubernetes: the init container ended with {process.returncode}: {said}")

    def run(self):
        return self.start(self.spec["containers"][0])


class Job(Pair):
    """Both containers, as run_pairs wants them."""

    def __init__(self, server, client):
        self.port, self.client_pod, self.client, self.output = PORT, client, None, ""
        self.server = server.run()

    def start_client(self):
        return self.client_pod.run()


def watch(node):
    """Counts RoCEv2 packets on the wire between the nodes, until told to end."""
    return subprocess.Popen(node.place(sys.executable, str(HERE / "overlay_watch.py"), "under0"),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_manifests(image, folder):
    pods = [found for found in manifests() if found["kind"] == "Pod"]
    if [pod["metadata"]["name"] for pod in pods] != ["server", "client"]:
        sys.exit("kubernetes: the page shows other pods than a server and a client")
    with two_pods() as (node, networks):
        server, client = (Pod(manifest, network, folder, image)
                          for manifest, network in zip(pods, networks))
        server.initialize()
        client.initialize()
        watcher = watch(node)
        watcher.stdout.readline()
        good = run_pairs(lambda: Job(server, client), 1, 120)
        said, _ = watcher.communicate("\n", timeout=30)
    plain, summed = (int(word) for word in said.split())
    print(f"{plain} packets of RoCEv2 in VXLAN without a UDP checksum, {summed} with one")
    return good and plain > 50 and summed == 0  # Some are missed on a busy machine.


def skip_without_vxlan():
    """A module that an ordinary user cannot load may not be loaded."""
    probe = ["unshare", "--net", "ip", "link", "add", "overlay", "type", "vxlan", "id", "42",
             "dstport", "4789"]
    done = subprocess.run(probe, text=True, capture_output=True, check=False)
    if "Unknown device type" in done.stderr or "not supported" in done.stderr:
        print(f"kubernetes: skipped, this kernel has no vxlan: {done.stderr.strip()}")
        sys.exit(SKIPPED)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    enter_user_namespace()
    skip_without_vxlan()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        image = folder / "opt"
        subprocess.run(["cmake", "--install", build, "--prefix", image, "--component", "runtime"],
                       check=True, stdout=subprocess.DEVNULL)
        sys.exit(0 if run_manifests(image, folder) else 1)


if __name__ == "__main__":
    main()
