"""clang-tidy over the sources of a build: what .clang-tidy asks for, and no warning is left.

    tidy.py BUILD                 over every source of the build
    tidy.py BUILD --changed N     over what was changed since the branch began, at most N sources, the newest first

The build is one by g++ with precompiled headers: clang gets its commands without what only g++ knows. It compiles each
source by itself, as the preset `dev` does.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
TIDY = "clang-tidy-14"
BATCH = 8
COMMITS = 20  # how far back "changed" goes where there is no branch to compare with
FINDING = re.compile(r"^/.*: (warning|error): ")


def for_clang(command):
    """The command without precompiled headers, without warnings as errors, and with g++'s own warnings let be."""
    words, kept = iter(shlex.split(command)), []
    for word in words:
        if word == "-include":
            header = next(words)
            if pathlib.Path(header).name != "cmake_pch.hxx":
                kept += [word, header]
        elif word == "-o":
            next(words)
        elif word not in ("-Winvalid-pch", "-Werror"):
            kept.append(word)
    return [*kept, "-Wno-unknown-warning-option"]


def read_commands(build):
    """{source: its entry}, for the sources of this repository that are not made by the build."""
    commands = json.loads((build / "compile_commands.json").read_text())
    if any("/Unity/unity_" in entry["file"] for entry in commands):
        sys.exit(f"tidy.py: {build} compiles many sources at once; configure one with -DCMAKE_UNITY_BUILD=OFF")
    entries = {}
    for entry in commands:
        source = pathlib.Path(entry["file"])
        if source.is_relative_to(REPOSITORY) and not source.is_relative_to(build):
            entries[str(source.relative_to(REPOSITORY))] = {**entry, "arguments": for_clang(entry["command"])}
    return entries


def git(*arguments):
    """What git says, or nothing when it fails."""
    result = subprocess.run(["git", "-C", REPOSITORY, *arguments], capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else ""


def first_commit():
    """Where the branch began; on the main branch itself, or in a clone without it, some commits back."""
    for main in ("origin/main", "main"):
        base = git("merge-base", "HEAD", main)
        if base and base != git("rev-parse", "HEAD"):
            return base
    return git("rev-list", "--first-parent", f"--max-count={COMMITS + 1}", "HEAD").split("\n")[-1]


def changed_files():
    """Of the working tree, then of the commits, the newest first."""
    names = git("diff", "--name-only", "HEAD").split("\n")
    names += git("log", "--format=", "--name-only", "-m", "--first-parent", f"{first_commit()}..HEAD").split("\n")
    return list(dict.fromkeys(filter(None, names)))


def changed_sources(sources):
    """The sources that were changed, then those beside a header that was changed and by its name."""
    names = changed_files()
    beside = [str(pathlib.Path(name).with_suffix(".cpp")) for name in names if name.endswith(".h")]
    return [name for name in dict.fromkeys(names + beside) if name in sources]


def in_batches(sources, entries):
    """Sources of one target with the same options, some at a time: most of the time goes into what all of them include."""
    targets = {}
    for source in sources:
        entry = entries[source]
        options = [word for word in entry["arguments"] if word != entry["file"]]
        targets.setdefault((entry["output"].partition(".dir/")[0], *options), []).append(source)
    return [batch[start:start + BATCH] for batch in targets.values() for start in range(0, len(batch), BATCH)]


def look_at(number, batch, entries, scratch):
    """What clang-tidy says about a batch of sources, one text per finding. Where they repeat names, each is looked at alone."""
    entry = entries[batch[0]]
    together = scratch / f"batch{number}.cpp"
    together.write_text("".join(f'#include "{REPOSITORY / source}"\n' for source in batch))
    arguments = [str(together) if word == entry["file"] else word for word in entry["arguments"]]
    result = subprocess.run([TIDY, "--quiet", f"--config-file={REPOSITORY / '.clang-tidy'}",
                             "--checks=-bugprone-suspicious-include",  # that is what a batch is
                             together, "--", *arguments[1:]], cwd=entry["directory"], capture_output=True, text=True)
    findings = []
    for line in result.stdout.splitlines():
        if FINDING.match(line):
            findings.append([])
        if findings:
            findings[-1].append(line)
    if len(batch) > 1 and any("[clang-diagnostic-error]" in lines[0] for lines in findings):
        return [text for source in batch for text in look_at(number, [source], entries, scratch)]
    if result.returncode and not findings:
        findings.append([f"{' '.join(batch)}: {TIDY} ended with {result.returncode}", result.stderr])
    return ["\n".join(lines) for lines in findings]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--changed", type=int, metavar="N")
    parser.add_argument("--only", default="", metavar="REGEX", help="only sources whose name matches")
    arguments = parser.parse_args()

    entries = read_commands(arguments.build.resolve())
    chosen = list(entries) if arguments.changed is None else changed_sources(entries)
    chosen = [source for source in chosen if re.search(arguments.only, source)]
    left_out = len(chosen[arguments.changed:]) if arguments.changed is not None else 0
    chosen = chosen[:len(chosen) - left_out]

    seen = set()  # a finding in a header is one, however many sources include it
    with tempfile.TemporaryDirectory() as scratch, \
            concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
        jobs = [workers.submit(look_at, number, batch, entries, pathlib.Path(scratch))
                for number, batch in enumerate(in_batches(chosen, entries))]
        for job in concurrent.futures.as_completed(jobs):
            for finding in job.result():
                if finding not in seen:
                    seen.add(finding)
                    print(finding, flush=True)
    print(f"clang-tidy: {len(chosen)} sources, {len(seen)} warnings"
          + (f"; {left_out} more were changed and not looked at" if left_out else ""))
    sys.exit(1 if seen else 0)


if __name__ == "__main__":
    main()
