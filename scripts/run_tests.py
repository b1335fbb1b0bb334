#!/usr/bin/env python3
"""Runs ctest in a build folder and gives the verdict.

An entry that starts processes or uses sockets ("real" in tests.json) and fails is run once more, alone. If it passes
then, it is FLAKY: it is shown with the output of its first run, its seed and the load, and does not fail the run if
there are at most two. A pure or simulated entry is not repeated: a second result would be a fault of the product.

Usage: run_tests.py BUILD [--parallel N] -- OPTION…: the options go to ctest. The tier is HEDDLE_TEST_TIER.
Exit status: 0 all passed, at most two of them at the second try; 1 something failed; 2 nothing could be run.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree

SLOWEST = 10
FLAKY_MAX = 2
# An entry's time limit catches hangs only: it is at least this many times what the entry takes.
LIMIT_FACTOR = 5
OUTPUT_LINES = 200
START = re.compile(r"\s*Start +\d+: (\S+)")
END = re.compile(r"\s*\d+/\d+ Test +#\d+: (\S+) \.*(.*)")
SEED = re.compile(r"HEDDLE_TEST_SEED=\d+")


def run_ctest(build, options, junit):
    """ctest's exit status, and for each entry that did not pass a line about the moment when it ended."""
    command = ["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "--output-junit", junit]
    running, moments = [], {}
    with subprocess.Popen([*command, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace") as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            begun, ended = START.match(line), END.match(line)
            if begun:
                running.append(begun[1])
            elif ended:
                running = [name for name in running if name != ended[1]]
                if "Passed" not in ended[2] and "Skipped" not in ended[2]:
                    beside = f" beside {', '.join(running)}" if running else ""
                    moments[ended[1]] = f"load {os.getloadavg()[0]:.1f}{beside}"
    return process.returncode, moments


def read_cases(junit):
    return list(xml.etree.ElementTree.parse(junit).iter("testcase"))


def output_of(case):
    said = case.find("system-out")
    return (said.text or "").splitlines() if said is not None else []


def passes_alone(build, name, junit):
    print(f"test: {name} once more, alone", flush=True)
    code, _ = run_ctest(build, ["-R", f"^{re.escape(name)}$"], junit)
    return code == 0


def second_tries(build, failed, entries, moments, junit):
    """(names that have failed, lines about each entry that passed at its second try)."""
    pure = [case.get("name") for case in failed if not entries[case.get("name")]["real"]]
    names = [case.get("name") for case in failed]
    if pure or len(failed) > FLAKY_MAX:
        return names, []
    lines = []
    for case in failed:
        name = case.get("name")
        if not passes_alone(build, name, junit):
            continue
        names.remove(name)
        said = output_of(case)
        seed = next((found[0] for found in map(SEED.search, said) if found), "no seed")
        moment = moments.get(name, "load unknown")
        lines.append(f"FLAKY {name}: failed ({moment}; {seed}), passed alone. The first run:")
        lines += [f"    {line}" for line in said[-OUTPUT_LINES:]]
    return names, lines


def show_times(cases, entries, seconds, budget):
    ran = sorted(((float(case.get("time")), case.get("name")) for case in cases if case.find("skipped") is None),
                 reverse=True)
    print(f"test: the slowest of {len(ran)} entries:")
    for took, name in ran[:SLOWEST]:
        print(f"  {took:7.1f} s  {name}")
    for took, name in ran:
        if took * LIMIT_FACTOR > entries[name]["timeout"]:
            print(f"test: ATTENTION: {name} took {took:.1f} s, and its limit is {entries[name]['timeout']} s: less "
                  f"than {LIMIT_FACTOR} times that")
    for case in cases:
        skipped = case.find("skipped")
        if skipped is not None:
            print(f"test: ATTENTION: {case.get('name')} was skipped: {skipped.get('message')}")
    print(f"test: {len(ran)} entries in {seconds:.0f} s{budget}")


def main():
    parser = argparse.ArgumentParser(description="Run the tests of a build folder.")
    parser.add_argument("build")
    parser.add_argument("--parallel", default="1", help="entries at a time [1]")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    arguments, options = parser.parse_args(words[:end]), words[end + 1:]
    build = os.path.abspath(arguments.build)
    with open(os.path.join(build, "tests.json"), encoding="utf-8") as file:
        known = json.load(file)
    entries = {entry["name"]: entry for entry in known["entries"]}
    junit = os.path.join(build, "test-times.xml")
    if os.path.exists(junit):
        os.unlink(junit)
    begun = time.monotonic()
    code, moments = run_ctest(build, ["--parallel", arguments.parallel, *options], junit)
    if not os.path.exists(junit):
        print(f"test: ctest ended with {code} and ran nothing", file=sys.stderr)
        return 2
    seconds, cases = time.monotonic() - begun, read_cases(junit)
    failed = [case for case in cases if case.get("status") not in ("run", "notrun", "disabled")]
    failed += [case for case in cases if case.get("status") == "notrun" and case.find("skipped") is None]
    names, flaky = second_tries(build, failed, entries, moments, junit + ".again")
    tier = os.environ.get("HEDDLE_TEST_TIER", "")
    meant = known["tier_seconds"].get(tier)
    budget = f" (the tier {tier} is meant to take {meant} s)" if meant else ""
    show_times(cases, entries, seconds, budget)
    for name in names:
        print(f"test: FAILED: {name} ({moments.get(name, 'it did not run')})")
    print("\n".join(flaky), end="\n" if flaky else "")
    return 1 if names or (code != 0 and not failed) else 0


if __name__ == "__main__":
    sys.exit(main())
