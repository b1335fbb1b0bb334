"""What is measured corrects the plan: a worker's profile that is wrong, a speed that falls and returns; and a run that
nothing disturbs keeps its plan.

noticed_steps   steps from a change of a worker's speed until the coordinator notices it
estimate        the slowdown that it notices, over the true one
measured        the same of the slowdown that is measured in the steps after that: 1 if the worker's profile is right
corrected_steps steps from the change until a plan counts on it
further_plans   changes of plan after that one
over_best       median step of the corrected plan over that of a run that was planned for the true speeds from the start
kept            share of undisturbed runs whose first plan was their only one
"""
import json
import os

from support import heddle, report
from support.heddle import Train

SMOKE = os.path.join(heddle.REPOSITORY, "configs", "smoke.yaml")
QUICKSTART = os.path.join(heddle.REPOSITORY, "configs", "quickstart.yaml")
ENDLESS = ["steps=100000", "validation.every=100000", "checkpoint.every=0"]
FULL = {"repetitions": 5, "undisturbed": 10, "steps": 600}
QUICK = {"repetitions": 1, "undisturbed": 1, "steps": 100}
WORKER, SPEED = "a", 0.5  # Of the smoke job.
WARM = 40  # Steps until a plan's steps are known.
SEEN = 60  # Steps after a correction in which there should be no other one.
PATIENCE = 300


def last_step(run):
    return max((event["step"] for event in run.events("step")), default=0)


def wait_steps(run, more):
    target = last_step(run) + more
    heddle.wait_until(f"step {target}", lambda: run.check_running() or last_step(run) >= target, PATIENCE)


def measured_slowdown(run):
    """The worker's, in its newest windows; None if none was counted since its last drift."""
    status = json.loads(heddle.command("status", "--run", run.folder, "--json"))
    return next(one.get("measured_slowdown") for one in status["workers"] if one["name"] == WORKER)


def watch_steps(run, more):
    """What is measured of the worker's slowdown during so many steps."""
    found = []
    for _ in range(3):  # Asking takes part of a core.
        wait_steps(run, more // 3)
        found.append(measured_slowdown(run))
    return [one for one in found if one is not None]


def step_of(run, time):
    """The last step that had ended at that time."""
    return max((event["step"] for event in run.events("step") if event["time"] <= time), default=0)


def median_step(run, newest):
    return report.median([event["seconds"] for event in run.events("step")[-newest:]])


def change_speed(run, speed, true):
    """Changes the worker's speed, waits for the plan that counts on it, and returns what came of it. `true`: what its
    slowdown is now, against what the run was planned with at first."""
    plans, drifts = len(run.events("plan")), len(run.events("drift"))
    at = last_step(run)
    heddle.command("emulate", WORKER, f"speed={speed:g}", "--run", run.folder)
    heddle.wait_until("a plan for the new speed",
                      lambda: run.check_running() or len(run.events("plan")) > plans, PATIENCE)
    planned = step_of(run, run.events("plan")[plans]["time"]) - at
    measured = watch_steps(run, SEEN)
    noticed = [event for event in run.events("drift")[drifts:] if event["worker"] == WORKER]
    found = {"corrected_steps": planned, "further_plans": len(run.events("plan")) - plans - 1}
    if measured:
        found["measured"] = report.median(measured) / true
    if noticed:
        found["noticed_steps"] = step_of(run, noticed[0]["time"]) - at
        found["estimate"] = noticed[0]["slowdown"] / true
    return found


def planned_for(options, name, speed):
    """The median step of a run whose worker has this speed from the start."""
    run = Train(os.path.join(options.folder, name), SMOKE, [*ENDLESS, f"workers.0.emulate.speed={speed:g}"]).start()
    try:
        wait_steps(run, WARM + SEEN)
        return median_step(run, SEEN // 2)
    finally:
        run.stop()


def add(rows, case, found):
    for metric in ("noticed_steps", "estimate", "measured", "corrected_steps", "further_plans", "over_best"):
        values = [one[metric] for one in found if metric in one]
        if values:
            rows.add({"change": case, "runs": len(values)}, "heddle", True, metric, report.median(values),
                     "ratio" if metric in ("estimate", "measured", "over_best") else "count")


def changes(options, settings, rows, case, slowdown, returns):
    """The worker takes `slowdown` times as long, and where it `returns` what it took before."""
    fallen, returned = [], []
    for number in range(options.repeat or settings["repetitions"]):
        run = Train(os.path.join(options.folder, f"{case}-{number}"), SMOKE, ENDLESS).start()
        try:
            wait_steps(run, WARM)
            fallen.append(change_speed(run, SPEED / slowdown, slowdown))
            realised = median_step(run, SEEN // 2)
            if returns:
                returned.append(change_speed(run, SPEED, 1))
        finally:
            run.stop()
        fallen[-1]["over_best"] = realised / planned_for(options, f"{case}-best-{number}", SPEED / slowdown)
        report.say(f"  {case}: {fallen[-1]} {returned[-1] if returns else ''}")
    add(rows, case, fallen)
    if returns:
        add(rows, "return", returned)


def undisturbed(options, settings, rows):
    kept = 0
    runs = options.repeat or settings["undisturbed"]
    for number in range(runs):
        run = Train(os.path.join(options.folder, f"undisturbed-{number}"), QUICKSTART,
                    [f"steps={settings['steps']}"]).start().finish(3600)
        plans = run.events("plan")
        kept += len(plans) == 1
        report.say(f"  undisturbed: {len(plans)} plans")
    rows.add({"runs": runs}, "heddle", True, "kept", kept / runs, "share")


def run(options, rows):
    settings = QUICK if options.quick else FULL
    if options.only in "wrong":
        changes(options, settings, rows, "wrong", 1.3, returns=False)
    if options.only in "fall":
        changes(options, settings, rows, "fall", 5, returns=True)
    if options.only in "undisturbed":
        undisturbed(options, settings, rows)
    return False
