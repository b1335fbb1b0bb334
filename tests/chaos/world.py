"""A coordinator, or two that take turns, and eight workers, each worker in its own network namespace, whose networks,
disks, clocks, memory and processes the faults reach. A process that a fault ended is started again as a cluster's
manager would; any other end is a finding.
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import time

from harness import HEDDLE, Run, heddle, processes
import namespaces  # pylint: disable=wrong-import-order,import-error  # harness knows its folder.
from clocks import WallClock
from coordinators import Alone, Turns
from follower import Follower
from memory_groups import MemoryGroup

WORKERS = "abcdefgh"
SUBNET = namespaces.subnet(96)
GATE = SUBNET + ".254"
LEASE = 3.0
RATE = ["tbf", "rate", "400mbit", "burst", "256kb", "latency", "50ms"]
# A run is suspended where its faults end: no run reaches this step.
STEPS = 1_000_000
GLOBAL_BATCH = 16
# So many workers no fault touches at any time.
CALM = 3
REQUEUE = 75
# In the environment of all processes of a run, their children's too.
MARK = "HEDDLE_CHAOS"

# The workers are slow on purpose: a step costs waiting instead of the time of two processors.
JOB = """name: chaos
steps: {steps}
seed: 3
model:
  model_type: llama
  hidden_size: 64
  intermediate_size: 160
  num_hidden_layers: 6
  num_attention_heads: 4
  num_key_value_heads: 2
data: {{text: {text}, validation_fraction: 0.1}}
batch: {{microbatch: 2, global: 16, sequence: 32}}
optimizer: {{learning_rate: 1e-3, warmup_steps: 5}}
workers:
{workers}
elastic: {{lease: {lease}s, minimum_workers: {calm}, digest_every: 10}}
on_non_finite: skip
checkpoint: {{every: 20, replicas: {{every: 2, copies: 2}}}}
"""


def write_job(folder, text):
    workers = "".join(f"  - {{name: {name}, emulate: {{speed: {0.10 + 0.03 * (i % 3):.2f}}}}}\n"
                      for i, name in enumerate(WORKERS))
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(JOB.format(text=text, steps=STEPS, workers=workers.rstrip("\n"), lease=LEASE, calm=CALM))
    return path


class SmallDisk:
    """A file system of its own, which can be filled to the last byte."""

    def __init__(self, path, size):
        self.path, self.filler = path, os.path.join(path, "filler")
        os.makedirs(path)
        namespaces.command("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)

    def fill(self):
        with open(self.filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def free(self):
        if os.path.exists(self.filler):
            os.unlink(self.filler)

    def full(self):
        return os.statvfs(self.path).f_bavail == 0

    def remove(self):
        subprocess.run(["umount", "-l", self.path], check=False)


class Packets:
    """What the packet filter of a worker's namespace drops: a table for each fault, with counters."""

    def __init__(self, place, fault):
        self.nft = [*namespaces.within(place), "nft"]
        self.table = f"heddle_{fault}"

    def drop(self, *rules):
        """Each rule: ("input" or "output", what it matches)."""
        chains = {"input": [], "output": []}
        for hook, match in rules:
            chains[hook].append(f"{match} counter drop")
        text = "".join(f"chain {hook} {{ type filter hook {hook} priority 0; {'; '.join(lines)}; }}\n"
                       for hook, lines in chains.items() if lines)
        namespaces.command(*self.nft, f"table inet {self.table} {{\n{text}}}")

    def dropped(self):
        said = json.loads(namespaces.command(*self.nft, "-j", "list", "table", "inet", self.table))
        return sum(part["counter"]["packets"] for item in said["nftables"] if "rule" in item
                   for part in item["rule"]["expr"] if "counter" in part)

    def pass_all(self):
        namespaces.command(*self.nft, "delete", "table", "inet", self.table)


