"""Reproducible fp32 sums of workers on this machine: in the memory that they share, and over the tree by messages.

seconds         of a call, at the slowest worker; median
over_messages   time by messages over that in shared memory; the two take turns call by call, and the figure is the
                median of the ratios of neighbours
"""
from support import group, report
from support.heddle import Failure

MIB = 1 << 20
FULL = {"repetitions": 5, "calls": 15, "bytes": (1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB)}
QUICK = {"repetitions": 3, "calls": 9, "bytes": (1 * MIB, 16 * MIB, 64 * MIB)}
# Ranks, and vectors that each brings.
SHAPES = ((2, 1), (2, 3), (4, 1))


def run(options, rows):
    settings = QUICK if options.quick else FULL
    cases = [(ranks, values, size) for ranks, values in SHAPES for size in settings["bytes"]]
    try:
        for ranks, values, size in cases:
            if options.only in f"exact {ranks} {values} {size}":
                one(options, settings, rows, {"ranks": ranks, "values": values, "bytes": size})
    except Failure as failure:
        report.say(f"exact: {failure}")
        return True
    return False


def one(options, settings, rows, case):
    # Small calls are many, so that one late wake-up is not what is told.
    calls = max(settings["calls"], 64 * MIB // case["bytes"])
    task = ["exact", str(case["bytes"]), str(calls), str(case["values"])]
    shared, messages = [], []
    for _ in range(options.repeat or settings["repetitions"]):
        [(_, ours, _), (_, theirs, _)] = group.run(options.folder, [((), "127.0.0.1")] * case["ranks"], "shm", task)
        shared += ours
        messages += theirs
    rows.add(case, "heddle-shared", True, "seconds", report.median(shared), "s")
    rows.add(case, "heddle-messages", True, "seconds", report.median(messages), "s")
    ratios = [theirs / ours for ours, theirs in zip(shared, messages)]
    rows.add(case, "heddle-shared", True, "over_messages", report.median(ratios), "ratio")
