"""What recoveries were predicted to take against what they took, and whether the source that was chosen was best.

predicted_over_actual  median of the recoveries of one job whose workers are killed one by one and started again
within                 share of these recoveries whose ratio is within 0.7 and 1.4
chosen_is_fastest      share of trials in which the source that the coordinator chose was the fastest of all forced
chosen_is_close        the same, where it took at most 5 % longer than the fastest

Both are counted from when the loss is noticed until the job is where it had been.
"""
import json
import os
import random
import signal
import time

from support import heddle, report
from support.heddle import Train

JOB = os.path.join(heddle.REPOSITORY, "configs", "smoke.yaml")
ENDLESS = ["steps=100000", "validation.every=100000", "checkpoint.every=9", "checkpoint.replicas.every=2"]
SOURCES = ("live", "replicas", "checkpoint")
FULL = {"kills": 30, "trials": 30}
QUICK = {"kills": 6, "trials": 3}
WARM = 12  # Steps after a change of plan, so that a step's time is known.
PATIENCE = 120
QUARANTINE = 400  # A worker that is killed again and again is kept out for up to five minutes.


def steps(run):
    return [event["step"] for event in run.events("step")]


def wait_steps(run, more):
    """Waits until so many steps more have ended."""
    target = max(steps(run), default=0) + more
    heddle.wait_until(f"step {target}", lambda: run.check_running() or max(steps(run), default=0) >= target, PATIENCE)


def working(run):
    """Workers of the plan in force that compute: the loss of another one costs no recovery."""
    plan = run.events("plan")[-1]["plan"]
    return sorted({plan["workers"][stage["worker"]] for pipeline in plan["pipelines"] for stage in pipeline["stages"]})


def kill(run, chance):
    """Kills a worker that computes, any, and returns the event of the recovery."""
    before = len(run.events("recovered"))
    with open(os.path.join(run.folder, "job.json"), encoding="utf-8") as file:
        workers = {worker["name"]: worker["pid"] for worker in json.load(file)["workers"]}
    name = chance.choice(working(run))
    os.kill(workers[name], signal.SIGKILL)
    heddle.wait_until("the end of the recovery",
                      lambda: run.check_running() or len(run.events("recovered")) > before, PATIENCE)
    event = run.events("recovered")[-1]
    report.say(f"  {name} killed: {event['source']}, predicted {event['predicted_seconds']:.3f} s, "
               f"took {event['seconds']:.3f} s")
    return event


def repeated(options, settings, rows):
    """One job, killed again and again."""
    chance = random.Random(1)
    run = Train(os.path.join(options.folder, "repeated"), JOB, [*ENDLESS, "elastic.restart=true"]).start()
    events = []
    try:
        wait_steps(run, WARM)
        for _ in range(options.repeat or settings["kills"]):
            events.append(kill(run, chance))
            joins = len(run.events("worker_lost"))
            heddle.wait_until("the worker's return",
                              lambda joins=joins: run.check_running() or len(run.events("worker_joined")) >= 4 + joins,
                              QUARANTINE)
            wait_steps(run, WARM + chance.randrange(9))
    finally:
        run.stop()
    ratios = [event["predicted_seconds"] / event["seconds"] for event in events]
    case = {"kills": len(ratios)}
    rows.add(case, "heddle", True, "predicted_over_actual", report.median(ratios), "ratio")
    rows.add(case, "heddle", True, "within", sum(0.7 <= ratio <= 1.4 for ratio in ratios) / len(ratios), "share")


def one(options, number, source):
    """The recovery of a job that is killed at a place that the number chooses."""
    chance = random.Random(number)
    name = f"{source}-{number}"
    run = Train(os.path.join(options.folder, name), JOB, [*ENDLESS, f"elastic.recover_from={source}"]).start()
    try:
        wait_steps(run, WARM + chance.randrange(9))
        time.sleep(chance.random() * 0.1)  # The kill's moment within a step, which may be any.
        return kill(run, chance)
    finally:
        run.stop()


def forced(options, settings, rows):
    """The same kill with each source forced, and with the choice left to the coordinator."""
    fastest = close = 0
    trials = options.repeat or settings["trials"]
    for number in range(trials):
        chosen = one(options, number, "fastest")["source"]
        took = {}
        for source in SOURCES:
            event = one(options, number, source)
            took[event["source"]] = min(event["seconds"], took.get(event["source"], event["seconds"]))
        best = min(took.values())
        fastest += took.get(chosen, float("inf")) <= best
        close += took.get(chosen, float("inf")) <= 1.05 * best
        report.say(f"trial {number}: {chosen} of {', '.join(f'{name} {value:.3f} s' for name, value in took.items())}")
    case = {"trials": trials}
    rows.add(case, "heddle", True, "chosen_is_fastest", fastest / trials, "share")
    rows.add(case, "heddle", True, "chosen_is_close", close / trials, "share")


def run(options, rows):
    settings = QUICK if options.quick else FULL
    if options.only in "repeated":
        repeated(options, settings, rows)
    if options.only in "forced":
        forced(options, settings, rows)
    return False
