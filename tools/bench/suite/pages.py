"""The pages of docs/ that show results: docs/benchmarks.md, a page per row in docs/benchmarks/, and the charts.

Only what stands between two marks is written, `<!-- results -->` and `<!-- /results -->` for instance; the rest of a page
is written by hand and stays.
"""
import dataclasses
import json
import pathlib

from .charts import bar_chart
from .report import chart_bar, row_chart
from .rows import all_rows
from .tables import about, row_details, show, table, wrapped


@dataclasses.dataclass(frozen=True)
class Compared:
    """A line of the first table: one measure against what somebody would use instead."""
    what: str
    row: int
    measure: str
    instead: str
    figure: str  # of what is used instead


COMPARED = [
    Compared("torch.save, four drives", 2, "zip", "XFS on one of them, fsync", "one drive"),
    Compared("torch.save, four drives", 2, "zip", "btrfs raid0 over all four, checksums, fsync", "btrfs raid0"),
    Compared("torch.save, four drives", 2, "DeepSpeed", "DeepSpeed FastFileWriter on one of them, fsync",
             "DeepSpeed FastFileWriter"),
    Compared("torch.save, four drives", 2, "DeepSpeed", "DeepSpeed aio_handle on one of them, fsync",
             "DeepSpeed aio_handle"),
    Compared("torch.save, four drives", 1, "zip", "fio writing to all four", "raw"),
    Compared("eight processes save, four drives", 7, "save", "fio with eight jobs", "raw"),
    Compared("safetensors safe_open, cold", 3, "safetensors safe_open", "fio reading from all four", "raw"),
    Compared("torch.load, cold", 3, "torch.load", "fio reading from all four", "raw"),
    Compared("torch.save, own drive", 5, "zip", "plain directory, fsync", "plain directory"),
    Compared("torch.save, own drive", 5, "DeepSpeed", "DeepSpeed aio_handle, fsync", "DeepSpeed aio_handle"),
    Compared("create, write, close of 4 KiB files", 9, "create, durable=close", "FUSE passthrough, the same fsyncs",
             "passthrough"),
]

# (name, [(label, row, measure, figure)]): the groups of the first chart.
CHART = [
    ("four drives", [("fastpersistfs", 2, "zip", "fastpersistfs"),
                     ("btrfs raid0, checksums", 2, "zip", "btrfs raid0"),
                     ("DeepSpeed aio_handle, one", 2, "DeepSpeed", "DeepSpeed aio_handle"),
                     ("DeepSpeed writer, one", 2, "DeepSpeed", "DeepSpeed FastFileWriter"),
                     ("XFS, one", 2, "zip", "one drive"),
                     ("fio, all four", 1, "zip", "raw")]),
    ("the machine's own drive", [("fastpersistfs", 5, "zip", "fastpersistfs"),
                                 ("plain directory", 5, "zip", "plain directory"),
                                 ("DeepSpeed aio_handle", 5, "DeepSpeed", "DeepSpeed aio_handle"),
                                 ("DeepSpeed writer", 5, "DeepSpeed", "DeepSpeed FastFileWriter"),
                                 ("fio", 5, "zip", "raw")]),
]


def take(directory, docs):
    """Makes the results of a directory those of docs/, and writes the pages."""
    text = (pathlib.Path(directory) / "results.json").read_text()
    (docs / "benchmarks").mkdir(exist_ok=True)
    (docs / "benchmarks" / "results.json").write_text(text)
    write(docs)


def write(docs):
    """Pages and charts from docs/benchmarks/results.json."""
    results = json.loads((docs / "benchmarks" / "results.json").read_text())
    taken = {row["row"]: row for row in results["rows"]}
    folder = docs / "benchmarks"
    for old in folder.glob("*.svg"):
        old.unlink()
    chart = _summary_chart(taken)
    if chart:
        (folder / "summary.svg").write_text(chart)
    _fill(docs / "benchmarks.md", "summary", _summary(results, taken, chart))
    _fill(docs / "benchmarks.md", "rows", _overview(taken))
    _fill(docs / "benchmarks.md", "machine", wrapped(*about(results)))
    for row in all_rows().values():
        _write_row(folder, row, taken.get(row.number))


