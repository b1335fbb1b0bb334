#!/usr/bin/env python3
"""Prints the ten slowest entries of a run of ctest and those that were skipped, and says whether all of them together
kept the budget of their tier.

Usage: test_times.py JUNIT TESTS_JSON TIER SECONDS. JUNIT: from ctest --output-junit. TESTS_JSON: in the build folder,
written by scripts/cmake/HeddleTiers.cmake, which has the budgets. SECONDS: how long ctest ran.
Exit status: 0, or 1 when the tier's budget is exceeded.
"""
import json
import sys
import xml.etree.ElementTree

SLOWEST = 10


def main():
    junit, tests, tier, seconds = sys.argv[1:5]
    with open(tests, encoding="utf-8") as file:
        budget = json.load(file)["total_seconds"][tier]
    cases = list(xml.etree.ElementTree.parse(junit).iter("testcase"))
    ran = [(float(case.get("time")), case.get("name")) for case in cases if case.find("skipped") is None]
    print(f"test: the slowest of {len(ran)} entries:")
    for took, name in sorted(ran, reverse=True)[:SLOWEST]:
        print(f"  {took:7.1f} s  {name}")
    for case in cases:
        skipped = case.find("skipped")
        if skipped is not None:
            print(f"test: ATTENTION: {case.get('name')} was skipped: {skipped.get('message')}")
    if float(seconds) > budget:
        print(f"test: FAILED: the tier {tier} took {float(seconds):.0f} s, its budget is {budget} s "
              "(scripts/cmake/HeddleTiers.cmake)")
        return 1
    print(f"test: the tier {tier} took {float(seconds):.0f} s of {budget} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
