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
    return (f"{show(figure['median'], figure['unit'])} "
            f"<sub>{show(figure['min'], figure['unit'])} .. {show(figure['max'], figure['unit'])}</sub>")


def _ratio_text(ratio):
    if ratio["unit"]:
        return show(ratio["value"], ratio["unit"])
    return f"{ratio['value']:.3f} <sub>{ratio['low']:.3f} .. {ratio['high']:.3f}</sub>"


def _target_text(ratio):
    bound = show(ratio["target"], ratio["unit"]) if ratio["unit"] else f"{ratio['target']:g}"
    return f"{'≥' if ratio['at_least'] else '≤'} {bound}"


def _verdict(ratio):
    if ratio["met"]:
        return "met"
    missing = ratio["target"] - ratio["value"] if ratio["at_least"] else ratio["value"] - ratio["target"]
    return f"**missed by {100 * missing / ratio['target']:.1f} %**"


def markdown(results):
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
    lines += ["| # | measure | figure | result | target | |", "|---|---|---|---|---|---|"]
    for row in results["rows"]:
        for measure in row["measures"]:
            for ratio in measure["ratios"]:
                lines.append(f"| {row['row']} | {row['title']}: {measure['name']} | {ratio['of']} | {_ratio_text(ratio)} | "
                             f"{_target_text(ratio)} | {_verdict(ratio)} |")
        if row.get("skipped"):
            lines.append(f"| {row['row']} | {row['title']} | | not run: {row['skipped']} | {row['target']} | |")
    for row in results["rows"]:
        lines += ["", f"### Row {row['row']}: {row['title']}", ""]
        for measure in row["measures"]:
            figures = "; ".join(f"{name} {spread(figure)}" for name, figure in measure["figures"].items())
            lines.append(f"- {measure['name']}: {figures}")
        lines += [f"- {note}" for note in row["notes"]]
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


def merge(older, newer):
    """Results of several runs as one: rows of the newer take the place of the older's. Runs on different machines or of
    different sizes are refused."""
    for key in ("machine", "lab", "options"):
        for name in ("cpu", "cores", "kernel", "size", "kind"):
            if older[key].get(name) != newer[key].get(name):
                raise ValueError(f"results differ in {key}.{name}: {older[key].get(name)} and {newer[key].get(name)}; "
                                 "write them to another --output")
    rows = {row["row"]: row for row in older["rows"]}
    rows.update({row["row"]: row for row in newer["rows"]})
    return dict(newer, rows=[rows[number] for number in sorted(rows)])


def write_merged(results, directory):
    """Adds the rows of `results` to those that the directory holds."""
    earlier = pathlib.Path(directory) / "results.json"
    if earlier.exists():
        results = merge(json.loads(earlier.read_text()), results)
    write(results, directory)
