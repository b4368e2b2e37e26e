"""Stores outside this machine: a directory, and S3 by SeaweedFS; a long run asks Ceph as well."""
import pytest

from lab.copies import SERVICES, Bucket, Directory
from lab.object_stores import CephDirectoryStore


@pytest.fixture(scope="module")
def services(lab):
    started = {}

    def get(kind):
        if kind not in started:
            started[kind] = kind(lab / f"tier-{kind.__name__}")
        return started[kind]

    yield get
    for service in started.values():
        service.close()


@pytest.fixture
def make_store(lab, services, numbers, monkeypatch):
    """make_store(kind): an empty place that no array has copied to; the daemons that are started have its keys."""
    def make(kind):
        name = f"store{next(numbers)}"
        if kind is Directory:
            return Directory(lab, name)
        service = services(kind)
        if kind is CephDirectoryStore:
            return Directory(service.path, name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for key, value in service.environment.items():
            monkeypatch.setenv(key, value)
        return Bucket(service, name)

    return make


@pytest.fixture(params=[Directory, *SERVICES])
def store(request, make_store):
    return make_store(request.param)


@pytest.fixture
def directory(make_store):
    return make_store(Directory)
