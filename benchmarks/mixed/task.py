"""A cluster of unlike workers against the sum of its parts, and against the best uniform grid.

R_sum           throughput of the job over the summed throughput of its workers, each training the whole model alone,
                all at once, memory caps and links lifted
over_uniform    throughput of the job over that of the best equal-layer, equal-share pipelines x stages grid on the
                same workers (chosen by Heddle's simulator, run for real)
prediction_error  measured over predicted step time, less 1

The three are run in turns; each figure is a median. A mix is one file configs/mixed-*.yaml.
"""
import glob
import json
import os
import signal
import time

from support import heddle, report
from support.heddle import Failure, Train

SKIPPED_STEPS = 2  # Of a run: connections, caches and allocator warm up.
FULL = {"repetitions": 5, "steps": 9, "scale": 1.0, "budget": None, "alone_steps": 2}
QUICK = {"repetitions": 2, "steps": 6, "scale": 0.5, "budget": 285, "alone_steps": 1}


class Mix:
    def __init__(self, path, folder, settings):
        self.path = path
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.folder = os.path.join(folder, self.name)
        self.settings = settings
        os.makedirs(self.folder, exist_ok=True)
        self.overrides = []
        self.plan_file = None
        self.plan_failure = None
        self.speeds, self.global_batch = read_workers(path)
        if settings["scale"] != 1.0:
            self.global_batch = max(len(self.speeds), round(self.global_batch * settings["scale"]))
            self.overrides = [f"batch.global={self.global_batch}"]
        self.throughput = {"mixed": [], "uniform": [], "alone": []}
        self.predictions = []
        self.runs = 0
        self.seconds = 0.0

    def case(self):
        return {"mix": self.name, "speeds": "/".join(f"{speed:g}" for speed in self.speeds),
                "repetitions": len(self.throughput["mixed"])}

    def new_folder(self, kind):
        self.runs += 1
        return os.path.join(self.folder, f"{kind}-{self.runs}")

    def make_uniform_plan(self):
        arguments = [word for override in self.overrides for word in ("--set", override)]
        text = heddle.command("plan", self.path, "--uniform", "--json", *arguments)
        self.plan_file = os.path.join(self.folder, "uniform.json")
        with open(self.plan_file, "w", encoding="utf-8") as file:
            file.write(text)
        stages = [len(pipeline["stages"]) for pipeline in json.loads(text)["pipelines"]]
        report.say(f"{self.name}: best uniform grid: {len(stages)} pipelines of {stages[0]} stages")

    def train(self, kind, extra=()):
        """Steady tokens a second of the job; also the predicted and measured step of its last plan."""
        run = Train(self.new_folder(kind), self.path,
                    [*self.overrides, f"steps={self.settings['steps']}", *extra]).start()
        try:
            run.finish(600)
        finally:
            run.stop()
        plan = run.events("plan")[-1]
        steps = [event for event in run.events("step")
                 if event["generation"] == plan["generation"] and event["step"] >= SKIPPED_STEPS]
        if len(steps) < 3:
            raise Failure(f"{self.name}: the plan changed too late to measure a steady step")
        measured = report.median([event["seconds"] for event in steps[1:]])
        return heddle.rate(steps, steps[0]["tokens"]), plan["predicted_step_seconds"], measured

    def run_mixed(self):
        throughput, predicted, measured = self.train("mixed")
        self.throughput["mixed"].append(throughput)
        self.predictions.append((predicted, measured))

    def run_uniform(self):
        if self.plan_failure is not None:
            return
        if self.plan_file is None:
            try:
                self.make_uniform_plan()
            except Failure as failure:
                self.plan_failure = str(failure)
                report.say(f"{self.name}: no uniform grid: {failure}")
                return
        self.throughput["uniform"].append(self.train("uniform", [f"plan={self.plan_file}"])[0])

    def run_alone(self):
        """The workers side by side, each a job of its own, measured while all of them train. Batches are in proportion
        to speeds, so that all steps take about as long."""
        runs = []
        try:
            for index, speed in enumerate(self.speeds):
                workers = f"workers=[{{name: alone-{index}, emulate: {{speed: {speed:g}}}}}]"
                batch = max(1, round(self.global_batch * speed))
                runs.append(Train(self.new_folder("alone"), self.path,
                                  [workers, f"batch.global={batch}", "steps=100000", "name=alone"]).start())
            wait_until_measured(runs, self.settings["alone_steps"])
        finally:
            for run in runs:  # All of them are told before any is waited for.
                if run.process is not None and run.process.poll() is None:
                    run.process.terminate()
            for run in runs:
                run.stop()
        total = 0.0
        for events in common_steps(runs):
            total += heddle.rate(events, events[0]["tokens"])
        self.throughput["alone"].append(total)

    def repetition(self, number):
        kinds = [self.run_mixed, self.run_alone, self.run_uniform]
        begun = time.monotonic()
        before = report.cpu_times()
        for kind in kinds[number % 3:] + kinds[:number % 3]:
            kind()
        self.seconds = max(self.seconds, time.monotonic() - begun)
        predicted, measured = self.predictions[-1]
        uniform = self.throughput["uniform"]
        report.say(f"{self.name}: repetition {number + 1}: mixed {self.throughput['mixed'][-1]:.0f} tokens/s, "
                   f"alone {self.throughput['alone'][-1]:.0f}, "
                   f"uniform {format(uniform[-1], '.0f') if uniform else '-'}; step {measured:.3f} s, "
                   f"predicted {predicted:.3f} s; "
                   f"cores {100 * report.busy_share(before, report.cpu_times()):.0f} % busy")


