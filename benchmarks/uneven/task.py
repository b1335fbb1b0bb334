"""All-gather and reduce-scatter of uneven shares among four workers on this machine.

seconds         of a call, at the slowest worker
wire            bytes that all workers sent over the least possible: every worker lacks all but its own share, and every
                share lacks all but one worker's part
over_padded     time with every share padded to the largest, copies included, over that of the exact shares
"""
from support import group, report
from support.heddle import Failure

MIB = 1 << 20
SKEWS = {"1:1": "1,1,1,1", "2:1": "2,1,1,1", "8:1": "8,1,1,1"}
FULL = {"repetitions": 5, "calls": 9, "bytes": (1 * MIB, 16 * MIB, 64 * MIB)}
QUICK = {"repetitions": 3, "calls": 5, "bytes": (16 * MIB,)}
RANKS = 4
TASKS = {"allgather": "padded", "reducescatter": "paddedscatter"}


def run(options, rows):
    settings = QUICK if options.quick else FULL
    try:
        for family in ("shm", "tcp"):
            for size in settings["bytes"]:
                for skew, shares in SKEWS.items():
                    one(options, settings, rows, family, size, skew, shares)
    except Failure as failure:
        report.say(f"uneven: {failure}")
        return True
    return False


def one(options, settings, rows, family, size, skew, shares):
    if options.only not in f"{family} {size} {skew}":
        return
    tasks = []
    for task, padded in TASKS.items():
        for name in (task, padded):
            tasks += [name, str(size), str(settings["calls"]), shares]
    times, sent = {}, {}
    for _ in range(options.repeat or settings["repetitions"]):
        for name, seconds, wire in group.run(options.folder, [((), "127.0.0.1")] * RANKS, family, tasks):
            times.setdefault(name, []).append(report.median(seconds))
            sent[name] = wire
    weights = [int(weight) for weight in shares.split(",")]
    total = sum(size // 4 * weight // sum(weights) * 4 for weight in weights)
    least = (RANKS - 1) * total
    for task, padded in TASKS.items():
        case = {"family": family, "ranks": RANKS, "bytes": size, "skew": skew, "operation": task}
        exact_seconds = report.median(times[task])
        padded_seconds = report.median(times[padded])
        for name, task_name, seconds in (("heddle-" + family, task, exact_seconds),
                                         ("heddle-padded", padded, padded_seconds)):
            rows.add(case, name, True, "seconds", seconds, "s")
            rows.add(case, name, True, "wire", sent[task_name] / least, "ratio")
        rows.add(case, "heddle-" + family, True, "over_padded", padded_seconds / exact_seconds, "ratio")
