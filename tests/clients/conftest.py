"""Fixtures for real clients: what they save and load through a mount, whole and killed in the middle."""
import sys

import pytest

from lab.killing import Trial


@pytest.fixture
def trial(mount, native):
    """trial(client): saves by that client to the mount, to be interrupted."""
    def start(client, name="state"):
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # a forked process has none of its parent's threads
        return Trial(mount, client, native, name)

    return start
