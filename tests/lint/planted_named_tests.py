#!/usr/bin/env python3
"""Each test that a document names and that is not there is found, and each breach of the table of scenarios.

Usage: planted_named_tests.py SOURCE_FOLDER
"""
import json

from planted import Planted, run

PAGE = """# Failure scenarios

2 of 3 have a test: 1 processes, 0 simulated, 1 component.

## Not shown yet

- 2: it rains

## All

| # | what happens | what Heddle promises | test | how |
|---|---|---|---|---|
| 1 | a kill | it goes on | `integration.kill`; `unit.base.file` `FileTest.Reads` | processes |
| 2 | it rains | nothing | none yet | |
| 3 | a fault | it goes on | `unit.base.file` `FileTest.Reads`, `rdma.comm.rails_rxe` `RailsTest.Works` | component |
"""
CASES = {"tests/base/file_test.cc": "TEST(FileTest, Reads) {\n}\n",
         "tests/base/half_test.cc": "TEST_P(HalfTest,\n       Adds) {}\n",
         "tests/comm/rails_guests_test.cc": "TEST_F(RailsTest, Works) {}\n"}
ENTRIES = ("integration.kill", "unit.base.file", "unit.base.half", "rdma.comm.rails_rxe", "conformance.comm.faults_tcp")
OTHER = ("`unit.base.half` `HalfTest.Adds`, `conformance.comm.faults_*`, `conformance.comm`, `Suite.Name`, "
         "`unit.FOLDER.FILE`\n")

# (old text, new text, part of the message): on the page of scenarios; without an old text in another document.
BREACHES = [
    ("`integration.kill`", "`integration.kil`", "scenarios.md:13: error: no ctest entry integration.kil"),
    ("", "`unit.base.whole`", "other.md:2: error: no ctest entry unit.base.whole"),
    ("", "`conformance.comm.faulty_*`", "other.md:2: error: no ctest entry conformance.comm.faulty_*"),
    ("`FileTest.Reads` |", "`FileTest.Read` |", "scenarios.md:13: error: no googletest case FileTest.Read in tests/"),
    ("", "`HalfTest.Add`", "other.md:2: error: no googletest case HalfTest.Add in tests/"),
    ("`FileTest.Reads` |", "`HalfTest.Adds` |", "scenarios.md:13: error: none of the row's entries runs HalfTest.Adds"),
    ("`rdma.comm.rails_rxe` ", "", "scenarios.md:15: error: none of the row's entries runs RailsTest.Works"),
    ("none yet | |", "| |", "scenarios.md:14: error: scenario 2 has neither"),
    ("none yet | |", "none yet | component |", "scenarios.md:14: error: scenario 2 has neither"),
    ("none yet", "by hand", "scenarios.md:14: error: scenario 2 has neither"),
    ("| processes |", "| really |", "scenarios.md:13: error: a row has a number"),
    ("| processes |", "| simulated |", "scenarios.md:13: error: scenario 1 is simulated by no entry"),
    ("2 of 3", "3 of 3", "scenarios.md:1: error: does not say what the table has: '2 of 3"),
    ("- 2: it rains\n", "", "scenarios.md:1: error: 'Not shown yet' lists []"),
    ("| 2 | it rains", "| 4 | it rains", "scenarios.md:1: error: the scenarios are not numbered"),
]


def look(page, other, whole):
    entries = json.dumps({"whole": whole, "entries": [{"name": name} for name in ENTRIES]})
    files = {"docs/internals/scenarios.md": page, "docs/other.md": other, "tests.json": entries, **CASES}
    with Planted(files) as tree:
        return tree.check("docs", "--entries", f"{tree.folder.name}/tests.json")


def sound_documents():
    code, text = look(PAGE, OTHER, True)
    if code != 0:
        yield text


def breaches():
    for old, new, message in BREACHES:
        if old not in PAGE:
            yield f"cannot be planted: {old}"
            continue
        code, text = look(PAGE.replace(old, new, 1) if old else PAGE, OTHER if old else OTHER + new + "\n", True)
        if code != 1 or message not in text:
            yield f"not found: {message}: exit status {code}, {text}"


def a_build_without_some_parts():
    """It does not know whether an entry is elsewhere, and the sources know their cases."""
    code, text = look(PAGE, OTHER + "`unit.base.whole`\n", False)
    if code != 0:
        yield text
    code, text = look(PAGE, OTHER + "`HalfTest.Add`\n", False)
    if code != 1 or "HalfTest.Add" not in text:
        yield f"not found: {text}"


run((sound_documents, breaches, a_build_without_some_parts))
