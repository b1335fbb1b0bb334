"""Sums of 64 MiB among two workers whose threads all share one core, beside products of matrices on the other.

products_slowdown   rate of the products alone over that beside the sums, less 1
copies_slowdown     the same beside a loop of memcpy of as many bytes on the sums' core: what the machine's memory costs
seconds, beside     time of a sum alone, and beside the products
over_alone          the latter over the former
latency, during     half a round trip of an urgent message of 8 KiB, sent every 300 us, when nothing else happens, and
                    during a sum
over_idle           the latter over the former
"""
from support import group, report
from support.heddle import Failure

BYTES = 64 << 20
FULL = {"repetitions": 5, "calls": 9}
QUICK = {"repetitions": 3, "calls": 5}
# All of a worker's threads; its products choose the first core themselves.
PLACE = (("taskset", "-c", "1"), "127.0.0.1")


def run(options, rows):
    settings = QUICK if options.quick else FULL
    try:
        for family in ("shm", "tcp"):
            if options.only in family:
                one(options, settings, rows, family)
    except Failure as failure:
        report.say(f"overlap: {failure}")
        return True
    return False


def one(options, settings, rows, family):
    figures = []
    for _ in range(options.repeat or settings["repetitions"]):
        tasks = ["overlap", str(BYTES), str(settings["calls"])]
        [(_, values, _)] = group.run(options.folder, [PLACE] * 2, family, tasks)
        figures.append(values)
    products, beside_copies, products_beside, seconds, beside, idle, during = (
        report.median(column) for column in zip(*figures))
    case = {"family": family, "ranks": 2, "bytes": BYTES}

    def add(metric, value, unit):
        rows.add(case, "heddle-" + family, True, metric, value, unit)

    add("products_slowdown", products / products_beside - 1, "ratio")
    add("copies_slowdown", products / beside_copies - 1, "ratio")
    add("seconds", seconds, "s")
    add("beside", beside, "s")
    add("over_alone", beside / seconds, "ratio")
    add("latency", idle, "s")
    add("during", during, "s")
    add("over_idle", during / idle, "ratio")
