"""A sum of two workers whose network gives each flow a part of its rate only, as clouds do: one TCP socket a
connection, and several.

seconds    time of an all-reduce, which carries the vector across once each way
of_flow    the vector over the rate of one flow, over that time
over_one   the time with one socket over the time with several
"""
import os

from support import group, report
from support.heddle import Failure
from support.network import Network

MIB = 1 << 20
STREAMS = (1, 2, 4, 8)
CLASSES = 16
FULL = {"repetitions": 5, "calls": 3, "bytes": (16 * MIB, 64 * MIB), "megabits": 200}
QUICK = {"repetitions": 3, "calls": 2, "bytes": (16 * MIB,), "megabits": 200}


def by_flow(megabits):
    """The shape: each of 16 classes of flows has this rate. A flow's class is its port at the dialling end, which is
    the first island's; two flows may meet in one, as in a network that balances by hash."""
    def shape(island, end):
        words = [["qdisc", "add", "dev", end, "root", "handle", "1:", "htb", "default", "10"]]
        port = ("sport", "dport")[island]
        for number in range(CLASSES):
            words.append(["class", "add", "dev", end, "parent", "1:", "classid", f"1:{0x10 + number:x}", "htb", "rate",
                          f"{megabits}mbit", "burst", "128kb", "quantum", "60000"])
            # Ports that a kernel gives to those who dial are mostly of one parity.
            words.append(["filter", "add", "dev", end, "parent", "1:", "protocol", "ip", "prio", "1", "u32", "match",
                          "ip", port, str(number << 1), hex((CLASSES - 1) << 1), "flowid", f"1:{0x10 + number:x}"])
        return words
    return shape


def measure(options, settings, rows):
    megabits = settings["megabits"]
    with Network(by_flow(megabits)) as network:
        places = [network.place(0), network.place(1)]
        for size in settings["bytes"]:
            if options.only not in f"streams {size}":
                continue
            times = {streams: [] for streams in STREAMS}
            for _ in range(options.repeat or settings["repetitions"]):
                for streams in STREAMS:
                    measured = group.run(options.folder, places, f"tcp:{streams}",
                                         ["allreduce", str(size), str(settings["calls"])])
                    times[streams] += [second for _, seconds, _ in measured for second in seconds]
            one = report.median(times[1])
            for streams, seconds in times.items():
                case = {"ranks": 2, "bytes": size, "megabits": megabits}
                name = f"heddle-tcp-{streams}"
                rows.add(case, name, True, "seconds", report.median(seconds), "s")
                rows.add(case, name, True, "of_flow", size * 8 / (megabits * 1e6) / report.median(seconds), "ratio")
                rows.add(case, name, True, "over_one", one / report.median(seconds), "ratio")


def run(options, rows):
    if os.geteuid() != 0:
        report.say("streams: network namespaces need root; nothing was measured")
        return True
    try:
        measure(options, QUICK if options.quick else FULL, rows)
    except Failure as failure:
        report.say(f"streams: {failure}")
        return True
    return False
