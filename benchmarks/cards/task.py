"""One worker on an NVIDIA card against PyTorch, eager and torch.compile, on the same card.

over_eager, over_compile   tokens/s of `heddle train` with one worker over those of the peer
predicted_over_measured    step seconds that the plan predicts over the median of the measured ones
prediction_error           measured over predicted step time, less 1
peak_less_predicted        GB of the card that tensors took at most, less those of the plan and the most that a kernel
                           takes beside

Environment: HEDDLE_CARD          the worker's device (default: cuda:0); `cpu` tries the task itself, with tiny models
             HEDDLE_CARD_SECONDS  the longest that one run may take with its start; what it measured until then counts
             HEDDLE_CARD_LIMIT    the longest that all runs together may take (default: 280 with --quick, else no limit)
Each run's figures are a line of JSON as soon as it has ended: in FILE.runs with --json FILE, else in the runs' folder.
Exit status 1: a run of Heddle failed, or an implementation that a case needs has no figures, for want of time or of a
peer.
"""
import array
import http.client
import json
import math
import os
import random
import statistics
import subprocess
import time

from support import heddle, peers, report
from support.heddle import Failure, Train

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = {"hidden": 768, "layers": 12, "heads": 12, "key_value_heads": 12, "inner": 2048, "vocabulary": 32000,
         "length": 1024, "microbatch": 8}
LARGE = {"hidden": 2048, "layers": 22, "heads": 32, "key_value_heads": 8, "inner": 5632, "vocabulary": 32000,
         "length": 2048, "microbatch": 4}
TINY = {"hidden": 64, "layers": 2, "heads": 4, "key_value_heads": 2, "inner": 128, "vocabulary": 512, "length": 64,
        "microbatch": 2}
# Name: shape, microbatches, steps, whether it is one of --quick.
CASES = {"134M": (SMALL, 1, 60, True), "1.1B": (LARGE, 1, 25, True), "1.1B-4": (LARGE, 4, 15, False)}
TINY_CASES = {"tiny": (TINY, 1, 30, True), "tiny-4": (TINY, 4, 30, True)}
PEERS = {"pytorch-eager": "eager", "pytorch-compile": "compile"}
# By case: the least of a metric. The tiny cases have none, and need no peer.
GOALS = {"134M": {"over_compile": 1.05}, "1.1B": {"over_eager": 1.15, "over_compile": 1.0},
         "1.1B-4": {"over_compile": 0.95}}
# The most of a metric, whatever its sign, on a card.
BOUNDS = {"prediction_error": 0.05, "peak_less_predicted": 1.0}
WINDOW = 5  # Steps between two waits of a peer; as many first steps are left out.
TRAINING = {"warmup_steps": 5, "learning_rate": 3e-4}
FULL = {"repetitions": 3, "seconds": 300}
QUICK = {"repetitions": 1, "seconds": 90}
BUDGET = 280  # Of --quick.
GRACE = 20  # A run that has not ended by itself so long after its time is ended.
LEAST_SECONDS = 10  # In less no run measures anything.


def write_tokens(path, shape, samples):
    """One batch of random ids: each step sees all of it whatever their order, so that its loss falls."""
    source = random.Random(1)
    with open(path, "wb") as out:
        ids = [source.randrange(shape["vocabulary"]) for _ in range(samples * shape["length"] + 1)]
        array.array("H", ids).tofile(out)


def scratch_of(run):
    """The most bytes that a kernel takes beside values, as the worker measured it; None if it is not known."""
    try:
        with open(os.path.join(run.folder, "profile.json"), encoding="utf-8") as file:
            return json.load(file)["workers"][0]["measurement"]["profile"]["scratch_bytes"]
    except (OSError, ValueError, LookupError):
        return None


