"""Counts the cases of a run of tests/run and prints them part by part; the last line is `N passed, N failed`.

The exit status is 0 only when at least one case ran and none failed.
"""
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []

    def add(self, name, outcome):
        setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome == "failed":
            self.failures.append(name)

    def __iadd__(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        return self


def gtest_outcome(case):
    if case.get("failures"):
        return "failed"
    # RUN without a result "COMPLETED" is a case that the program did not live to finish.
    if case.get("status") != "RUN" or case.get("result") == "SKIPPED":
        return "skipped"
    return "passed" if case.get("result") == "COMPLETED" else "failed"


def count_ctest(folder):
    """Cases of gtest programs from what each wrote; a program that wrote nothing counts as one case itself."""
    count = Count()
    programs = {}  # ctest name -> file name of the program
    listing = json.loads((folder / "programs.json").read_text())
    for test in listing.get("tests", []):
        programs[test["name"]] = pathlib.Path(test.get("command", [test["name"]])[0]).name
    wrote, failed_inside = set(), set()
    for path in sorted((folder / "cases").glob("*.json")):
        program = next((p for p in programs.values() if path.stem == p or
                        (path.stem.startswith(p + "_") and path.stem[len(p) + 1:].isdigit())), path.stem)
        try:
            report = json.loads(path.read_text())
        except ValueError:
            continue  # cut off: the program itself is counted below
        wrote.add(program)
        for suite in report.get("testsuites", []):
            for case in suite.get("testsuite", []):
                outcome = gtest_outcome(case)
                count.add(f"{program}: {suite['name']}.{case['name']}", outcome)
                if outcome == "failed":
                    failed_inside.add(program)
    ran = set()
    for test in ElementTree.parse(folder / "ctest.xml").iter("testcase"):
        name, status = test.get("name"), test.get("status")
        program = programs.get(name, name)
        ran.add(name)
        if status == "disabled":
            continue  # it runs with the sanitizers (FPFS_SHORT_TESTS)
        # A crash, a leak or a time-out after the last case is in ctest's own verdict only.
        if status == "run":
            if program not in wrote:
                count.add(name, "passed")
        elif program not in failed_inside:
            count.add(f"{name} ({status})", "failed")
    for name in set(programs) - ran:
        count.add(f"{name} (was not run)", "failed")
    return count


def count_pytest(path):
    """One case per test; a test that passed and failed in its tear-down is a failure."""
    outcomes = {}
    rank = {"skipped": 0, "passed": 1, "failed": 2}
    for test in ElementTree.parse(path).iter("testcase"):
        name = f"{test.get('classname')}::{test.get('name')}"
        kinds = {child.tag for child in test}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        if rank[outcome] >= rank[outcomes.get(name, "skipped")]:
            outcomes[name] = outcome
    count = Count()
    for name, outcome in outcomes.items():
        count.add(name, outcome)
    return count


def main():
    results = pathlib.Path(sys.argv[1])
    parts = []
    for folder in sorted(results.glob("ctest-*")):
        try:
            parts.append((f"unit tests ({folder.name[6:]})", count_ctest(folder)))
        except (OSError, ValueError, ElementTree.ParseError) as error:
            broken = Count()
            broken.add(f"{folder.name}: no report ({error})", "failed")
            parts.append((f"unit tests ({folder.name[6:]})", broken))
    for report in sorted((results / "pytest").glob("*.xml")):
        try:
            parts.append((f"Python tests ({report.stem})", count_pytest(report)))
        except ElementTree.ParseError as error:
            broken = Count()
            broken.add(f"{report.name}: no report ({error})", "failed")
            parts.append((f"Python tests ({report.stem})", broken))
    # Building, formatting and the like are no test cases: they count only when they fail.
    checks = Count()
    for path in sorted((results / "checks").glob("*")):
        if path.read_text().strip() != "passed":
            checks.add(path.name, "failed")
    parts.append(("builds and checks", checks))

    total = Count()
    for _, count in parts:
        total += count
    for failure in total.failures:
        print(f"FAILED {failure}")
    for name, count in parts:
        if count.passed + count.failed + count.skipped:
            skipped = f", {count.skipped} skipped" if count.skipped else ""
            print(f"{name}: {count.passed} passed, {count.failed} failed{skipped}")
    if total.passed + total.failed == 0:
        print("nothing ran")
    print(f"{total.passed} passed, {total.failed} failed")
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    sys.exit(main())
