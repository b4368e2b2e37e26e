"""Results as JSON, as Markdown, as charts."""
import json
import pathlib

from .charts import bar_chart
from .tables import SCALES, about, row_details, scaled, wrapped


def write(results, directory):
    """results.json, results.md, and a chart per row."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (directory / "results.md").write_text(markdown(results))
    for row in results["rows"]:
        chart = row_chart(row)
        if chart:
            (directory / f"row{row['row']:02}.svg").write_text(chart)


def markdown(results):
    """All rows as one text; the charts lie beside it."""
    lines = wrapped(*about(results))
    for row in results["rows"]:
        chart = f"row{row['row']:02}.svg" if row_chart(row) else None
        lines += ["", f"## Row {row['row']}: {row['title']}", "", f"Target: {row['target']}", "", *row_details(row, chart)]
    return "\n".join(lines) + "\n"


CHARTED = ("B/s", "files/s", "s/GB", "B", "s")


def row_chart(row, title=None):
    """One group of bars per measure, for the figures of one unit, rates before others; None when there are none."""
    for unit in CHARTED:
        groups = []
        for measure in row["measures"]:
            bars = [chart_bar(name, figure) for name, figure in measure["figures"].items()
                    if figure["unit"] == unit and (unit != "s" or name.endswith("p99"))]
            if bars:
                groups.append((measure["name"], bars))
        if groups:
            return bar_chart(f"Row {row['row']}: {title or row['title']}", scaled(0, unit)[1], groups)
    return None


def chart_bar(label, figure):
    """What charts.bar_chart wants: label, median, low, high, in the unit that people read."""
    factor = SCALES.get(figure["unit"], (1, ""))[0]
    return label, figure["median"] * factor, figure["min"] * factor, figure["max"] * factor


def refuse_to_mix(older, newer):
    """ValueError when the results are of different machines or sizes."""
    for key in ("machine", "lab", "options"):
        for name in ("cpu", "cores", "kernel", "size", "kind"):
            if older[key].get(name) != newer[key].get(name):
                raise ValueError(f"results differ in {key}.{name}: {older[key].get(name)} and {newer[key].get(name)}; "
                                 "write them to another --output")


def merge(older, newer, partial=False):
    """Results of several runs as one: rows of the newer (with `partial`: their measures) take the place of the older's."""
    refuse_to_mix(older, newer)
    rows = {row["row"]: row for row in older["rows"]}
    for row in newer["rows"]:
        before = rows.get(row["row"])
        rows[row["row"]] = _merge_row(before, row) if before and partial else row
    return dict(newer, rows=[rows[number] for number in sorted(rows)])


def _merge_row(older, newer):
    measures = {measure["name"]: measure for measure in older["measures"]}
    measures.update({measure["name"]: measure for measure in newer["measures"]})
    join = lambda key: older[key] + [item for item in newer[key] if item not in older[key]]  # noqa: E731
    return dict(newer, measures=list(measures.values()), notes=join("notes"), commands=join("commands"))


def earlier_results(directory):
    """What the directory holds, None when that is nothing."""
    path = pathlib.Path(directory) / "results.json"
    return json.loads(path.read_text()) if path.exists() else None


def write_merged(results, directory, partial=False):
    """Adds the rows of `results` (with `partial`: their measures) to those that the directory holds."""
    earlier = earlier_results(directory)
    write(merge(earlier, results, partial) if earlier else results, directory)
