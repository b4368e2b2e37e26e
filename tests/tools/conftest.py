"""Fixtures for the command lines: directories that are not formatted yet."""
import shutil

import pytest


@pytest.fixture
def fresh(drives, numbers):
    """Paths on as many drives, which do not exist yet; whatever is there afterwards is removed."""
    number = next(numbers)
    paths = [path / f"fresh{number}" for path in drives.paths]
    yield paths
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def members(fresh):
    """The same as the argument DIRS."""
    return ":".join(str(path) for path in fresh)


@pytest.fixture
def buffered(drives):
    """The option that fsck, export and bench need where the drives have no O_DIRECT."""
    return [] if drives.direct_io else ["--buffered-members"]
