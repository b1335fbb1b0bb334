"""Snapshots in workers' memory: a loss that takes state with it costs the steps since the newest one, and no bit.

Four workers form one pipeline, so that nobody else has what one of them holds, and no checkpoint is written unless
said. kill -9 of one: the three others go on from the snapshot, under another plan. When an owner and its holder are
lost together, the checkpoint is what is left.
"""
import json
import os
import random

from harness import Run, Scratch, check_same, check_samples, get, seed, wait_for
from tiers import sample

STEPS = 40
GLOBAL_BATCH = 12
BATCH = f"batch.global={GLOBAL_BATCH}"  # Half of the job's: steps are half as long.


def pipeline(folder):
    """A plan file: the model cut into four stages."""
    cuts = [0, 3, 5, 7, 10]
    stages = [{"worker": i, "first_segment": cuts[i], "last_segment": cuts[i + 1], "recompute": False, "ahead": 0}
              for i in range(4)]
    plan = {"generation": 1, "determinism": "exact", "workers": list("abcd"), "transports": [],
            "predicted_step_seconds": 0, "predicted_peak_bytes": [],
            "pipelines": [{"first_microbatch": 0, "microbatches": GLOBAL_BATCH // 2, "stages": stages}]}
    path = os.path.join(folder, "plan.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(plan, file)
    return path


def train(folder, name, plan, *overrides):
    overrides = [BATCH, "plan=" + plan, "elastic.drift_threshold=100", *overrides]
    return Run(os.path.join(folder, name), overrides=overrides)


def sources(run):
    """Of each move of state: the kinds of what was moved."""
    return [set(event["sources"]) for event in run.events("state_moved")]


def complete(run):
    """The step of the newest snapshot that every worker has all of; 0: none, or a worker is not to be asked yet."""
    coordinator, steps = run.job()["metrics"], []
    for group in json.loads(get(coordinator, "/sd")) if coordinator else []:
        for address in group["targets"]:
            if address != coordinator:
                steps += [float(line.split()[-1]) for line in get(address).splitlines()
                          if line.startswith(("heddle_replica_step ", "heddle_replica_step{"))]
    return int(min(steps)) if len(steps) == 4 else 0


def lose_one(folder, plan, chance, undisturbed, every, compress):
    run = train(folder, f"every-{every}", plan, "checkpoint.every=0", f"checkpoint.replicas.every={every}",
                f"checkpoint.replicas.compress={compress}").start()
    worker = chance.choice("abcd")
    run.wait_step(chance.randrange(2 * every + 2, STEPS - 10))
    held = wait_for("a snapshot in memory", lambda: complete(run) or run.process.poll() is not None)
    killed_after = run.step()
    run.kill(worker)
    run.finish()
    check_same(run, undisturbed, STEPS)
    check_samples(run, STEPS, GLOBAL_BATCH)
    resumed = run.events("resumed")
    print(f"every {every} compress {compress}: killed {worker} after step {killed_after}; held {held}, moved "
          f"{sources(run)}, resumed {[(round(e['seconds'], 2), e['steps_repeated']) for e in resumed]}", flush=True)
    assert [event["worker"] for event in run.events("worker_lost")] == [worker]
    assert {"replica"} in sources(run) and not any("checkpoint" in kinds for kinds in sources(run)), sources(run)
    # What had been complete before the loss is not lost; one that was on its way may have become so.
    [source] = run.events("recovery_source")
    assert source["chosen"] == "replicas" and source["step"] >= held, (held, source)
    [resumed] = resumed
    before = max(event["step"] for event in run.events("step") if event["time"] <= resumed["time"])
    assert resumed["steps_repeated"] <= before - source["step"] + 1, (before, source, resumed)
    workers = {worker for event in run.events("plan")[-1:] for worker in event["plan"]["workers"]}
    assert worker not in workers and len(workers) >= 2, workers


def lose_three(folder, plan, undisturbed):
    run = train(folder, "three", plan, "checkpoint.every=10", "checkpoint.replicas.every=1",
                "elastic.minimum_workers=1").start()
    wait_for("a checkpoint", lambda: run.events("checkpoint") or run.process.poll() is not None)
    run.wait_step(14)
    for worker in "bcd":
        run.kill(worker)
    run.finish()
    check_same(run, undisturbed, STEPS)
    check_samples(run, STEPS, GLOBAL_BATCH)
    print(f"three lost: moved {sources(run)}, resumed "
          f"{[(round(e['seconds'], 2), e['steps_repeated']) for e in run.events('resumed')]}", flush=True)
    assert any("checkpoint" in kinds for kinds in sources(run)), sources(run)


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        plan = pipeline(folder)
        alone = [BATCH, "workers=[{name: a}]", "checkpoint.every=0"]
        undisturbed = Run(os.path.join(folder, "undisturbed"), overrides=alone).start().finish().losses()
        losses = (lambda: lose_one(folder, plan, chance, undisturbed, 1, "true"),
                  lambda: lose_one(folder, plan, chance, undisturbed, 5, "false"),
                  lambda: lose_three(folder, plan, undisturbed))
        for lose in sample(losses, chance, 1, 1):
            lose()


main()
