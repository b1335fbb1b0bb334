"""One worker's training step against the same model, batch and cores in PyTorch eager.

over_pytorch    tokens/s of `heddle train` with one worker over those of the fastest peer
share_of_gemm   time that the step's linear layers take as bare matrix products, over the step's time

Answers first: all start from the same weights and batch, and the losses of the first steps are compared.
"""
import array
import json
import os
import signal
import subprocess
import time

from support import heddle, peers, report
from support.heddle import Failure, Train

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPE = {"batch": 8, "length": 256, "hidden": 256, "heads": 4, "layers": 4, "vocabulary": 256}
INNER = {"llama": 688, "gpt2": 1024}
SEED = 1
COMPARED_STEPS = 3
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-3}  # Relative, of the losses of the first steps.
SLOW = 1.5  # A peer whose first run is this many times slower than the fastest is not repeated.
FULL = {"repetitions": 5, "steps": 12, "budget": None, "threads": (1, 2)}
QUICK = {"repetitions": 2, "steps": 7, "budget": 240, "threads": (1,)}


def peer(python, settings, timeout=120):
    try:
        done = subprocess.run([python, os.path.join(HERE, "pytorch_eager.py"), json.dumps(settings)],
                              capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"{python}: {error}") from error
    if done.returncode != 0:
        raise Failure(f"{python}: {heddle.last_line(done.stderr)}")
    return json.loads(done.stdout)


def find_peers():
    """[(name, python, fused attention)]; one line for each that is not there."""
    found = []
    for name, python in (("debian", "/usr/bin/python3"), ("pypi", peers.python())):
        try:
            version = peer(python, {"mode": "version"})
        except Failure as failure:
            report.say(f"{name} PyTorch is not installed (benchmarks/setup installs it): {failure}")
            continue
        found.append((f"pytorch-{version['torch'].split('+')[0]}", python, version["fused_attention"]))
    return found


def write_tokens(path):
    """Eight samples of English: one batch, so that each step sees all of them whatever their order."""
    text = b""
    folder = "/usr/share/games/fortunes"
    count = SHAPE["batch"] * SHAPE["length"] + 1
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        file = os.path.join(folder, name)
        if "." not in name and os.path.isfile(file):
            with open(file, "rb") as data:
                text += data.read(count - len(text))
    if len(text) < count:
        raise Failure(f"{folder}: expected {count} bytes of text; install the package fortunes")
    with open(path, "wb") as out:
        array.array("H", list(text)).tofile(out)


