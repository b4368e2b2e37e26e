"""docs/troubleshooting.md has what the log warns of, and what the tools refuse: to be found by its first words."""
import re

import pytest

from lab.programs import REPOSITORY

WORDS = 4
LITERALS = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
LOGGED = re.compile(r"\blog\(LogLevel::k(?:Warning|Error),\s*" + LITERALS)
REFUSED = re.compile(r"\brefuse\(\s*StatusCode::k\w+,[^\"]*" + LITERALS)  # a directory of the array


def squeezed(text):
    return re.sub(r"\s+", " ", text)


def explained():
    return squeezed((REPOSITORY / "docs" / "troubleshooting.md").read_text())


def formats(pattern, *folders):
    """(source, format) of every message that has words of its own."""
    for path in sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.cpp")):
        for match in pattern.finditer(path.read_text()):
            message = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match[1])).replace('\\"', '"')
            if any(beginnings(message)):
                yield path.name, message


def beginnings(message):
    """The first words of each part that is the same whatever stands for {}: what somebody searches the page for. Words
    from the middle may be another message's, too."""
    for piece in re.split(r"\{[^}]*\}", message):
        words = piece.strip(" :;,.()").split()
        if len(words) >= 2:
            yield " ".join(words[:WORDS])


@pytest.mark.parametrize("pattern, folders, at_least", [(LOGGED, ["engine", "fs"], 60), (REFUSED, ["engine/array"], 25)],
                         ids=["logged", "refused"])
def test_what_is_said_is_explained(pattern, folders, at_least):
    page = explained()
    found = list(formats(pattern, *folders))
    assert len(found) >= at_least, "they are written in another way now"
    missing = [f"{source}: {message}" for source, message in found
               if not any(words in page for words in beginnings(message))]
    assert not missing, "\n".join(missing)
