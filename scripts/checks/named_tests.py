"""Tests that documents name exist: ctest entries and cases of googletest, in code spans of every document.

`unit.base.file`, `integration.*` and `conformance.comm.faults_*` are entries, `FileTest.TemporaryFoldersVanish` is a
case. The entries are those of tests.json, which the configured build writes; entries are not checked with a build that
lacks a part of the project. The cases are those of the sources.

Further rules hold for the table of scenarios (SCENARIOS): every row has a test or says that there is none, a named case
belongs to a named entry, and the numbers and lists of the page agree with the table.
"""
import json
import re

SCENARIOS = "docs/internals/scenarios.md"
NONE = "none yet"
HOW = ("processes", "simulated", "component")
SPAN = re.compile(r"`([^`]+)`")
ENTRY = re.compile(r"(?:unit|conformance|sim|fuzz|integration|rdma|lint)(?:\.[a-z0-9_]+)+(?:\.?\*)?")
CASE = re.compile(r"[A-Z]\w*\.[A-Z]\w*")
PLACEHOLDER = "Suite.Name"
DEFINED = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)")
ROW = re.compile(r"^\| (\d+) \|(.*)\|$")


class Tests:
    """The existing entries and cases."""

    def __init__(self, root, entries_file):
        self.entries = None
        if entries_file:
            known = json.loads(entries_file.read_text(encoding="utf-8"))
            if known.get("whole"):
                self.entries = {entry["name"] for entry in known["entries"]}
        self.cases = {}  # Name to the sources that define it, as in the names of entries: elastic_control_drift.
        for path in sorted((root / "tests").rglob("*.cc")):
            source = "_".join(path.relative_to(root / "tests").with_suffix("").parts).removesuffix("_test")
            for suite, name in DEFINED.findall(path.read_text(encoding="utf-8")):
                self.cases.setdefault(f"{suite}.{name}", set()).add(source)

    def missing(self, span):
        """What is wrong with a code span that looks like a test, or None."""
        if ENTRY.fullmatch(span):
            return None if self.entries is None or self.known(span) else f"no ctest entry {span}"
        if CASE.fullmatch(span) and span != PLACEHOLDER and span not in self.cases:
            return f"no googletest case {span} in tests/"
        return None

    def known(self, span):
        """Whether the span is an entry, a prefix of entries (ends with *), or a folder of entries."""
        if span.endswith("*"):
            return any(entry.startswith(span[:-1]) for entry in self.entries)
        return span in self.entries or any(entry.startswith(span + ".") for entry in self.entries)

    def is_of(self, case, entry):
        """Whether the entry runs the case. Names of entries in guests end with a device."""
        label, _, rest = entry.partition(".")
        source = rest.replace(".", "_")
        if label == "rdma":
            source = source.rpartition("_")[0]
            return any(one.startswith(source) for one in self.cases.get(case, ()))
        return source in self.cases.get(case, ())


def check(tests, name, lines):
    """Problems of one document."""
    for number, line in enumerate(lines, 1):
        for span in SPAN.findall(line):
            problem = tests.missing(span)
            if problem:
                yield f"{name}:{number}: error: {problem}"
    if name == SCENARIOS:
        yield from check_scenarios(tests, name, lines)


def check_scenarios(tests, name, lines):
    count = {how: 0 for how in (*HOW, "")}
    without, rows = [], []
    for number, line in enumerate(lines, 1):
        row = ROW.match(line)
        if not row:
            continue
        cells = [cell.strip() for cell in row.group(2).split("|")]
        scenario, test, how = int(row.group(1)), cells[-2], cells[-1]
        rows.append(scenario)
        if len(cells) != 4 or how not in (*HOW, ""):
            yield f"{name}:{number}: error: a row has a number, three texts, and how: {', '.join(HOW)} or nothing"
            continue
        count[how] += 1
        entries = [span for span in SPAN.findall(test) if ENTRY.fullmatch(span)]
        if (NONE in test) != (not how) or (NONE in test) != (not entries):
            yield f"{name}:{number}: error: scenario {scenario} has neither a ctest entry and how it runs nor '{NONE}'"
        if how == "simulated" and not any(entry.startswith("sim.") for entry in entries):
            yield f"{name}:{number}: error: scenario {scenario} is simulated by no entry of the label sim"
        if not how:
            without.append(scenario)
        for case in SPAN.findall(test):
            if case in tests.cases and not any(tests.is_of(case, entry) for entry in entries):
                yield f"{name}:{number}: error: none of the row's entries runs {case}"
    text = "\n".join(lines)
    if rows != list(range(1, len(rows) + 1)) or not rows:
        yield f"{name}:1: error: the scenarios are not numbered from 1 upwards"
    shown = sum(count[how] for how in HOW)
    said = f"{shown} of {len(rows)} have a test: " + ", ".join(f"{count[how]} {how}" for how in HOW)
    if said not in text:
        yield f"{name}:1: error: does not say what the table has: '{said}'"
    head = text.split("## Not shown yet", 1)[-1].split("\n## ", 1)[0]
    listed = [int(number) for number in re.findall(r"^- (\d+): ", head, re.MULTILINE)]
    if listed != without:
        yield f"{name}:1: error: 'Not shown yet' lists {listed}, the table has '{NONE}' at {without}"
