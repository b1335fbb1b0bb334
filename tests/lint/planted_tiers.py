#!/usr/bin/env python3
"""Each breach of the tests' tiers and of continuous integration's plan that is planted in a small project is red.

Usage: planted_tiers.py SOURCE_FOLDER TESTS_JSON. TESTS_JSON: this build's, whose entries must have parts in .ci/parts.
"""
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(planted LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH "{source}/scripts/cmake")
include(HeddleTiers)
enable_testing()
{budgets}
{entries}
file(MAKE_DIRECTORY "${{CMAKE_SOURCE_DIR}}/last")
file(TOUCH "${{CMAKE_SOURCE_DIR}}/last/CMakeLists.txt")
add_subdirectory(last)
heddle_finish_entries(last)
"""
SLEEPER = "heddle_entry(unit.sleeper TIER quick LABEL unit COMMAND sleep 1.5)"
CONSECUTIVE = 10
PERIOD = 120  # Of all turns together.
MOST_MINUTES = 60


def expect(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def run(*command, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEDDLE_")}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=50, check=False,
                          stdin=subprocess.DEVNULL, env={**clean, **environment})
    return done.returncode, done.stdout + done.stderr


def configure(folder, name, entries, budgets=""):
    project = folder / name
    project.mkdir()
    (project / "CMakeLists.txt").write_text(PROJECT.format(source=SOURCE, entries=entries, budgets=budgets))
    code, said = run("cmake", "-S", project, "-B", project / "build")
    return project / "build", code, re.sub(r"\s+", " ", said)


def check_entries(folder):
    """What is refused when the build is configured."""
    sound = "heddle_entry(unit.sound TIER quick LABEL unit COMMAND true)\n"
    _, code, said = configure(folder, "sound", sound)
    expect(code == 0, said)
    for name, entry, message in (
            ("raw", "add_test(NAME unit.raw COMMAND true)", "the test entry unit.raw has no tier"),
            ("none", "heddle_entry(unit.none LABEL unit COMMAND true)", "unit.none: the tier is ''"),
            ("other", "heddle_entry(unit.other TIER fast LABEL unit COMMAND true)", "unit.other: the tier is 'fast'"),
            ("long", "heddle_entry(unit.long TIER full LABEL unit TIMEOUT 601 COMMAND true)", "TIMEOUT 601 is above")):
        _, code, said = configure(folder, name, sound + entry)
        expect(code != 0 and message in said, f"{name}: exit {code}: {said}")


def check_budgets(folder):
    """An entry that sleeps past its budget, and a tier that does."""
    build, code, said = configure(folder, "budgets", SLEEPER, "set(HEDDLE_TIER_ENTRY_SECONDS 1 2 600)")
    expect(code == 0, said)
    junit = build / "times.xml"
    code, said = run("ctest", "--test-dir", build, "--output-junit", junit, HEDDLE_TEST_TIER="quick")
    expect(code != 0 and "***Timeout" in said, f"an entry past its budget: exit {code}: {said}")
    code, said = run("ctest", "--test-dir", build, HEDDLE_TEST_TIER="check")
    expect(code == 0, f"the same entry within the budget of check: {said}")
    times = (sys.executable, SOURCE / "scripts/test_times.py", junit, build / "tests.json", "quick")
    code, said = run(*times, 181)
    expect(code == 1 and "the tier quick took 181 s, its budget is 180 s" in said, f"exit {code}: {said}")
    expect("unit.sleeper" in said, f"the slowest are not listed: {said}")
    code, said = run(*times, 179)
    expect(code == 0, said)


def check_sizes():
    """A test that takes its sizes from the tier and is not registered so."""
    program = (sys.executable, "-c", f"import sys; sys.path.insert(0, '{SOURCE}/tests/support')\n"
               "import tiers; print(tiers.scaled(1, 2, 3))")
    for environment, answer in (({}, "3"), ({"HEDDLE_TEST_TIER": "quick"}, "1"), ({"HEDDLE_TEST_TIER": "check"}, "2"),
                                ({"HEDDLE_TEST_SCALED": "1"}, "3")):
        code, said = run(*program, **environment)
        expect(code == 0 and said.strip() == answer, f"{environment}: exit {code}: {said}")
    code, said = run(*program, HEDDLE_TEST_SCALED="0")
    expect(code != 0 and "SCALED" in said, f"exit {code}: {said}")
    code, said = run(*program, HEDDLE_TEST_TIER="fast")
    expect(code != 0 and "HEDDLE_TEST_TIER=fast" in said, f"exit {code}: {said}")


def run_plan(folder, *stages):
    plan = folder / "plan"
    lines = "\n".join("|".join(map(str, stage)) for stage in stages)
    plan.write_text(f"#!/bin/sh\ncat << 'END'\n{lines}\nEND\n")
    plan.chmod(plan.stat().st_mode | stat.S_IXUSR)
    return run("bash", SOURCE / ".ci/run", HEDDLE_CI_PLAN=str(plan), HEDDLE_CI_MINUTE="1")


def check_run(folder):
    """Stages that fail, are cut, have no time, or too much of it."""
    code, said = run_plan(folder, (20, "one", "echo first"), (30, "two", "echo second"))
    expect(code == 0 and "first" in said and "second" in said, f"exit {code}: {said}")
    expect(re.search(r"20 min planned +\d+ s +one", said), f"no times: {said}")
    for name, stages, message in (
            ("no time", ((1, "one", "true"), ("", "two", "true")), "the stage 'two' has no time in the plan"),
            ("no minutes", ((0, "one", "true"),), "the stage 'one' has no time in the plan"),
            ("too long", ((30, "one", "true"), (31, "two", "true")), "the plan takes 61 minutes, more than 60"),
            ("cut", ((1, "one", "sleep 20"),), "the stage 'one' did not run to its end"),
            ("killed", ((1, "one", "kill -KILL $$"),), "the stage 'one' did not run to its end"),
            ("failed", ((1, "one", "false"), (1, "two", "echo second")), "not run  two"),
            ("empty", (), "has no time")):
        code, said = run_plan(folder, *stages)
        expect(code != 0 and message in said, f"{name}: exit {code}: {said}")
        expect("second" not in said.replace("echo second", ""), f"{name}: went on after a failure: {said}")


def planned(number, *folders):
    """The stages of a commit: {kind: parts}."""
    code, said = run("bash", SOURCE / ".ci/plan", number, *folders)
    expect(code == 0, said)
    lines = [line.split("|") for line in said.splitlines() if "|" in line]
    minutes = sum(int(line[0]) for line in lines)
    expect(minutes <= MOST_MINUTES, f"commit {number} that touches {folders} takes {minutes} minutes")
    return {kind: parts.split(",") for kind, parts in re.findall(r"\.ci/deep (\w+):(\S+)", said)}


def check_plan(tests):
    """Every part comes within ten commits, touched ones always; every entry has a part."""
    table = [line.split() for line in (SOURCE / ".ci/parts").read_text(encoding="utf-8").splitlines()
             if line and not line.startswith("#")]
    wanted = {(kind, row[0]) for row in table for kind, minutes in zip(("rest", "asan", "tsan"), row[3:])
              if int(minutes) > 0}
    plans = {number: planned(number) for number in range(1, PERIOD + CONSECUTIVE)}
    for first in range(1, PERIOD + 1):
        seen = {(kind, part) for number in range(first, first + CONSECUTIVE) for kind, parts in plans[number].items()
                for part in parts}
        expect(seen == wanted, f"from commit {first}: not within {CONSECUTIVE}: {sorted(wanted - seen)}")
    for row in table:
        folder = row[2].split(",")[0]
        for number in range(500, 504):
            expect(row[0] in planned(number, folder)["rest"], f"commit {number} touches {folder}: no rest of {row[0]}")
    planned(503, *(folder for row in table for folder in row[2].split(",")))
    with open(tests, encoding="utf-8") as file:
        names = [entry["name"] for entry in json.load(file)["entries"]]
    for name in names:
        matching = [row[0] for row in table if re.fullmatch(row[1], name)]
        expect(name.startswith("lint.") or len(matching) == 1, f"{name} is in the parts {matching} of .ci/parts")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_entries(folder)
        check_budgets(folder)
        check_sizes()
        check_run(folder)
    check_plan(sys.argv[2])
    print("every planted breach was found")


main()
