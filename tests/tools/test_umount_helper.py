"""umount.fastpersistfs: what umount(8) calls. fpfs here is a script that shows its arguments."""
import shutil

import pytest

from lab.programs import REPOSITORY, run

HELPER = REPOSITORY / "mount-scripts" / "umount.fastpersistfs"


@pytest.fixture
def helper(tmp_path):
    """Runs the helper beside an fpfs that prints its arguments and ends as told."""
    copy = tmp_path / "umount.fastpersistfs"
    shutil.copy(HELPER, copy)
    fpfs = tmp_path / "fpfs"

    def call(*arguments, fpfs_exit=0):
        fpfs.write_text(f'#!/bin/sh\nfor argument; do echo "$argument"; done\nexit {fpfs_exit}\n')
        fpfs.chmod(0o755)
        return run(copy, *arguments, check=False, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})

    return call


@pytest.mark.parametrize("flags, passed", [
    ([], []), (["-n"], []), (["-n", "-r", "-t", "fuse.fastpersistfs"], []), (["-N", "/proc/1/ns/mnt"], []), (["-l"], ["-l"]),
    (["-f"], ["-f"]), (["-nfl"], ["-l", "-f"])])
def test_the_ways_umount_calls_it(helper, flags, passed):
    result = helper("/my mount", *flags)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["umount", *passed, "--", "/my mount"]


def test_its_version_names_it(helper, tmp_path):
    helper("/m")
    (tmp_path / "fpfs").write_text("#!/bin/sh\necho 'fpfs (fastpersistfs) 1.2.3'\n")
    told = run(tmp_path / "umount.fastpersistfs", "--version", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert told.stdout == "umount.fastpersistfs (fastpersistfs) 1.2.3\n"


def test_verbose_says_what_it_calls(helper):
    assert helper("/m", "-v").stdout.splitlines()[0].endswith("/fpfs umount -- /m")


@pytest.mark.parametrize("status", [1, 16, 139])
def test_a_failure_is_one(helper, status):
    assert helper("/m", fpfs_exit=status).returncode == 1


@pytest.mark.parametrize("arguments", [[], ["/a", "/b"], ["/a", "-q"], ["/a", "-t"]])
def test_refusals_are_one_line(helper, arguments):
    result = helper(*arguments)
    assert result.returncode == 1 and result.stdout == "" and len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("umount.fastpersistfs: ")


def test_fpfs_of_the_same_prefix(tmp_path):
    for name in ("bin", "sbin"):
        (tmp_path / "prefix" / name).mkdir(parents=True)
    installed = tmp_path / "prefix" / "sbin" / "umount.fuse.fastpersistfs"
    shutil.copy(HELPER, installed)
    fpfs = tmp_path / "prefix" / "bin" / "fpfs"
    fpfs.write_text("#!/bin/sh\necho called\n")
    fpfs.chmod(0o755)
    link = tmp_path / "umount.fuse.fastpersistfs"  # as /sbin/umount.fuse.fastpersistfs may be
    link.symlink_to(installed)
    assert run(link, "/m", env={"PATH": "/usr/bin:/bin"}).stdout == "called\n"
