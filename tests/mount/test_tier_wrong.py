"""What is wrong with a store: rights, bucket, clock, another array's prefix. One clear line, nothing stored there; with
tier_required=no local work goes on, and copies begin when it is right. Through a mount."""
import json
import os
import shutil

import pytest

from lab.array import MountFailed
from lab.copies import SERVICES, Directory, fpfs, set_tier, state, sync, tier
from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run
from lab.s3_gateway import WRITING, S3Gateway
from lab.system import wait_until

MIB = 1 << 20

pytestmark = [pytest.mark.P3]


def everything(error):
    return lambda method: error


def writing(error):
    """Lists and reads are answered."""
    return lambda method: error if method in WRITING else None


# What is refused, how far the service's clock is ahead, what the line says.
WRONG = {
    "no rights": (everything("AccessDenied"), 0, ["AccessDenied"]),
    "no right to write": (writing("AccessDenied"), 0, ["AccessDenied", "PUT s3://"]),
    "no bucket": (everything("NoSuchBucket"), 0, ["NoSuchBucket"]),
    "clock behind": (everything("RequestTimeTooSkewed"), 3600, ["RequestTimeTooSkewed", "s behind the service's"]),
    "clock ahead": (everything("RequestTimeTooSkewed"), -3600, ["RequestTimeTooSkewed", "s ahead of the service's"]),
}


def the_line(text, *words):
    lines = text.splitlines()
    assert len(lines) == 1, text
    assert all(word in lines[0] for word in words), lines[0]


def refused_mount(mount, *options):
    """What a daemon that does not mount says: exit status 1."""
    before, options_before = mount.log(), mount.options
    mount.options = [*options_before, *options]
    with pytest.raises(MountFailed, match="^exit 1: "):
        mount.start()
    mount.options = options_before
    return mount.log().removeprefix(before)


@pytest.fixture
def gateway(request, make_store):
    """The way to an empty prefix of SeaweedFS, or of the test's parameter."""
    store = make_store(getattr(request, "param", SERVICES[0]))
    made = S3Gateway(store.url)
    made.content, made.strangers = store.content, store.service.strangers
    yield made
    made.close()


def goes_on_until_it_is_right(mount, gateway, words, make_right):
    """A mount that does not require the store."""
    mount.options = [*mount.options, "tier_required=no"]
    logged = len(mount.log())
    mount.start()
    write_pattern(mount.path / "while-wrong", 2, 3 * MIB)
    assert is_pattern(mount.path / "while-wrong", 2, 3 * MIB)
    wait_until(lambda: tier(mount)["last_error"] != "")
    status = tier(mount)
    assert status["state"] == "away" and all(word in status["last_error"] for word in words), status
    the_line("\n".join(line for line in mount.log()[logged:].splitlines() if "nothing is copied" in line), *words)
    assert gateway.stored() == [] and gateway.content("while-wrong") is None
    make_right()
    sync(mount)
    assert gateway.content("while-wrong") == pattern(2, 0, 3 * MIB) and tier(mount)["state"] == "current"
    write_pattern(mount.path / "later", 3, MIB)
    sync(mount)
    assert gateway.content("later") == pattern(3, 0, MIB)


@pytest.mark.parametrize("what", WRONG)
def test_a_service_that_refuses(array, make_mount, gateway, what):
    """A store that was right before."""
    refuses, clock_ahead, words = WRONG[what]
    mount = make_mount(array)
    set_tier(mount, gateway.url)
    write_pattern(mount.path / "before", 1, MIB)
    sync(mount)
    mount.unmount()
    gateway.refuses, gateway.clock_ahead = refuses, clock_ahead
    gateway.answers.clear()
    the_line(refused_mount(mount, f"tier={gateway.url}"), *words)
    assert gateway.answers and gateway.stored() == []

    def make_right():
        gateway.refuses = everything(None)

    goes_on_until_it_is_right(mount, gateway, words, make_right)


