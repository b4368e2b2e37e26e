"""Includes point one way: as the picture of the layers in docs/architecture.md says, which is read here."""
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
# Beside the picture: a benchmark measures what lies below the front.
EXCEPTIONS = {("tools/bench/micro/request_bench.cpp", "fs/protocol/fuse_wire.h")}


def layer_of(path):
    """engine/io/sim/x.h and fs/nodes/x.h are in `io` and `nodes`; all of tools/ is `tools`."""
    parts = path.split("/")
    return parts[0] if parts[0] == "tools" else parts[1]


def arrows():
    """Layer: the layers that its arrows lead to, directly."""
    page = (ROOT / "docs/architecture.md").read_text()
    picture = re.search(r"```mermaid\ngraph TD\n(.*?)```", page, re.DOTALL).group(1)
    found = {}
    for start, end in re.findall(r"^ *(\w+)(?:\[[^]]*\])? --> (\w+)$", picture, re.MULTILINE):
        found.setdefault(start, set()).add(end)
        found.setdefault(end, set())
    return found


def reachable(layer, graph):
    below = set()
    waiting = [layer]
    while waiting:
        for end in graph[waiting.pop()] - below:
            below.add(end)
            waiting.append(end)
    return below


def sources():
    for folder in ("engine", "fs", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def test_the_picture_has_no_circle():
    graph = arrows()
    assert not [layer for layer in graph if layer in reachable(layer, graph)]


def test_the_picture_has_every_folder():
    folders = {layer_of(name) for name, _ in sources()}
    assert folders == set(arrows())


def test_includes_follow_the_arrows():
    graph = arrows()
    wrong = []
    for name, text in sources():
        layer = layer_of(name)
        allowed = reachable(layer, graph) | {layer}
        for included in re.findall(r'^#include "((?:engine|fs|tools|tests)/[^"]+)"', text, re.MULTILINE):
            if layer_of(included) not in allowed and (name, included) not in EXCEPTIONS:
                wrong.append(f"{name}: {included}")
    assert not wrong, "\n".join(wrong)


def test_fuse_is_in_the_front_only():
    """The engine, and what tools ask of a mount, build without libfuse and without the kernel's protocol."""
    fuse = re.compile(r"^#include [<\"](?:fuse|linux/fuse)", re.MULTILINE)
    wrong = [name for name, text in sources() if fuse.search(text)
             and not re.match("fs/(?!interface)|tools/bench/", name)]
    assert not wrong
