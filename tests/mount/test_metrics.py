"""Metrics for Prometheus, and fpfs stats: what they say is what was done."""
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time

import pytest

from lab.array import MountFailed
from lab.damage import extents_of, flip, read_at
from lab.data import write_pattern
from lab.programs import REPOSITORY, run
from lab.system import attempt, wait_until

CHUNK = 65536
MONITORING = REPOSITORY / "mount-scripts/monitoring"


@pytest.fixture
def port():
    """One that nobody listens at, just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, path="/metrics", method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


class Metrics:
    """The text format of Prometheus, as strictly as it is meant."""

    def __init__(self, text):
        self.types, self.values = {}, {}
        for line in text.splitlines():
            if match := re.fullmatch(r"# TYPE (\w+) (counter|gauge|histogram)", line):
                assert match[1] not in self.types, f"{match[1]} comes twice"
                self.types[match[1]] = match[2]
            elif not line.startswith("# HELP "):
                name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
                key = (name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels or "")))
                assert key not in self.values, f"{key} comes twice"
                self.values[key] = float(value)

    def __call__(self, name, **labels):
        """The sum of all that have these labels; some must."""
        wanted = set(labels.items())
        found = [value for (n, has), value in self.values.items() if n == "fastpersistfs_" + name and wanted <= has]
        assert found, f"no {name} with {labels}"
        return sum(found)

    def count(self, operation):
        return self("operation_duration_seconds_count", op=operation)


def metrics(port):
    status, text = ask(port)
    assert status == 200
    return Metrics(text)


def listening_addresses(port):
    """In the hexadecimal figures of /proc, of IPv4 and IPv6."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and int(local.split(":")[1], 16) == port:
                found.add(local.split(":")[0])
    return found


def write_in_pieces(path, size):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    for _ in range(0, size, CHUNK):
        assert os.write(descriptor, b"checkpoint" * 6553 + bytes(6)) == CHUNK
    os.fsync(descriptor)
    os.close(descriptor)


@pytest.mark.P7
def test_metrics_and_stats_say_what_was_done(make_array, make_mount, port):
    array = make_array(chunk_size=CHUNK)
    mount = make_mount(array, f"metrics={port}", "compress=zstd")
    assert listening_addresses(port) == {"0100007F"}, "not the loopback address alone"
    write_pattern(mount.path / "secret-name", 1, 4 * CHUNK)
    before = metrics(port)

    size = 32 * CHUNK
    (mount.path / "secret-directory").mkdir()
    write_in_pieces(mount.path / "a", size)
    (mount.path / "a").rename(mount.path / "b")
    assert len((mount.path / "b").read_bytes()) == size
    (mount.path / "b").unlink()
    assert attempt(os.getxattr, mount.path, "user.not-there") == "ENODATA"
    # An answer is counted just after it was sent.
    wait_until(lambda: metrics(port).count("unlink") == before.count("unlink") + 1)
    after = metrics(port)

    def grew(name, **labels):
        return after(name, **labels) - before(name, **labels)

    assert grew("written_bytes_total") == size and grew("read_bytes_total") == size
    for operation, times in {"mkdir": 1, "create": 1, "write": 32, "fsync": 1, "rename": 1, "unlink": 1}.items():
        assert after.count(operation) - before.count(operation) == times, operation
    assert grew("commits_total") >= 1
    assert grew("operation_failures_total", op="getxattr", kind="caller") == 1
    assert grew("operation_failures_total", kind="io") == 0
    assert 0 < grew("compression_output_bytes_total") < grew("compression_input_bytes_total") == size
    assert after("member_state", state="ok") == len(array.members) and after("failed") == 0
    assert after("scrub_state", state="none") == 1 and after("tier_state", state="none") == 1
    histograms_hold_together(after)
    damage_is_counted(mount, port)
    stats_have_the_same_numbers(mount, port)

    status, text = ask(port)
    for secret in ("secret", str(mount.path), *map(str, array.members)):
        assert secret not in text
    assert ask(port, "/other")[0] == 404 and ask(port, method="POST")[0] == 405 and ask(port, method="HEAD") == (200, "")
    if promtool := shutil.which("promtool"):
        checked = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True)
        assert checked.returncode == 0 and not checked.stdout + checked.stderr, checked.stdout + checked.stderr
    monitoring_asks_for_what_there_is(after)
    the_port_is_taken(make_array, make_mount, port)

    # Neither who says nothing nor who says half of it holds up the end.
    silent, half = (socket.create_connection(("127.0.0.1", port)) for _ in range(2))
    half.sendall(b"GET /metr")
    assert ask(port)[0] == 200
    began = time.monotonic()
    mount.unmount()
    assert time.monotonic() - began < 3
    silent.close(), half.close()
    assert listening_addresses(port) == set()


