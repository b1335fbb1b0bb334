"""Heddle's messages over RDMA against perftest in the same boot of the same guests.

over_perftest   bandwidth over ib_write_bw's; half a round trip over the faster of ib_send_lat's, which sleeps on
                completion events as ours does, and between two guests ib_write_lat's, which looks for completions all
                the time
retransmissions packets that rxe had to send again, by its own counters, while Heddle's side ran

One guest (loopback) and two guests (scripts/rdma-vm). Within a guest it measures there, and nothing else.
"""
import json
import os
import subprocess

from support import heddle, report

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(os.path.dirname(os.path.dirname(heddle.BINARY)), "benchmarks", "verbs", "verbs_bench")
FULL = {"repetitions": 5, "megabytes": 64, "round_trips": 1000}
QUICK = {"repetitions": 3, "megabytes": 32, "round_trips": 500}
BANDWIDTH_BYTES = (65536, 1 << 20, 4 << 20)
LATENCY_BYTES = 8


def cases(options):
    return ([["bw", size] for size in BANDWIDTH_BYTES if options.only in f"bw {size}"]
            + [["lat", LATENCY_BYTES]] * (options.only in f"lat {LATENCY_BYTES}"))


def measure(guests, settings):
    """What the guests found: [case, implementation, value] of each run."""
    inside = ["python3", os.path.join(HERE, "inside.py"), PROGRAM, json.dumps(settings)]
    if "HEDDLE_VM" in os.environ:
        command = inside
    else:
        command = [os.path.join(heddle.REPOSITORY, "scripts", "rdma-vm"), "--guests", str(guests),
                   "--time-limit", "900", "--see", os.path.dirname(PROGRAM), "--", *inside]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in done.stdout.splitlines() if "inside: " in line]
        raise heddle.Failure(f"{' '.join(command[:4])} …: exit code {done.returncode}: "
                             f"{said[0] if said else heddle.last_line(done.stdout)}")
    # With several guests each line begins with its guest's number.
    lines = [line.partition("] ")[2] if line.startswith("[") and "] {" in line else line
             for line in done.stdout.splitlines()]
    return [json.loads(line) for line in lines if line.startswith('{"test"')]


def add_rows(rows, guests, found):
    for test, size in sorted({(entry["test"], entry["bytes"]) for entry in found}):
        case = {"guests": guests, "bytes": size}
        metric, unit = ("bytes_per_second", "B/s") if test == "bw" else ("seconds", "s")
        medians = {}
        for name in sorted({entry["implementation"] for entry in found if entry["test"] == test}):
            values = [entry["value"] for entry in found
                      if (entry["test"], entry["bytes"], entry["implementation"]) == (test, size, name)]
            if values:
                medians[name] = report.median(values)
                rows.add(case, name, name.startswith("heddle"), metric, medians[name], unit)
        peers = [value for name, value in medians.items()
                 if not name.startswith("heddle")]
        for name, value in medians.items():
            if name.startswith("heddle") and peers:
                best = max(peers) if test == "bw" else min(peers)
                rows.add(case, name, True, "over_perftest", value / best, "")
    again = [entry["retransmitted"] for entry in found if "retransmitted" in entry]
    packets = [entry["packets"] for entry in found if "packets" in entry]
    rows.add({"guests": guests}, "heddle-verbs", True, "retransmissions", sum(again), "packets")
    rows.add({"guests": guests}, "heddle-verbs", True, "packets", sum(packets), "packets")


def run(options, rows):
    if not os.path.exists(PROGRAM):
        report.say(f"{PROGRAM} is not built (target heddle_benchmarks)")
        return True
    numbers = dict(QUICK if options.quick else FULL)
    numbers["repetitions"] = options.repeat or numbers["repetitions"]
    numbers["cases"] = cases(options)
    failed = False
    inside = int(os.environ.get("HEDDLE_GUESTS", "0"))
    for guests in (inside,) if inside else (1, 2):
        try:
            add_rows(rows, guests, measure(guests, numbers))
        except heddle.Failure as failure:
            report.say(f"{guests} guests: {failure}")
            failed = True
    return failed
