"""What snapshots in other workers' memory cost training, at every step and more rarely.

step_seconds     median time of a step of `heddle train`: two workers, the quickstart's model, one plan for all runs
over_none        the median by repetition of step_seconds over that of the run without snapshots, less 1
kept_every       steps a snapshot that was complete everywhere, by a worker's own count
stall_seconds    for which one snapshot stopped a worker's training, on average
"""
import json
import os

from support import heddle, report

CASES = [("none", 0, True), ("compressed", 1, True), ("raw", 1, False), ("compressed", 5, True)]
FULL = {"repetitions": 5, "steps": 120}
QUICK = {"repetitions": 2, "steps": 60}
WARM = 20  # Steps that are not counted.
TIMEOUT = 600


def train(folder, job, steps, overrides):
    run = heddle.Train(folder, job, overrides).start()
    try:
        heddle.wait_until("the last steps", lambda: run.check_running() or len(run.events("step")) >= steps - 10,
                          TIMEOUT)
        figures = heddle.scrape(run)
        run.finish(TIMEOUT)
    finally:
        run.stop()
    return figures, run


def run(options, rows):
    settings = QUICK if options.quick else FULL
    steps = settings["steps"]
    job = heddle.two_workers(options.folder, steps, WARM)
    # One plan for all: what is searched depends on what was measured at each start.
    _, first = train(os.path.join(options.folder, "first"), job, WARM, ["steps=" + str(WARM)])
    plan = os.path.join(options.folder, "plan.json")
    with open(plan, "w", encoding="utf-8") as file:
        json.dump(first.events("plan")[-1]["plan"], file)
    seconds = {}
    for repetition in range(options.repeat or settings["repetitions"]):
        for name, every, compress in CASES:
            case = f"{name}-{every}"
            if name != "none" and options.only not in case:
                continue
            figures, done = train(os.path.join(options.folder, f"{case}-{repetition}"), job, steps,
                                  ["plan=" + plan, f"checkpoint.replicas.every={every}",
                                   f"checkpoint.replicas.compress={str(compress).lower()}"])
            times = [event["seconds"] for event in done.events("step")[WARM:]]
            entry = seconds.setdefault((name, every), {"step": [], "kept": [], "stall": []})
            entry["step"].append(report.median(times))
            if every > 0:
                kept = figures.get("heddle_replica_seconds_count", 0)
                stalls = figures.get("heddle_replica_stall_seconds_count", 0)
                entry["kept"].append(figures["heddle_step"] / max(kept, 1))
                entry["stall"].append(figures.get("heddle_replica_stall_seconds_sum", 0) / max(stalls, 1))
    none = seconds[("none", 0)]["step"]
    for (name, every), entry in seconds.items():
        case = {"snapshots": name, "every": every, "workers": 2}
        rows.add(case, "heddle", True, "step_seconds", report.median(entry["step"]), "s")
        if every > 0:
            over = [ours / theirs - 1 for ours, theirs in zip(entry["step"], none)]
            rows.add(case, "heddle", True, "over_none", report.median(over), "ratio")
            rows.add(case, "heddle", True, "kept_every", report.median(entry["kept"]), "steps")
            rows.add(case, "heddle", True, "stall_seconds", report.median(entry["stall"]), "s")
    return False
