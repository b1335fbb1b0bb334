"""Two islands of two workers: two network namespaces, shared memory inside each, between them one link behind a token
bucket both ways.

share_of_link   time that plain sockets take to carry the vector across, both ways at once, over that of an all-reduce
of_rate         the vector over the bucket's rate, over the time of an all-reduce
inside_loss     time of an all-reduce inside an island while the group spans both, over that in a group of the island
                alone, less 1
"""
import os
import subprocess
import sys

from support import group, heddle, report
from support.heddle import Failure
from support.network import Network

MIB = 1 << 20
FULL = {"repetitions": 5, "calls": 3, "bytes": (4 * MIB, 16 * MIB, 64 * MIB), "megabits": 200, "inside": 50}
QUICK = {"repetitions": 3, "calls": 2, "bytes": (16 * MIB,), "megabits": 200, "inside": 20}
CALLS_INSIDE = 100  # In one time, as in collectives_bench.cc.
# Carries argv[2] bytes both ways at once, after a byte each way; prints the seconds at the dialling side.
PLAIN = """
import socket, sys, threading, time
size, host, port = int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
def carry(sock):
    sender = threading.Thread(target=lambda: sock.sendall(bytes(size)))
    begun = time.monotonic()
    sender.start()
    left = size
    while left:
        left -= len(sock.recv(min(left, 1 << 20)))
    sender.join()
    return time.monotonic() - begun
if sys.argv[1] == "listen":
    with socket.create_server((host, port)) as server:
        print("ready", flush=True)
        with server.accept()[0] as sock:
            sock.sendall(b"x")
            sock.recv(1)
            carry(sock)
            sock.recv(1)
else:
    with socket.create_connection((host, port)) as sock:
        sock.recv(1)
        sock.sendall(b"x")
        print(carry(sock))
        sock.sendall(b"x")
"""


def bucket(megabits):
    """The shape of a link with this rate each way."""
    return lambda _, end: [["qdisc", "add", "dev", end, "root", "tbf", "rate", f"{megabits}mbit", "burst", "128kb",
                            "latency", "50ms"]]


def plain_sockets(network, size):
    """Seconds of plain sockets, the least that the link needs."""
    port = "7077"
    python = [sys.executable, "-c", PLAIN]
    with subprocess.Popen([*network.place(0)[0], *python, "listen", str(size), network.hosts[0], port],
                          stdout=subprocess.PIPE, text=True) as server:
        try:
            server.stdout.readline()
            done = subprocess.run([*network.place(1)[0], *python, "dial", str(size), network.hosts[0], port],
                                  capture_output=True, text=True, timeout=120, check=False)
        finally:
            server.kill()
    if done.returncode != 0:
        raise Failure(f"plain sockets: {heddle.last_line(done.stderr)}")
    return float(done.stdout)


def median_of(measured, task):
    return report.median([second for name, seconds, _ in measured if name == task for second in seconds])


def measure(options, settings, network, rows):
    places = [network.place(0), network.place(0), network.place(1), network.place(1)]
    calls = str(settings["calls"])
    for size in settings["bytes"]:
        case = {"islands": 2, "ranks": 4, "bytes": size, "megabits": settings["megabits"]}
        if options.only not in f"islands {size}":
            continue
        times = {"plain-sockets": [], "heddle-hierarchical": [], "heddle-measured-links": [], "heddle-flat": []}
        for _ in range(options.repeat or settings["repetitions"]):
            times["plain-sockets"].append(plain_sockets(network, size))
            for name, first in (("heddle-hierarchical", ["links", "2"]), ("heddle-measured-links", ["measure"]),
                                ("heddle-flat", [])):
                measured = group.run(options.folder, places, "shm", [*first, "allreduce", str(size), calls])
                times[name].append(median_of(measured, "allreduce"))
        least = report.median(times["plain-sockets"])
        for name, seconds in times.items():
            ours = name.startswith("heddle")
            rows.add(case, name, ours, "seconds", report.median(seconds), "s")
            if ours:
                rows.add(case, name, ours, "share_of_link", least / report.median(seconds), "ratio")
                rows.add(case, name, ours, "of_rate",
                         size * 8 / (settings["megabits"] * 1e6) / report.median(seconds), "ratio")


def inside(options, settings, network, rows):
    places = [network.place(0), network.place(0), network.place(1), network.place(1)]
    for size in (64 << 10, 4 * MIB):
        if options.only not in f"inside {size}":
            continue
        count = str(settings["inside"])
        spanning, alone = [], []
        for _ in range(options.repeat or settings["repetitions"]):
            measured = group.run(options.folder, places, "shm", ["links", "2", "inside", str(size), count, "2"])
            spanning.append(median_of(measured[:1], "inside"))
            measured = group.run(options.folder, places[:2], "shm", ["inside", str(size), count, "1"])
            alone.append(median_of(measured, "inside"))
        case = {"islands": 2, "ranks": 2, "bytes": size, "megabits": settings["megabits"]}
        for name, seconds in (("heddle-inside", spanning), ("heddle-alone", alone)):
            rows.add(case, name, True, "seconds", report.median(seconds) / CALLS_INSIDE, "s")
        loss = report.median(spanning) / report.median(alone) - 1
        rows.add(case, "heddle-inside", True, "inside_loss", loss, "ratio")


def run(options, rows):
    settings = QUICK if options.quick else FULL
    if os.geteuid() != 0:
        report.say("islands: network namespaces need root; nothing was measured")
        return True
    try:
        with Network(bucket(settings["megabits"])) as network:
            measure(options, settings, network, rows)
            inside(options, settings, network, rows)
    except Failure as failure:
        report.say(f"islands: {failure}")
        return True
    return False
