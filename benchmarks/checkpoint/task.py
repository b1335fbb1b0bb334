"""Saving and loading a training state on this machine: ours against PyTorch's ways, h5py and zstd.

The state is trained: configs/quickstart.yaml for 500 steps, its masters, moments and bf16 weights stacked to 1 GiB
(state.h). Implementations take turns; every load is compared with the state. goals.py has the ratios.
"""
import os
import shutil
import signal
import subprocess
import time

from checkpoint import goals
from checkpoint.goals import KINDS
from checkpoint.program import Program
from support import exchange, heddle, peers, report
from support.heddle import Failure

HERE = os.path.dirname(os.path.abspath(__file__))
THREADS = 2
STEPS = 500
FULL = {"bytes": 1 << 30, "repetitions": 5, "budget": None}
QUICK = {"bytes": 256 << 20, "repetitions": 2, "budget": 280}
SLOW = 8  # A save that takes this many times as long as the fastest is not repeated.
OPERATIONS = ("save", "load", "stall", "codec", "size")
# The role that the bf16 weights are saved under: one that the format does not know to follow from the masters, and the
# one that it does.
OURS = {"heddle": "bf16", "heddle-derived": "weight"}
# How a snapshot stops its caller: for the copy, or for what is left of it when the state is about to change.
STALLS = {"heddle": "at-once", "heddle-deferred": "deferred"}
PEERS = ("torch.save", "dcp", "dcp-zstd", "safetensors", "h5py-gzip", "zstd-3")
PEER_STALLS = ("dcp-async", "dcp-async-kept")


def bench_binary():
    return os.path.join(os.path.dirname(exchange.folder()), "checkpoint", "checkpoint_bench")


def bench_command(*arguments):
    if not os.path.exists(bench_binary()):
        raise Failure(f"{bench_binary()} is not there: build the target heddle_benchmarks")
    return [bench_binary(), *arguments]


def make_state(folder, checkpoint, size):
    os.makedirs(folder, exist_ok=True)
    made = subprocess.run(bench_command("make", checkpoint, str(size), folder), capture_output=True, text=True,
                          check=False)
    if made.returncode != 0:
        raise Failure(f"checkpoint_bench: {heddle.last_line(made.stderr)}")


def train(folder):
    """A checkpoint of the quickstart's model, by one worker at full speed; one that is there is taken."""
    checkpoint = os.path.join(folder, "trained", "checkpoints", f"step-{STEPS:08}")
    if not os.path.isdir(checkpoint):
        report.say(f"trains configs/quickstart.yaml for {STEPS} steps")
        job = os.path.join(heddle.REPOSITORY, "configs", "quickstart.yaml")
        overrides = [f"steps={STEPS}", "workers=[{name: a}]", f"checkpoint.every={STEPS}", f"validation.every={STEPS}"]
        run = heddle.Train(os.path.join(folder, "trained"), job, overrides).start()
        try:
            run.finish(600)
        finally:
            run.stop()
    return checkpoint


def ranges(folder):
    """Where the elements of each role lie in state.bin, and their bytes without padding: {role: (begin, end, raw)}."""
    found = {}
    with open(os.path.join(folder, "state.txt"), encoding="utf-8") as lines:
        for line in lines:
            role, dtype, shape, offset, _ = line.split()
            size = 2 if dtype == "bf16" else 4
            for extent in shape.split(","):
                size *= int(extent)
            begin, _, raw = found.get(role, (int(offset), 0, 0))
            found[role] = (begin, int(offset) + size, raw + size)
    return found


