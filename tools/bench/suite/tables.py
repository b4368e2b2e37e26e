"""Figures as Markdown tables. Lines end before WIDTH."""
import re
import textwrap

WIDTH = 120
SCALES = {"B/s": (1e-6, "MB/s"), "s": (1e3, "ms"), "B": (1 / (1 << 20), "MiB"), "requests/s": (1e-6, "M/s")}


def scaled(value, unit):
    """A figure in the unit that people read it in: the number as text, and that unit."""
    factor, word = SCALES.get(unit, (1, unit))
    value *= factor
    if unit == "B":
        return f"{value:.1f}", word
    return f"{value:,.0f}" if unit == "B/s" or value >= 1000 else f"{value:.3g}", word


def show(value, unit):
    return " ".join(scaled(value, unit)).rstrip()


def from_to(low, high, unit):
    return f"{scaled(low, unit)[0]} .. {show(high, unit)}"


def target_text(ratio):
    bound = show(ratio["target"], ratio["unit"]) if ratio["unit"] else f"{ratio['target']:g}"
    return f"{'≥' if ratio['at_least'] else '≤'} {bound}"


def _figure(value, unit):
    """A limited figure, or a ratio, which has no unit."""
    return show(value, unit) if unit else f"{value:.3f}"


def _result(ratio):
    """A ratio or limited figure, and the spread of the rounds."""
    spread = (from_to(ratio["low"], ratio["high"], ratio["unit"]) if ratio["unit"]
              else f"{ratio['low']:.3f} .. {ratio['high']:.3f}")
    return _figure(ratio["value"], ratio["unit"]), spread


def ratio_text(ratio):
    return "{} ({})".format(*_result(ratio))


def _verdict(ratio):
    if ratio["met"]:
        return "met"
    if not ratio.get("can_be_had", True):
        return f"cannot be had: {_figure(ratio['least'], ratio['unit'])}"
    missing = ratio["target"] - ratio["value"] if ratio["at_least"] else ratio["value"] - ratio["target"]
    return f"**missed by {100 * missing / ratio['target']:.1f} %**"


def line(*cells):
    return f"| {' | '.join(cells)} |"


def table(head, lines):
    return [line(*head), f"|{'---|' * len(head)}", *[line(*cells) for cells in lines]]


def targets(row):
    """Lines: what of a row has a target, and whether it is met."""
    lines = [(measure["name"], ratio["of"], *_result(ratio), target_text(ratio), _verdict(ratio))
             for measure in row["measures"] for ratio in measure["ratios"]]
    return table(("measure", "figure", "result", "of the rounds", "target", ""), lines) if lines else []


def figures(row):
    """Lines: what everybody's figures were. One table for all measures with the same contestants and unit, or several where
    that is too wide. What `targets` shows already is left out."""
    text = []
    for unit, names, measures in _alike([measure for measure in row["measures"] if not measure.get("table")]):
        if set(names) <= {ratio["of"] for measure in measures for ratio in measure["ratios"]}:
            continue
        cells = {(measure["name"], name): _cell(measure["figures"][name]) for measure in measures for name in names}
        lines, columns = [measure["name"] for measure in measures], names
        if len(lines) == 1 or not _fits(cells, lines, columns):
            lines, columns = columns, lines
            cells = {(line, column): cell for (column, line), cell in cells.items()}
        for part in _parts(cells, lines, columns):
            text += ["", *table((scaled(0, unit)[1], *part), [(name, *[cells[name, column] for column in part])
                                                             for name in lines])]
    return text[1:]


def common_tables(row):
    """Lines: the measures that name a table, each a line, each contestant a column with the medians of its figures."""
    found, text = {}, []
    for measure in row["measures"]:
        if measure.get("table"):
            found.setdefault(measure["table"], []).append(measure)
    for title, measures in found.items():
        columns = {name.partition(", ")[0]: None for measure in measures for name in measure["figures"]}  # in order
        lines = []
        for measure in measures:
            cells = [[_short(figure) for name, figure in measure["figures"].items() if name.partition(", ")[0] == column]
                     for column in columns]
            lines.append((measure["name"], *[" ".join(cell) for cell in cells]))
        text += ["", *wrapped(f"{title}:"), "", *table(("", *columns), lines)]
    return text