class World:
    """`libraries`: those of the tests that let a process's storage stand still and its wall clock be off. `turns`:
    whether two coordinators take turns with their store in etcd.
    """

    def __init__(self, folder, libraries, turns):
        self.folder, self.libraries = folder, libraries
        self.log_path = os.path.join(folder, "chaos.log")
        self.log = open(self.log_path, "ab")
        self.temporary = os.path.join(folder, "temporary")
        os.mkdir(self.temporary)
        self.network = namespaces.Bridged(WORKERS, SUBNET, GATE, RATE)
        self.store_disk = SmallDisk(os.path.join(folder, "store-disk"), 16 << 20)
        self.run_disk = SmallDisk(os.path.join(folder, "run-disk"), 256 << 20)
        self.run = Run(os.path.join(self.run_disk.path, "run"))
        self.events = Follower(os.path.join(self.run.folder, "events.jsonl"))
        self.service = Turns(GATE, folder) if turns else Alone(GATE, self.store_disk.path)
        self.clocks = {name: WallClock(self.file_of(name, "clock")) for name in (*WORKERS, *self.service.names)}
        self.groups = self.make_groups()
        self.coordinators = {}
        self.workers = {}
        self.ended = set()  # Those whose end a fault has asked for.

    def __enter__(self):
        self.service.open()
        return self

    def __exit__(self, kind, *_):
        for process in self.processes():
            if process.poll() is None:
                process.kill()
                process.wait(60)
        self.service.close()
        if kind is not None and os.path.exists(self.events.path):
            shutil.copy(self.events.path, self.folder)  # The disk it lies on goes with the world.
        self.network.remove()
        self.store_disk.remove()
        self.run_disk.remove()
        for group in self.groups.values():
            group.remove()
        self.log.close()

    @staticmethod
    def make_groups():
        """None where this process may not make any."""
        groups = {}
        try:
            for name in WORKERS:
                groups[name] = MemoryGroup(name)
        except OSError:
            for group in groups.values():
                group.remove()
            return {}
        return groups

    @property
    def listen(self):
        return self.service.listen

    def processes(self):
        return [*self.coordinators.values(), *self.workers.values()]

    def start(self, command, environment=None, before=None):
        tie = processes.tied()

        def prepare():
            tie()
            if before is not None:
                before()

        return subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                                env={**os.environ, MARK: namespaces.TAG, **(environment or {})}, preexec_fn=prepare)

    def serve_command(self, name, listen=None):
        return [*self.service.command(name, listen), "--output-root", self.run_disk.path]

    def serve(self, name):
        self.service.before(name)
        process = self.start(self.serve_command(name), {
            "LD_PRELOAD": self.libraries["clock"], "HEDDLE_CLOCK_FILE": self.clocks[name].path})
        self.coordinators[name] = process
        self.service.await_answer(name, process)
        assert process.poll() is None, self.errors()
        self.ended.discard(name)

    def address_of(self, name):
        return dict(zip(self.service.names, self.service.addresses()))[name]

    def file_of(self, name, kind):
        """A process's switch or record of a fault."""
        return os.path.join(self.folder, f"{name}.{kind}")

    def worker(self, name):
        environment = {
            "LD_PRELOAD": ":".join(self.libraries.values()), "HEDDLE_STORAGE_FOLDER": self.run_disk.path,
            "HEDDLE_STORAGE_FAULTS": "fsync:1+:slow", "HEDDLE_STORAGE_SWITCH": self.file_of(name, "stall"),
            "HEDDLE_STORAGE_FIRED": self.file_of(name, "stalled"), "HEDDLE_CLOCK_FILE": self.clocks[name].path,
            "HEDDLE_SPOILT_STEPS": self.file_of(name, "spoilt"), "TMPDIR": self.temporary}
        group = self.groups.get(name)
        self.workers[name] = self.start(
            [*namespaces.within(name), HEDDLE, "worker", "--coordinator", self.listen, "--name", name, "--bind",
             self.network.address(name)], environment, group.enter if group else None)
        self.ended.discard(name)

    def spoil(self, name, step):
        """That worker's numbers are none in that step."""
        with open(self.file_of(name, "spoilt"), "a", encoding="ascii") as file:
            file.write(f"{step}\n")

    def spoilt(self):
        """All such steps."""
        steps = set()
        for name in WORKERS:
            if os.path.exists(self.file_of(name, "spoilt")):
                with open(self.file_of(name, "spoilt"), encoding="ascii") as file:
                    steps |= {int(line) for line in file}
        return steps

    def submit(self, job):
        done = heddle("submit", job, "--coordinator", self.listen, "--out", self.run.folder)
        assert done.returncode == 0, done.stderr

    def errors(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()[-6000:]

    def signal(self, name, number):
        self.workers[name].send_signal(number)
        return self.workers[name]

    def wait_end(self, process, timeout=60):
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"process {process.pid} ({process.args[-5:]}) did not end within {timeout} s")

    def step(self):
        return self.events.step()

    def is_full(self):
        return self.run_disk.full() or self.store_disk.full()

    def step_events(self):
        """How many events of steps there are. Of a step that is run again there are several."""
        return len(self.events.events("step"))

    def members(self):
        """Whom the plan has, as far as events tell: not a process that has followed another one of its name."""
        self.events.read()
        return {name for name in self.events.members if self.joined(name)}

    def ready(self):
        """Who takes part or could, as the coordinator says."""
        done = heddle("status", "--coordinator", self.listen, "--json")
        workers = json.loads(done.stdout)["workers"] if done.returncode == 0 else []
        return {worker["name"] for worker in workers if worker["standing"] in ("training", "standby")}

    def joined(self, name):
        """Whether its process, as it is now, was taken."""
        self.events.read()
        return self.events.joined.get(name) == self.workers[name].pid

    def quarantines(self, name):
        return [event for event in self.events.events("worker_quarantined") if event["worker"] == name]

    def check_ends(self):
        """Nobody has ended whose end no fault has asked for."""
        for name, process in {**self.workers, **self.coordinators}.items():
            code = process.poll()
            assert code is None or name in self.ended, f"{name} ended with {code}: {self.errors()}"

    def stop_all(self):
        """The job suspended, all processes ended; the step after which it would go on."""
        for name in sorted(self.workers):
            self.signal(name, signal.SIGTERM)
        for name, process in self.workers.items():
            code = self.wait_end(process, 150)
            assert code == REQUEUE, f"worker {name}: exit code {code}: {self.errors()}"
        for name, process in self.coordinators.items():
            process.terminate()
            code = self.wait_end(process)
            assert code == 0, f"{name}: exit code {code}: {self.errors()}"
        event = self.events.events("suspended")[-1]
        assert event["reason"] == "" and event["steps_repeated"] == 0, event
        return event["step"]


def limit(process, kind, value):
    """The process's own limit; what it was before."""
    before = resource.prlimit(process.pid, kind)
    resource.prlimit(process.pid, kind, (value, before[1]))
    return before


def descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def is_stopped(process):
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "T"


def now():
    return time.monotonic()
