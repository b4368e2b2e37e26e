"""The benchmark suite; tools/bench/run starts it."""
import argparse
import contextlib
import datetime
import os
import pathlib
import signal
import sys
import time

from lab.programs import REPOSITORY, Programs

from . import machine, pages, report
from .bench import Bench, Skipped
from .commands import CommandFailed, Commands
from .drives import Directories, LoopLab
from .rows import all_rows
from .tables import ratio_text, target_text
from .throttle import Unavailable
from .torch_client import TorchClient

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop(number, _frame):
    """Ends the run; everything is taken down on the way out, and a second signal must not interrupt that."""
    for other in STOPPING:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def parse_size(text):
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    try:
        return int(number) * UNITS[unit]
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"'{text}' is no size; write it like 512M or 1G") from None


def parse_rows(text):
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of rows; write it like 1,3,13") from None


def parse_options(arguments):
    parser = argparse.ArgumentParser(prog="tools/bench/run", description="Measures fastpersistfs: docs/benchmarks.md says "
                                     "what each row means. Prints a table, writes JSON, Markdown and charts.")
    parser.add_argument("--row", type=parse_rows, action="append", metavar="N[,N...]", help="only these rows")
    parser.add_argument("--only", metavar="TEXT", help="of a row, only the measures whose name contains this")
    parser.add_argument("--size", type=parse_size, default=1 << 30, help="bytes of the state dict (default 1G)")
    parser.add_argument("--runs", type=int, default=5, help="rounds of each measure (default 5)")
    parser.add_argument("--quick", action="store_true", help="64M and 3 rounds: whether it works, not how fast it is")
    parser.add_argument("--dirs", metavar="DIR:DIR...", help="these directories, one per drive, instead of the lab")
    parser.add_argument("--drives", type=int, default=4, help="drives of the lab (default 4)")
    parser.add_argument("--write-limit", type=int, default=300, help="of each drive of the lab, MB/s (default 300)")
    parser.add_argument("--read-limit", type=int, default=600, help="of each drive of the lab, MB/s (default 600)")
    parser.add_argument("--files", type=int, default=20000, help="row 9: small files (default 20000)")
    parser.add_argument("--growth-files", type=int, default=100_000, metavar="N", help="row 19: files of a directory and of a "
                        "tree, at most (default 100000)")
    parser.add_argument("--disk", default="/var/tmp", metavar="DIR", help="row 5: a directory on the machine's own drive")
    parser.add_argument("--against", metavar="BUILD", help="row 15: the build directory of another commit")
    parser.add_argument("--output", default="bench-results", metavar="DIR",
                        help="where the results go; rows that are there and not taken again stay (default bench-results)")
    parser.add_argument("--no-deepspeed", action="store_true", help="without DeepSpeed's writers, also when it is installed")
    parser.add_argument("--update-docs", action="store_true", help="measures nothing: makes what is in --output the results "
                        "of docs/ (docs/benchmarks/results.json) and writes docs/benchmarks.md, a page per row and the "
                        "charts from them; text outside the marks stays")
    parser.add_argument("--rewrite-docs", action="store_true", help="measures nothing: writes the same pages again from the "
                        "results that docs/ has")
    parser.add_argument("--list", action="store_true", help="the rows")
    parser.add_argument("--silent", action="store_true", help="no single figures")
    options = parser.parse_args(arguments)
    if options.quick:
        options.size, options.runs, options.files = 64 << 20, 3, 1000
    if options.runs < 1 or options.size < 1 << 20:
        parser.error("--runs is at least 1, --size at least 1M")
    known = all_rows()
    options.rows = [number for numbers in options.row for number in numbers] if options.row else sorted(known)
    unknown = [number for number in options.rows if number not in known]
    if unknown:
        parser.error(f"there is no row {unknown[0]}; there are {', '.join(map(str, sorted(known)))}")
    return options


def make_lab(options, commands, directory, stack):
    """The drives, and a note when they are not what the targets are about."""
    if options.dirs:
        lab, note = Directories(options.dirs.split(":")), None
    else:
        try:
            if os.geteuid() != 0:
                raise Unavailable("loop devices need root")
            lab, note = LoopLab(commands, directory, options.drives, max(4 * options.size, 512 << 20),
                                options.write_limit * 10**6, options.read_limit * 10**6), None
        except (Unavailable, CommandFailed) as error:
            note = f"NO LAB ({error}): plain directories share one unthrottled drive, ratios between drives mean nothing"
            lab = Directories([directory / f"drive{index}" for index in range(options.drives)])
    stack.callback(lab.close)
    return lab, note


def lab_report(lab, note):
    return {"kind": lab.kind, "drives": len(lab.paths), "limits": lab.limits, "throttle": lab.throttle_kind,
            "verified": lab.verified, "note": note}


def run_row(row, bench):
    started = time.monotonic()
    print(f"row {row.number}: {row.title}; target {row.target}", flush=True)
    result = {"row": row.number, "title": row.title, "target": row.target, "runs": bench.options.runs, "measures": []}
    try:
        result["measures"] = [measure.as_json() for measure in row.run(bench)]
    except Skipped as reason:
        result["skipped"] = str(reason)
        print(f"  not run: {reason}")
    result.update(notes=bench.take_notes(), commands=bench.commands.take_seen(), seconds=time.monotonic() - started)
    for measure in result["measures"]:
        for ratio in measure["ratios"]:
            print(f"  {measure['name']}: {ratio['of']} = {ratio_text(ratio)}, target {target_text(ratio)}: "
                  f"{'met' if ratio['met'] else 'MISSED' if ratio['can_be_had'] else 'CANNOT BE HAD'}", flush=True)
    for note in result["notes"]:
        print(f"  note: {note}")
    return result


def main(arguments):
    options = parse_options(arguments)
    if options.update_docs or options.rewrite_docs:
        docs = REPOSITORY / "docs"
        pages.take(options.output, docs) if options.update_docs else pages.write(docs)
        return 0
    if options.list:
        for row in all_rows().values():
            print(f"{row.number:3}  {row.title}  ({row.target})")
        return 0
    for number in STOPPING:
        signal.signal(number, stop)
    commands, programs = Commands(), Programs()
    directory = pathlib.Path(os.environ["FPFS_BENCH_LAB"])
    with contextlib.ExitStack() as stack:
        lab, note = make_lab(options, commands, directory, stack)
        commands.take_seen()
        if note:
            print(note)
        torch = TorchClient()
        stack.callback(torch.close)
        bench = Bench(options, commands, programs, lab, torch, directory)
        about = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
                 "machine": machine.describe(programs, REPOSITORY, torch.versions()),
                 "options": {"size": options.size, "runs": options.runs, "disk": options.disk},
                 "lab": lab_report(lab, note)}
        if earlier := report.earlier_results(options.output):
            report.refuse_to_mix(earlier, about)  # now, not when the first row has been taken
        for number in options.rows:
            row = dict(run_row(all_rows()[number], bench), commit=about["machine"]["commit"])
            report.write_merged(dict(about, rows=[row]), options.output, partial=bool(options.only))
    print(f"written: {options.output}/results.json, results.md and charts")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (CommandFailed, OSError, ValueError) as error:
        sys.exit(f"bench: {error}")
