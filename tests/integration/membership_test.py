"""A worker that joins, one that is drained, one that slows down to a third and comes back: a new plan each time
it pays, no step lost, and the loss does not notice. Two workers killed at once, and one while the job recovers from
another loss. The whole job killed and started again.
"""
import functools
import os
import random
import signal
import subprocess
import time

from harness import HEDDLE, PATIENCE, SMOKE, Run, Scratch, check_same, check_samples, heddle, seed, wait_for
from harness.served import losses_until, undisturbed_losses
from tiers import sample, scaled

STEPS = 40
GLOBAL_BATCH = 12
BATCH = f"batch.global={GLOBAL_BATCH}"  # Half of the job's: steps are half as long.
ENDLESS = [BATCH, "steps=100000", "checkpoint.every=0"]
REQUEUE = 75


def drifts_of(run, worker):
    """How often a plan was made for a change of its speed."""
    return sum(event["cause"] == "drift" and any(item.get("worker") == worker for item in event["evidence"])
               for event in run.events("decision"))


def emulate(run, worker, speed):
    """Another speed, and the plan that answers it."""
    before = drifts_of(run, worker)
    changed = heddle("emulate", worker, f"speed={speed}", "--run", run.folder)
    assert changed.returncode == 0, changed.stderr
    wait_for(f"a new plan for {worker} at {speed}",
             lambda: drifts_of(run, worker) > before or run.process.poll() is not None, 2 * PATIENCE)
    assert run.process.poll() is None, "the run ended before the drift was answered: " + run.errors()[-500:]


def start(folder, name, *overrides):
    """A run that does not end by itself."""
    run = Run(os.path.join(folder, name), overrides=[*ENDLESS, *overrides]).start()
    run.wait_step(8)
    return run


def suspend(folder, run):
    """Nobody was lost, no step was run again, and the losses are those of one worker."""
    run.wait_step(run.step() + 8)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == REQUEUE, run.errors()[-2000:]
    last = run.step()
    assert run.events("worker_lost") == [], run.events("worker_lost")
    check_samples(run, last, GLOBAL_BATCH)
    repeated = [event["steps_repeated"] for event in run.events("resumed")]
    assert not any(repeated), repeated
    check_same(run, losses_until(folder, SMOKE, last, *ENDLESS), last)


def join_and_drain(folder):
    run = start(folder, "changes")
    joined = subprocess.Popen([HEDDLE, "worker", "--coordinator", run.job()["coordinator"], "--name", "e",
                               "--emulate", "speed=0.5"], stdout=run.log, stderr=run.log, stdin=subprocess.DEVNULL)
    wait_for("e in the list", lambda: "e" in run.pids())
    wait_for("a plan with e", lambda: any("e" in event["plan"]["workers"] for event in run.events("plan")))
    drained = heddle("drain", "b", "--run", run.folder)
    assert drained.returncode == 0, drained.stderr
    wait_for("b has left", lambda: "b" not in run.pids())
    assert "b" not in run.events("plan")[-1]["plan"]["workers"], "it left before a plan did without it"
    suspend(folder, run)
    assert joined.wait(60) == REQUEUE


def drift(folder, chance):
    """One slows down to a third, or is three times as fast; in `full` one after the other."""
    first, second = chance.sample((0.5, 0.17), 2)
    run = start(folder, "drift", f"workers.0.emulate.speed={first}")
    for speed in scaled([second], [second], [second, first]):
        emulate(run, "a", speed)
    suspend(folder, run)


def two_at_once(folder, chance, undisturbed):
    run = Run(os.path.join(folder, "two"), overrides=[BATCH]).start()
    run.wait_step(chance.randrange(2, 20))
    pids = run.pids()
    for worker in chance.sample("abcd", 2):
        os.kill(pids[worker], signal.SIGKILL)
    run.finish()
    check_same(run, undisturbed(), STEPS)


def one_in_the_recovery(folder, chance, undisturbed):
    run = Run(os.path.join(folder, "again"), overrides=[BATCH]).start()
    run.wait_step(chance.randrange(2, 20))
    pids = run.pids()
    first, second = chance.sample("abcd", 2)
    os.kill(pids[first], signal.SIGKILL)
    time.sleep(chance.uniform(0.05, 0.35))  # Somewhere in the recovery: not synchronisation, the fault's moment.
    os.kill(pids[second], signal.SIGKILL)
    run.finish()
    check_same(run, undisturbed(), STEPS)
    check_samples(run, STEPS, GLOBAL_BATCH)


def whole_job(folder, chance, undisturbed):
    run = Run(os.path.join(folder, "whole"), overrides=[BATCH]).start()
    wait_for("a checkpoint", lambda: run.events("checkpoint"))
    run.wait_step(chance.randrange(12, 30))
    run.kill_all()
    before = run.step()
    run.start().finish()
    check_same(run, undisturbed(), STEPS)
    resumed = [event["step"] for event in run.events("step")]
    assert resumed.count(1) == 1, "it went on from a checkpoint"
    print(f"whole job killed after step {before}, went on", flush=True)


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        @functools.lru_cache(maxsize=None)
        def undisturbed():
            return undisturbed_losses(folder, SMOKE, BATCH)

        parts = (lambda: two_at_once(folder, chance, undisturbed),
                 lambda: one_in_the_recovery(folder, chance, undisturbed),
                 lambda: whole_job(folder, chance, undisturbed),
                 lambda: join_and_drain(folder),
                 lambda: drift(folder, chance))
        for part in sample(parts, chance, 1, 1):
            part()


main()