def histograms_hold_together(seen):
    histograms = {}
    for (name, labels), value in seen.values.items():
        if name == "fastpersistfs_operation_duration_seconds_bucket":
            histograms.setdefault(dict(labels)["op"], []).append((float(dict(labels)["le"]), value))
    assert len(histograms) > 20
    for operation, buckets in histograms.items():
        counts = [count for _, count in sorted(buckets)]
        assert counts == sorted(counts) and counts[-1] == seen.count(operation)
        assert max(buckets)[0] == float("inf")
        assert (seen("operation_duration_seconds_sum", op=operation) > 0) == (counts[-1] > 0)


def damage_is_counted(mount, port):
    mount.array.damaged = True
    extent = extents_of(mount, mount.path / "secret-name")["extents"][2]
    flip(extent["file"], extent["file_offset"] + 77)
    assert read_at(mount.path / "secret-name", 2 * CHUNK, CHUNK) == "EIO"
    wait_until(lambda: metrics(port)("operation_failures_total", op="read", kind="io") >= 1)
    seen = metrics(port)
    assert seen("member_errors_total", member=str(extent["member"]), kind="checksum") >= 1
    assert seen("member_state", member=str(extent["member"]), state="failing") == 1


def stats_have_the_same_numbers(mount, port):
    fpfs = mount.array.programs.fpfs
    seen, stats = metrics(port), json.loads(run(fpfs, "stats", "--json", mount.path).stdout)
    assert stats["bytes_written"] == seen("written_bytes_total") and stats["commits"] == seen("commits_total")
    assert stats["operations"]["write"]["count"] == sum(stats["operations"]["write"]["buckets"]) == seen.count("write")
    assert stats["operations"]["read"]["failures"]["io"] == seen("operation_failures_total", op="read", kind="io")
    assert stats["errors"]["checksum"] == seen("member_errors_total", kind="checksum")
    lines = run(fpfs, "stats", "--json", "--interval", "0.1", "--count", "2", mount.path).stdout.splitlines()
    assert [json.loads(line)["bytes_written"] for line in lines] == [stats["bytes_written"]] * 2
    assert all(json.loads(line)["seconds"] >= 0.1 for line in lines)
    text = run(fpfs, "stats", "--interval", "0.1", "--count", "2", mount.path).stdout.splitlines()
    assert len(text) == 3 and "WRITTEN/S" in text[0] and " 0 B " in text[1]
    assert re.search(r"^write +\d+ ", run(fpfs, "stats", mount.path).stdout, re.MULTILINE)


def names_in(expression):
    """Without what is added to the name of a histogram."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bfastpersistfs_\w+", expression)}


def monitoring_asks_for_what_there_is(seen):
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    asked += [variable.get("definition", "") for variable in dashboard["templating"]["list"]]
    rules = re.sub(r"#.*", "", (MONITORING / "alerts.yml").read_text())
    assert names_in(rules) and names_in(" ".join(asked))
    assert names_in(rules) | names_in(" ".join(asked)) <= set(seen.types)
    page = (REPOSITORY / "docs/monitoring.md").read_text()
    assert set(re.findall(r"`fastpersistfs_(\w+)", page)) == {name[len("fastpersistfs_"):] for name in seen.types}


def the_port_is_taken(make_array, make_mount, port):
    with pytest.raises(MountFailed, match=f"127.0.0.1:{port}: another program, or another mount, listens there") as failed:
        make_mount(make_array(), f"metrics={port}")
    assert len(str(failed.value).splitlines()) == 1, failed.value
