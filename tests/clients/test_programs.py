"""Ordinary programs on the mount: cp, rsync, tar, dd, shell tools."""
import hashlib
import os
import shutil
import stat

import pytest

from lab.data import pattern
from lab.programs import run

pytestmark = pytest.mark.P6

MIB = 1 << 20


def make_tree(root):
    """Files of many sizes, modes and times, links, a sparse file, names that scripts get wrong."""
    (root / "a dir/sub").mkdir(parents=True)
    for number, size in enumerate((0, 1, 4096, 40000, MIB, 3 * MIB + 17)):
        path = root / "a dir" / f"file {number}"
        path.write_bytes(pattern(number, 0, size))
        os.chmod(path, 0o600 + number)
        os.utime(path, ns=(10**18 + number, 10**18 + 7 * number))
    os.symlink("../a dir/file 3", root / "a dir/sub/link")
    os.link(root / "a dir/file 2", root / "a dir/sub/hard")
    with open(root / "sparse", "wb") as file:
        os.pwrite(file.fileno(), b"end", 20 * MIB)
    os.setxattr(root / "a dir/file 3", "user.note", b"kept")
    (root / "-odd\n").write_text("name")
    os.utime(root / "a dir", ns=(10**18, 10**18))


def facts(root, times=True, attributes=True):
    found = {}
    for directory, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(directory, name)
            info = os.lstat(path)
            key = os.path.relpath(path, root)
            found[key] = [stat.filemode(info.st_mode), info.st_uid, info.st_gid]
            if stat.S_ISLNK(info.st_mode):
                found[key].append(os.readlink(path))
            elif stat.S_ISREG(info.st_mode):
                with open(path, "rb") as file:
                    found[key] += [info.st_size, hash(file.read())]
                if times:
                    found[key].append(info.st_mtime_ns)
                if attributes:
                    found[key].append({name: os.getxattr(path, name) for name in os.listxattr(path)
                                       if name.startswith("user.")})
    return found


@pytest.mark.parametrize("direction", ["to", "from", "within"])
def test_cp(mount, native, direction):
    source, target = {"to": (native, mount.path), "from": (mount.path, native),
                      "within": (mount.path / "one", mount.path)}[direction]
    source.mkdir(exist_ok=True)
    (source / "tree").mkdir()
    make_tree(source / "tree")
    run("cp", "-a", source / "tree", target / "copy")
    assert facts(target / "copy") == facts(source / "tree")
    assert os.stat(target / "copy/a dir/file 2").st_nlink == 2
    assert run("diff", "-r", "--no-dereference", source / "tree", target / "copy").stdout == ""


@pytest.mark.parametrize("direction", ["to", "from"])
def test_rsync(mount, native, direction):
    source, target = (native, mount.path) if direction == "to" else (mount.path, native)
    (source / "tree").mkdir()
    make_tree(source / "tree")
    run("rsync", "-aHAX", f"{source}/tree/", f"{target}/copy/")
    assert facts(target / "copy") == facts(source / "tree")
    # Nothing is left to do, also when every byte is compared; then a change is found and carried over in place.
    assert run("rsync", "-aHAXc", "--itemize-changes", f"{source}/tree/", f"{target}/copy/").stdout == ""
    with open(source / "tree/a dir/file 5", "r+b") as file:
        os.pwrite(file.fileno(), b"changed", 2 * MIB)
    run("rsync", "-aHAX", "--inplace", "--no-whole-file", f"{source}/tree/", f"{target}/copy/")
    assert facts(target / "copy") == facts(source / "tree")


def test_tar(mount, native):
    (native / "tree").mkdir()
    make_tree(native / "tree")
    run("tar", "-C", native, "--xattrs", "--sparse", "-cf", mount.path / "tree.tar", "tree")
    (mount.path / "out").mkdir()
    run("tar", "-C", mount.path / "out", "--xattrs", "-xpf", mount.path / "tree.tar")
    assert facts(mount.path / "out/tree") == facts(native / "tree")
    run("tar", "-C", mount.path / "out", "-czf", native / "back.tar.gz", "tree")
    (native / "back").mkdir()
    run("tar", "-C", native / "back", "-xpzf", native / "back.tar.gz")
    assert facts(native / "back/tree", times=False, attributes=False) == facts(
        native / "tree", times=False, attributes=False)


