"""Stages of two workers that share every layer, by the key or by a plan file: the losses of one worker but for
rounding, before and after a member is lost, joins, or the whole job goes on from a checkpoint with stages of one
worker. A model of which no worker can hold a layer trains, and without groups it is refused.
"""
import os
import random
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import PATIENCE, SMOKE, Run, Scratch, check_samples, heddle, seed, wait_for  # noqa: E402
from harness.served import losses_until  # noqa: E402
from tiers import sample  # noqa: E402

STEPS = 40
GLOBAL_BATCH = 12
BATCH = f"batch.global={GLOBAL_BATCH}"  # Half of the job's: steps are half as long.
SHARDED = [BATCH, "determinism=relaxed", "parallel.tensor=2", "elastic.drift_threshold=100"]


def check_close(run, expected, steps=range(1, STEPS + 1)):
    """Sums in another order: equal to 1e-5 in the first 20 steps, and to 1e-3 after that, as rounding errors grow."""
    losses = run.losses()
    for step in steps:
        off = abs(losses[step] - expected[step]) / expected[step]
        assert off <= (1e-5 if step <= 20 else 1e-3), f"step {step}: {losses[step]}, one worker {expected[step]}"


def groups(event):
    """The names of each stage's workers, of a plan."""
    plan = event["plan"]
    return [[plan["workers"][rank] for rank in stage.get("group", [stage.get("worker")])]
            for pipeline in plan["pipelines"] for stage in pipeline["stages"]]


def check_groups(run):
    for event in run.events("plan"):
        assert all(len(group) == 2 for group in groups(event)), groups(event)


def undisturbed(folder, expected):
    """And its checkpoint, read by one worker."""
    run = Run(os.path.join(folder, "sharded"), overrides=SHARDED).start().finish()
    check_close(run, expected)
    check_groups(run)
    [first] = run.events("plan")[:1]
    assert sorted(sum(groups(first), [])) == list("abcd"), first
    store = os.path.join(run.folder, "checkpoints", "step-00000020")
    alone = Run(os.path.join(folder, "alone"), overrides=[
        BATCH, "workers=[{name: a}]", "determinism=relaxed", "checkpoint.resume=" + store]).start().finish()
    check_close(alone, expected, range(21, STEPS + 1))
    models = []
    for name, source in (("from-groups", run), ("from-one", alone)):
        models.append(os.path.join(folder, name))
        step = os.path.join(source.folder, "checkpoints", "step-00000040")
        converted = heddle("checkpoint", "convert", step, models[-1], "--to", "safetensors")
        assert converted.returncode == 0, converted.stderr
    sizes = [os.path.getsize(os.path.join(model, "model.safetensors")) for model in models]
    assert sizes[0] == sizes[1], sizes


def lose_a_member(folder, chance, expected):
    run = Run(os.path.join(folder, "lost"),
              overrides=[*SHARDED, "checkpoint.every=0", "checkpoint.replicas.every=1"]).start()
    run.wait_step(chance.randrange(4, 25))
    worker = chance.choice("abcd")
    run.kill(worker)
    run.finish()
    check_close(run, expected)
    check_samples(run, STEPS, GLOBAL_BATCH)
    check_groups(run)
    assert [event["worker"] for event in run.events("worker_lost")] == [worker]
    assert worker not in sum(groups(run.events("plan")[-1]), []), run.events("plan")[-1]
    print(f"{worker} killed, moved from {[event['sources'] for event in run.events('state_moved')]}", flush=True)


def divide_anew(folder):
    """One of two becomes slower: it gets a smaller share of each layer, of which it has what it keeps. Both are
    emulated from the start: one that is not would be measured without sleeps, and caches are colder after them."""
    endless = [BATCH, "steps=100000", "checkpoint.every=0"]
    run = Run(os.path.join(folder, "anew"),
              overrides=[*endless, "determinism=relaxed", "parallel.tensor=2",
                         "workers=[{name: a, emulate: {speed: 0.9}}, {name: b, emulate: {speed: 0.9}}]"]).start()
    run.wait_step(8)
    plans = len(run.events("plan"))
    changed = heddle("emulate", "b", "speed=0.25", "--run", run.folder)
    assert changed.returncode == 0, changed.stderr
    wait_for("another plan", lambda: len(run.events("plan")) > plans or run.process.poll() is not None, 2 * PATIENCE)
    run.wait_step(run.step() + 3)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 75, run.errors()[-2000:]
    last = run.step()
    check_close(run, losses_until(folder, SMOKE, last, *endless), range(1, last + 1))
    first, last = run.events("plan")[0]["plan"], run.events("plan")[-1]["plan"]
    assert first["layouts"] != last["layouts"], last["layouts"]
    assert all(set(event["sources"]) == {"memory"} for event in run.events("state_moved")), run.events("state_moved")


def begin_again(folder, chance, expected):
    """The coordinator and all workers are killed, and the run is started again."""
    run = Run(os.path.join(folder, "again"), overrides=SHARDED).start()
    wait_for("a checkpoint", lambda: run.events("checkpoint"))
    run.wait_step(chance.randrange(12, 30))
    run.kill_all()
    run.start().finish()
    check_close(run, expected)
    check_groups(run)


def groups_of_a_file(folder, chance, expected):
    """Without the key a plan file may have groups too. After a loss the job goes on with stages of one worker."""
    made = heddle("plan", SMOKE, "--json", "--set", BATCH, "--set", "parallel.tensor=2", "--set", "determinism=relaxed")
    assert made.returncode == 0, made.stderr
    path = os.path.join(folder, "groups.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(made.stdout)
    run = Run(os.path.join(folder, "file"), overrides=[BATCH, "plan=" + path, "determinism=relaxed"]).start()
    run.wait_step(chance.randrange(4, 25))
    run.kill(chance.choice("abcd"))
    run.finish()
    check_close(run, expected)
    check_samples(run, STEPS, GLOBAL_BATCH)
    first, last = groups(run.events("plan")[0]), groups(run.events("plan")[-1])
    assert {len(group) for group in first} == {2} and {len(group) for group in last} == {1}, (first, last)


def too_large_for_one(folder):
    """The embedding takes most of the memory: one worker holds no segment with it, two hold half of it each."""
    large = ["model.vocab_size=16384", "checkpoint.every=0", "steps=3", "validation.every=0",
             "optimizer.warmup_steps=0", *(f"workers.{i}.emulate.memory=24MiB" for i in range(4))]
    refused = Run(os.path.join(folder, "refused"), overrides=large).start()
    assert refused.wait() == 2, refused.errors()
    assert "no combination of the 4 workers has the memory" in refused.errors(), refused.errors()
    run = Run(os.path.join(folder, "large"), overrides=[*large, *SHARDED, "parallel.tensor=auto"]).start().finish()
    assert all(len(group) > 1 for event in run.events("plan") for group in groups(event)), run.events("plan")
    assert len(run.losses()) == 3


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        alone = [BATCH, "workers=[{name: a}]", "checkpoint.every=0"]
        expected = Run(os.path.join(folder, "expected"), overrides=alone).start().finish().losses()
        undisturbed(folder, expected)
        parts = (lambda: lose_a_member(folder, chance, expected),
                 lambda: divide_anew(folder),
                 lambda: begin_again(folder, chance, expected),
                 lambda: groups_of_a_file(folder, chance, expected),
                 lambda: too_large_for_one(folder))
        for part in sample(parts, chance, 1, 2):
            part()


main()
