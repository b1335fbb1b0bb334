"""What checkpoints cost training: none, in the background (as by default), and with training waiting for each.

overhead         by how much the steps that a save lasts into are longer, as a share of the time between checkpoints
over_none        whole time of the steps over that of the run without checkpoints of the same repetition, less 1
beside_a_save    rate of the steps that a save lasts into, over that of the run's other steps
stall_seconds    for which one checkpoint stopped training, on average
memory_beyond    peak memory of a worker over that without checkpoints, less the copy of its state
"""
import json
import os

from support import heddle, report

EVERY = 20  # Steps between checkpoints.
WARM = 30  # Steps that are not counted: the rate settles, and the first checkpoint warms its memory up.
FULL = {"repetitions": 5, "periods": 5}
QUICK = {"repetitions": 2, "periods": 2}
TIMEOUT = 600
# Cores that train, out of two: with all of them at it a save takes what it needs from training.
WORKERS = {"none": ["a", "b"], "one": ["a"]}
SAVES = {"none": ["checkpoint.every=0"], "background": [f"checkpoint.every={EVERY}"],
         "waiting": [f"checkpoint.every={EVERY}", "checkpoint.background=false"]}
OVERHEAD = 0.02
BESIDE = 0.95
MEMORY = 64 << 20


def job_file(folder, idle, steps):
    """The quickstart's model on workers of one thread."""
    with open(os.path.join(heddle.REPOSITORY, "configs", "quickstart.yaml"), encoding="utf-8") as file:
        text = file.read()
    text = text[:text.index("workers:")]
    text = text.replace("steps: 600", f"steps: {steps}").replace("warmup_steps: 40", f"warmup_steps: {EVERY}")
    workers = "".join(f"  - {{name: {name}}}\n" for name in WORKERS[idle])
    path = os.path.join(folder, f"background-{idle}.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{text}threads: 1\nworkers:\n{workers}checkpoint: {{last: false}}\n")
    return path


def peaks(run):
    """The most memory that each worker has had, by its name."""
    found = {}
    for event in run.events("worker_joined"):
        with open(f"/proc/{event['pid']}/status", encoding="utf-8") as file:
            status = dict(line.split(":", 1) for line in file)
        found[event["worker"]] = int(status["VmHWM"].split()[0]) << 10
    return found


def train(folder, job, steps, overrides):
    run = heddle.Train(folder, job, overrides).start()
    try:
        heddle.wait_until("the last steps", lambda: run.check_running() or len(run.events("step")) >= steps - 5,
                          TIMEOUT)
        memory = peaks(run)
        run.finish(TIMEOUT)
    finally:
        run.stop()
    return run, memory


def beside_saves(steps, saves):
    """What saves do to the steps they last into: the rate of these over that of the run's other steps, and by how much
    they are longer in all, as a share of the time between two checkpoints. Both lists are of events."""
    ends = {step["step"]: step["time"] for step in steps}
    spans = [(ends[save["step"]], max(save["time"], ends[save["step"]] + save["stall_seconds"])) for save in saves
             if save["step"] in ends and save["step"] < steps[-1]["step"]]
    beside, others = [], []
    for before, step in zip(steps, steps[1:]):
        overlaps = any(before["time"] < end and begin < step["time"] for begin, end in spans)
        (beside if overlaps else others).append(step["time"] - before["time"])
    usual = report.median(others)
    lost = sum(beside) - usual * len(beside)
    return usual / (sum(beside) / len(beside)), lost / (usual * EVERY * len(spans))


class Judge:
    def __init__(self, rows):
        self.rows = rows

    def add(self, case, metric, value, unit, goal=None, least=False):
        """A row, and beside its goal a line: at most the goal, or at least."""
        self.rows.add(case, "heddle", True, metric, value, unit)
        if goal is not None:
            met = value >= goal if least else value <= goal
            report.say(f"{' '.join(f'{key}={one}' for key, one in case.items())} {metric}: {value:.4g} "
                       f"(goal {'>=' if least else '<='} {goal:g}): {'met' if met else 'MISSED'}")


def measure(options, idle, settings):
    """What each run of each repetition showed, by how it saves."""
    steps = WARM + EVERY * settings["periods"] + 5
    job = job_file(options.folder, idle, steps)
    # One plan for all: what is searched depends on what was measured at each start.
    first, _ = train(os.path.join(options.folder, f"{idle}-first"), job, EVERY, [f"steps={EVERY}"])
    plan = os.path.join(options.folder, f"plan-{idle}.json")
    with open(plan, "w", encoding="utf-8") as file:
        json.dump(first.events("plan")[-1]["plan"], file)
    figures = {name: [] for name in SAVES}
    for repetition in range(options.repeat or settings["repetitions"]):
        for name, overrides in SAVES.items():
            run, memory = train(os.path.join(options.folder, f"{idle}-{name}-{repetition}"), job, steps,
                                ["plan=" + plan, *overrides])
            counted = [event for event in run.events("step") if WARM <= event["step"] <= steps - 5]
            saves = run.events("checkpoint")
            beside, overhead = beside_saves(counted, saves) if saves else (None, None)
            figures[name].append({"seconds": counted[-1]["time"] - counted[0]["time"], "steps": len(counted) - 1,
                                  "memory": memory, "saves": saves, "beside": beside, "overhead": overhead})
    return figures


def memory_beyond(without, with_saves, workers):
    """Bytes of the worker that needed the most beyond its part of the copied state."""
    copy = with_saves["saves"][0]["raw_bytes"] / workers
    return max(peak - without["memory"][name] - copy for name, peak in with_saves["memory"].items())


def run(options, rows):
    settings = QUICK if options.quick else FULL
    judge = Judge(rows)
    for idle, workers in WORKERS.items():
        if options.only not in f"idle={idle}":
            continue
        figures = measure(options, idle, settings)
        without = figures["none"]
        for name, runs in figures.items():
            case = {"idle_cores": idle, "saves": name}
            judge.add(case, "step_seconds", report.median([one["seconds"] / one["steps"] for one in runs]), "s")
            if name == "none":
                continue
            background = name == "background"
            judge.add(case, "overhead", report.median([one["overhead"] for one in runs]), "ratio",
                      OVERHEAD if background else None)
            judge.add(case, "over_none",
                      report.median([ours["seconds"] / other["seconds"] - 1 for ours, other in zip(runs, without)]),
                      "ratio")
            judge.add(case, "stall_seconds",
                      report.median([save["stall_seconds"] for one in runs for save in one["saves"][1:]]), "s")
            judge.add(case, "save_seconds",
                      report.median([save["seconds"] for one in runs for save in one["saves"][1:]]), "s")
            if background:
                judge.add(case, "beside_a_save", report.median([one["beside"] for one in runs]), "ratio", BESIDE,
                          least=True)
                judge.add(case, "memory_beyond",
                          report.median([memory_beyond(*pair, len(workers)) for pair in zip(without, runs)]), "B",
                          MEMORY)
    return False