class Case:
    def __init__(self, name, options, device, seconds):
        self.name, self.device, self.seconds = name, device, seconds
        self.shape, self.microbatches, self.steps, _ = (CASES | TINY_CASES)[name]
        self.folder = os.path.join(options.folder, name)
        os.makedirs(self.folder, exist_ok=True)
        self.results = options.json + ".runs" if options.json else os.path.join(options.folder, "runs.jsonl")
        # A model's profile is measured once for all runs: nothing of it is compared.
        self.cache = os.path.join(options.folder, "cache")
        self.samples = self.microbatches * self.shape["microbatch"]
        self.tokens = os.path.join(self.folder, "tokens.bin")
        write_tokens(self.tokens, self.shape, self.samples)
        # Of a card's worker: for the initial weights.
        self.threads = 1 if device == "cpu" else len(os.sched_getaffinity(0))
        self.runs = {}  # By implementation: the figures of each run.
        self.broken = set()
        self.late = set()  # Of the broken ones: those that no time was left for.

    def job(self):
        shape = self.shape
        path = os.path.join(self.folder, "job.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"""name: cards
steps: {self.steps}
seed: 1
model: {{model_type: llama, vocab_size: {shape['vocabulary']}, hidden_size: {shape['hidden']},
        intermediate_size: {shape['inner']}, num_hidden_layers: {shape['layers']},
        num_attention_heads: {shape['heads']}, num_key_value_heads: {shape['key_value_heads']},
        max_position_embeddings: {shape['length']}}}
data: {{tokens: {self.tokens}, validation_fraction: 0}}
batch: {{microbatch: {shape['microbatch']}, global: {self.samples}, sequence: {shape['length']}}}
optimizer: {{learning_rate: {TRAINING['learning_rate']}, schedule: constant, warmup_steps: {TRAINING['warmup_steps']}}}
precision: bf16
threads: {self.threads}
device: {self.device}
checkpoint: {{last: false}}
""")
        return path

    def run_ours(self, seconds):
        begun = time.time()
        folder = os.path.join(self.folder, f"heddle-{len(self.runs.get('heddle', []))}")
        run = Train(folder, self.job(), cache=self.cache).start()
        deadline, metrics, cut = time.monotonic() + seconds, {}, False
        try:
            while run.process.poll() is None and not cut:
                if not metrics.get("heddle_memory_bytes") and len(run.events("step")) > WINDOW:
                    metrics = self.metrics_of(run)
                cut = time.monotonic() > deadline
                time.sleep(0.05)
            if cut:
                report.say(f"{self.name}: heddle: {len(run.events('step'))} of {self.steps} steps, {seconds:.0f} s")
            elif run.process.returncode != 0:
                raise run.failure()
        finally:
            run.stop()
        steps = run.events("step")
        counted = steps[WINDOW:]
        if len(counted) < 2:
            raise Failure(f"heddle train: {len(steps)} steps within {seconds:.0f} s")
        return {"step_seconds": report.median([step["seconds"] for step in counted]),
                "wall_step_seconds": (counted[-1]["time"] - counted[0]["time"]) / (len(counted) - 1),
                "losses": [step["loss"] for step in steps],
                "start_seconds": steps[0]["time"] - steps[0]["seconds"] - begun,
                "predicted_step_seconds": run.events("plan")[-1]["predicted_step_seconds"],
                "memory": metrics.get("heddle_device_memory_peak_bytes"),
                "counted_memory": metrics.get("heddle_memory_bytes"),
                "predicted_memory": metrics.get("heddle_predicted_memory_bytes"),
                "scratch_memory": scratch_of(run)}

    @staticmethod
    def metrics_of(run):
        try:
            return heddle.scrape(run)
        except (OSError, ValueError, http.client.HTTPException):  # It is about to end.
            return {}

    def run_peer(self, label, seconds):
        out = os.path.join(self.folder, f"{label}-{len(self.runs.get(label, []))}.jsonl")
        settings = {"mode": PEERS[label], "device": self.device, "threads": self.threads, "shape": self.shape,
                    "microbatches": self.microbatches, "steps": self.steps, "window": WINDOW, "seconds": seconds,
                    "tokens": self.tokens, "out": out, **TRAINING}
        begun, command = time.time(), [peers.python(), os.path.join(HERE, "pytorch_card.py"), json.dumps(settings)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE, check=False)
        except OSError as error:
            raise Failure(f"{peers.python()}: {error.strerror}; benchmarks/setup installs PyTorch, and "
                          "HEDDLE_PEER_PYTHON names a python that has it") from error
        except subprocess.TimeoutExpired:
            done = None
            report.say(f"{self.name}: {label}: ended after {seconds + GRACE:.0f} s")
        if done and done.returncode != 0:
            raise Failure(f"{label}: {heddle.last_line(done.stderr)}")
        windows = []
        if os.path.exists(out):
            with open(out, encoding="utf-8") as lines:
                windows = [json.loads(line) for line in lines if line.endswith("\n")]
        if len(windows) < 2:
            raise Failure(f"{label}: {len(windows)} windows of {WINDOW} steps within {seconds:.0f} s")
        measured = [window["seconds"] for window in windows[1:]]
        return {"step_seconds": report.median(measured), "wall_step_seconds": statistics.fmean(measured),
                "losses": [loss for window in windows for loss in window["losses"]],
                "run_seconds": time.time() - begun, "memory": windows[-1]["memory"], "torch": windows[-1]["torch"],
                "card": windows[-1]["card"]}

    def check_losses(self, label, losses):
        """The weights differ, so the losses do: each begins near that of a guess among all ids, and falls."""
        guess = math.log(self.shape["vocabulary"])
        if not all(loss is not None and math.isfinite(loss) for loss in losses):
            raise Failure(f"{label}: a loss is not finite: {losses}")
        if abs(losses[0] - guess) > 0.1 * guess or losses[-1] >= losses[0]:
            raise Failure(f"{label}: losses do not fall from ln(vocabulary) = {guess:.3f}: {losses}")

    def run_one(self, label, seconds):
        figures = self.run_ours(seconds) if label == "heddle" else self.run_peer(label, seconds)
        self.check_losses(label, figures["losses"])
        self.runs.setdefault(label, []).append(figures)
        with open(self.results, "a", encoding="utf-8") as out:
            line = {"case": self.name, "implementation": label, "device": self.device, **figures}
            out.write(json.dumps(line) + "\n")
        rate = self.samples * self.shape["length"] / figures["step_seconds"]
        memory = f", {figures['memory'] / 1e9:.3f} GB" if figures["memory"] else ""
        report.say(f"{self.name}: {label}: {rate:.0f} tokens/s, loss {figures['losses'][0]:.3f} to "
                   f"{figures['losses'][-1]:.3f}{memory}")

    def repetition(self, number, deadline):
        labels = [label for label in ("heddle", *PEERS) if label not in self.broken]
        turn = number % max(1, len(labels))
        for label in labels[turn:] + labels[:turn]:
            seconds = min(self.seconds, deadline - time.monotonic() - GRACE)
            if seconds < LEAST_SECONDS:
                report.say(f"{self.name}: no time is left for {label}")
                if label not in self.runs:
                    self.broken.add(label)
                    self.late.add(label)
                continue
            try:
                self.run_one(label, seconds)
            except Failure as failure:
                self.broken.add(label)
                report.say(f"{self.name}: {failure}")

    def add_rows(self, rows):
        case = {"model": self.name, "device": self.device}
        tokens = self.samples * self.shape["length"]

        def figure(label, name):
            values = [run[name] for run in self.runs[label] if run.get(name) is not None]
            return report.median(values) if values else None

        for label in self.runs:
            for metric, name, unit in (("step_seconds", "step_seconds", "s"), ("wall_step_seconds",) * 2 + ("s",),
                                       ("peak_memory", "memory", "B"), ("counted_memory",) * 2 + ("B",),
                                       ("predicted_memory",) * 2 + ("B",),
                                       ("start_seconds", "start_seconds", "s")):
                if (value := figure(label, name)) is not None:
                    rows.add(case, label, label == "heddle", metric, value, unit)
            rows.add(case, label, label == "heddle", "throughput", tokens / figure(label, "step_seconds"), "tokens/s")
        if "heddle" not in self.runs:
            return
        ours = figure("heddle", "step_seconds")
        for label, mode in PEERS.items():
            if label in self.runs:
                rows.add(case, "heddle", True, f"over_{mode}", figure(label, "step_seconds") / ours, "ratio")
        predicted = figure("heddle", "predicted_step_seconds")
        rows.add(case, "heddle", True, "predicted_over_measured", predicted / ours, "ratio")
        rows.add(case, "heddle", True, "prediction_error", ours / predicted - 1, "ratio")
        memory = [figure("heddle", name) for name in ("memory", "predicted_memory", "scratch_memory")]
        if None not in memory:
            rows.add(case, "heddle", True, "peak_less_predicted", (memory[0] - memory[1] - memory[2]) / 1e9, "GB")

    def say_goals(self, rows):
        values = {row["metric"]: row["value"] for row in rows.rows if row["case"]["model"] == self.name}
        for metric, least in GOALS.get(self.name, {}).items():
            if metric in values:
                report.say(f"{self.name}: {metric} {values[metric]:.3f} (goal {least:g})")
        for metric, most in BOUNDS.items() if self.device != "cpu" else ():
            if metric in values:
                report.say(f"{self.name}: {metric} {values[metric]:.3f} (goal: at most {most:g} away from 0)")

    def missing(self):
        """The implementations without figures that the case needs."""
        goals = GOALS.get(self.name, {})
        needed = {"heddle"} | {label for label, mode in PEERS.items() if f"over_{mode}" in goals} | self.late
        return sorted(label for label in needed if label not in self.runs)


def run(options, rows):
    settings = dict(QUICK if options.quick else FULL)
    if options.repeat:
        settings["repetitions"] = options.repeat
    seconds = int(os.environ.get("HEDDLE_CARD_SECONDS", settings["seconds"]))
    limit = float(os.environ.get("HEDDLE_CARD_LIMIT", BUDGET if options.quick else "inf"))
    deadline = time.monotonic() + limit
    device = os.environ.get("HEDDLE_CARD", "cuda:0")
    known = TINY_CASES if device == "cpu" else CASES
    cases = [Case(name, options, device, seconds) for name, (*_, quick) in known.items()
             if options.only in name and (quick or not options.quick)]
    failed = not cases
    for case in cases:
        for number in range(settings["repetitions"]):
            case.repetition(number, deadline)
        case.add_rows(rows)
        case.say_goals(rows)
    for case in cases:
        failed = failed or "heddle" in case.broken
        if missing := case.missing():
            failed = True
            report.say(f"{case.name}: no figures of {', '.join(missing)}, which the case needs")
    return failed