def _short(figure):
    if figure["unit"] == "B/s":
        return f"{figure['median'] / 1e9:.1f}" if figure["median"] < 1e10 else f"{figure['median'] / 1e9:.0f}"
    if figure["unit"] == "requests/s":
        return show(figure["median"], figure["unit"])
    is_count = figure["unit"] == "of them" or figure["median"] >= 1000
    return f"{figure['median']:,.0f}" if is_count else f"{figure['median']:.3f}"


def _alike(measures):
    """[(unit, names of figures, measures)]: those that can stand in one table."""
    found = {}
    for measure in measures:
        names = {}
        for name, figure in measure["figures"].items():
            names.setdefault(figure["unit"], []).append(name)
        for unit, of_unit in names.items():
            found.setdefault((unit, tuple(of_unit)), []).append(measure)
    return [(unit, list(names), alike) for (unit, names), alike in found.items()]


def _cell(figure):
    low, high, median = (scaled(figure[key], figure["unit"])[0] for key in ("min", "max", "median"))
    return f"{median} ({low} .. {high})"


def _fits(cells, lines, columns):
    widths = [max(len(name) for name in lines)]
    widths += [max(len(column), *[len(cells[name, column]) for name in lines]) for column in columns]
    return sum(widths) + 3 * len(widths) + 1 <= WIDTH


def _parts(cells, lines, columns):
    """The columns in as few equal parts as fit."""
    for count in range(1, len(columns) + 1):
        size = -(-len(columns) // count)
        parts = [columns[at:at + size] for at in range(0, len(columns), size)]
        if count == len(columns) or all(_fits(cells, lines, part) for part in parts):
            return parts


def about(results):
    """Paragraphs: on what machine, with which versions and which drives."""
    machine, lab, options = results["machine"], results["lab"], results["options"]
    text = [f"Taken {results['date']} on {machine['cores']} cores of {machine['cpu']}, "
            f"{machine['memory_bytes'] / (1 << 30):.0f} GiB of memory, Linux {machine['kernel']}, {machine['system']}; "
            f"libfuse {machine['libfuse']}, torch {machine['torch']}, Python {machine['python']}, {machine['fio']}; "
            f"fastpersistfs at {machine['commit']}, {machine['build']} build. State of "
            f"{options['size'] / (1 << 20):.0f} MiB, medians of {options['runs']} rounds in alternating order where a "
            f"row does not say otherwise, smallest and largest beside them. Drives: {lab['kind']}."]
    if lab.get("limits"):
        text.append(f"Each drive is limited to {lab['limits']['write'] / 1e6:.0f} MB/s written and "
                    f"{lab['limits']['read'] / 1e6:.0f} MB/s read ({lab['throttle']}); a probe wrote "
                    f"{lab['verified']['direct'] / 1e6:.0f} MB/s with O_DIRECT and "
                    f"{lab['verified']['buffered'] / 1e6:.0f} MB/s through the page cache and fsync.")
    return text


def wrapped(*paragraphs):
    """Lines, with an empty one between two paragraphs."""
    text = []
    for paragraph in paragraphs:
        text += ["", *textwrap.wrap(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False)]
    return text[1:]


def row_details(row, chart=None):
    """Lines: all that a row's results say. `chart`: its address."""
    text = targets(row)
    if row.get("skipped"):
        text += wrapped(f"Not run: {row['skipped']}.")
    if chart:
        text += ["", f"![row {row['row']}]({chart})"]
    if found := figures(row):
        text += ["", *wrapped("Medians, smallest and largest in brackets:"), "", *found]
    text += common_tables(row)
    for note in row["notes"]:
        text += ["", *wrapped(f"Note: {note}")]
    text += ["", f"Taken at {row.get('commit')}, {row['runs']} rounds."]
    if row["commands"]:
        text += ["", "```", *[part for command in row["commands"] for part in _command(command)], "```"]
    return text if text[0] else text[1:]


def _command(text):
    """A command line in lines that a shell would take; drives of the lab by their numbers."""
    text = re.sub(r"[^\s:=]*/fpfs-bench-\w+/drive(\d+)", r"DRIVE\1", text)
    lines = textwrap.wrap(text, WIDTH - 2, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return [f"{each} \\" for each in lines[:-1]] + lines[-1:]
