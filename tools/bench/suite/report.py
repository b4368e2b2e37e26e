"""Results as JSON, as a Markdown table, as charts."""
import json
import pathlib

from .charts import bar_chart


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


def show(value, unit):
    """A figure with its unit, for people."""
    if unit == "B/s":
        return f"{value / 1e6:,.0f} MB/s"
    if unit == "s":
        return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"
    if unit == "B":
        return f"{value / (1 << 20):.1f} MiB"
    return f"{value:.3g}{' ' + unit if unit else ''}"


def spread(figure):
    return f"{show(figure['median'], figure['unit'])} ({_from_to(figure['min'], figure['max'], figure['unit'])})"


def _from_to(low, high, unit):
    number, _, word = show(high, unit).partition(" ")
    first, _, first_word = show(low, unit).partition(" ")
    return f"{first} .. {number} {word}".rstrip() if first_word == word else f"{first} {first_word} .. {number} {word}"


def ratio_text(ratio):
    """A ratio or limited figure, with the spread of the rounds."""
    if ratio["unit"]:
        return f"{show(ratio['value'], ratio['unit'])} ({_from_to(ratio['low'], ratio['high'], ratio['unit'])})"
    return f"{ratio['value']:.3f} ({ratio['low']:.3f} .. {ratio['high']:.3f})"


def target_text(ratio):
    bound = show(ratio["target"], ratio["unit"]) if ratio["unit"] else f"{ratio['target']:g}"
    return f"{'≥' if ratio['at_least'] else '≤'} {bound}"


def _verdict(ratio):
    if ratio["met"]:
        return "met"
    missing = ratio["target"] - ratio["value"] if ratio["at_least"] else ratio["value"] - ratio["target"]
    return f"**missed by {100 * missing / ratio['target']:.1f} %**"


def markdown(results, charts="."):
    """`charts`: where they lie as seen from the text."""
    machine, lab, options = results["machine"], results["lab"], results["options"]
    lines = [f"Taken {results['date']} on {machine['cores']} cores of {machine['cpu']}, "
             f"{machine['memory_bytes'] / (1 << 30):.0f} GiB of memory, Linux {machine['kernel']}, {machine['system']}; "
             f"libfuse {machine['libfuse']}, torch {machine['torch']}, Python {machine['python']}, {machine['fio']}; "
             f"fastpersistfs at {machine['commit']}, {machine['build']} build.", "",
             f"State of {options['size'] / (1 << 20):.0f} MiB, medians of {options['runs']} rounds in alternating order, "
             f"smallest and largest beside them. Drives: {lab['kind']}.", ""]
    if lab.get("limits"):
        lines += [f"Each drive is limited to {lab['limits']['write'] / 1e6:.0f} MB/s written and "
                  f"{lab['limits']['read'] / 1e6:.0f} MB/s read ({lab['throttle']}); a probe wrote "
                  f"{lab['verified']['direct'] / 1e6:.0f} MB/s with O_DIRECT and {lab['verified']['buffered'] / 1e6:.0f} "
                  "MB/s through the page cache and fsync.", ""]
    lines += ["| # | measure | figure | result (spread of the rounds) | target | |", "|---|---|---|---|---|---|"]
    for row in results["rows"]:
        for measure in row["measures"]:
            for ratio in measure["ratios"]:
                lines.append(f"| {row['row']} | {row['title']}: {measure['name']} | {ratio['of']} | {ratio_text(ratio)} | "
                             f"{target_text(ratio)} | {_verdict(ratio)} |")
        if row.get("skipped"):
            lines.append(f"| {row['row']} | {row['title']} | | not run: {row['skipped']} | {row['target']} | |")
    for row in results["rows"]:
        lines += ["", f"### Row {row['row']}: {row['title']}", ""]
        if charts and row_chart(row):
            lines += [f"![row {row['row']}]({charts}/row{row['row']:02}.svg)", ""]
        for measure in row["measures"]:
            figures = "; ".join(f"{name} {spread(figure)}" for name, figure in measure["figures"].items())
            lines.append(f"- {measure['name']}: {figures}")
        lines += [f"- {note}" for note in row["notes"]]
        if row.get("commit", machine["commit"]) != machine["commit"] or row["runs"] != options["runs"]:
            lines.append(f"- taken at {row.get('commit')}, {row['runs']} rounds")
        if row["commands"]:
            lines += ["", "```"] + row["commands"] + ["```"]
    return "\n".join(lines) + "\n"


def row_chart(row):
    """One group of bars per measure, for the figures that are rates; None when there are none."""
    groups = []
    for measure in row["measures"]:
        bars = [(name, figure["median"] / 1e6, figure["min"] / 1e6, figure["max"] / 1e6)
                for name, figure in measure["figures"].items() if figure["unit"] == "B/s"]
        if bars:
            groups.append((measure["name"], bars))
    return bar_chart(f"Row {row['row']}: {row['title']}", "MB/s", groups) if groups else None


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


BEGIN, END = "<!-- results: tools/bench/run --update-docs writes what follows -->", "<!-- end of results -->"


def update_docs(directory, docs):
    """Puts the results of a directory into docs/benchmarks.md, between its two marks, and the charts beside it."""
    results = json.loads((pathlib.Path(directory) / "results.json").read_text())
    page, charts = docs / "benchmarks.md", docs / "benchmarks"
    head, rest = page.read_text().split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n\n{markdown(results, charts.name)}\n{END}{rest.split(END)[1]}")
    for old in charts.glob("row*.svg"):
        old.unlink()
    write(results, charts)
    (charts / "results.md").unlink()  # it is in the page
