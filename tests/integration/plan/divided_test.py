"""Jobs whose workers divide the optimizer: losses bit for bit those of whole optimizers with as many slices, through
the loss of a worker, whose share comes from a replica, a drain, and a new start from a checkpoint under either key.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Run, Scratch, check_samples, heddle, seed, wait_for  # noqa: E402
from tiers import sample  # noqa: E402

STEPS = 40
GLOBAL_BATCH = 24
DIVIDED = ["parallel.optimizer=divided", "elastic.drift_threshold=100"]


def validations(run):
    return {event["step"]: event["loss"] for event in run.events("validation")}


def check(run, expected):
    """Every step, with the bits of the expected losses, and every validation, which gathers for itself."""
    expected, validated = expected
    losses = run.losses()
    assert validations(run) == validated, (validations(run), validated)
    assert losses == expected, {step: (losses.get(step), loss) for step, loss in expected.items()
                                if losses.get(step) != loss}
    check_samples(run, STEPS, GLOBAL_BATCH)
    for event in run.events("plan"):
        assert event["plan"]["optimizer"] == "divided", event


def undisturbed(folder, expected):
    run = Run(os.path.join(folder, "divided"), overrides=DIVIDED).start().finish()
    check(run, expected)
    [plan] = [event["plan"] for event in run.events("plan")]
    assert len(plan["pipelines"]) > 1, "nobody shares a matrix"


def lose_a_worker(folder, chance, expected):
    """The rows that it kept are nobody else's: they come from the copy of the last step in others' memory."""
    run = Run(os.path.join(folder, "lost"),
              overrides=[*DIVIDED, "checkpoint.every=0", "checkpoint.replicas.every=1"]).start()
    run.wait_step(chance.randrange(4, 25))
    worker = chance.choice("abcd")
    run.kill(worker)
    run.finish()
    check(run, expected)
    assert [event["worker"] for event in run.events("worker_lost")] == [worker]
    moved = [event["sources"] for event in run.events("state_moved")]
    assert any("replica" in sources for sources in moved), moved


def drain_a_worker(folder, chance, expected):
    """One that is there still gives its rows itself."""
    run = Run(os.path.join(folder, "drained"), overrides=[*DIVIDED, "checkpoint.every=0"]).start()
    run.wait_step(chance.randrange(4, 20))
    drained = heddle("drain", chance.choice("abcd"), "--run", run.folder)
    assert drained.returncode == 0, drained.stderr
    run.finish()
    check(run, expected)
    moved = [set(event["sources"]) for event in run.events("state_moved")]
    assert moved and all(sources == {"memory"} for sources in moved), moved


def begin_again(folder, chance, expected):
    """Coordinator and workers are killed; the run goes on from its checkpoint. So does one of whole optimizers."""
    run = Run(os.path.join(folder, "again"), overrides=DIVIDED).start()
    wait_for("a checkpoint", lambda: run.events("checkpoint"))
    run.wait_step(chance.randrange(12, 30))
    run.kill_all()
    run.start().finish()
    check(run, expected)
    store = os.path.join(run.folder, "checkpoints", "step-00000020")
    alone = Run(os.path.join(folder, "alone"), overrides=["workers=[{name: a}]", "optimizer.slices=64",
                                                          "checkpoint.resume=" + store]).start().finish()
    after = {step: loss for step, loss in expected[0].items() if step > 20}
    assert {step: loss for step, loss in alone.losses().items() if step > 20} == after


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        whole = Run(os.path.join(folder, "whole"), overrides=["optimizer.slices=64", "checkpoint.every=0"])
        expected = (whole.start().finish().losses(), validations(whole))
        undisturbed(folder, expected)
        parts = (lambda: lose_a_worker(folder, chance, expected),
                 lambda: drain_a_worker(folder, chance, expected),
                 lambda: begin_again(folder, chance, expected))
        for part in sample(parts, chance, 1, 3):
            part()


main()
