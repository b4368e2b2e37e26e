"""git: commits, clones, garbage collection; killed in the middle of a commit or a clone."""
import os
import random
import select
import shutil
import subprocess
import time

import pytest

from lab import LONG
from lab.data import pattern
from lab.killing import Child, assert_alive
from lab.programs import run

pytestmark = pytest.mark.P6


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


# --- killed in the middle ----------------------------------------------------------------------------------------

@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.time_limit(180)
@pytest.mark.parametrize("victim", ["client", "daemon"])
def test_git_is_killed(mount, victim):
    """Commits that git acknowledged are there, and the repository is sound but for the lock files that git leaves."""
    repository, seed = mount.path / "repository", random.randrange(1 << 32)
    print(f"seed {seed}")
    rolls, acknowledged = random.Random(seed), 0
    git = ["git", "-C", str(repository), "-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "gc.auto=0"]
    run("git", "init", "-q", repository)
    for _ in range(20 if LONG else 2):
        told, tell = os.pipe()

        def commit_without_end(first=acknowledged):
            for number in range(first, first + 100000):
                (repository / "file").write_bytes(pattern(number, 0, 100_000))
                (repository / f"file{number % 10}").write_text(f"{number}\n")
                subprocess.run([*git, "add", "."], check=True)
                subprocess.run([*git, "commit", "-q", "-m", str(number)], check=True)
                os.write(tell, b"x")

        child = Child(commit_without_end)
        assert select.select([told], [], [], 60)[0], "no commit in a minute"
        time.sleep(rolls.uniform(0.5, 1.0))
        if victim == "daemon":
            mount.kill()
        assert child.kill()
        os.close(tell)
        with os.fdopen(told, "rb") as pipe:
            acknowledged += len(pipe.read())
        if victim == "daemon":
            mount.start()
        assert_alive(mount)
        for lock in repository.rglob(".git/**/*.lock"):
            lock.unlink()  # as git's message asks the user to
        run(*git, "fsck", "--full", "--strict")
        committed = int(run(*git, "rev-list", "--count", "HEAD").stdout)
        assert committed in (acknowledged, acknowledged + 1), f"{committed} commits, {acknowledged} were acknowledged"
        run(*git, "reset", "-q", "--hard")
        assert (repository / "file").read_bytes() == pattern(committed - 1, 0, 100_000)
        acknowledged = committed
    assert acknowledged > 2


def test_git_clone_is_killed(mount, native):
    source = native / "source"
    run("git", "init", "-q", source)
    for number in range(60):
        (source / f"file{number}").write_bytes(pattern(number, 0, 300_000))
    git = ["git", "-C", source, "-c", "user.name=T", "-c", "user.email=t@example.org"]
    run(*git, "add", ".")
    run(*git, "commit", "-q", "-m", "one")

    def clone(name):
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", f"file://{source}", mount.path / name], check=True)

    started = time.monotonic()
    clone("whole")
    duration = time.monotonic() - started
    for turn in range(3):
        child = Child(lambda: clone("killed"))
        time.sleep(duration * (turn + 1) / 4)
        child.kill()
        assert_alive(mount)
        shutil.rmtree(mount.path / "killed", ignore_errors=True)
        assert not (mount.path / "killed").exists()
    clone("again")
    run("git", "-C", mount.path / "again", "fsck", "--full", "--strict")
    for number in range(60):
        assert (mount.path / "again" / f"file{number}").read_bytes() == pattern(number, 0, 300_000)