def test_a_service_that_refuses_is_not_made_the_store(gateway, mount):
    for gateway.refuses, gateway.clock_ahead, words in WRONG.values():
        refused = fpfs(mount, "tier", "set", mount.path, gateway.url, check=False)
        assert refused.returncode == 1 and refused.stdout == ""
        the_line(refused.stderr, *words)
        assert gateway.answers and gateway.stored() == [] and tier(mount)["state"] == "none"
    gateway.refuses = everything(None)
    set_tier(mount, gateway.url)
    write_pattern(mount.path / "file", 1, MIB)
    sync(mount)
    assert gateway.content("file") == pattern(1, 0, MIB)


def test_rights_that_are_lost_while_mounted(gateway, mount):
    set_tier(mount, gateway.url)
    write_pattern(mount.path / "before", 1, MIB)
    sync(mount)
    gateway.refuses = writing("AccessDenied")
    gateway.answers.clear()
    write_pattern(mount.path / "after", 2, 3 * MIB)
    wait_until(lambda: tier(mount)["last_error"] != "")
    assert "AccessDenied" in tier(mount)["last_error"] and state(mount.path / "after") != "copied"
    assert gateway.stored() == [] and gateway.content("after") is None
    gateway.refuses = everything(None)
    sync(mount)
    assert gateway.content("after") == pattern(2, 0, 3 * MIB)


@pytest.mark.parametrize("gateway", SERVICES, indirect=True)
def test_a_prefix_of_another_array(array, make_array, make_mount, gateway):
    """Right at last because somebody says that it is shared."""
    another = make_mount(make_array())
    set_tier(another, gateway.url)
    write_pattern(another.path / "of-another", 1, MIB)
    sync(another)
    another.unmount()
    mount = make_mount(array)
    mount.unmount()
    gateway.answers.clear()
    the_line(refused_mount(mount, f"tier={gateway.url}"), "is in use by array")
    assert gateway.stored() == []
    mount.options = [f"tier={gateway.url}"]
    goes_on_until_it_is_right(mount, gateway, ["is in use by array"],
                              lambda: set_tier(mount, gateway.url, "--share"))
    assert gateway.content("of-another") == pattern(1, 0, MIB)


@pytest.mark.parametrize("gateway", SERVICES, indirect=True)
def test_a_bucket_that_is_not_there(array, make_mount, gateway):
    """Right at last because another one is said."""
    mount = make_mount(array)
    mount.unmount()
    wrong = gateway.url.replace("s3://lab/", "s3://other-bucket/")
    the_line(refused_mount(mount, f"tier={wrong}"), "NoSuchBucket", "s3://other-bucket/", "make the bucket, or")
    assert gateway.answers and gateway.stored() == []
    mount.options = [f"tier={wrong}"]
    goes_on_until_it_is_right(mount, gateway, ["NoSuchBucket"], lambda: set_tier(mount, gateway.url))


@pytest.mark.parametrize("gateway", SERVICES, indirect=True)
def test_keys_of_somebody_without_rights(array, make_mount, gateway, monkeypatch):
    """The service itself refuses: whoever may only read (SeaweedFS), and whoever may nothing."""
    mount = make_mount(array)
    set_tier(mount, gateway.url)
    mount.unmount()
    gateway.answers.clear()
    for key, secret in gateway.strangers():
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        said = refused_mount(mount, f"tier={gateway.url}")
        the_line(said, "AccessDenied", "give the credentials of somebody who may")
        assert secret not in said and gateway.answers and gateway.stored() == []


