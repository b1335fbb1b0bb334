"""Storage that is full or slow: while a job trains the save fails, training does not; a conversion leaves nothing.

The failure is one event and a metric, the checkpoint before stays sound, saves work again once there is room, and the
losses are those of the undisturbed run; also where training waits for its saves. One worker's disk that is slow then
makes the others wait, and costs no worker. Usage: full_disk_test.py HEDDLE STORAGE_FAULTS_LIBRARY
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys

from harness import HEDDLE, PATIENCE, SMOKE, Run, Scratch, check_same, check_samples, get, heddle, wait_for
from harness.served import losses_until

LIBRARY = os.path.abspath(sys.argv[2])
STEPS, EVERY = 100_000, 10  # None of it ends by itself.
GLOBAL_BATCH = 24
CHANGES = [f"steps={STEPS}", f"checkpoint.every={EVERY}", "checkpoint.keep=1000"]
REQUEUE = 75


def failures(run):
    """Saves that failed, by the metrics of all the job's processes."""
    total = {"worker": 0.0, "checkpoint": 0.0}
    coordinator = run.job()["metrics"]
    groups = json.loads(get(coordinator, "/sd"))
    for address in {coordinator, *(target for group in groups for target in group["targets"])}:
        for line in get(address).splitlines():
            found = re.match(r'heddle_checkpoint_failures_total\{.*scope="(\w+)".*\} (\S+)$', line)
            if found:
                total[found[1]] += float(found[2])
    return total


def start(run, path, faults, **settings):
    """Starts a run in whose processes calls on `path` and below meet `faults`."""
    preload = {"LD_PRELOAD": LIBRARY, "HEDDLE_STORAGE_FOLDER": path, "HEDDLE_STORAGE_FAULTS": faults, **settings}
    os.environ.update(preload)
    try:
        run.start()
    finally:
        for variable in preload:
            del os.environ[variable]


def suspend(run):
    """The run, which has been told to end, and has saved what it had."""
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == REQUEUE, run.errors()[-2000:]
    return run


def fill(folder, name, faults, scope, changes=()):
    """A run whose storage meets `faults` from its first checkpoint on until a save has failed."""
    run = Run(os.path.join(folder, name), SMOKE, [*CHANGES, *changes])
    switch = os.path.join(folder, name + ".full")
    start(run, os.path.join(run.folder, "checkpoints"), faults, HEDDLE_STORAGE_SWITCH=switch)

    def ended():
        return run.process.poll() is not None

    wait_for("a checkpoint", lambda: run.events("checkpoint") or ended())
    with open(switch, "w", encoding="utf-8"):
        pass
    failed = wait_for("a failed save", lambda: run.events("checkpoint_failed") or ended())
    assert failed is not True, run.errors()[-2000:]
    seen = failures(run)
    before = run.events("checkpoint")[-1]["step"]
    sound = heddle("checkpoint", "verify", os.path.join(run.folder, "checkpoints", f"step-{before:08}"))
    assert sound.returncode == 0, sound.stdout + sound.stderr
    os.unlink(switch)
    saved = len(run.events("checkpoint"))
    wait_for("saves that work again", lambda: len(run.events("checkpoint")) > saved + 1 or ended())
    suspend(run)

    reason = failed[0]["reason"]
    assert "No space left" in reason and "\n" not in reason, failed[0]
    assert seen[scope] > 0, f"no metric of a failed save: {seen}"
    lost = [event["step"] for event in run.events("checkpoint_failed")]
    assert len(lost) == len(set(lost)), f"a failure was told more than once: {run.events('checkpoint_failed')}"
    lost = set(lost)
    kept = {event["step"] for event in run.events("checkpoint")}
    last = run.step()
    assert lost | kept == {*range(EVERY, last + 1, EVERY), last} and not lost & kept, (lost, kept)
    assert last in kept, (last, kept)
    names = [name for name in os.listdir(os.path.join(run.folder, "checkpoints")) if not name.startswith(".")]
    assert sorted(names) == [f"step-{step:08}" for step in sorted(kept)], names
    for step in kept:
        sound = heddle("checkpoint", "verify", os.path.join(run.folder, "checkpoints", f"step-{step:08}"))
        assert sound.returncode == 0, sound.stdout + sound.stderr
    print(f"{name}: saves of {sorted(lost)} failed, of {sorted(kept)} are sound: {reason}", flush=True)
    return run


