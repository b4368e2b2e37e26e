"""Ordinary programs on the mount: copying, archives, git, sqlite, numpy."""
import os
import shutil
import sqlite3
import stat

import numpy
import pytest

from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run

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


@pytest.mark.parametrize("options", [["bs=1M"], ["bs=1M", "oflag=direct"], ["bs=4096", "conv=fsync"],
                                     ["bs=333", "conv=fdatasync"], ["bs=1M", "iflag=direct"], ["bs=64K", "oflag=append"]])
def test_dd(mount, native, drives, options):
    size = MIB if "bs=333" in options else 8 * MIB
    write_pattern(native / "source", 1, size)
    write_pattern(mount.path / "source", 1, size)
    source = mount.path / "source" if "iflag=direct" in options else native / "source"
    run("dd", f"if={source}", f"of={mount.path / 'target'}", "status=none", *options)
    assert is_pattern(mount.path / "target", 1, size)
    run("dd", f"if={native / 'source'}", f"of={mount.path / 'target'}", "conv=notrunc", "bs=1000", "seek=3", "count=5",
        "status=none")
    expected = bytearray(pattern(1, 0, size))
    expected[3000:8000] = pattern(1, 0, 5000)
    assert (mount.path / "target").read_bytes() == expected


@pytest.mark.time_limit(180)
def test_git(mount):
    git = ["git", "-C", mount.path / "repository", "-c", "user.name=T", "-c", "user.email=t@example.org"]
    run("git", "init", "-q", mount.path / "repository")
    for number in range(30):
        (mount.path / "repository" / f"file{number}").write_bytes(pattern(number, 0, 500 * number))
    run(*git, "add", ".")
    run(*git, "commit", "-q", "-m", "one")
    (mount.path / "repository/file3").write_text("changed\n")
    run(*git, "commit", "-q", "-a", "-m", "two")
    run(*git, "gc", "-q", "--aggressive", "--prune=now")
    run(*git, "fsck", "--full", "--strict")
    run("git", "clone", "-q", mount.path / "repository", mount.path / "clone")
    mount.remount()
    run("git", "-C", mount.path / "clone", "fsck", "--full")
    assert run("git", "-C", mount.path / "clone", "status", "--porcelain").stdout == ""
    assert (mount.path / "clone/file3").read_text() == "changed\n"
    assert (mount.path / "clone/file29").read_bytes() == pattern(29, 0, 500 * 29)


@pytest.mark.parametrize("journal", ["delete", "wal", "truncate"])
def test_sqlite(mount, journal):
    path = mount.path / "data.db"
    with sqlite3.connect(path) as database:
        assert database.execute(f"pragma journal_mode={journal}").fetchone()[0] == journal
        database.execute("create table t (id integer primary key, value blob)")
    for turn in range(10):
        with sqlite3.connect(path) as database:
            database.executemany("insert into t (value) values (?)", [(pattern(turn, n, 300),) for n in range(100)])
    with sqlite3.connect(path) as database:
        try:
            with database:
                database.execute("delete from t")
                raise RuntimeError("roll back")
        except RuntimeError:
            pass
        assert database.execute("pragma integrity_check").fetchone()[0] == "ok"
        assert database.execute("select count(*) from t").fetchone()[0] == 1000
    database.close()
    mount.kill()  # every commit was durable
    mount.start()
    database = sqlite3.connect(path)
    assert database.execute("pragma integrity_check").fetchone()[0] == "ok"
    rows = database.execute("select value from t order by id").fetchall()
    assert [row[0] for row in rows] == [pattern(turn, n, 300) for turn in range(10) for n in range(100)]
    database.close()


def test_numpy_memmap(mount):
    path = mount.path / "array.npy"
    made = numpy.lib.format.open_memmap(path, mode="w+", dtype=numpy.float32, shape=(1000, 1000))
    made[:] = numpy.arange(10**6, dtype=numpy.float32).reshape(1000, 1000)
    made.flush()
    del made
    mount.remount()
    view = numpy.load(path, mmap_mode="r+")
    assert view[999, 999] == 999999
    view[500] *= 2
    view.flush()
    del view
    mount.remount()
    loaded = numpy.load(path)
    expected = numpy.arange(10**6, dtype=numpy.float32).reshape(1000, 1000)
    expected[500] *= 2
    assert numpy.array_equal(loaded, expected)
    numpy.savez(mount.path / "several.npz", a=loaded, b=numpy.eye(100))
    with numpy.load(mount.path / "several.npz") as several:
        assert numpy.array_equal(several["a"], expected) and numpy.array_equal(several["b"], numpy.eye(100))


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
