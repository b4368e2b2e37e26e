"""Every behaviour is run twice: in a directory of the drive's own filesystem and on the mount, and must come out equal."""
import itertools

import pytest


@pytest.fixture
def same(anywhere, native):
    """same(behaviour): calls it with a fresh directory natively and on the mount; the results must be equal."""
    numbers = itertools.count()

    def compare(behaviour):
        name = f"{behaviour.__name__}{next(numbers)}"
        results = []
        for parent in (native, anywhere.path):
            directory = parent / name
            directory.mkdir()
            results.append(behaviour(directory))
        assert results[1] == results[0], "mount (left) and native directory (right) differ"
        return results[1]

    return compare
