"""The batch script of docs/operate/launching.md in a Slurm of this machine alone: told to end, the run saves what it
holds, the script goes back into the queue with exit code 75, and Slurm starts it again. No step is run twice, and the
losses are those of the undisturbed run.
"""
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, REPOSITORY, Run, Scratch, check_same, check_samples, seed, wait_for  # noqa: E402
from harness.slurm import Slurm, Unavailable  # noqa: E402

STEPS = 120
GLOBAL_BATCH = 24
# Slow on purpose: the signal comes in the midst of it.
OVERRIDES = [f"steps={STEPS}", "workers=[{name: a, emulate: {speed: 0.2}}, {name: b, emulate: {speed: 0.1}}]"]


def batch_script(path, folder):
    """The document's, for this run."""
    with open(os.path.join(REPOSITORY, "docs", "operate", "launching.md"), encoding="utf-8") as file:
        script = re.search(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", file.read(), re.DOTALL).group(1)
    settings = " ".join(f"--set '{one}'" for one in OVERRIDES)
    train = f"{HEDDLE} train {REPOSITORY}/configs/smoke.yaml --out {folder}/run {settings}"
    script, found = re.subn(r"heddle train \S+ --out \S+", lambda _: train, script)
    assert found == 1, script
    with open(path, "w", encoding="utf-8") as file:
        file.write(script)


def job_field(slurm, job, name):
    shown = subprocess.run(["scontrol", "show", "job", job], env=slurm.environment, capture_output=True, text=True,
                           timeout=60, check=True).stdout
    return re.search(rf"\b{name}=(\S+)", shown).group(1)


def check_requeued(slurm, folder, chance):
    script = os.path.join(folder, "train.sh")
    batch_script(script, folder)
    run = Run(os.path.join(folder, "run"))
    submitted = subprocess.run(["sbatch", "--parsable", "--overcommit", f"--output={folder}/run.err", script],
                               env=slurm.environment, capture_output=True, text=True, timeout=60, check=False)
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.strip()
    signal_after = chance.randrange(3, 15)
    wait_for(f"step {signal_after}", lambda: run.step() >= signal_after)
    before = run.step()
    subprocess.run(["scancel", "--signal=TERM", "--batch", job], env=slurm.environment, timeout=60, check=True)
    wait_for("the suspension", lambda: run.events("suspended"))
    suspended = run.events("suspended")[0]
    assert suspended["reason"] == "" and before <= suspended["step"] < STEPS, suspended
    wait_for("Slurm to start it again", lambda: job_field(slurm, job, "Restarts") == "1")
    wait_for("the job's end", lambda: run.events("job_finished"), 180)
    steps = [event["step"] for event in run.events("step")]
    assert steps == list(range(1, STEPS + 1)), f"a step was run again: {steps}"
    wait_for("Slurm to see it", lambda: job_field(slurm, job, "JobState") == "COMPLETED")
    print(f"told after step {before}, saved step {suspended['step']}, exit code 75, requeued, finished", flush=True)
    return run


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        alone = Run(os.path.join(folder, "alone"), overrides=[f"steps={STEPS}", "workers=[{name: a}]"])
        losses = alone.start().finish().losses()
        try:
            slurm = Slurm(folder).__enter__()
        except Unavailable as reason:
            print(f"SKIPPED: no Slurm here: {reason}")
            sys.exit(77)
        try:
            run = check_requeued(slurm, folder, chance)
        finally:
            slurm.__exit__()
        check_same(run, losses, STEPS)
        check_samples(run, STEPS, GLOBAL_BATCH)


main()
