"""Arithmetic and output of the benchmark suite, without measuring anything."""
import json
import pathlib
import shutil
import xml.etree.ElementTree

import pytest

from suite import charts, measure, pages, report, tables, throttle
from suite.__main__ import parse_options


def samples(*values, unit="B/s"):
    return measure.Samples(unit, list(values))


def test_ratio_is_taken_from_medians_and_its_spread_from_rounds():
    figures = {"mine": samples(90, 50, 100), "raw": samples(100, 100, 100), "sink": samples(200, 200, 80)}
    found = measure.ratio(figures, "mine", ["raw", "sink"], 0.95)
    assert (found.value, found.low, found.high) == (0.9, 0.5, 1.25)
    assert found.of == "mine / min(raw, sink)" and not found.met
    assert measure.ratio(figures, "mine", ["raw"], 0.9).met


def test_limit_may_be_an_upper_one():
    figures = {"cpu": samples(0.2, 0.4, 0.3, unit="s/GB")}
    assert measure.limit(figures, "cpu", 0.3).met
    assert not measure.limit(figures, "cpu", 0.29).met
    assert measure.limit(figures, "cpu", 0.3, at_least=True).met


@pytest.mark.parametrize("mine, least, said", [
    (96, 90, "met"), (90, 97, "**missed by 5.3 %**"), (88, 90, "cannot be had: 0.900"), (85, 90, "**missed by 10.5 %**")])
def test_what_the_kernels_part_alone_misses_cannot_be_had(mine, least, said):
    """... by who has that rate of the kernel's part; who has less could have more."""
    figures = {"mine": samples(mine), "least": samples(least), "sink": samples(100)}
    found = measure.ratio(figures, "mine", ["sink"], 0.95, least="least")
    row = {"measures": [measure.Measure("save", figures, [found]).as_json()]}
    assert tables.targets(row)[2].endswith(f"| ≥ 0.95 | {said} |")


@pytest.mark.parametrize("mine, least, said", [(0.2, 0.4, "met"), (0.4, 0.2, "**missed by 33.3 %**"),
                                               (0.4, 0.35, "cannot be had: 0.35 s/GB")])
def test_what_the_kernel_spends_already_cannot_be_spared(mine, least, said):
    figures = {"daemon": samples(mine, unit="s/GB"), "least": samples(least, unit="s/GB")}
    found = measure.limit(figures, "daemon", 0.3, least="least")
    row = {"measures": [measure.Measure("load", figures, [found]).as_json()]}
    assert tables.targets(row)[2].endswith(f"| ≤ 0.3 s/GB | {said} |")


def test_contestants_take_turns_in_changing_order():
    order = []
    contestants = {name: lambda name=name: order.append(name) or 1 for name in "abc"}
    figures = measure.rotate(4, contestants)
    assert order == list("abc" "cba" "bca" "acb")
    assert all(len(found.values) == 4 for found in figures.values())


def results(commit="0123", rows=((1, 0.9),), size=1 << 30):
    return {"date": "2026-01-01",
            "machine": {"cpu": "some", "cores": 2, "memory_bytes": 1 << 30, "kernel": "6", "system": "x", "libfuse": "3",
                        "torch": "2", "python": "3", "fio": "fio-3", "commit": commit, "build": "Release"},
            "options": {"size": size, "runs": 3},
            "lab": {"kind": "loop devices", "limits": {"write": 3e8, "read": 6e8}, "throttle": "cgroup",
                    "verified": {"direct": 2.9e8, "buffered": 2.3e8}},
            "rows": [{"row": number, "title": "a title", "target": "≥ 1", "runs": 3, "commit": commit, "notes": ["a note"],
                      "commands": ["fio --x"],
                      "measures": [measure.Measure("zip", {"raw": samples(100, 110, 120), "mine": samples(99, 99, 98)},
                                                   [measure.Ratio("mine / raw", value, 0.8, 0.95, 1.0)]).as_json()]}
                     for number, value in rows]}


def test_table_says_by_how_much_a_target_is_missed():
    text = report.markdown(results())
    assert "## Row 1: a title" in text
    assert "| zip | mine / raw | 0.900 | 0.800 .. 0.950 | ≥ 1 | **missed by 10.0 %** |" in text
    assert "a note" in text and "fio --x" in text
    assert "| met |" in report.markdown(results(rows=[(1, 1.0)]))


def test_figures_are_shown_in_units_that_people_read():
    assert tables.show(1.19e9, "B/s") == "1,190 MB/s"
    assert tables.show(0.00012, "s") == "0.12 ms"
    assert tables.show(356 << 20, "B") == "356.0 MiB"
    assert tables.show(1849.7, "files/s") == "1,850 files/s"


