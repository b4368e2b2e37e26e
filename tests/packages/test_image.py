"""The image: built by its Dockerfile on a base that debootstrap makes, run beside a container that uses the mount."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from lab import LONG, mount_table
from lab.programs import REPOSITORY, run
from lab.system import wait_until

pytestmark = [pytest.mark.root, pytest.mark.alone,
              pytest.mark.skipif(not LONG, reason="ten minutes and the network: only in a long run"),
              *(pytest.mark.skipif(not shutil.which(tool), reason=f"needs {tool}")
                for tool in ("debootstrap", "buildah", "podman"))]

SERVE = "/usr/libexec/fastpersistfs/containers/serve-array"
BASE = "localhost/debian:base"


class Engine:
    """Storage of its own for images and containers, which goes with it. vfs needs nothing of the machine but room."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="fpfs-images-", dir="/var/tmp"))
        self.storage = ["--root", self.directory / "storage", "--runroot", self.directory / "run",
                        "--storage-driver", "vfs"]

    def buildah(self, *words):
        return run("buildah", *self.storage, *words, cwd=REPOSITORY, timeout=3000,
                   env={**os.environ, "TMPDIR": str(self.directory)})

    def podman(self, *words, check=True, timeout=300):
        runtime = ["--runtime", "runc"] if shutil.which("runc") else []
        return run("podman", *self.storage, "--cgroup-manager=cgroupfs", *runtime, *words, check=check, timeout=timeout)

    def close(self):
        self.podman("rm", "--all", "--force", "--time", "0", check=False)
        self.podman("rmi", "--all", "--force", check=False)
        for entry in reversed(mount_table.entries()):
            if entry.path.startswith(f"{self.directory}/"):
                mount_table.unmount(entry.path, lazy=True)
        subprocess.run(["chattr", "-R", "-f", "-i", str(self.directory)], capture_output=True)
        shutil.rmtree(self.directory)


@pytest.fixture(scope="module")
def engine():
    made = Engine()
    yield made
    made.close()


@pytest.fixture(scope="module")
def image(engine, clean_root):
    """Its name."""
    archive = engine.directory / "base.tar"
    run("tar", "-C", clean_root, "--exclude=./var/cache/apt/archives/*.deb", "-cf", archive, ".")
    engine.podman("import", archive, BASE)
    archive.unlink()
    engine.buildah("build", "--isolation", "chroot", "--format", "docker", "--pull-never",
                   "--build-arg", f"BASE={BASE}", "-f", "mount-scripts/containers/Dockerfile",
                   "-t", "fastpersistfs", ".")
    return "localhost/fastpersistfs"


class Containers:
    """The daemon's and a consumer's, with a directory above the mount point between them that the host shares."""

    def __init__(self, engine, image, members):
        self.engine, self.image = engine, image
        self.shared = engine.directory / "shared"
        self.point = self.shared / "ckpt"
        self.shared.mkdir()
        run("mount", "--bind", self.shared, self.shared)
        run("mount", "--make-rshared", self.shared)
        # An engine's own default may be above what this machine gives.
        self.limits = ["--ulimit", "nofile=8192:8192", "--ulimit", "nproc=4096:4096"]
        self.volumes = [word for index, member in enumerate(members) for word in ("-v", f"{member}:/nvme{index}")]
        self.members = ":".join(f"/nvme{index}/fp" for index in range(len(members)))

    def start_daemon(self):
        self.engine.podman("run", "--detach", "--name", "daemon", *self.limits, "--network=host", "--pid=host",
                           "--privileged", "-v", f"{self.shared}:/mnt/fastpersistfs:rshared", *self.volumes,
                           "-e", f"DIRS={self.members}", "-e", "INIT=yes", "-e", "STOP_WAIT=1", self.image)
        self.wait_until_ready()

    def wait_until_ready(self):
        wait_until(lambda: self.call("ready", check=False).returncode == 0, 60)

    def call(self, verb, check=True):
        return self.engine.podman("exec", "daemon", SERVE, verb, check=check)

    def start_consumer(self):
        self.engine.podman("run", "--detach", "--name", "consumer", *self.limits, "--network=host",
                           "-v", f"{self.shared}:/mnt/fastpersistfs:rslave", BASE, "sleep", "3000")

    def consume(self, script, check=True):
        return self.engine.podman("exec", "consumer", "sh", "-euc", f"cd /mnt/fastpersistfs/ckpt; {script}",
                                  check=check)

    def fsck(self):
        return self.engine.podman("run", "--rm", *self.limits, "--network=host", "--privileged", *self.volumes,
                                  "--entrypoint", "fsck.fastpersistfs", self.image, "--verify-data", self.members)


def test_the_image_beside_a_consumer(engine, image, drives):
    members = [path / "container" for path in drives.paths]
    for member in members:
        member.mkdir()
    containers = Containers(engine, image, members)
    containers.start_daemon()
    engine.podman("healthcheck", "run", "daemon")
    (containers.point / "model").write_bytes(os.urandom(20_000_000))
    digest = run("sha256sum", containers.point / "model").stdout.split()[0]
    containers.start_consumer()
    assert containers.consume("sha256sum model").stdout.split()[0] == digest

    # A saver that is killed in another container, seen because the daemon shares the host's processes.
    containers.consume("(head -c 9000000 /dev/zero; kill -9 $(cat /tmp/saver)) |"
                       " sh -c 'echo $$ >/tmp/saver; exec tee model >/dev/null' || true",
                       check=False)
    assert containers.consume("sha256sum model").stdout.split()[0] == digest

    # The daemon dies, as when memory is short: errors until it is started again, and then the same consumer goes on.
    engine.podman("kill", "--signal", "KILL", "daemon")
    wait_until(lambda: "not connected" in containers.consume("cat model", check=False).stderr)
    engine.podman("start", "daemon")
    containers.wait_until_ready()
    assert containers.consume("sha256sum model").stdout.split()[0] == digest
    assert len([entry for entry in mount_table.entries() if entry.path == str(containers.point)]) == 1

    # Ended in order: who has a file open is waited for; then SIGTERM commits and unmounts, for the consumer, too.
    holder = subprocess.Popen(["sh", "-c", f"exec 3>{containers.point}/held; echo x >&3; echo ready; exec sleep 600"],
                              stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"ready\n"
        assert "in use" in containers.call("stop", check=False).stderr
    finally:
        holder.kill()
        holder.communicate()
    engine.podman("stop", "--time", "60", "daemon")
    assert engine.podman("inspect", "--format", "{{.State.ExitCode}}", "daemon").stdout == "0\n"
    assert "unmounted, everything is committed" in engine.podman("logs", "daemon").stderr
    assert not mount_table.entry_of(containers.point)
    assert containers.consume("ls -A").stdout == ""
    assert "clean" in containers.fsck().stdout
