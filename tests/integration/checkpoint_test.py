"""Checkpoints of real runs: h5py reads them as the weights that they are; a flipped byte is found and named; a job
that starts again falls back to the checkpoint before, and says so.

Usage: checkpoint_test.py HEDDLE EXPORT_TRAINING BUILD_FOLDER. h5py needs PyPI's hdf5plugin: in
HEDDLE_H5PY_PYTHON, or in the virtual environment that the test of the format shares. Without it the other parts
run, and the exit code is 77.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys

from harness import PATIENCE, SMOKE, Run, Scratch, alive, check_same, check_samples, heddle, seed, wait_for
from harness.served import losses_until
import environments  # pylint: disable=import-error

EXPORT = os.path.abspath(sys.argv[2])
BUILD = os.path.abspath(sys.argv[3])
COMPARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness", "compare_checkpoint.py")
STEPS = 40
GLOBAL_BATCH = 24
ENDLESS = ["steps=100000"]  # A job that is to be killed does not end by itself before.


def python_with_h5py():
    """Path of an interpreter that has h5py and hdf5plugin, or None."""
    python, ready = environments.interpreter("HEDDLE_H5PY_PYTHON", os.path.join(BUILD, "h5py-venv"), "h5py, hdf5plugin",
                                             ["hdf5plugin"])
    return python if ready else None


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def checkpoints(run):
    folder = os.path.join(run.folder, "checkpoints")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if not name.startswith(".")]


def check_weights(folder, python):
    """One step at a learning rate that moves no fp32 weight: the checkpoint must hold the initial weights."""
    changes = {"steps": "1", "optimizer.learning_rate": "1e-30", "optimizer.schedule": "constant",
               "optimizer.warmup_steps": "0"}
    run = Run(os.path.join(folder, "still"), overrides=[f"{key}={value}" for key, value in changes.items()])
    run.start().finish()
    [checkpoint] = checkpoints(run)
    export = os.path.join(folder, "export")
    subprocess.run([EXPORT, os.path.join(run.folder, "job.yaml"), "1", export], check=True, timeout=PATIENCE)
    done = subprocess.run([python, COMPARE, checkpoint, os.path.join(export, "index.json")], check=False, timeout=120,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.strip(), flush=True)


def check_flips(folder, checkpoint, chance):
    """One flipped byte anywhere: exit 1, the file is named, and the tensor when the byte is a tensor's."""
    sound = heddle("checkpoint", "verify", checkpoint)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    with open(os.path.join(checkpoint, "MANIFEST.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    owner = {}
    for tensor in manifest["tensors"]:
        for box in tensor["boxes"]:
            for address, size, *_ in box["chunks"]:
                owner.setdefault(manifest["files"][box["file"]]["name"], []).append((address, size, tensor["name"]))
    flips = 0
    for name in sorted(os.listdir(checkpoint)):
        size = os.path.getsize(os.path.join(checkpoint, name))
        offsets = [0, size - 1] + [chance.randrange(size) for _ in range(4)]
        if name in owner:
            address, length, _ = chance.choice(owner[name])
            offsets.append(address + chance.randrange(length))
        for offset in offsets:
            copy = os.path.join(folder, "flipped")
            shutil.copytree(checkpoint, copy)
            flip(os.path.join(copy, name), offset)
            found = heddle("checkpoint", "verify", copy)
            where = f"{name} byte {offset} of {size}: exit {found.returncode}: {found.stdout}{found.stderr}"
            assert found.returncode == 1, where
            assert name in found.stdout, where
            tensors = [tensor for address, length, tensor in owner.get(name, [])
                       if address <= offset < address + length]
            assert all(tensor in found.stdout for tensor in tensors), where
            shutil.rmtree(copy)
            flips += 1
    print(f"{flips} flipped bytes in {len(os.listdir(checkpoint))} files, each found and named", flush=True)


def kill_job(run):
    """kill -9 of the whole job."""
    pids = list(run.pids().values())
    run.process.send_signal(signal.SIGKILL)
    run.process.wait(60)
    run.log.close()
    wait_for("the workers' end with their parent", lambda: not any(alive(pid) for pid in pids))


def damage(checkpoint, chance):
    """Flips a byte anywhere in one of the files of tensors; returns the file's name."""
    name = chance.choice(sorted(name for name in os.listdir(checkpoint) if name.endswith(".h5")))
    path = os.path.join(checkpoint, name)
    flip(path, chance.randrange(os.path.getsize(path)))
    return name


def damage_tensor(checkpoint, chance):
    """The same to a byte of a tensor."""
    with open(os.path.join(checkpoint, "MANIFEST.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    box = chance.choice(chance.choice(manifest["tensors"])["boxes"])
    name = manifest["files"][box["file"]]["name"]
    address, length, *_ = chance.choice(box["chunks"])
    flip(os.path.join(checkpoint, name), address + chance.randrange(length))
    return name


def check_fallback(folder, chance):
    run = Run(os.path.join(folder, "fallback"), overrides=ENDLESS).start()
    wait_for("two checkpoints", lambda: len(checkpoints(run)) >= 2 or run.process.poll() is not None)
    kill_job(run)
    *_, before, newest = checkpoints(run)
    name = damage(newest, chance)
    events, saved = len(run.events()), len(run.events("checkpoint"))
    run.start()
    wait_for("a save", lambda: len(run.events("checkpoint")) > saved or run.process.poll() is not None)
    kill_job(run)
    again = run.events()[events:]
    warnings = [event for event in again if event["event"] == "warning" and name in event["message"]]
    assert len(warnings) == 1 and os.path.basename(newest) in warnings[0]["message"], again[:5]
    assert name in run.errors() and os.path.basename(newest) in run.errors(), run.errors()[-2000:]
    first = next(event["step"] for event in again if event["event"] == "step")
    assert first == int(before.rsplit("-", 1)[1]) + 1, f"{first} follows {before}"
    last = run.step()
    check_same(run, losses_until(folder, SMOKE, last, *ENDLESS), last)
    check_samples(run, last, GLOBAL_BATCH)
    print(f"fell back from {os.path.basename(newest)} to {os.path.basename(before)}", flush=True)


def check_named(folder, reference, chance):
    """A new run begins from the checkpoint of another: the same losses from there on. What it cannot begin from is said
    with exit code 2, and nothing is trained."""
    *_, before, newest = checkpoints(reference)
    step = int(before.rsplit("-", 1)[1])

    def begin(name, checkpoint, *overrides):
        return Run(os.path.join(folder, name), overrides=[f"checkpoint.resume={checkpoint}", *overrides]).start()

    run = begin("named", before).finish(180)
    wanted = {number: loss for number, loss in reference.losses().items() if number > step}
    assert run.losses() == wanted, (run.losses(), wanted)

    copy = os.path.join(folder, "named-damaged")
    shutil.copytree(newest, copy)
    name = damage(copy, chance)
    own = checkpoints(run)
    for label, checkpoint, reason, overrides in (
            ("damaged", copy, name, ()),
            ("other-model", newest, "another model", ("model.hidden_size=32",)),
            ("missing", os.path.join(folder, "nowhere"), "nowhere", ()),
            ("named", own[0], "belongs to another job", ())):
        refused = begin(label, checkpoint, *overrides)
        steps = len(refused.events("step"))
        assert refused.wait(60) == 2, refused.errors()[-2000:]
        assert reason in refused.errors(), (label, refused.errors()[-2000:])
        assert len(refused.events("step")) == steps, "no step was trained"
        assert label == "named" or not os.path.exists(refused.folder), "a refused run left its folder"
    print(f"began from step {step} of another run; four that cannot be begun from: exit code 2", flush=True)


def check_rounded(folder, reference):
    """checkpoint.moments: bf16 changes nothing in training itself; its checkpoints are smaller and say what they are,
    and a run that goes on from one stays close to the undisturbed one."""
    rounded = "checkpoint.moments=bf16"
    run = Run(os.path.join(folder, "rounded"), overrides=[rounded]).start().finish(180)
    check_same(run, reference.losses(), STEPS)
    warnings = [event["message"] for event in run.events() if event["event"] == "warning"]
    assert any("checkpoint.moments" in message for message in warnings), warnings
    *_, before, newest = checkpoints(run)
    shown = json.loads(heddle("checkpoint", "inspect", newest, "--json").stdout)
    exact = json.loads(heddle("checkpoint", "inspect", checkpoints(reference)[-1], "--json").stdout)
    assert {tensor["role"] for tensor in shown["tensors"] if tensor["lossy"]} == {"exp_avg", "exp_avg_sq"}
    assert not any(tensor["lossy"] for tensor in exact["tensors"])
    assert shown["stored_bytes"] < exact["stored_bytes"], (shown["stored_bytes"], exact["stored_bytes"])
    verified = heddle("checkpoint", "verify", newest)
    assert verified.returncode == 0 and "rounded to bf16" in verified.stdout, verified.stdout

    again = Run(os.path.join(folder, "rounded-again"), overrides=[rounded, f"checkpoint.resume={before}"])
    again.start().finish(180)
    losses, wanted = again.losses(), reference.losses()
    assert sorted(losses) == list(range(int(before.rsplit("-", 1)[1]) + 1, STEPS + 1)), sorted(losses)
    far = [step for step in losses if abs(float(losses[step]) / float(wanted[step]) - 1) > 1e-2]
    assert not far, f"losses are far from the undisturbed ones at steps {far[:10]}"
    assert any(losses[step] != wanted[step] for step in losses), "nothing was rounded"
    print(f"rounded moments: {shown['stored_bytes']} bytes for {exact['stored_bytes']}, losses within 1 %", flush=True)


def check_none_sound(folder, chance):
    """Nothing to fall back to: that is said, and nothing is trained from scratch into the folder of the old run."""
    run = Run(os.path.join(folder, "lost"), overrides=ENDLESS).start()
    wait_for("a checkpoint", lambda: len(checkpoints(run)) >= 1 or run.process.poll() is not None)
    kill_job(run)
    names = [damage_tensor(checkpoint, chance) for checkpoint in checkpoints(run)]
    steps = len(run.events("step"))
    code = run.start().wait(60)
    assert code == 2, f"exit code {code}: {run.errors()[-2000:]}"
    assert all(name in run.errors() for name in names), run.errors()[-2000:]
    assert len(run.events("step")) == steps, "no step was trained"
    print("without a sound checkpoint: exit code 2", flush=True)


def main():
    chance = random.Random(seed())
    python = python_with_h5py()
    with Scratch() as folder:
        reference = Run(os.path.join(folder, "undisturbed"), SMOKE).start().finish(180)
        if python is not None:
            check_weights(folder, python)
        check_flips(folder, checkpoints(reference)[-1], chance)
        check_fallback(folder, chance)
        check_named(folder, reference, chance)
        check_rounded(folder, reference)
        check_none_sound(folder, chance)
    if python is None:
        print("SKIPPED in part: no Python with h5py and hdf5plugin, and PyPI could not provide them", file=sys.stderr)
        sys.exit(77)


main()