def slow(folder):
    """One worker's disk takes ten seconds for the file of the second checkpoint; nobody else's does."""
    run = Run(os.path.join(folder, "slow"), SMOKE, [*CHANGES, "checkpoint.background=false",
                                                    "elastic.operation_timeout=6s"])
    path = os.path.join(run.folder, "checkpoints", ".tmp-step-00000020.g1", "b.g1.h5")
    fired = os.path.join(folder, "slow.fired")
    start(run, path, "fsync:1:slow", HEDDLE_STORAGE_FIRED=fired)
    wait_for("the next save", lambda: len(run.events("checkpoint")) >= 3 or run.process.poll() is not None)
    suspend(run)
    assert os.path.exists(fired), "no call was slow: the test has lost its aim"
    assert not run.events("worker_lost") and not run.events("checkpoint_failed"), run.events()[-10:]
    stalls = {event["step"]: event["stall_seconds"] for event in run.events("checkpoint")}
    last = run.step()
    assert set(stalls) == {*range(EVERY, last + 1, EVERY), last} and stalls[20] >= 10, stalls
    print(f"one slow disk: all waited {stalls[20]:.1f} s, none was lost", flush=True)
    return run


def convert_on_full_disk(folder, checkpoint, target, options, kind, number):
    """Whether the call was made. If so: one line, and nothing under the target's name or beside it."""
    place, fired = os.path.join(folder, "converted"), os.path.join(folder, "fired")
    os.mkdir(place)
    environment = dict(os.environ, LD_PRELOAD=LIBRARY, HEDDLE_STORAGE_FOLDER=place, HEDDLE_STORAGE_FIRED=fired,
                       HEDDLE_STORAGE_FAULTS=f"{kind}:{number}+:ENOSPC")
    command = [HEDDLE, "checkpoint", "convert", checkpoint, os.path.join(place, target), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment,
                          stdin=subprocess.DEVNULL)
    left, met = os.listdir(place), os.path.exists(fired)
    shutil.rmtree(place)
    if not met:
        assert done.returncode == 0 and left == [target], (done, left)
        return False
    os.unlink(fired)
    where = f"convert {options[1]}, {kind} {number}: exit {done.returncode}: {done.stderr} {left}"
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "No space left" in done.stderr, where
    # The last fsync confirms a rename that has happened: the whole is there then, though not for certain.
    assert not left or kind == "fsync" and left == [target], where
    return True


def check_convert(folder, checkpoint):
    for target, form in (("model", "safetensors"), ("copy", "native"), ("model.pt", "pytorch")):
        tries = 0
        for kind in ("mkdir", "open", "pwrite", "fsync", "rename"):
            number = 1
            while convert_on_full_disk(folder, checkpoint, target, ["--to", form], kind, number):
                tries += 1
                number = max(number + 1, number * 3 // 2)  # Many writes are alike.
        print(f"convert to {form}: full at {tries} places", flush=True)


def main():
    with Scratch() as folder:
        runs = [fill(folder, "workers", "pwrite:1+:ENOSPC", "worker"),
                fill(folder, "waiting", "pwrite:1+:ENOSPC", "worker", ["checkpoint.background=false"]),
                slow(folder),
                fill(folder, "manifest", "write:1+:ENOSPC", "checkpoint")]
        undisturbed = losses_until(folder, SMOKE, max(run.step() for run in runs), *CHANGES)
        for run in runs:
            check_same(run, undisturbed, run.step())
            check_samples(run, run.step(), GLOBAL_BATCH)
        check_convert(folder, os.path.join(runs[0].folder, "checkpoints", f"step-{runs[0].step():08}"))


main()
