"""Within the guests of scripts/rdma-vm: Heddle's program and perftest take turns; one JSON line a run, from guest 0.

    inside.py PROGRAM {"repetitions", "megabytes", "round_trips", "cases": [[bw|lat, bytes]…]}

With one guest both ends are here; with two the second guest has the accepting end.
"""
import glob
import json
import os
import subprocess
import sys
import time

GUEST = int(os.environ["HEDDLE_GUEST"])
GUESTS = int(os.environ["HEDDLE_GUESTS"])
SHARED = os.environ["HEDDLE_VM"]
PORT = 18600
PEER_ADDRESS = f"10.9.0.{GUESTS}"  # Of the accepting end.
# Over rxe it waits now and then for a completion that has been, for ever.
PERFTEST_SECONDS = 5
COUNTERS = {"retransmitted": ("duplicate_request", "rcvd_seq_err", "send_rnr_err", "completer_retry_err"),
            "packets": ("sent_pkts",)}


def device():
    return sorted(os.listdir("/sys/class/infiniband"))[0]


def gid_index(name):
    """That of the IPv4 address and RoCE v2."""
    for path in glob.glob(f"/sys/class/infiniband/{name}/ports/1/gids/*"):
        index = os.path.basename(path)
        try:
            with open(path, encoding="ascii") as file:
                gid = file.read().strip()
            with open(f"/sys/class/infiniband/{name}/ports/1/gid_attrs/types/{index}", encoding="ascii") as file:
                kind = file.read().strip()
        except OSError:
            continue
        if gid.startswith("0000:0000:0000:0000:0000:ffff:") and kind == "RoCE v2":
            return index
    sys.exit("inside: no GID of an IPv4 address")


def counters(name):
    values = {}
    for key, files in COUNTERS.items():
        values[key] = 0
        for file in files:
            try:
                with open(f"/sys/class/infiniband/{name}/ports/1/hw_counters/{file}", encoding="ascii") as text:
                    values[key] += int(text.read())
            except OSError:
                pass
    return values


def show_clock():
    """perftest reads the clock's rate from a file that a UML kernel does not fill."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        if "cpu MHz" in file.read():
            return
    with open("/run/cpuinfo", "w", encoding="utf-8") as file:
        # Without it perftest has no figures of latency.
        rate = float(os.environ.get("HEDDLE_TICKS_PER_SECOND", 0))
        file.write(f"processor : 0\ncpu MHz : {rate / 1e6:.3f}\n")
    subprocess.run(["mount", "--bind", "/run/cpuinfo", "/proc/cpuinfo"], check=True)


def meet(place):
    """Both guests are here."""
    if GUESTS == 1:
        return
    open(f"{SHARED}/{place}.{GUEST}", "w", encoding="ascii").close()
    while not all(os.path.exists(f"{SHARED}/{place}.{guest}") for guest in range(GUESTS)):
        time.sleep(0.01)


def listens(port):
    for path in filter(os.path.exists, ("/proc/net/tcp", "/proc/net/tcp6")):
        with open(path, encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if fields[1].endswith(f":{port:04X}") and fields[3] == "0A":
                    return True
    return False


def both_ends(place, accepting, dialling, listening=None):
    """Runs the two commands in their guests; (output, error): the dialling end's output, in guest 0."""
    server = None
    if GUEST == GUESTS - 1:
        server = subprocess.Popen(accepting, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while listening and not listens(listening) and server.poll() is None:
            time.sleep(0.01)
    meet(place)
    output = ""
    code = 0
    if GUEST == 0:
        done = subprocess.run(dialling, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              timeout=120)
        output, code = done.stdout, done.returncode
    error = f"{' '.join(dialling)}: exit code {code}: {output}" if code != 0 else None
    if server:
        said, _ = server.communicate(timeout=120)
        if server.returncode != 0:
            error = error or f"{' '.join(accepting)}: exit code {server.returncode}: {said}"
    return output, error


def ours(program, place, name, layer, test, size, count):
    command = [program, "RANK", SHARED, place, name, os.environ["HEDDLE_ADDRESS"], layer, test, str(size), str(count)]
    # The lower rank dials.
    output, error = both_ends(place, [command[0], "1", *command[2:]], [command[0], "0", *command[2:]])
    if error:
        sys.exit(f"inside: {error}")
    words = output.split()
    return float(words[1]) if words else None


def perftest(place, program, name, size, count, extra, attempts=3):
    """The fields of its line of figures, in guest 0; None: it gave none."""
    command = ["timeout", str(PERFTEST_SECONDS), program, "-d", name, "-x", gid_index(name), "-F", "-s", str(size),
               "-n", str(count), "-p", str(PORT), *extra]
    for attempt in range(attempts):
        output, _ = both_ends(f"{place}.{attempt}", command, [*command, PEER_ADDRESS], PORT)
        rows = [fields for fields in map(str.split, output.splitlines()) if len(fields) > 4 and fields[0] == str(size)]
        verdict = f"{SHARED}/{place}.{attempt}.verdict"
        if GUEST == 0:
            open(f"{verdict}.{'good' if rows and rows[-1][3] != 'inf' else 'none'}", "w", encoding="ascii").close()
        meet(f"{place}.{attempt}.end")
        if os.path.exists(f"{verdict}.good"):
            return rows[-1] if rows else None
    if GUEST == 0:
        print(f"inside: {program} gave no figures in {attempts} attempts", file=sys.stderr)
    return None


def main():
    program, settings = sys.argv[1], json.loads(sys.argv[2])
    name = device()
    show_clock()
    run = 0

    def tell(test, size, implementation, value, more=()):
        if GUEST == 0:
            print(json.dumps({"test": test, "bytes": size, "implementation": implementation, "value": value,
                              **dict(more)}), flush=True)

    for repetition in range(settings["repetitions"]):
        for test, size in settings["cases"]:
            run += 1
            count = settings["round_trips"]
            if test == "bw":
                count = max(16, settings["megabytes"] * 1000000 // size)
            for layer in ("registered", "messages", "stream"):
                before = counters(name)
                value = ours(program, f"{layer}.{run}", name, layer, test, size, count)
                after = counters(name)
                tell(test, size, f"heddle-verbs-{layer}", value, {key: after[key] - before[key] for key in after})
            # Its default keeps 128 writes under way, more than a network without flow control bears.
            if test == "bw":
                rivals = [("ib_write_bw", f"-{depth}", ["-t", depth], 3, 1 << 20, count) for depth in ("128", "16")]
            else:
                # Both ends sleep until a completion, as ours do.
                rivals = [("ib_send_lat", "-events", ["-e", "-r", "16"], 4, 1e-6, count)]
                # Both ends look for completions all the time. Within one guest they would only wait for each other's
                # turn on its processor; between two the device's own work waits for it, for milliseconds.
                rivals += [("ib_write_lat", "", [], 4, 1e-6, count // 5)] * (GUESTS > 1)
            for rival, mode, extra, column, unit, times in rivals:
                fields = perftest(f"{rival}{mode}.{run}", rival, name, size, times, extra)
                if fields:
                    tell(test, size, f"perftest-{rival}{mode}", float(fields[column]) * unit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
