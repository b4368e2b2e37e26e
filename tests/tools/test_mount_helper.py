"""mount.fastpersistfs: what mount(8) calls. The daemon here is a script that shows its arguments."""
import shutil

import pytest

from lab.programs import REPOSITORY, run

HELPER = REPOSITORY / "mount-scripts" / "mount.fastpersistfs"


@pytest.fixture
def helper(tmp_path):
    """Runs the helper beside a daemon that prints its arguments and ends as told."""
    copy = tmp_path / "mount.fastpersistfs"
    shutil.copy(HELPER, copy)
    daemon = tmp_path / "fastpersistfs"

    def call(*arguments, daemon_exit=0, uid=1000):
        daemon.write_text(f'#!/bin/sh\nfor argument; do echo "$argument"; done\nexit {daemon_exit}\n')
        daemon.chmod(0o755)
        identity = tmp_path / "id"
        identity.write_text(f"#!/bin/sh\necho {uid}\n")
        identity.chmod(0o755)
        return run(copy, *arguments, check=False, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})

    return call


@pytest.mark.parametrize("given, passed", [
    ("defaults", []),
    ("rw,nofail,noauto,auto,user,users,owner,group,_netdev,comment=x,x-systemd.automount,X-y", []),
    ("noatime,durable=close,allow_other", ["noatime,durable=close,allow_other"]),
    ("ro,nosuid,nodev,noexec", ["noexec,nosuid,nodev,ro"]),
    ("ro,rw", []),
    ("rw,ro", ["ro"]),
    ("dev,suid,exec", ["exec,suid,dev"]),
    ("nosuid,dev,suid,nodev", ["suid,nodev"]),
    ("profile=/etc/*.conf", ["profile=/etc/*.conf"]),
    ("log_file=/var/log/a b.log,defaults", ["log_file=/var/log/a b.log"]),
])
def test_options(helper, given, passed):
    result = helper("/a/fp:/b/fp", "/mnt/x", "-o", given)
    assert result.returncode == 0, result.stderr
    expected = (["-o"] + passed if passed else []) + ["/a/fp:/b/fp", "/mnt/x"]
    assert result.stdout.splitlines() == expected


@pytest.mark.parametrize("given, passed", [
    ("defaults", "suid,dev"), ("noatime", "noatime,suid,dev"), ("nosuid", "nosuid,dev"), ("nodev", "suid,nodev"),
    ("user,noexec,nosuid,nodev", "noexec,nosuid,nodev"), ("ro", "suid,dev,ro")])
def test_a_mount_by_root_is_like_a_local_one(helper, given, passed):
    """Programs with set-user-ID bits and device nodes work unless they are excluded."""
    assert helper("/a", "/m", "-o", given, uid=0).stdout.splitlines() == ["-o", passed, "/a", "/m"]


def test_the_ways_mount_calls_it(helper):
    for flags in (["-sn"], ["-n", "-N", "/proc/1/ns/mnt"], ["-t", "fuse.fastpersistfs"], []):
        result = helper("/a", "/m", *flags, "-o", "noatime")
        assert result.returncode == 0, result.stderr
        assert result.stdout.splitlines() == ["-o", "noatime", "/a", "/m"]


def test_paths_with_spaces(helper):
    assert helper("/a b:/c", "/my mount").stdout.splitlines() == ["/a b:/c", "/my mount"]


def test_fake_mounts_nothing(helper):
    result = helper("/a", "/m", "-fv", "-o", "ro", daemon_exit=1)
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == 1 and result.stdout.endswith(" -o ro /a /m\n")


@pytest.mark.parametrize("daemon, expected", [(0, 0), (1, 32), (16, 1), (139, 32)])
def test_exit_codes_are_those_of_mount(helper, daemon, expected):
    assert helper("/a", "/m", daemon_exit=daemon).returncode == expected


@pytest.mark.parametrize("arguments, expected", [
    ([], 1), (["/a"], 1), (["/a", "/m", "/n"], 1), (["/a", "/m", "-o"], 1), (["/a", "/m", "-q"], 1),
    (["/a", "/m", "-o", "remount,ro"], 32)])
def test_refusals_are_one_line(helper, arguments, expected):
    result = helper(*arguments)
    assert result.returncode == expected
    assert result.stdout == "" and len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("mount.fastpersistfs: ")


def test_without_a_daemon(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("dirname", "id", "readlink", "sed"):
        (tools / name).symlink_to(shutil.which(name))
    copy = tmp_path / "sbin" / "mount.fastpersistfs"
    copy.parent.mkdir()
    shutil.copy(HELPER, copy)
    result = run(copy, "/a", "/m", check=False, env={"PATH": str(tools)})
    assert result.returncode == 32
    assert len(result.stderr.splitlines()) == 1 and "install it" in result.stderr


def test_a_daemon_of_the_same_prefix(tmp_path):
    for name in ("bin", "sbin"):
        (tmp_path / "prefix" / name).mkdir(parents=True)
    installed = tmp_path / "prefix" / "sbin" / "mount.fastpersistfs"
    shutil.copy(HELPER, installed)
    daemon = tmp_path / "prefix" / "bin" / "fastpersistfs"
    daemon.write_text("#!/bin/sh\necho started\n")
    daemon.chmod(0o755)
    link = tmp_path / "mount.fastpersistfs"  # as /sbin/mount.fastpersistfs may be
    link.symlink_to(installed)
    assert run(link, "/a", "/m", env={"PATH": "/usr/bin:/bin"}).stdout == "started\n"