def figures(*measures, names=("raw", "mine"), value=1234e6, unit="B/s"):
    return {"measures": [measure.Measure(name, {who: samples(value, value, unit=unit) for who in names}).as_json()
                         for name in measures]}


def test_measures_of_the_same_contestants_share_a_table():
    assert tables.figures(figures("zip", "legacy")) == [
        "| MB/s | raw | mine |", "|---|---|---|",
        "| zip | 1,234 (1,234 .. 1,234) | 1,234 (1,234 .. 1,234) |",
        "| legacy | 1,234 (1,234 .. 1,234) | 1,234 (1,234 .. 1,234) |"]


def test_tables_that_are_too_wide_are_turned_or_cut():
    many = [f"save {number}" for number in range(20)]
    lines = tables.figures(figures("one", "two", names=many))
    assert lines[0] == "| MB/s | one | two |" and len(lines) == 22
    lines = tables.figures(figures(*many, names=many))
    assert sum(line.startswith("| MB/s |") for line in lines) == 5
    assert max(map(len, lines)) <= tables.WIDTH


def test_measures_that_name_a_table_share_it():
    found = {"mine": samples(0.663, unit=""), "mine, encoding": samples(1.46e9), "mine, decoding": samples(22e9),
             "other": samples(0.9, unit="")}
    row = {"measures": [measure.Measure(name, found, [], "Left").as_json() for name in ("bf16", "fp32")]}
    assert tables.common_tables(row)[1:] == [
        "Left:", "", "|  | mine | other |", "|---|---|---|", "| bf16 | 0.663 1.5 22 | 0.900 |",
        "| fp32 | 0.663 1.5 22 | 0.900 |"]
    assert not tables.figures(row)


def test_what_has_a_target_is_not_shown_twice():
    row = {"measures": [measure.Measure("save", {"daemon": samples(0.2, unit="s/GB")},
                                        [measure.Ratio("daemon", 0.2, 0.2, 0.2, 0.3, False, "s/GB")]).as_json()]}
    assert tables.targets(row)[2:] == ["| save | daemon | 0.2 s/GB | 0.2 .. 0.2 s/GB | ≤ 0.3 s/GB | met |"]
    assert not tables.figures(row)


def test_long_commands_are_cut_as_a_shell_would_take_them():
    row = dict(results()["rows"][0], commands=[" ".join(["word"] * 40), "x --at=/dev/shm/fpfs-bench-abc123/drive2/below:/dev/shm/fpfs-bench-abc123/drive3"])
    text = tables.row_details(row)
    assert max(map(len, text)) <= tables.WIDTH
    assert text[text.index("```") + 1].endswith(" word \\") and text[-2] == "x --at=DRIVE2/below:DRIVE3"


def test_rows_of_a_later_run_replace_earlier_ones(tmp_path):
    report.write_merged(results("old", [(1, 0.5), (2, 0.6)]), tmp_path)
    report.write_merged(results("new", [(2, 0.7)]), tmp_path)
    merged = json.loads((tmp_path / "results.json").read_text())
    assert [(row["row"], row["measures"][0]["ratios"][0]["value"]) for row in merged["rows"]] == [(1, 0.5), (2, 0.7)]
    assert "Taken at old, 3 rounds." in (tmp_path / "results.md").read_text()


def test_results_of_other_sizes_are_not_mixed(tmp_path):
    report.write_merged(results(), tmp_path)
    with pytest.raises(ValueError, match="options.size"):
        report.write_merged(results(size=1 << 20), tmp_path)


def test_a_part_of_a_row_replaces_that_part_only(tmp_path):
    report.write_merged(results(), tmp_path)
    part = results()
    part["rows"][0]["measures"][0]["name"] = "legacy"
    report.write_merged(part, tmp_path, partial=True)
    merged = json.loads((tmp_path / "results.json").read_text())
    assert [found["name"] for found in merged["rows"][0]["measures"]] == ["zip", "legacy"]


MARKS = """before
<!-- summary -->
of yesterday
<!-- /summary -->
<!-- rows --><!-- /rows -->
<!-- machine --><!-- /machine -->
after
"""


