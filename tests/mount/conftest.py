"""Every behaviour is run twice: in a directory of the drive's own filesystem and on the mount, and must come out equal."""
import itertools

import pytest

# What must not make a difference to any behaviour. Small chunks and few buffers make boundaries and waiting routine.
CONFIGURATIONS = {
    "default": (None, ()),
    "tiny": (65536, ("buffer_memory=16M", "read_ahead=2")),
}


@pytest.fixture(params=CONFIGURATIONS)
def anywhere(request, make_array, make_mount):
    """A mount, once for each configuration."""
    chunk_size, options = CONFIGURATIONS[request.param]
    return make_mount(make_array(chunk_size=chunk_size), *options)


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