def _write_row(folder, row, taken):
    page = folder / f"row{row.number:02}.md"
    if not page.exists():
        page.write_text(f"# Row {row.number}: {row.title}\n\n<!-- results -->\n<!-- /results -->\n")
    text = [f"Target: {row.target}.", "[How it is measured](../benchmarks.md#how-it-is-measured)."]
    if taken:
        chart = row_chart(taken, row.title)
        if chart:
            (folder / f"row{row.number:02}.svg").write_text(chart)
        text += ["", *row_details(taken, f"row{row.number:02}.svg" if chart else None)]
    else:
        text += ["", "The stored results do not have it."]
    _fill(page, "results", text)


def _fill(page, name, lines):
    """Puts lines between two marks of a page."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"{page} needs '{begin}' and behind it '{end}', once each: what is written goes between them")
    head, _, rest = text.partition(begin)
    page.write_text("\n".join([f"{head}{begin}", "", *lines, "", f"{end}{rest.partition(end)[2]}"]))


def _figure(taken, row, measure, name):
    """None when the results do not have it."""
    found = [each for each in taken.get(row, {"measures": []})["measures"] if each["name"] == measure]
    return found[0]["figures"].get(name) if found else None


def _summary_chart(taken):
    groups = []
    for name, wanted in CHART:
        bars = [(label, _figure(taken, row, measure, figure)) for label, row, measure, figure in wanted]
        bars = [chart_bar(label, figure) for label, figure in bars if figure]
        if bars:
            groups.append((name, bars))
    return bar_chart("torch.save of one checkpoint, until it is durable", "MB/s", groups) if groups else None


def _summary(results, taken, chart):
    lines = []
    for each in COMPARED:
        mine = _figure(taken, each.row, each.measure, "fastpersistfs")
        other = _figure(taken, each.row, each.measure, each.figure)
        if mine and other:
            lines.append((each.what, show(mine["median"], mine["unit"]), each.instead,
                          show(other["median"], other["unit"]), f"{mine['median'] / other['median']:.2f}",
                          f"[{each.row}]"))
    text = ["![torch.save until it is durable](benchmarks/summary.svg)", ""] if chart else []
    text += table(("what", "fastpersistfs", "instead", "gives", "times", "row"), lines)
    return text + ["", *wrapped(_conditions(results)), "", *wrapped(_verdicts(taken))]


def _conditions(results):
    machine, lab = results["machine"], results["lab"]
    limits = lab.get("limits")
    drives = f"The drives: {lab['kind']}" + (f", limited to {limits['write'] / 1e6:.0f} MB/s written and "
                                             f"{limits['read'] / 1e6:.0f} MB/s read each" if limits else "")
    return (f"Medians, taken {results['date']} on {machine['cores']} cores of {machine['cpu']} with a state of "
            f"{results['options']['size'] / (1 << 20):.0f} MiB. {drives}. `times` is fastpersistfs over what is used "
            "instead, both from the same rounds.")


def _ratios(row):
    return [ratio for measure in row["measures"] for ratio in measure["ratios"]]


def _met(row):
    return [ratio["met"] for ratio in _ratios(row)]


def _verdicts(taken):
    met = {number: _met(row) for number, row in taken.items()}
    missing = [f"[{number}]" for number, found in met.items() if not all(found)]
    text = f"Of {sum(map(len, met.values()))} figures that have a target, {sum(map(sum, met.values()))} meet it"
    text = f"{text}; some of rows {', '.join(missing)} do not." if missing else f"{text}."
    if beyond := sum(not ratio.get("can_be_had", True) for row in taken.values() for ratio in _ratios(row)):
        text += f" Of these {beyond} cannot be met here: the kernel's part alone misses the target."
    return text


def _overview(taken):
    lines = []
    for number, row in all_rows().items():
        met = _met(taken[number]) if number in taken else []
        lines.append((f"[{number}]", row.title, row.target, f"{sum(met)} of {len(met)}" if met else "not taken"))
    return [*table(("#", "what", "target", "met"), lines), "",
            *[f"[{number}]: benchmarks/row{number:02}.md" for number in all_rows()]]