def files_below(path):
    if os.path.isfile(path):
        return [path]
    return [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


def drop_from_memory(path):
    """The kernel's copy of what is on storage goes: the next reader reads the disk."""
    for file in files_below(path):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


class Bench:
    def __init__(self, options, settings):
        self.options, self.settings = options, settings
        self.chosen = [operation for operation in OPERATIONS if options.only in operation]
        self.folder = options.folder
        self.figures = goals.Figures()
        self.saved = {}  # Where each implementation's newest save lies.
        self.slow, self.broken = set(), set()
        self.deadline = time.monotonic() + settings["budget"] if settings["budget"] else float("inf")
        self.ours = self.peers = None
        self.raw = 0

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def prepare(self):
        checkpoint = train(self.folder)
        for name, size in (("real", 0), ("state", self.settings["bytes"])):
            make_state(self.path(name), checkpoint, size)
        self.raw = sum(raw for _, _, raw in ranges(self.path("state")).values())
        os.makedirs(self.path("saves"), exist_ok=True)
        self.ours = self.start_ours("state")
        if self.chosen != ["codec"]:
            self.start_peers()

    def start_peers(self):
        command = [peers.python(), os.path.join(HERE, "peers.py"), self.path("state"), str(THREADS)]
        if not os.path.exists(command[0]):
            report.say(f"{command[0]} is not there: no peers (benchmarks/setup installs them)")
            return
        self.peers = Program("peers", command, self.path("peers.log"))
        try:
            self.peers.ask("ready")
        except Failure as failure:
            report.say(f"no peers (benchmarks/setup installs them): {failure}")
            self.peers = None

    def start_ours(self, state):
        command = bench_command("serve", self.path(state), self.path("saves", "heddle-" + state), str(THREADS))
        return Program("checkpoint_bench", command, self.path(f"heddle-{state}.log"))

    def stop(self):
        for program in (self.ours, self.peers):
            if program is not None:
                program.stop()

    # Each of these answers with figures and says where the save lies.

    def save_ours(self, name):
        answer = self.ours.ask("save", OURS[name])
        return answer, answer["path"]

    def save_peer(self, name):
        path = self.path("saves", name)
        answer = self.peers.ask("save", name, path)
        return {**answer, "bytes": sum(os.path.getsize(file) for file in files_below(path))}, path

    def save_plain(self, _):
        path = self.path("saves", "plain")
        return {**self.ours.ask("write", path), "bytes": self.raw}, path

    def save(self, name, call):
        if name in self.saved:
            remove(self.saved.pop(name))
        os.sync()  # What others wrote is not to be waited for in the save.
        answer, self.saved[name] = call(name)
        self.figures.add("save", name, answer)

    def load(self, name):
        path = self.saved[name]
        for plan in ("same", "other") if name in OURS else ("same",):
            drop_from_memory(path)
            if name == "plain":
                answer = self.ours.ask("read", path)
            elif name in OURS:
                answer = self.ours.ask("load", plan, path)
            else:
                answer = self.peers.ask("load", name, path)
            self.figures.add(f"load {plan}", name, answer)

    def turn(self, name):
        """One implementation's save and load."""
        self.save(name, self.save_ours if name in OURS else self.save_plain if name == "plain" else self.save_peer)
        fastest = self.figures.fastest("save", self.figures.names("save"))
        if name not in OURS and self.figures.median("save", name) > SLOW * fastest:
            self.slow.add(name)
        if "load" in self.chosen and name != "zstd-3":
            self.load(name)

    def stall(self, name):
        if name in STALLS:
            answer = self.ours.ask("stall", OURS["heddle"], STALLS[name])
            remove(answer["path"])
        else:
            answer = self.peers.ask("stall", name, self.path("saves", name))
            remove(self.path("saves", name))
        self.figures.add("stall", name, answer)

    def codec(self, kind):
        answer = self.ours.ask("codec", kind)
        for operation in ("encode", "decode"):
            self.figures.add(operation, kind, {"seconds": answer[operation + "_seconds"], "raw": answer["raw"],
                                               "processor": answer[operation + "_processor"],
                                               "bytes": answer["bytes"]})

    def repetition(self, number):
        there = self.peers is not None
        tasks = []
        if "save" in self.chosen or "load" in self.chosen:
            tasks += [(self.turn, name) for name in ("plain", *OURS, *(PEERS if there else ()))]
        if "stall" in self.chosen:
            tasks += [(self.stall, name) for name in (*STALLS, *(PEER_STALLS if there else ()))]
        if "codec" in self.chosen or "size" in self.chosen:
            tasks += [(self.codec, kind) for kind in KINDS]
        tasks.append((lambda name: self.figures.add("copy", name, self.ours.ask("copy")), "memory"))
        turn = number % len(tasks)
        for call, name in tasks[turn:] + tasks[:turn]:
            if name in self.broken or number > 0 and name in self.slow:
                continue
            if time.monotonic() > self.deadline:
                report.say(f"no time is left for {name}")
                continue
            try:
                call(name)
            except Failure as failure:
                if name not in PEERS + PEER_STALLS or isinstance(failure, heddle.TimeUp):
                    raise
                self.broken.add(name)
                report.say(f"{name} is left out: {failure}")

    def sizes(self, rows, state):
        """Bytes over raw of each kind: the codec, zstd of the same bytes, and the planes' entropy."""
        program = self.ours if state == "state" else self.start_ours(state)
        try:
            ours = {kind: program.ask("codec", kind)["bytes"] for kind in KINDS}
            stored = program.ask("save", OURS["heddle"])
            remove(stored["path"])
        finally:
            if program is not self.ours:
                program.stop()
        entropy = self.peers.ask("entropy", self.path(state)) if self.peers else {}
        found = ranges(self.path(state))
        with open(self.path(state, "state.bin"), "rb") as file:
            for kind in KINDS:
                begin, end, raw = found[kind]
                file.seek(begin)
                zstd = subprocess.run(["zstd", "-3", "-q", "-c"], input=file.read(end - begin), check=True,
                                      stdout=subprocess.PIPE).stdout
                case = {"operation": "size", "state": state, "kind": kind}
                rows.add(case, "heddle", True, "size", ours[kind] / raw, "ratio")
                rows.add(case, "zstd-3", False, "size", len(zstd) / raw, "ratio")
                if entropy:
                    rows.add(case, "entropy", False, "size", entropy[kind] / raw, "ratio")
        raw = sum(raw for _, _, raw in found.values())
        rows.add({"operation": "size", "state": state, "kind": "files"}, "heddle", True, "size",
                 stored["bytes"] / raw, "ratio")
        if entropy and state == "state":
            self.figures.add("size", "entropy", {"bytes": sum(entropy.values())})

    def add_rows(self, rows):
        for operation, name in self.figures.answers:
            ours = name in OURS or name in STALLS or operation in ("encode", "decode")
            case = {"operation": operation}
            if operation in ("encode", "decode"):
                raw = self.figures.median(operation, name, "raw")
                rows.add({**case, "kind": name}, "heddle", True, "rate",
                         self.figures.rate(operation, name, raw, "processor"), "GB/s a core")
                continue
            if operation == "size":
                continue
            rows.add(case, name, ours, "seconds", self.figures.median(operation, name), "s")
            rows.add(case, name, ours, "processor_seconds", self.figures.median(operation, name, "processor"), "s")
            if operation == "save":
                rows.add(case, name, ours, "size", self.figures.median(operation, name, "bytes") / self.raw, "ratio")
            if name in ("plain", "memory"):
                rows.add(case, name, False, "rate", self.figures.rate(operation, name, self.raw), "GB/s")


def run(options, rows):
    settings = dict(QUICK if options.quick else FULL)
    bench = Bench(options, settings)
    if settings["budget"]:
        heddle.limit(settings["budget"])
    failed = not bench.chosen
    try:
        bench.prepare()
        for number in range(options.repeat or settings["repetitions"]):
            bench.repetition(number)
        if "size" in bench.chosen:
            for state in ("real", "state"):
                bench.sizes(rows, state)
    except Failure as failure:
        failed = failed or not isinstance(failure, heddle.TimeUp)
        report.say(f"checkpoint: {failure}")
    finally:
        signal.alarm(0)
        bench.stop()
    bench.add_rows(rows)
    goals.judge(bench.figures, rows, bench.raw, THREADS)
    return failed or not rows.rows
