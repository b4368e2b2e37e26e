"""cp, rsync, tar and dd, killed in the middle: what each may leave follows from how it writes."""
import dataclasses
import pathlib
import shutil
import subprocess
import tarfile

import pytest

from lab.data import first_difference, pattern
from lab.killing import Client

pytestmark = [pytest.mark.P2, pytest.mark.P6]

MIB = 1 << 20


@dataclasses.dataclass
class Source:
    """A tree to copy, and what it holds: that stays known when the tree has made room for the next."""
    tree: pathlib.Path
    files: dict


@pytest.fixture
def make_source(native):
    """make_source(number): a tree with 48 MiB that the number determines; only the newest one is kept."""
    def make(number):
        for older in native.glob("source*"):
            shutil.rmtree(older)
        source = Source(native / f"source{number}", {})
        for index, size in enumerate([20 * MIB, 5000, 12 * MIB + 5, 0, 3 * MIB, 33000] + [MIB // 2] * 26):
            path = source.tree / f"d{index % 3}" / f"file{index}"
            path.parent.mkdir(parents=True, exist_ok=True)
            source.files[path.relative_to(source.tree).as_posix()] = pattern(number * 100 + index, 0, size)
            path.write_bytes(pattern(number * 100 + index, 0, size))
        return source

    return make


def contents(tree):
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in sorted(tree.rglob("*"))
            if path.is_file() and not path.name.startswith(".file")}  # rsync's temporary names


def is_copy(loaded, source):
    return loaded == source.files


def may_be_cut(loaded, old, new):
    """Every file is old, new, or a beginning of the new."""
    before = old.files if old else {}
    return all(content == before.get(name) or new.files[name].startswith(content) for name, content in loaded.items())


def may_be_overwritten(loaded, old, new):
    """Every file is the new one up to some place, and the old one from there on."""
    before = old.files if old else {}
    for name, content in loaded.items():
        same = (first_difference(content, new.files[name]) if content != new.files[name] else len(content)) // 4096 * 4096
        if content[same + 4096:] != before.get(name, b"")[same + 4096:]:
            return False
    return True


def is_old_or_new(loaded, old, new):
    before = old.files if old else {}
    return all(content in (before.get(name), new.files[name]) for name, content in loaded.items())


def command(*words):
    """A saver that runs a program; {source} and {target} are filled in."""
    def save(path, source):
        subprocess.run([word.format(source=source.tree, target=path) for word in words], check=True, stdin=subprocess.DEVNULL)

    return save


def unpack(path, source):
    path.mkdir(exist_ok=True)
    with subprocess.Popen(["tar", "-C", source.tree, "-cf", "-", "."], stdout=subprocess.PIPE) as packer:
        subprocess.run(["tar", "-C", path, "-xpf", "-"], check=True, stdin=packer.stdout)


def archived(path):
    with tarfile.open(path) as archive:
        return {member.name[2:]: archive.extractfile(member).read() for member in archive if member.isfile()}


COPIES = {
    "cp": (command("cp", "-aT", "{source}", "{target}"), may_be_cut),
    "rsync": (command("rsync", "-aI", "--delete", "{source}/", "{target}/"), is_old_or_new),
    "rsync-inplace": (command("rsync", "-aI", "--inplace", "--whole-file", "{source}/", "{target}/"), may_be_overwritten),
    "tar-unpacks": (unpack, may_be_cut),
}


@pytest.mark.parametrize("name", COPIES)
def test_copy_is_killed(trial, make_source, name):
    save, is_part = COPIES[name]
    trial(Client(make_source, save, contents, is_copy, is_part=is_part), "copy").kill_client()


def test_tar_is_killed(trial, make_source):
    trial(Client(make_source, command("tar", "-C", "{source}", "-cf", "{target}", "."), archived, is_copy,
                 (tarfile.ReadError,), sequential=True), "tree.tar").kill_client()


@pytest.mark.parametrize("options", [["bs=1M"], ["bs=1M", "oflag=direct"], ["bs=1M", "oflag=dsync"]],
                         ids=["plain", "direct", "dsync"])
def test_dd_is_killed(trial, make_source, options):
    def is_part(loaded, old, new):
        return new.files["d0/file0"].startswith(loaded)

    trial(Client(make_source, command("dd", "if={source}/d0/file0", "of={target}", "status=none", *options),
                 lambda path: path.read_bytes(), lambda loaded, source: loaded == source.files["d0/file0"],
                 is_part=is_part), "image").kill_client()
