"""Stores outside this machine (engine/tier), real ones: what every store must do, and a service that dies.

A long run asks Ceph as well, whose packages take a minute to install.
"""
import os
import subprocess

import pytest

from lab import LONG
from lab.object_stores import CephStore, DirectoryStore, SeaweedStore
from lab.programs import run

SERVICES = [SeaweedStore, CephStore] if LONG else [SeaweedStore]
STORES = [DirectoryStore, *SERVICES]


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


@pytest.mark.time_limit(300)
@pytest.mark.parametrize("kind", SERVICES)
def test_a_service_that_is_killed_in_the_middle_of_an_upload(binaries, stores, kind):
    """Nothing of the upload is visible, and it goes on when the service is back."""
    store = stores(kind)
    upload = subprocess.Popen(
        command(binaries, store, "--gtest_also_run_disabled_tests", "--gtest_filter=*UploadWhileTheServiceDies"),
        env=environment(store), stdout=subprocess.PIPE, text=True)
    said = []
    for line in upload.stdout:
        said.append(line)
        if line == "uploading\n":
            store.kill()
            store.start()
    assert upload.wait() == 0, "".join(said)
    assert "uploading\n" in said


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
