"""Arithmetic and output of the benchmark suite, without measuring anything."""
import json
import xml.etree.ElementTree

import pytest

from suite import charts, measure, report, throttle
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
    assert "| 1 | a title: zip | mine / raw | 0.900 (0.800 .. 0.950) | ≥ 1 | **missed by 10.0 %** |" in text
    assert "a note" in text and "fio --x" in text
    assert "| met |" in report.markdown(results(rows=[(1, 1.0)]))


def test_figures_are_shown_in_units_that_people_read():
    assert report.show(1.19e9, "B/s") == "1,190 MB/s"
    assert report.show(0.00012, "s") == "0.12 ms"
    assert report.show(356 << 20, "B") == "356.0 MiB"


def test_rows_of_a_later_run_replace_earlier_ones(tmp_path):
    report.write_merged(results("old", [(1, 0.5), (2, 0.6)]), tmp_path)
    report.write_merged(results("new", [(2, 0.7)]), tmp_path)
    merged = json.loads((tmp_path / "results.json").read_text())
    assert [(row["row"], row["measures"][0]["ratios"][0]["value"]) for row in merged["rows"]] == [(1, 0.5), (2, 0.7)]
    assert "taken at old" in (tmp_path / "results.md").read_text()


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


def test_docs_get_the_table_between_the_marks(tmp_path):
    docs, output = tmp_path / "docs", tmp_path / "output"
    (docs / "benchmarks").mkdir(parents=True)
    page = docs / "benchmarks.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_merged(results(), output)
    for _ in range(2):  # also over what it wrote itself
        report.update_docs(output, docs)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert text.count("| 1 | a title: zip") == 1
    assert (docs / "benchmarks" / "row01.svg").exists() and "benchmarks/row01.svg" in text


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
