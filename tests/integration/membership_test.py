"""A worker that joins, one that is drained, one that slows down to a third and comes back: a new plan each time
it pays, no step lost, and the loss does not notice. Two workers killed at once, and one while the job recovers from
another loss. The whole job killed and started again.
"""
import os
import random
import signal
import subprocess
import time

from harness import HEDDLE, Run, Scratch, check_same, check_samples, heddle, seed, wait_for
from tiers import sample

GLOBAL_BATCH = 24
REQUEUE = 75
# At full speed: neither plan nor speed changes a loss.
ALONE = "workers=[{name: a}]"


def changes(folder):
    """Join, drain and drift, one after another, in one run, which is suspended when all have been answered."""
    steps = 100_000  # It does not end by itself.
    run = Run(os.path.join(folder, "changes"), overrides=[f"steps={steps}", "checkpoint.every=0"]).start()
    run.wait_step(8)
    joined = subprocess.Popen([HEDDLE, "worker", "--coordinator", run.job()["coordinator"], "--name", "e",
                               "--emulate", "speed=0.5"], stdout=run.log, stderr=run.log, stdin=subprocess.DEVNULL)
    wait_for("e in the list", lambda: "e" in run.pids(), 60)
    plans = len(run.events("plan"))
    wait_for("a plan with e", lambda: any("e" in event["plan"]["workers"] for event in run.events("plan")), 60)
    drained = heddle("drain", "b", "--run", run.folder)
    assert drained.returncode == 0, drained.stderr
    wait_for("b has left", lambda: "b" not in run.pids(), 60)
    assert len(run.events("plan")) > plans - 1
    plans = len(run.events("plan"))
    slowed = heddle("emulate", "a", "speed=0.17", "--run", run.folder)
    assert slowed.returncode == 0, slowed.stderr
    wait_for("a new plan for the slow worker",
             lambda: len(run.events("plan")) > plans or run.process.poll() is not None, 90)
    assert run.process.poll() is None, "the run ended before the drift was answered: " + run.errors()[-500:]
    plans = len(run.events("plan"))
    restored = heddle("emulate", "a", "speed=0.5", "--run", run.folder)
    assert restored.returncode == 0, restored.stderr
    wait_for("a new plan for the restored worker",
             lambda: len(run.events("plan")) > plans or run.process.poll() is not None, 90)
    run.wait_step(run.step() + 8)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(60) == REQUEUE, run.errors()[-2000:]
    assert joined.wait(30) == REQUEUE
    last = run.step()
    assert run.events("worker_lost") == [], run.events("worker_lost")
    check_samples(run, last, GLOBAL_BATCH)
    repeated = [event["steps_repeated"] for event in run.events("resumed")]
    assert not any(repeated), repeated
    for event in run.events("plan"):
        measured = sorted(e["seconds"] for e in run.events("step") if e["generation"] == event["generation"])
        if len(measured) > 4:
            print(f"generation {event['generation']}: predicted {event['predicted_step_seconds']:.4f} s, "
                  f"median {measured[len(measured) // 2]:.4f} s over {len(measured)} steps", flush=True)
    alone = Run(os.path.join(folder, "alone"), overrides=[f"steps={steps}", "checkpoint.every=0", ALONE]).start()
    alone.wait_step(last, 180)
    losses = alone.losses()
    alone.process.kill()
    alone.wait()
    check_same(run, losses, last)


def losses_together(folder, chance, undisturbed, steps):
    run = Run(os.path.join(folder, "two")).start()
    run.wait_step(chance.randrange(2, 20))
    first, second = chance.sample("abcd", 2)
    pids = run.pids()
    for worker in (first, second):
        os.kill(pids[worker], signal.SIGKILL)
    run.finish()
    check_same(run, undisturbed, steps)

    run = Run(os.path.join(folder, "again")).start()
    run.wait_step(chance.randrange(2, 20))
    pids = run.pids()
    os.kill(pids[first], signal.SIGKILL)
    time.sleep(chance.uniform(0.05, 0.35))  # Somewhere in the recovery: not synchronisation, the fault's moment.
    os.kill(pids[second], signal.SIGKILL)
    run.finish()
    check_same(run, undisturbed, steps)
    check_samples(run, steps, GLOBAL_BATCH)


def whole_job(folder, chance, undisturbed, steps):
    run = Run(os.path.join(folder, "whole")).start()
    wait_for("a checkpoint", lambda: run.events("checkpoint"), 60)
    run.wait_step(chance.randrange(12, 30))
    pids = run.pids()
    run.process.kill()
    for pid in pids.values():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    run.wait()
    before = run.step()
    run.start().finish()
    check_same(run, undisturbed, steps)
    resumed = [event["step"] for event in run.events("step")]
    assert resumed.count(1) == 1, "it went on from a checkpoint"
    print(f"whole job killed after step {before}, went on", flush=True)


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        reference = Run(os.path.join(folder, "undisturbed"), overrides=[ALONE]).start().finish()
        undisturbed, steps = reference.losses(), reference.step()
        parts = (lambda: losses_together(folder, chance, undisturbed, steps),
                 lambda: whole_job(folder, chance, undisturbed, steps),
                 lambda: changes(folder))
        for part in sample(parts, chance, 1, 1):
            part()


main()
