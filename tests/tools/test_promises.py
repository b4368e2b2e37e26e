"""Every promise has tests that try to break it, under the engine and through a mount, and can be run by its name."""
import ast
import json
import pathlib

import pytest

from lab.programs import Programs, run
from lab.promises import PROMISES

TESTS = pathlib.Path(__file__).parents[1]


def marks(path):
    """The names in `pytest.mark.NAME` of a file."""
    return {node.attr for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "mark"}


@pytest.mark.parametrize("promise", PROMISES)
def test_promise_has_tests(promise):
    known = json.loads(run("ctest", "--test-dir", Programs().build, "--show-only=json-v1").stdout)["tests"]
    labelled = [test["name"] for test in known
                for label in test["properties"] if label["name"] == "LABELS" and promise in label["value"]]
    assert labelled, f"no test of ctest has the label {promise}"
    assert any(promise in marks(path) for path in TESTS.glob("*/test_*.py")), f"no test of pytest has the mark {promise}"


def test_no_other_promises():
    """A label of a promise that there is not would never be run by its name."""
    for path in TESTS.glob("*/test_*.py"):
        unknown = {mark for mark in marks(path) if mark[:1] == "P" and mark[1:].isdigit()} - set(PROMISES)
        assert not unknown, path