def common_steps(runs):
    """Of each run, the step events in the time in which all of them train, their first steps skipped."""
    steps = [[event for event in run.events("step") if event["step"] >= 1] for run in runs]
    if not all(steps):
        return [[] for _ in steps]
    begin = max(events[0]["time"] for events in steps)
    end = min(events[-1]["time"] for events in steps)
    # A step that was under way when the last job began counts from its own end on.
    return [[event for event in events if begin <= event["time"] <= end] or events[:0] for events in steps]


def wait_until_measured(runs, wanted):
    def ready():
        for run in runs:
            run.check_running()
        return all(len(events) >= wanted + 1 for events in common_steps(runs))
    heddle.wait_until("the workers alone have trained side by side", ready, 600)


def read_workers(path):
    """Speeds and global batch of a mix; its worker lines have one shape, checked here."""
    speeds = []
    batch = None
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            words = line.replace(",", " ").replace("{", " ").replace("}", " ").split()
            if "speed:" in words:
                speeds.append(float(words[words.index("speed:") + 1]))
            if "global:" in words:
                batch = int(words[words.index("global:") + 1])
    if not speeds or batch is None:
        raise Failure(f"{path}: expected 'speed:' for each worker and 'global:'")
    return speeds, batch


def add_rows(mix, rows):
    case = mix.case()
    values = {kind: report.median(found) for kind, found in mix.throughput.items() if found}
    for kind, ours in (("mixed", True), ("uniform", False), ("alone", False)):
        if kind in values:
            rows.add(case, {"mixed": "heddle", "uniform": "uniform grid", "alone": "workers alone"}[kind], ours,
                     "throughput", values[kind], "tokens/s")
    pairs = list(zip(mix.throughput["mixed"], mix.throughput["alone"]))
    if pairs:
        rows.add(case, "heddle", True, "R_sum", values["mixed"] / values["alone"], "ratio")
        rows.add(case, "heddle", True, "R_sum_paired", report.median([ours / sum_ for ours, sum_ in pairs]), "ratio")
        rows.add(case, "heddle", True, "R_sum_spread", report.spread([ours / sum_ for ours, sum_ in pairs]), "ratio")
    if "uniform" in values:
        rows.add(case, "heddle", True, "over_uniform", values["mixed"] / values["uniform"], "ratio")
    if mix.predictions:
        predicted = report.median([pair[0] for pair in mix.predictions])
        measured = report.median([pair[1] for pair in mix.predictions])
        rows.add(case, "heddle", True, "predicted_step_seconds", predicted, "s")
        rows.add(case, "heddle", True, "measured_step_seconds", measured, "s")
        rows.add(case, "heddle", True, "prediction_error",
                 report.median([pair[1] / pair[0] - 1 for pair in mix.predictions]), "ratio")


def run(options, rows):
    settings = dict(QUICK if options.quick else FULL)
    if options.repeat:
        settings["repetitions"] = options.repeat
    begun = time.monotonic()
    if settings["budget"] is not None:
        heddle.limit(settings["budget"])
    paths = sorted(glob.glob(os.path.join(heddle.REPOSITORY, "configs", "mixed-*.yaml")))
    mixes = [Mix(path, options.folder, settings) for path in paths if options.only in os.path.basename(path)]
    failed = False
    for number in range(settings["repetitions"]):
        for mix in mixes:
            left = float("inf")
            if settings["budget"] is not None:
                left = settings["budget"] - (time.monotonic() - begun)
            if left < (mix.seconds or max([other.seconds for other in mixes] + [20])):
                report.say(f"{mix.name}: no time is left for repetition {number + 1}")
                continue
            try:
                mix.repetition(number)
            except Failure as failure:
                failed = failed or not isinstance(failure, heddle.TimeUp)
                report.say(f"{mix.name}: {failure}")
    signal.alarm(0)
    for mix in mixes:
        if mix.throughput["mixed"]:
            add_rows(mix, rows)
    if options.quick:
        report.say("quick: half batches, and the medians are of one or two repetitions: read them as a smoke test")
    return failed or not rows.rows
