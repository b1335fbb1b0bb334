"""Saving beside training: with a checkpoint after every step the losses are those of a run without any, bit for bit,
and each checkpoint is the state that a run which ends at its step writes at rest; also when a worker is killed in the
middle, when checkpoints are skipped rather than waited for, and when training waits for each (that it does:
full_disk_test.py).
"""
import os
import random

from harness import Run, Scratch, check_same, heddle, seed

STEPS = 16
WARM_UP = 5  # Of the smoke job; no run is shorter.
# A rate that does not depend on the number of steps, so that a shorter run is the beginning of a longer one.
JOB = [f"steps={STEPS}", "optimizer.schedule=constant", "validation.every=0", "checkpoint.keep=100"]


def run_job(folder, name, *overrides):
    return Run(os.path.join(folder, name), overrides=[*JOB, *overrides]).start()


def checkpoint(run, step):
    return os.path.join(run.folder, "checkpoints", f"step-{step:08}")


def check_equal(ours, theirs, step):
    """Masters and moments, to the bit."""
    for run in (ours, theirs):
        verified = heddle("checkpoint", "verify", checkpoint(run, step))
        assert verified.returncode == 0, verified.stdout + verified.stderr
    compared = heddle("checkpoint", "diff", checkpoint(ours, step), checkpoint(theirs, step))
    assert compared.returncode == 0, f"step {step}: {compared.stdout}{compared.stderr}"


def saved(run):
    return {event["step"] for event in run.events("checkpoint")}


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        without = run_job(folder, "without").finish(180)
        losses = without.losses()
        every = run_job(folder, "every", "checkpoint.every=1").finish(180)
        check_same(every, losses, STEPS)
        assert saved(every) == set(range(1, STEPS + 1)), every.events("checkpoint_failed")
        check_equal(every, without, STEPS)
        for step in chance.sample(range(WARM_UP, STEPS), 3):
            check_equal(every, run_job(folder, f"to-{step}", f"steps={step}").finish(180), step)

        killed = run_job(folder, "killed", "checkpoint.every=1")
        killed.wait_step(chance.randrange(3, STEPS - 3))
        killed.kill(chance.choice("abcd"))
        killed.finish(180)
        check_same(killed, losses, STEPS)
        steps = saved(killed)
        assert STEPS in steps and len(killed.events("worker_lost")) == 1, killed.events("worker_lost")
        for step in {STEPS, *chance.sample(sorted(steps), 3)}:
            check_equal(killed, every, step)

        skipping = run_job(folder, "skipping", "checkpoint.every=1", "checkpoint.when_busy=skip").finish(180)
        check_same(skipping, losses, STEPS)
        skipped = {event["step"] for event in skipping.events("checkpoint_skipped")}
        assert not skipping.events("checkpoint_failed"), skipping.events("checkpoint_failed")
        assert not skipped & saved(skipping) and skipped | saved(skipping) == set(range(1, STEPS + 1)), skipped
        check_equal(skipping, every, STEPS)

        waiting = run_job(folder, "waiting", "checkpoint.every=4", "checkpoint.background=false").finish(180)
        check_same(waiting, losses, STEPS)
        assert saved(waiting) == set(range(4, STEPS + 1, 4)), waiting.events("checkpoint_failed")
        check_equal(waiting, every, 8)
        print(f"{STEPS} checkpoints in {STEPS} steps; beside a loss {len(steps)}; {len(skipped)} skipped rather than "
              "waited for", flush=True)


main()
