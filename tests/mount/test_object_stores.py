"""Stores outside this machine (engine/tier), real ones: what every store must do, and a service that dies.

A long run asks Ceph as well, whose packages take a minute to install.
"""
import os
import subprocess
import time

import pytest

from lab import LONG
from lab.object_stores import CephDirectoryStore, CephStore, DirectoryStore, SeaweedStore
from lab.programs import run
from lab.system import die_with_parent

SERVICES = [SeaweedStore, CephStore] if LONG else [SeaweedStore]
STORES = [DirectoryStore, *SERVICES, *([CephDirectoryStore] if LONG else [])]


@pytest.fixture(scope="module")
def stores(lab):
    """stores(kind): one of that kind, started when it is first asked for."""
    started = {}

    def get(kind):
        if kind not in started:
            started[kind] = kind(lab / kind.__name__)
        return started[kind]

    yield get
    for store in started.values():
        store.close()


def command(binaries, store, *options):
    return [f"{binaries.build}/tests/object_store_check", store.url, *options]


def environment(store, **more):
    return {**os.environ, "AWS_EC2_METADATA_DISABLED": "true", **store.environment, **more}


@pytest.mark.time_limit(600)
@pytest.mark.parametrize("kind", STORES)
def test_what_every_store_must_do(binaries, stores, kind):
    store = stores(kind)
    run(*command(binaries, store, f"--gtest_filter=-{store.cannot}"), env=environment(store), timeout=300)


def service_parts():
    """Each kind of service with each of its daemons that can be killed."""
    return [(kind, daemon) for kind in SERVICES for daemon in kind.DAEMONS]


def started_check(binaries, store, test, *, url=None, **more):
    """object_store_check with one test that is run only here."""
    return subprocess.Popen(
        [f"{binaries.build}/tests/object_store_check", url or store.url, "--gtest_also_run_disabled_tests",
         f"--gtest_filter=*{test}"],
        env=environment(store, **more), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, preexec_fn=die_with_parent)


def read_until(process, words):
    said = []
    for line in process.stdout:
        said.append(line)
        if line == words + "\n":
            return
    pytest.fail("".join(said))


def expect_success(process, last_words=""):
    said, _ = process.communicate(last_words)
    assert process.returncode == 0, said
    return said


@pytest.mark.time_limit(300)
@pytest.mark.parametrize("kind, daemon", service_parts())
def test_an_upload_whose_process_and_service_are_killed_goes_on(binaries, stores, kind, daemon, tmp_path):
    """Nothing of the upload is visible, and another process finishes it with the parts that were stored."""
    store = stores(kind)
    state = str(tmp_path / "state")
    upload = started_check(binaries, store, "UploadThatIsCutOff", FPFS_CHECK_STATE=state)
    read_until(upload, "uploading")
    store.kill(daemon)
    upload.kill()
    upload.communicate()
    store.start(daemon)
    expect_success(started_check(binaries, store, "UploadThatGoesOn", FPFS_CHECK_STATE=state))


@pytest.mark.time_limit(300)
@pytest.mark.parametrize("kind, daemon", service_parts())
def test_a_service_that_is_killed_and_away_for_a_while(binaries, stores, kind, daemon):
    """No call fails, and all that was answered is there. A long run lets it be away for a minute."""
    store = stores(kind)
    work = started_check(binaries, store, "WorkWhileTheServiceIsAway",
                         url=store.url.replace("deadline=60", "deadline=180"))
    read_until(work, "working")
    time.sleep(1)
    store.kill(daemon)
    time.sleep(60 if LONG else 1)
    store.start(daemon)
    time.sleep(1)
    print(expect_success(work, "stop\n"))


@pytest.mark.skipif(not LONG, reason="--long: Ceph")
@pytest.mark.time_limit(300)
def test_a_mounted_filesystem_that_is_killed_and_mounted_again(binaries, stores):
    """The store that was open goes on, and meanwhile takes neither a dead mount nor an empty one for the store."""
    store = stores(CephDirectoryStore)
    work = started_check(binaries, store, "AFilesystemThatIsMountedAgain")
    read_until(work, "mounted")
    store.kill()
    work.stdin.write("dead\n")
    work.stdin.flush()
    read_until(work, "noticed")
    store.start()
    expect_success(work, "again\n")


@pytest.mark.parametrize("kind", SERVICES)
def test_a_service_that_stays_away_is_unreachable(binaries, stores, kind):
    store = stores(kind)
    store.kill(kind.DAEMONS[0])
    try:
        expect_success(started_check(binaries, store, "AServiceThatStaysAwayIsUnreachable",
                                     url=store.url.replace("deadline=60", "deadline=1")))
    finally:
        store.start(kind.DAEMONS[0])


@pytest.mark.parametrize("kind", SERVICES)
@pytest.mark.parametrize("change, words", [
    (lambda url: url.replace("//lab/", "//other-bucket/"), "NoSuchBucket"),
    (lambda url: url.replace("endpoint=http://", "endpoint=https://"), "s3://lab/pre fix/x/ at https://"),
])
def test_a_url_that_is_wrong_is_one_clear_line(binaries, stores, kind, change, words):
    store = stores(kind)
    words_of = run(f"{binaries.build}/tests/object_store_check", change(store.url).replace("deadline=60", "deadline=1"),
                   "--gtest_filter=*AnEmptyObject", env=environment(store), check=False)
    assert words_of.returncode == 1
    assert words in words_of.stdout


@pytest.mark.parametrize("kind", SERVICES)
def test_a_wrong_secret_is_refused_and_not_shown(binaries, stores, kind):
    store = stores(kind)
    result = run(*command(binaries, store, "--gtest_filter=*AnEmptyObject"),
                 env=environment(store, AWS_SECRET_ACCESS_KEY="not-the-secret"), check=False)
    assert result.returncode == 1
    assert "SignatureDoesNotMatch" in result.stdout
    assert "not-the-secret" not in result.stdout + result.stderr
