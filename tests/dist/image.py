#!/usr/bin/env python3
"""Images of an archive of ./feroce dist: image.py --work FOLDER --chroots
FOLDER ARCHIVE SUITE. As root.

tools/dist/image.sh makes them, with a bare Debian of debootstrap as their base, since no registry
is asked. podman loads the files that it made and runs them: alone, as server and client on two
networks of their own, and as a layer of another image. Images and containers lie in FOLDER.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / name) for name in ("dist", "chroot", "netns", "abi")]
import rooms  # noqa: E402  (found by the path above)
from namespaces import FAMILIES, two_namespaces  # noqa: E402
from run import PAIR, expect_bandwidth  # noqa: E402
from run_pair import listening  # noqa: E402

# crun takes one kind of cgroups only; the machine may have both.
ENGINE = """
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec podman "$@"
"""
LAYERED = """FROM localhost/feroce:{version}
USER 0
RUN rm -rf /opt/feroce
COPY --from=localhost/feroce-layer:{version} / /usr/local/mine
USER 1000
ENTRYPOINT []
"""


class Engine:
    def __init__(self, work):
        self.work = work
        self.options = ["--storage-driver", "overlay", "--root", f"{work}/storage",
                        "--runroot", f"{work}/run"]

    def build(self, *words, **how):
        done = subprocess.run(["buildah", *self.options, *map(str, words)], text=True, check=False,
                              stdout=subprocess.PIPE, **how)
        if done.returncode != 0:
            sys.exit(f"image: buildah {' '.join(map(str, words))} ended with {done.returncode}")
        return done.stdout.strip()

    def podman(self, *words):
        return ["unshare", "--mount", "sh", "-c", ENGINE, "sh", *self.options,
                "--cgroup-manager", "cgroupfs", "--events-backend", "file",
                "--tmpdir", f"{self.work}/tmp", *map(str, words)]

    def container(self, network, *words):
        """No capability and no privilege: fewer than an engine gives by itself."""
        return self.podman("run", "--rm", "--network", network, "--cgroups=disabled",
                           "--cap-drop=all", "--security-opt=no-new-privileges", "--read-only",
                           "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", *words)


def output(words, patience=300):
    done = subprocess.run(words, text=True, check=False, timeout=patience, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-4000:]}\nimage: {words[-6:]} ended with {done.returncode}")
    return done.stdout


def make_images(engine, archive, suite, chroots):
    container = engine.build("from", "scratch")
    engine.build("add", "--quiet", container, rooms.base_system(chroots, suite), "/")
    engine.build("commit", "--quiet", container, "bare")
    engine.build("rm", container)
    made = subprocess.run([ROOT / "tools/dist/image.sh", archive, "localhost/bare"], text=True,
                          env={**os.environ, "IMAGE_OPTIONS": " ".join(engine.options)},
                          check=False, stdout=subprocess.PIPE)
    if made.returncode != 0:
        sys.exit("image: image.sh failed")
    return [pathlib.Path(line) for line in made.stdout.splitlines()]


def two_machines(engine, image):
    """A server and a client in containers, each with a network of its own."""
    address = FAMILIES["ipv4"][0]
    words = [image, "ib_write_bw", "-F", "-d", "feroce_net0", "-n", "500"]
    with two_namespaces() as sides:
        networks = [f"ns:{side.path}" for side in sides]
        with subprocess.Popen(engine.container(networks[0], *words), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as server:
            deadline = time.monotonic() + 120
            while not listening(18515, sides[0].holder.pid):
                if server.poll() is not None or time.monotonic() > deadline:
                    server.kill()
                    sys.exit(f"image: no server: {server.communicate()[0]}")
                time.sleep(0.05)
            expect_bandwidth(output(engine.container(networks[1], *words, address)))
            said, _ = server.communicate(timeout=60)
            if server.returncode != 0:
                sys.exit(f"image: the server ended with {server.returncode}: {said}")


def as_a_layer(engine, version):
    context = engine.work / "context"
    context.mkdir()
    (context / "Containerfile").write_text(LAYERED.format(version=version), encoding="utf-8")
    engine.build("build", "--quiet", "--isolation", "chroot", "--tag", "layered", context)
    pair = PAIR.format(feroce="/usr/local/mine/bin/feroce")
    expect_bandwidth(output(engine.container("none", "layered", "sh", "-ec", pair)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--chroots", required=True, type=pathlib.Path)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("suite")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("image: only root can make Debian systems; use sudo")
    shutil.rmtree(options.work, ignore_errors=True)
    for folder in (options.work, options.chroots):
        folder.mkdir(parents=True, exist_ok=True)
    version = options.archive.name.removeprefix("feroce-").split("-linux-", maxsplit=1)[0]
    image = f"localhost/feroce:{version}"
    maker = Engine(options.work.resolve() / "make")
    files = make_images(maker, options.archive, options.suite, options.chroots)
    user = Engine(options.work.resolve() / "use")
    user.work.mkdir()
    begin = time.monotonic()
    for file in files:
        output(user.podman("load", "--quiet", "--input", file))
    if not re.search(r"^ *feroce_lo\b", output(user.container("none", image)), re.MULTILINE):
        sys.exit("image: the container shows no device")
    two_machines(user, image)
    print(f"{options.suite}: {time.monotonic() - begin:.1f} s from the image's file to the end of "
          "ib_write_bw", flush=True)
    as_a_layer(user, version)
    shutil.rmtree(options.work, ignore_errors=True)


if __name__ == "__main__":
    main()
