"""Stores that arrays copy to, as plain tools see them, and fpfs tier."""
import json
import os
import subprocess

from . import LONG
from .damage import extents_of
from .data import write_pattern
from .object_stores import CephStore, SeaweedStore
from .programs import run

SERVICES = [SeaweedStore, *([CephStore] if LONG else [])]


class Directory:
    """A place of its own in a directory."""
    daemons = []

    def __init__(self, path, name):
        self.path = path / name
        self.path.mkdir(parents=True)
        self.url = f"file://{self.path}"

    def content(self, key):
        path = self.path / key
        return path.read_bytes() if path.exists() else None


class Bucket:
    """A prefix of its own in a bucket, read by curl."""

    def __init__(self, service, name):
        self.service, self.name = service, name
        self.url = service.url.replace("pre%20fix/x", name).replace("deadline=60", "deadline=2")
        where = service.url.removeprefix("s3://").split("?")[0].split("/")[0]
        endpoint = service.url.split("endpoint=")[1].split("&")[0]
        self.address = f"{endpoint}/{where}/{name}"

    def content(self, key):
        keys = self.service.environment
        result = subprocess.run(
            ["curl", "-sf", "--user", f"{keys['AWS_ACCESS_KEY_ID']}:{keys['AWS_SECRET_ACCESS_KEY']}", "--aws-sigv4",
             "aws:amz:us-east-1:s3", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", f"{self.address}/{key}"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        return result.stdout if result.returncode == 0 else None


def fpfs(mount, *words, check=True):
    return run(mount.array.programs.fpfs, *words, check=check)


def set_tier(mount, url, *options):
    fpfs(mount, "tier", "set", mount.path, url, *options)


def tier(mount):
    return json.loads(fpfs(mount, "tier", "status", "--json", mount.path).stdout)


def sync(mount, path=None, check=True):
    return fpfs(mount, "sync", "--tier", "--timeout", "60", path or mount.path, check=check)


def state(path):
    return os.getxattr(path, "user.fastpersistfs.tier").decode()


def copied_file(array, make_mount, store, size):
    """A file "file" that was saved and copied, of an array that will be damaged: (its mount, which has ended, its
    extents)."""
    array.damaged = True
    mount = make_mount(array)
    set_tier(mount, store.url)
    write_pattern(mount.path / "file", 1, size)
    sync(mount)
    extents = extents_of(mount, mount.path / "file")["extents"]
    mount.unmount()
    return mount, extents