class Case:
    def __init__(self, model, precision, threads, folder, settings, peers, tokens):
        self.model, self.precision, self.threads = model, precision, threads
        self.name = f"{model}-{precision}-{threads}"
        self.folder, self.settings, self.tokens, self.peers = folder, settings, tokens, peers
        self.seconds = {}  # By implementation: medians of its runs.
        self.losses = {}
        self.runs = 0
        self.slow = set()
        kinds = ("fp32",) if precision == "fp32" else ("autocast", "master")
        self.implementations = {"heddle": None}
        for name, python, has_fused in peers:
            for kind in kinds:
                for attention in ("plain", "fused") if has_fused else ("plain",):
                    label = "-".join([name, attention] + ([kind] if precision != "fp32" else []))
                    self.implementations[label] = (python, kind, attention)

    def shape(self):
        return {**SHAPE, "inner": INNER[self.model]}

    def run_ours(self):
        self.runs += 1
        job = os.path.join(self.folder, f"{self.name}.yaml")
        with open(job, "w", encoding="utf-8") as file:
            file.write(f"""name: compute
steps: {self.settings['steps']}
seed: {SEED}
model: {{model_type: {self.model}, hidden_size: {SHAPE['hidden']}, intermediate_size: {INNER[self.model]},
        num_hidden_layers: {SHAPE['layers']}, num_attention_heads: {SHAPE['heads']},
        max_position_embeddings: {SHAPE['length']}}}
data: {{tokens: {self.tokens}, validation_fraction: 0}}
batch: {{microbatch: {SHAPE['batch']}, global: {SHAPE['batch']}, sequence: {SHAPE['length']}}}
optimizer: {{learning_rate: 1e-3, schedule: constant}}
precision: {self.precision}
threads: {self.threads}
checkpoint: {{last: false}}
""")
        run = Train(os.path.join(self.folder, f"{self.name}-{self.runs}"), job).start()
        try:
            run.finish(180)
        finally:
            run.stop()
        steps = run.events("step")
        return [step["loss"] for step in steps], [step["seconds"] for step in steps]

    def run_one(self, label):
        if label == "heddle":
            losses, seconds = self.run_ours()
        else:
            python, kind, attention = self.implementations[label]
            result = peer(python, {"mode": "train", "model": self.model, "precision": kind, "attention": attention,
                                   "threads": self.threads, "steps": self.settings["steps"], "tokens": self.tokens,
                                   "seed": SEED, "shape": self.shape()})
            losses, seconds = result["losses"], result["seconds"]
        self.losses[label] = losses[:COMPARED_STEPS]
        self.seconds.setdefault(label, []).append(report.median(seconds[2:]))

    def repetition(self, number, deadline):
        labels = [label for label in self.implementations if label not in self.slow]
        turn = number % len(labels)
        for label in labels[turn:] + labels[:turn]:
            if time.monotonic() > deadline:
                report.say(f"{self.name}: no time is left for {label}")
                continue
            try:
                self.run_one(label)
            except Failure as failure:
                if label == "heddle" or isinstance(failure, heddle.TimeUp):
                    raise
                self.slow.add(label)
                report.say(f"{self.name}: {label} is left out: {failure}")
        fastest = min((seconds[0] for label, seconds in self.seconds.items() if label != "heddle"), default=0)
        self.slow.update(label for label, seconds in self.seconds.items()
                         if label != "heddle" and seconds[0] > SLOW * fastest)

    def compare_answers(self):
        """Every peer's first losses against ours; the first loss needs only the same weights."""
        worst = 0.0
        for label, losses in self.losses.items():
            if label != "heddle" and "heddle" in self.losses:
                pairs = zip(losses, self.losses["heddle"])
                difference = max(abs(theirs - ours) / abs(ours) for theirs, ours in pairs)
                if difference > TOLERANCE[self.precision]:
                    raise Failure(f"{self.name}: losses of {label} differ from ours by {difference:.1e}: "
                                  f"{losses}, {self.losses['heddle']}")
                worst = max(worst, difference)
        report.say(f"{self.name}: first {COMPARED_STEPS} losses of all agree within {worst:.1e}")

    def gemm_seconds(self):
        """The linear layers of one step, forward and both gradients, as bare products at the best rate found."""
        tokens, hidden, inner = SHAPE["batch"] * SHAPE["length"], SHAPE["hidden"], INNER[self.model]
        layer = [(hidden, hidden)] * 4 + [(hidden, inner)] * (2 if self.model == "llama" else 1) + [(inner, hidden)]
        linears = layer * SHAPE["layers"] + [(hidden, SHAPE["vocabulary"])]
        shapes = [shape for i, o in linears for shape in ((tokens, i, o), (tokens, o, i), (o, tokens, i))]
        distinct = sorted(set(shapes))
        best = {}
        for _, python, _ in self.peers:
            seconds = peer(python, {"mode": "gemm", "precision": self.precision, "threads": self.threads,
                                    "shapes": distinct})["seconds"]
            for shape, value in zip(distinct, seconds):
                best[shape] = min(best.get(shape, value), value)
        flops = sum(2 * m * k * n for m, k, n in shapes)
        return sum(best[shape] for shape in shapes), flops

    def add_rows(self, rows):
        case = {"model": self.model, "precision": self.precision, "threads": self.threads}
        tokens = SHAPE["batch"] * SHAPE["length"]
        speed = {label: tokens / report.median(seconds) for label, seconds in self.seconds.items()}
        for label, value in speed.items():
            rows.add(case, label, label == "heddle", "throughput", value, "tokens/s")
        if "heddle" not in speed:
            return
        theirs = [value for label, value in speed.items() if label != "heddle"]
        if theirs:
            rows.add(case, "heddle", True, "over_pytorch", speed["heddle"] / max(theirs), "ratio")
        if self.peers:
            seconds, flops = self.gemm_seconds()
            rows.add(case, "matrix products", False, "gemm_rate", flops / seconds / 1e9, "Gflop/s")
            rows.add(case, "heddle", True, "share_of_gemm", seconds * speed["heddle"] / tokens, "ratio")


def run(options, rows):
    settings = dict(QUICK if options.quick else FULL)
    if options.repeat:
        settings["repetitions"] = options.repeat
    deadline = time.monotonic() + settings["budget"] if settings["budget"] else float("inf")
    if settings["budget"]:
        heddle.limit(settings["budget"])
    try:
        tokens = os.path.join(options.folder, "tokens.bin")
        write_tokens(tokens)
    except (Failure, OSError) as failure:
        report.say(str(failure))
        return True
    found = find_peers()
    cases = [Case(model, precision, threads, options.folder, settings, found, tokens)
             for threads in settings["threads"] for precision in ("fp32", "bf16") for model in ("llama", "gpt2")]
    cases = [case for case in cases if options.only in case.name]
    failed = not cases
    for number in range(settings["repetitions"]):
        for case in cases:
            if time.monotonic() > deadline:
                report.say(f"{case.name}: no time is left for repetition {number + 1}")
                continue
            try:
                case.repetition(number, deadline)
                case.compare_answers()
            except Failure as failure:
                failed = failed or not isinstance(failure, heddle.TimeUp)
                report.say(f"{case.name}: {failure}")
    signal.alarm(0)
    for case in cases:
        try:
            case.add_rows(rows)
        except Failure as failure:
            failed = True
            report.say(f"{case.name}: {failure}")
    return failed or not rows.rows
