"""What the parts share: the workers, the jobs, what runs, and the figures."""
import array
import json
import os
import random
import shutil
import subprocess
import time

import harness
from harness import processes, wait_for

PROCESSORS = ("p1", "p2", "p3")
CARD = "card"
LARGE = {"hidden": 256, "layers": 6, "heads": 4, "inner": 704, "vocabulary": 4096, "length": 64, "threads": None}
SMALL = {"hidden": 128, "layers": 2, "heads": 4, "inner": 320, "vocabulary": 512, "length": 64, "threads": 1}
SAMPLES = 8192
PROBED = 8  # Microbatches of the plans that tell how fast a worker is.
BATCHES = (16, 1024)  # The least and the largest global batch.
SMALL_BATCH = 12  # A fake card takes the longer the more is under way.


class Check:
    def __init__(self, device, small, folder):
        self.device, self.small, self.folder = device, small, folder
        self.shape = dict(SMALL if small else LARGE)
        # A card's worker and this script need a core each; the other workers share the rest.
        self.shape["threads"] = self.shape["threads"] or max(1, (len(os.sched_getaffinity(0)) - 2) // len(PROCESSORS))
        self.figures = os.path.join(folder, "figures.jsonl")
        self.tokens = os.path.join(folder, "tokens.bin")
        self.killed = None  # (run, batch) of the part `kill`; False after it has begun and not passed.
        self.speed_of = {}
        self.started = []
        source = random.Random(1)
        with open(self.tokens, "wb") as out:
            ids = source.choices(range(self.shape["vocabulary"]), k=SAMPLES * self.shape["length"] + 1)
            array.array("H", ids).tofile(out)

    def batch_near(self, microbatches):
        """The global batch that is nearest to this one."""
        return SMALL_BATCH if self.small else round(min(max(microbatches, BATCHES[0]), BATCHES[1]))

    def run(self, part):
        """(what it says in one line, whether it passed)."""
        from job_check import checkpoints, losses, shares  # They import this.
        parts = {"shares": shares.run, "kill": losses.kill, "replay": losses.replay, "checkpoint": checkpoints.run}
        return parts[part](self)

    def note(self, what, **figures):
        """Adds a line to the figures."""
        with open(self.figures, "a", encoding="utf-8") as out:
            line = {"time": round(time.time(), 3), "what": what, "device": self.device, "small": self.small}
            out.write(json.dumps({**line, **figures}) + "\n")

    def entry(self, name, device=None, speed=None):
        """A worker of a job file: by its name it is on the card or on a processor."""
        device = device or (self.device if name.startswith(CARD) else "cpu")
        emulated = f", emulate: {{speed: {speed:g}}}" if speed else ""
        return f"{{name: {name}, device: '{device}'{emulated}}}"

    def job(self, name, workers, batch, more=""):
        """The path of a job file; `workers` are entries, `more` further lines."""
        shape, path = self.shape, os.path.join(self.folder, name + ".yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"""name: {name}
seed: 1
model: {{model_type: llama, vocab_size: {shape['vocabulary']}, hidden_size: {shape['hidden']},
        intermediate_size: {shape['inner']}, num_hidden_layers: {shape['layers']},
        num_attention_heads: {shape['heads']}, max_position_embeddings: {shape['length']}}}
data: {{tokens: {self.tokens}, validation_fraction: 0}}
batch: {{microbatch: 1, global: {batch}, sequence: {shape['length']}}}
optimizer: {{learning_rate: 1e-3, schedule: constant}}
precision: fp32
threads: {shape['threads']}
workers: [{', '.join(workers)}]
elastic: {{lease: 5s}}
{more}""")
        return path

    def start(self, name, job, *overrides):
        """A run of the job, in a new folder; it ends with the part at the latest."""
        folder = os.path.join(self.folder, name)
        shutil.rmtree(folder, ignore_errors=True)  # Of an earlier call with the same --out.
        run = harness.Run(folder, job, overrides).start()
        self.started.append(run.process)
        return run

    def worker(self, run, name):
        """A worker that joins the run."""
        with open(run.folder + ".err", "ab") as log:
            command = [harness.HEDDLE, "worker", "--coordinator", run.job()["coordinator"], "--name", name,
                       "--device", self.device if name.startswith(CARD) else "cpu"]
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                       preexec_fn=processes.tied())
        self.started.append(process)
        return process

    def end_all(self):
        """Ends what still runs; `heddle train` takes its workers along."""
        for process in self.started:  # All of them are told before any is waited for.
            if process.poll() is None:
                process.terminate()
        for process in self.started:
            processes.end(process, 15)
        self.started = []

    def heddle(self, *words, codes=(0,)):
        """(exit code, standard output) of a command; the code must be one of `codes`."""
        done = harness.heddle(*words)
        code = done.returncode
        assert code in codes, f"heddle {' '.join(words[:2])}: exit code {code}: {last_line(done.stderr)}"
        return code, done.stdout

    def speed(self, name):
        """Microbatches a second that the planner expects of the worker alone with the whole model."""
        kind = CARD if name.startswith(CARD) else PROCESSORS[0]
        if kind not in self.speed_of:
            job = self.job("speed-" + kind, [self.entry(kind)], PROBED, "steps: 1\n")
            plan = json.loads(self.heddle("plan", job, "--json")[1])
            self.speed_of[kind] = PROBED / plan["predicted_step_seconds"]
            self.note("speed", worker=kind, microbatches_per_second=self.speed_of[kind])
        return self.speed_of[kind]


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def wait_while_running(run, what, condition, timeout=harness.PATIENCE):
    """Waits for the condition; fails at once when the run has ended without it."""
    def seen():
        ended = run.process.poll() is not None
        value = condition()
        assert value or not ended, f"{what}: the job ended before: {last_line(run.errors())}"
        return value
    return wait_for(what, seen, timeout)


def counted_steps(run):
    """The step events that count, in order: a later event of a step replaces an earlier one and those behind it."""
    counted = []
    for event in run.events("step"):
        while counted and counted[-1]["step"] >= event["step"]:
            counted.pop()
        counted.append(event)
    return counted


def microbatches_of(plan):
    """By worker, the microbatches that its pipeline computes."""
    shares = {}
    for pipeline in plan["pipelines"]:
        for stage in pipeline["stages"]:
            shares[plan["workers"][stage["worker"]]] = pipeline["microbatches"]
    return shares