@pytest.mark.skipif(not shutil.which("faketime"), reason="no faketime")
@pytest.mark.parametrize("gateway", SERVICES, indirect=True)
@pytest.mark.parametrize("offset, words", [("-1h", "s behind the service's"), ("+1h", "s ahead of the service's")])
def test_a_clock_that_is_wrong(array, make_mount, gateway, offset, words):
    """The service itself compares."""
    mount = make_mount(array)
    set_tier(mount, gateway.url)
    mount.unmount()
    gateway.answers.clear()
    mount.prefix = ["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "faketime", "-f", offset]
    the_line(refused_mount(mount, f"tier={gateway.url}"), "RequestTimeTooSkewed", words, "set the clocks right")
    assert gateway.answers and gateway.stored() == []


def test_copies_lie_elsewhere_than_what_they_are_of(array, make_mount):
    """Not in the mount, not on a member, also by another path: nothing is written there."""
    mount = make_mount(array)
    (mount.path / "store").mkdir()
    member = array.members[-1]
    (member / "store").mkdir()
    other_way = mount.path.parent / "other-way"
    other_way.symlink_to(member)
    for place in (mount.path / "store", mount.path, member / "store", array.members[0] / "tree", other_way / "store"):
        result = fpfs(mount, "tier", "set", mount.path, f"file://{place}", "--existing", check=False)
        assert result.returncode == 1
        the_line(result.stderr, "is within", "another drive")
    assert tier(mount)["state"] == "none"
    assert not list((member / "store").iterdir()) and not list((mount.path / "store").iterdir())
    (member / "store").rmdir()
    other_way.unlink()


def test_a_directory_that_takes_no_attributes_is_refused(make_array, make_mount, lab):
    """Of a filesystem without user extended attributes, and of another array's mount, which keeps these names to
    itself: nothing could be copied there."""
    mount, another = make_mount(make_array()), make_mount(make_array())
    ramfs = lab / "ramfs"
    ramfs.mkdir()
    run("mount", "-t", "ramfs", "none", ramfs)
    try:
        for place in (ramfs / "store", another.path / "store"):
            place.mkdir()
            refused = fpfs(mount, "tier", "set", mount.path, f"file://{place}", check=False)
            assert refused.returncode == 1
            the_line(refused.stderr, str(place), "does not take the attributes that copies need")
            assert tier(mount)["state"] == "none"
            assert [path for path in place.rglob("*") if not path.is_dir()] == []
    finally:
        run("umount", ramfs)
        ramfs.rmdir()


def test_what_has_a_reserved_name_is_not_said_to_be_copied(mount, make_store):
    """At any depth, with all that is in it."""
    store = make_store(Directory)
    set_tier(mount, store.url)
    (mount.path / "run").mkdir()
    write_pattern(mount.path / "run" / "file", 1, MIB)
    sync(mount)
    for path in (".fastpersistfs", "run/.fastpersistfs-store"):
        (mount.path / path).mkdir()
        (mount.path / path / "inside").write_text("precious")
    failed = fpfs(mount, "sync", "--tier", "--json", mount.path, check=False)
    report = json.loads(failed.stdout)
    assert failed.returncode == 1 and not report["synced"]
    for said in (failed.stderr, report["errors"][0]["detail"]):
        assert all(word in said for word in ("2 paths cannot be copied", ".fastpersistfs (its name is reserved)",
                                             "run/.fastpersistfs-store")), said
    assert tier(mount)["files_refused"] == 2
    shown = fpfs(mount, "tier", "status", mount.path).stdout
    assert "everything is copied but what cannot be" in shown and "2 paths" in shown
    (mount.path / "run/.fastpersistfs-store").rename(mount.path / "run/other")
    (mount.path / ".fastpersistfs").rename(mount.path / "another")
    sync(mount)
    assert store.content("run/other/inside") == b"precious"


def test_a_directory_of_copies_is_for_its_owner_only(array, make_mount, directory):
    mount = make_mount(array)
    set_tier(mount, directory.url)
    (mount.path / "run").mkdir()
    write_pattern(mount.path / "run/secret", 1, 2 * MIB)
    os.chmod(mount.path / "run/secret", 0o600)
    sync(mount)
    made = list(directory.path.rglob("*"))
    assert len(made) > 5
    assert {oct(path.stat().st_mode & 0o077) for path in made} == {"0o0"}