@pytest.fixture
def docs(tmp_path):
    """A folder of documents before anything was taken."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "benchmarks.md").write_text(MARKS)
    return tmp_path / "docs"


def test_pages_get_results_between_their_marks(docs, tmp_path):
    report.write_merged(results(rows=[(1, 0.9), (3, 1.0)]), tmp_path / "output")
    pages.take(tmp_path / "output", docs)
    page = docs / "benchmarks" / "row01.md"
    page.write_text(page.read_text() + "\nWritten by hand.\n")
    before = {path: path.read_text() for path in docs.rglob("*.*")}
    pages.write(docs)  # also over what it wrote itself
    assert {path: path.read_text() for path in docs.rglob("*.*")} == before
    text = (docs / "benchmarks.md").read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "yesterday" not in text
    assert "Of 2 figures that have a target, 1 meet it; some of rows [1] do not." in text
    assert page.read_text().endswith("Written by hand.\n") and "| zip | mine / raw | 0.900 |" in page.read_text()
    assert "](row01.svg)" in page.read_text() and (docs / "benchmarks" / "row01.svg").exists()
    assert "do not have it" in (docs / "benchmarks" / "row02.md").read_text()


def test_first_table_compares_what_the_results_have(docs, tmp_path):
    taken = results()
    taken["rows"][0]["measures"][0]["figures"]["fastpersistfs"] = samples(121e6).as_json()
    report.write_merged(taken, tmp_path / "output")
    pages.take(tmp_path / "output", docs)
    text = (docs / "benchmarks.md").read_text()
    assert "| torch.save, four drives | 121 MB/s | fio writing to all four | 0 MB/s | 1100000.00 | [1] |" in text
    assert text.count("| torch.save, four drives |") == 1 and (docs / "benchmarks" / "summary.svg").exists()


@pytest.mark.parametrize("text", ["", "<!-- rows --><!-- /rows -->", "<!-- /summary --><!-- summary -->"])
def test_page_without_its_marks_is_refused(docs, tmp_path, text):
    report.write_merged(results(), tmp_path / "output")
    (docs / "benchmarks.md").write_text(text)
    with pytest.raises(ValueError, match="benchmarks.md needs '<!-- summary -->'"):
        pages.take(tmp_path / "output", docs)


def test_pages_are_those_of_the_stored_results(tmp_path):
    """tools/bench/run --rewrite-docs has been run."""
    stored = pathlib.Path(__file__).resolve().parents[2] / "docs"
    shutil.copy(stored / "benchmarks.md", tmp_path)
    shutil.copytree(stored / "benchmarks", tmp_path / "benchmarks")
    pages.write(tmp_path)
    for path in [tmp_path / "benchmarks.md", *(tmp_path / "benchmarks").iterdir()]:
        text = path.read_text()
        assert text == (stored / path.relative_to(tmp_path)).read_text()
        if path.suffix == ".md":
            assert not [line for line in text.splitlines() if len(line) > tables.WIDTH]
    assert len(list(stored.glob("benchmarks/*"))) == len(list(tmp_path.glob("benchmarks/*")))


def test_chart_is_valid_xml_that_escapes():
    chart = charts.bar_chart("a < b", "MB/s", [("zip & co", [("raw", 100, 90, 110), ("mine", 50, 40, 60)])])
    root = xml.etree.ElementTree.fromstring(chart)
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == 3  # the background and two bars


@pytest.mark.parametrize("arguments, said", [(["--row", "99"], "no row 99"), (["--row", "x"], "no list of rows"),
                                             (["--size", "1X"], "no size"), (["--runs", "0"], "at least 1")])
def test_wrong_options_are_explained(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_options(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


# --- throttles, on made-up control group trees -----------------------------------------------------------------------------

def test_version_1_rules_go_to_the_root_group(tmp_path):
    for name in ("blkio.throttle.write_bps_device", "blkio.throttle.read_bps_device", "cgroup.procs"):
        (tmp_path / name).touch()
    limits = throttle.BlkioThrottle(tmp_path)
    assert (tmp_path / "cgroup.procs").read_text().isdigit()
    limits.limit("7:1", 300, 600)
    assert (tmp_path / "blkio.throttle.write_bps_device").read_text() == "7:1 300"
    assert (tmp_path / "blkio.throttle.read_bps_device").read_text() == "7:1 600"


def test_version_2_needs_the_controllers(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpu pids")
    with pytest.raises(throttle.Unavailable):
        throttle.IoMaxThrottle(tmp_path)


def test_version_2_makes_a_group_of_its_own(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpu io memory")
    limits = throttle.IoMaxThrottle(tmp_path)
    group = next(tmp_path.glob("fpfs-bench-*"))
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+io +memory"
    limits.limit("7:1", 300, 600)
    assert (group / "io.max").read_text() == "7:1 wbps=300 rbps=600"
    limits.limit("7:1", 0, 0)
    assert (group / "io.max").read_text() == "7:1 wbps=max rbps=max"
