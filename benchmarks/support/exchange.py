"""The implementations of the tasks allreduce and p2p, run in turns: ours as real processes with everything on, and each
installed peer. Answers are compared before times."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from support import heddle, report
from support.heddle import Failure

SIZES = (4, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
FULL = {"repetitions": 5, "batches": 5, "batch_seconds": 0.05, "timeout": 120}
QUICK = {"repetitions": 2, "batches": 3, "batch_seconds": 0.02, "timeout": 60}
QUICK_BUDGET = 270
CONGESTION = ("cubic", "bbr")


def folder():
    """Where the programs were built: beside the binary that HEDDLE names, or in a build of the benchmarks alone."""
    build = os.environ.get("HEDDLE_BENCHMARK_BUILD") or os.path.dirname(os.path.dirname(heddle.BINARY))
    return os.path.join(build, "benchmarks", "allreduce")


def available_congestion():
    try:
        with open("/proc/sys/net/ipv4/tcp_available_congestion_control", encoding="ascii") as file:
            there = file.read().split()
    except OSError:
        there = []
    return [name for name in CONGESTION if name in there]


class Implementation:
    def __init__(self, name, family, command, ours=False, environment=None):
        self.name, self.family, self.command, self.ours = name, family, command, ours
        self.environment = environment or {}


def mpi(program, pml, *arguments):
    base = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "oob_tcp_if_include", "lo",
            "--mca", "btl_tcp_if_include", "lo", "--mca", "pml", pml, *arguments]
    return lambda ranks, options: [*base, "-np", str(ranks), program, *options]


def implementations(families):
    """Ours and every peer that is there; one line for each that is not."""
    found = []
    ours = os.path.join(folder(), "exchange_heddle")
    if not os.path.exists(ours):
        raise Failure(f"{ours} is not there: build the target heddle_benchmarks")

    def own(*settings):
        return lambda ranks, options: [ours, "--ranks", str(ranks), *settings, *options]

    if "shm" in families:
        found.append(Implementation("heddle-shm-registered", "shm", own("--memory", "shared"), True))
        found.append(Implementation("heddle-shm-staged", "shm", own(), True))
    if "tcp" in families:
        found.append(Implementation("heddle-tcp", "tcp", own("--transport", "tcp"), True))
    if "tls" in families:  # TCP, encrypted; no peer can do that.
        found.append(Implementation("heddle-tls", "tls", own("--transport", "tls"), True))
    congestion = available_congestion()
    preload = os.path.join(folder(), "libexchange_congestion.so")
    program = os.path.join(folder(), "exchange_openmpi")
    if not os.path.exists(program) or shutil.which("mpirun") is None:
        report.say("Open MPI is not installed, or its program is not built (benchmarks/setup, heddle_benchmarks)")
    else:
        if "shm" in families:
            nocma = ("--mca", "btl_vader_single_copy_mechanism", "none")
            found.append(Implementation("openmpi-vader", "shm", mpi(program, "ob1", "--mca", "btl", "self,vader")))
            found.append(Implementation("openmpi-vader-nocma", "shm",
                                        mpi(program, "ob1", "--mca", "btl", "self,vader", *nocma)))
            found.append(Implementation("ucx-shm", "shm", mpi(
                program, "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any",
                "-x", "UCX_TLS=self,posix,cma")))
        if "tcp" in families:
            for control in congestion:
                found.append(Implementation(f"openmpi-tcp-{control}", "tcp", mpi(
                    program, "ob1", "--mca", "btl", "self,tcp", "-x", f"LD_PRELOAD={preload}",
                    "-x", f"HEDDLE_CONGESTION={control}")))
    program = os.path.join(folder(), "exchange_gloo")
    if "tcp" in families:
        if not os.path.exists(program):
            report.say("Gloo is not installed, or its program is not built (benchmarks/setup, heddle_benchmarks)")
        else:
            for control in congestion:
                found.append(Implementation(
                    f"gloo-ring-{control}", "tcp",
                    lambda ranks, options, program=program: [program, "--ranks", str(ranks), *options],
                    environment={"LD_PRELOAD": preload, "HEDDLE_CONGESTION": control}))
    return found


def with_priority(command):
    """The kernel groups processes by session and shares the processor among groups: a run gets a group of its own, with
    priority where that is allowed, so that other work on the machine disturbs it less. The same for everyone."""
    script = "echo -19 > /proc/self/autogroup 2>/dev/null; exec \"$@\""
    return ["sh", "-c", script, "sh", *command]


def run_once(implementation, task, ranks, sizes, settings):
    options = ["--task", task, "--batches", str(settings["batches"]), "--batch-seconds", str(settings["batch_seconds"])]
    for size in sizes:
        options += ["--bytes", str(size)]
    with tempfile.TemporaryDirectory(prefix="heddle-exchange-") as meeting:
        command = with_priority(implementation.command(ranks, [*options, "--folder", meeting]))
        environment = {**os.environ, **implementation.environment, "OMPI_MCA_btl_base_warn_component_unused": "0"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=environment, start_new_session=True, stdin=subprocess.DEVNULL)
        try:
            out, error = process.communicate(timeout=settings["timeout"])
        except subprocess.TimeoutExpired as late:
            raise Failure(f"{implementation.name}: no end within {settings['timeout']} s") from late
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    if process.returncode != 0:
        raise Failure(f"{implementation.name}: exit code {process.returncode}: {heddle.last_line(error)}")
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if [row["bytes"] for row in rows] != list(sizes):
        raise Failure(f"{implementation.name}: no figures: {heddle.last_line(error or out)}")
    return rows


class Figures:
    """Seconds and answers by (family, ranks, bytes) and implementation."""

    def __init__(self):
        self.seconds = {}
        self.digests = {}

    def add(self, implementation, ranks, rows):
        for row in rows:
            case = (implementation.family, ranks, row["bytes"])
            answer = self.digests.setdefault((ranks, row["bytes"]), (row["digest"], implementation.name))
            if answer[0] != row["digest"]:
                raise Failure(f"{implementation.name}: {row['bytes']} bytes, {ranks} ranks: another answer than "
                              f"{answer[1]}")
            self.seconds.setdefault(case, {}).setdefault(implementation.name, []).append(report.median(row["seconds"]))


def run(options, rows, task, rank_counts):
    """Rows of seconds, and of the best peer's time over ours (`over_best_peer`)."""
    settings = dict(QUICK if options.quick else FULL)
    if options.repeat:
        settings["repetitions"] = options.repeat
    deadline = time.monotonic() + (QUICK_BUDGET if options.quick else float("inf"))
    try:
        found = implementations(("shm", "tcp", "tls"))
    except Failure as failure:
        report.say(str(failure))
        return True
    cases = [(ranks, family) for ranks in rank_counts for family in ("shm", "tcp", "tls")
             if options.only in f"{family}-{ranks}"]
    figures, failed, broken = Figures(), not cases, set()
    for repetition in range(settings["repetitions"]):
        for ranks, family in cases:
            group = [one for one in found if one.family == family]
            turn = repetition % len(group)
            for one in group[turn:] + group[:turn]:
                if (one.name, ranks) in broken or time.monotonic() > deadline:
                    continue
                try:
                    figures.add(one, ranks, run_once(one, task, ranks, SIZES, settings))
                except Failure as failure:
                    broken.add((one.name, ranks))
                    failed = failed or one.ours
                    report.say(str(failure))
    ours = {one.name for one in found if one.ours}
    for (family, ranks, size), seconds in sorted(figures.seconds.items()):
        case = {"family": family, "ranks": ranks, "bytes": size}
        medians = {name: report.median(values) for name, values in seconds.items()}
        for name, value in medians.items():
            rows.add(case, name, name in ours, "seconds", value, "s")
        peers = [value for name, value in medians.items() if name not in ours]
        for name in medians:
            if name in ours and peers:
                rows.add(case, name, True, "over_best_peer", min(peers) / medians[name], "ratio")
    return failed or not rows.rows
