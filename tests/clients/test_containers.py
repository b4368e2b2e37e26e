"""Use from containers: another user, in namespaces of its own, with the mount as a volume (allow_other)."""
import os
import pwd
import shutil
import subprocess
import time

import pytest

from lab.killing import Child, assert_alive
from lab.programs import run
from lab.system import in_child, wait_until

USER = pwd.getpwnam("nobody").pw_uid

# alone: a mount namespace of its own has copies of all mounts, those of other tests too.
pytestmark = [pytest.mark.P6, pytest.mark.root, pytest.mark.alone]


@pytest.fixture
def shared(make_array, make_mount):
    """A mount for everybody, with a directory that belongs to the container's user."""
    mount = make_mount(make_array(), "allow_other")
    os.chmod(mount.path, 0o755)
    (mount.path / "volume").mkdir()
    os.chown(mount.path / "volume", USER, USER)
    return mount


@pytest.fixture
def container(lab, numbers, shared):
    """container(script): the words that run it in a root of its own, with the system's /usr and the volume at /ckpt."""
    root = lab / f"root{next(numbers)}"
    for name in ("usr", "ckpt", "proc", "tmp", "dev"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), root / name)
    os.chmod(root, 0o755)
    os.chmod(root / "tmp", 0o1777)
    set_up = (f"mount --rbind /usr {root}/usr && mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc"
              f" && mount --bind {shared.path}/volume {root}/ckpt"
              f" && exec chroot --userspec={USER}:{USER} --groups= {root} sh -euc \"$0\"")
    yield lambda script: ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--uts",
                          "--propagation", "private", "sh", "-euc", set_up, script]
    shutil.rmtree(root)


SAVE = """
    cd /ckpt; umask 027
    head -c 20000000 /dev/zero | tr '\\0' 'm' > model.tmp; sync -f model.tmp; mv model.tmp model
    mkdir -p logs; echo one >> logs/log; ln -sf model latest; cp -a model copy; cmp model latest
    sha256sum copy | cut -c1-64; stat -c %u:%g:%a model
"""


def test_container_saves_and_the_host_reads(shared, container):
    digest, owner = run(*container(SAVE)).stdout.split()
    assert owner == f"{USER}:{USER}:640"
    assert digest == run("sha256sum", shared.path / "volume/copy").stdout[:64]
    assert os.readlink(shared.path / "volume/latest") == "model"
    shared.remount()
    assert (shared.path / "volume/latest").read_bytes() == b"m" * 20_000_000
    assert (shared.path / "volume/logs/log").read_text() == "one\n"


def test_container_stays_in_its_volume(shared, container):
    """What lies beside the volume is not there for it, whatever path it tries."""
    (shared.path / "beside").write_bytes(b"not for the container")
    os.chmod(shared.path / "beside", 0o644)
    script = """
        cd /ckpt; echo inside > here; cat here 2>/dev/null; ln -s ../beside up; ln -s /ckpt/../beside root; mkdir deep
        for path in ../beside /ckpt/../beside up root deep/../../beside; do
          if cat "$path" 2>/dev/null; then echo "reached $path"; fi
        done
        if mknod device c 1 3 2>/dev/null; then echo "made a device"; fi
        if chown 0:0 deep 2>/dev/null; then echo "gave away"; fi
        echo done
    """
    assert run(*container(script)).stdout == "inside\ndone\n"


def test_container_without_privileges(shared):
    """A user namespace, as rootless containers have: its root is an ordinary user of the mount."""
    script = f"""
        set -eu
        cd {shared.path}/volume
        test "$(id -u)" = 0
        head -c 3000000 /dev/zero > file; chmod 4755 file; mkdir directory
        mount --bind . directory && ls directory/file >/dev/null
        ! chown 1:1 file 2>/dev/null
        ! mknod device c 1 3 2>/dev/null
        ! touch {shared.path}/outside 2>/dev/null
        stat -c %u file
    """
    words = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "unshare", "--user", "--map-root-user",
             "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
    result = run(*words, check=False, cwd="/")
    if "unshare failed" in result.stderr:
        pytest.skip(f"this machine gives users no namespaces: {result.stderr.strip()}")
    assert result.returncode == 0 and result.stdout == "0\n", result.stderr
    found = os.stat(shared.path / "volume/file")
    assert (found.st_uid, found.st_gid) == (USER, USER)
    assert not (shared.path / "outside").exists()


@pytest.mark.P2
def test_container_is_killed(shared, container, native):
    """SIGKILL for the whole container while it saves, as by an orchestrator: old or new, since it renames."""
    script = """
        cd /ckpt; number=0
        while true; do
          number=$((number + 1))
          yes "$number" | head -c 8000000 > model.tmp; mv model.tmp model
        done
    """
    for turn in range(3):
        child = Child(lambda: subprocess.run(container(script), check=True, stderr=subprocess.DEVNULL))
        wait_until((shared.path / "volume/model").exists)
        time.sleep(0.3 + 0.13 * turn)
        assert child.kill()
        assert_alive(shared)
        content = (shared.path / "volume/model").read_bytes()
        line = content.split(b"\n", 1)[0] + b"\n"
        assert content == (line * (8_000_000 // len(line) + 1))[:8_000_000]
    # Nothing holds the volume any more: the fixture's unmount would say so.


def test_users_torch_saves(shared):
    """torch as another user, beside root's: each owns what it saved, and reads what it may."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    state = {"weights": torch.arange(1 << 20)}

    def save_and_load():
        os.umask(0o077)
        torch.save(state, shared.path / "volume/own.pt")
        assert torch.equal(torch.load(shared.path / "volume/own.pt", mmap=True)["weights"], state["weights"])
        assert torch.equal(torch.load(shared.path / "roots.pt", mmap=True)["weights"], state["weights"])
        try:
            torch.save(state, shared.path / "roots.pt")
            raise AssertionError("another user's file was overwritten")
        except (RuntimeError, PermissionError):
            pass

    torch.save(state, shared.path / "roots.pt")
    os.chmod(shared.path / "roots.pt", 0o644)
    in_child(save_and_load, uid=USER)
    found = os.stat(shared.path / "volume/own.pt")
    assert (found.st_uid, found.st_mode & 0o777) == (USER, 0o600)
    assert torch.equal(torch.load(shared.path / "roots.pt")["weights"], state["weights"])
