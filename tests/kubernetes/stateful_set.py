#!/usr/bin/env python3
"""The StatefulSet of docs/kubernetes.md without Kubernetes: stateful_set.py BUILD.

A network namespace stands for each pod, one for the node with a bridge. A pod has what a kubelet
gives it: its name as host name and in HOSTNAME, KUBERNETES_SERVICE_HOST, and a resolv.conf that
leads to the cluster's name server, which knows a pod only while it runs. The commands of the
manifest run there as an ordinary user without capabilities, and must be one cluster, also when the
pods come again with other addresses.
"""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "netns")]
from manifests import manifests  # noqa: E402  (found by the path above)
from namespaces import Namespace, command, enter_user_namespace  # noqa: E402
from pods import CONTAINER, Pod  # noqa: E402

DNS = "10.96.0.10"
DOMAIN = "default.svc.cluster.local"
RESOLV_CONF = f"""search {DOMAIN} svc.cluster.local cluster.local
nameserver {DNS}
options ndots:5
"""
NAMED = """set -e
hostname "$HOSTNAME"
mount --bind "$RESOLV_CONF" "$(readlink -f /etc/resolv.conf)"
unset RESOLV_CONF
"""
PATIENCE = 120


class Network:
    """The node's bridge, the name server at it, and the pods that are plugged in."""

    def __init__(self):
        self.node = Namespace()
        ip = self.node.place("ip")
        command(*ip, "link", "add", "bridge0", "type", "bridge")
        command(*ip, "address", "add", f"{DNS}/32", "dev", "bridge0")
        command(*ip, "address", "add", "10.244.255.254/16", "dev", "bridge0")
        command(*ip, "link", "set", "bridge0", "up")
        self.dns = subprocess.Popen(
            self.node.place(sys.executable, str(HERE / "cluster_dns.py"), DNS), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.expect("listens")
        self.spaces = []

    def expect(self, word):
        if self.dns.stdout.readline().strip() != word:
            sys.exit("kubernetes: the name server has ended")

    def tell(self, *words):
        print(*words, file=self.dns.stdin, flush=True)
        self.expect("taken")

    def plug(self, address):
        """A pod's network."""
        space = Namespace()
        self.spaces.append(space)
        ip, end = self.node.place("ip"), f"pod{len(self.spaces)}"
        command(*ip, "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns",
                str(space.holder.pid))
        command(*ip, "link", "set", end, "master", "bridge0", "up")
        inside = space.place("ip")
        command(*inside, "link", "set", "lo", "up")
        command(*inside, "address", "add", f"{address}/16", "dev", "eth0")
        command(*inside, "link", "set", "eth0", "up")
        command(*inside, "route", "add", DNS, "dev", "eth0")
        return space

    def close(self):
        self.dns.stdin.close()
        self.dns.wait()
        for space in [self.node, *self.spaces]:
            space.close()


class Member(Pod):
    """One pod of the set."""

    script = NAMED + CONTAINER
    spaces = ("--mount", "--ipc", "--uts")

    def __init__(self, stateful_set, ordinal, network, folder, image):
        name = f"{stateful_set['metadata']['name']}-{ordinal}"
        template = stateful_set["spec"]["template"]
        super().__init__({"metadata": {"name": name}, "spec": template["spec"]}, network, folder,
                         image)
        self.given = {"HOSTNAME": name, "KUBERNETES_SERVICE_HOST": "10.96.0.1",
                      "KUBERNETES_SERVICE_PORT": "443", "RESOLV_CONF": str(folder / "resolv.conf")}


def finish(processes):
    """What the containers print; none may fail."""
    said = []
    for process in processes:
        try:
            said.append(process.communicate(timeout=PATIENCE)[0])
        except subprocess.TimeoutExpired:
            sys.exit(f"kubernetes: a pod does not end; the others: {said}")
    if any(process.returncode != 0 for process in processes):
        sys.exit(f"kubernetes: {[process.returncode for process in processes]}: {said}")
    return said


def run_once(stateful_set, network, addresses, folder, image):
    """All pods come, the first one last: until then nobody knows its name."""
    service = stateful_set["spec"]["serviceName"]
    pods = [Member(stateful_set, ordinal, network.plug(address), folder, image)
            for ordinal, address in enumerate(addresses)]
    processes = []
    try:
        for pod in pods:
            pod.initialize()
        for pod, address in reversed([*zip(pods, addresses)]):
            network.tell(f"{pod.given['HOSTNAME']}.{service}.{DOMAIN}", address)
            processes.append(pod.run())
        said = "".join(finish(processes))
    finally:
        for process in processes:
            process.kill()
        for pod in pods:
            network.tell(f"{pod.given['HOSTNAME']}.{service}.{DOMAIN}")
            shutil.rmtree(pod.volume)
    lines = re.findall(r"node (\d+) of (\d+) counted after (\d+) others; all are (\d+)", said)
    size = str(len(pods))
    whole = (sorted(int(line[0]) for line in lines) == [*range(len(pods))] and
             {line[1] for line in lines} == {line[3] for line in lines} == {size})
    if not whole:
        sys.exit(f"kubernetes: the pods are not one cluster: {said}")
    print(f"{size} pods at {', '.join(addresses)}: one cluster")


def refuse_without_size(stateful_set, network, folder, image):
    """A set whose size was forgotten is no cluster of one each."""
    container = stateful_set["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [one for one in container["env"] if one["name"] != "FEROCE_GAS_SIZE"]
    pod = Member(stateful_set, 0, network.plug("10.244.3.1"), folder, image)
    pod.initialize()
    process = pod.run()
    said, _ = process.communicate(timeout=PATIENCE)
    if process.returncode == 0 or "FEROCE_GAS_SIZE" not in said:
        sys.exit(f"kubernetes: a pod without the size should have been refused: {said}")
    print("without FEROCE_GAS_SIZE: refused")


def run_manifest(build, image, folder):
    (folder / "resolv.conf").write_text(RESOLV_CONF)
    (folder / "resolv.conf").chmod(0o644)
    (image / "usr").mkdir()
    shutil.copy(build / "examples/gas/gas_counter", image / "usr")  # An ordinary user may read it.
    found = [one for one in manifests() if one["kind"] == "StatefulSet"]
    stateful_set = found[0]
    container = stateful_set["spec"]["template"]["spec"]["containers"][0]
    container["command"] = [re.sub(r"^/usr/bin/gas_counter$", str(image / "usr/gas_counter"), word)
                            for word in container["command"]]
    replicas = stateful_set["spec"]["replicas"]
    with contextlib.closing(Network()) as network:
        for subnet in (1, 2):
            addresses = [f"10.244.{subnet}.{10 * subnet + ordinal}" for ordinal in range(replicas)]
            run_once(stateful_set, network, addresses, folder, image)
        refuse_without_size(stateful_set, network, folder, image)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    enter_user_namespace()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        image = folder / "opt"
        subprocess.run(["cmake", "--install", build, "--prefix", image, "--component", "runtime"],
                       check=True, stdout=subprocess.DEVNULL)
        os.chdir(folder)
        run_manifest(build, image, folder)


if __name__ == "__main__":
    main()