DD_FLAGS = ["append", "direct", "directory", "dsync", "sync", "fullblock", "nonblock", "noatime", "nocache", "noctty",
            "nofollow", "count_bytes", "skip_bytes", "seek_bytes"]
DD_CONVERSIONS = ["ascii", "ebcdic", "ibm", "block", "unblock", "lcase", "ucase", "sparse", "swab", "sync", "excl",
                  "nocreat", "notrunc", "noerror", "fdatasync", "fsync"]
DD_CALLS = [
    *(["bs=64K", f"iflag={flag}"] for flag in DD_FLAGS), *(["bs=64K", f"oflag={flag}"] for flag in DD_FLAGS),
    *(["bs=64K", "cbs=80", f"conv={conversion}"] for conversion in DD_CONVERSIONS),
    ["bs=1M"], ["bs=333"], ["ibs=1000", "obs=4096"], ["bs=1M", "oflag=direct", "conv=fsync"], ["bs=4096", "conv=fsync"],
    ["bs=1000", "seek=3", "count=5"], ["bs=1000", "seek=3", "count=5", "conv=notrunc"], ["bs=1000", "skip=7", "count=2"],
    ["bs=1000", "skip=7", "count=12345", "iflag=skip_bytes,count_bytes"],
    ["bs=1000", "seek=77777", "oflag=seek_bytes", "conv=notrunc"], ["bs=1M", "conv=sync"], ["bs=4K", "conv=sparse,notrunc"],
    ["bs=64K", "oflag=append", "conv=notrunc"], ["bs=1M", "seek=9"], ["bs=512", "iflag=direct", "oflag=direct", "count=64"],
    ["bs=1M", "iflag=direct", "oflag=direct,dsync"], ["bs=1M", "count=0", "seek=2"],
    ["bs=1M", "oflag=nocache", "count=0", "conv=notrunc,fdatasync"],
]


@pytest.mark.parametrize("target_exists", [False, True])
def test_dd(mount, native, target_exists):
    """Every flag and conversion does on the mount what it does on the drive's own filesystem."""
    size = 2 * MIB + 77
    results = {}
    for parent in (native, mount.path):
        (parent / "source").write_bytes(pattern(1, 0, MIB) + bytes(MIB // 2) + pattern(2, 0, size - MIB - MIB // 2))
        found = results[parent] = []
        for options in DD_CALLS:
            target = parent / "target"
            target.unlink(missing_ok=True)
            if target_exists:
                target.write_bytes(pattern(3, 0, 5 * MIB // 2))
            result = run("dd", "if=source", "of=target", "status=none", *options, cwd=parent, check=False)
            content = target.read_bytes() if target.exists() else None
            found.append((options, result.returncode, result.stderr, content and hashlib.sha256(content).hexdigest(),
                          content and len(content)))
    for here, there in zip(results[native], results[mount.path]):
        assert there == here
    assert sum(call[1] == 0 for call in results[native]) > len(DD_CALLS) / 2
    # Here the mount does more than a drive can: O_DIRECT needs no alignment.
    run("dd", "if=source", "of=target", "status=none", "bs=10007", "iflag=direct", "oflag=direct", cwd=mount.path)
    assert (mount.path / "target").read_bytes() == (mount.path / "source").read_bytes()


def test_shell_tools(mount):
    """Editors' and scripts' habits: redirection, append, sed -i, install, mv across the mount."""
    script = """
        set -e
        cd "$1"
        echo one > file; echo two >> file; printf 'three\\n' | tee -a file > /dev/null
        sed -i 's/two/2/' file
        install -m 0751 file installed
        cp --reflink=auto file copy; cmp file copy
        mv file "$2/moved"; mv "$2/moved" back
        truncate -s 1M big; shred -n 1 big; sync big
        head -c 3000000 /dev/urandom > random; split -b 700000 random part.; cat part.* | cmp - random
        sort -r back > sorted; find . -type f | xargs -d '\\n' md5sum > "$2/sums"; md5sum -c --quiet "$2/sums"
        rm -f part.*
    """
    elsewhere = mount.path.with_name("elsewhere")
    elsewhere.mkdir()
    try:
        run("sh", "-c", script, "sh", mount.path, elsewhere)
    finally:
        shutil.rmtree(elsewhere)
    assert (mount.path / "back").read_text() == "one\n2\nthree\n"
    assert (mount.path / "sorted").read_text() == "three\none\n2\n"
    assert stat.S_IMODE(os.stat(mount.path / "installed").st_mode) == 0o751
