"""How a run ends that has nothing to do, or nobody to do it: at once, with the true reason and no figure that nobody
has measured.
"""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, PATIENCE, Run, Scratch  # noqa: E402
from harness.served import Cluster  # noqa: E402
from harness.text_data import prose  # noqa: E402

JOB = """name: trial
steps: 4
seed: 1
model:
  model_type: llama
  hidden_size: 32
  intermediate_size: 48
  num_hidden_layers: 1
  num_attention_heads: 4
  num_key_value_heads: 2
  max_position_embeddings: 64
data: {{text: {text}, validation_fraction: 0.2}}
batch: {{microbatch: 2, global: 4, sequence: 16}}
optimizer: {{learning_rate: 1e-3}}
workers: [{{name: a}}, {{name: b}}]
checkpoint: {{every: 2}}
"""
# Fewer than a worker needs for its own threads and connections.
FEW_DESCRIPTORS = 24


def write_job(folder):
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(JOB.format(text=prose(folder)))
    return path


def finished_again(folder, job):
    """A run that is done makes no step when it is started again, and so has no loss of one; its checkpoint."""
    run = Run(os.path.join(folder, "run"), job).start().finish()
    assert run.events("job_finished")[-1]["loss"] == run.losses()[4], run.events("job_finished")
    run.start().finish()
    [_, again] = run.events("job_finished")
    assert again["step"] == 4 and "loss" not in again, again
    assert len(run.events("step")) == 4
    return os.path.join(run.folder, "checkpoints", "step-00000004")


def refused(command, *says):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 2, (done.returncode, done.stderr)
    for text in says:
        assert text in done.stderr, (text, done.stderr)


def after_the_last_step(folder, job, checkpoint):
    """A checkpoint of a step after the last one is refused before anything is started or written."""
    out = os.path.join(folder, "after")
    changes = ["--set", "steps=3", "--set", f"checkpoint.resume={checkpoint}"]
    what = "checkpoint.resume: the job would go on after step 4, and its last one is 3 (steps)"
    refused([HEDDLE, "train", job, "--out", out, *changes], what)
    assert not os.path.exists(out)
    with Cluster(folder, "served") as cluster:
        cluster.serve()
        refused([HEDDLE, "submit", job, "--coordinator", cluster.listen, "--out", out, *changes], what)
    assert not os.path.exists(out)
    # Likewise where they are the folder's own, which another job has left.
    root = os.path.dirname(checkpoint)
    refused([HEDDLE, "train", job, "--out", out, "--set", "steps=3", "--set", f"checkpoint.store={root}"],
            f"checkpoints of {root}: the job would go on after step 4")


def nobody_left(folder, job):
    """All workers end before they could join: the run does, too, and says what the first one said."""
    program = os.path.join(folder, "program")
    os.mkdir(program)
    shutil.copy(HEDDLE, os.path.join(program, "heddle"))
    engine = os.path.join(program, "heddle-engine")
    with open(engine, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nulimit -n {FEW_DESCRIPTORS}\nexec {HEDDLE}-engine "$@"\n')
    os.chmod(engine, 0o755)
    out = os.path.join(folder, "few")
    done = subprocess.run([os.path.join(program, "heddle"), "train", job, "--out", out, "--quiet"], capture_output=True,
                          text=True, timeout=2 * PATIENCE, check=False, stdin=subprocess.DEVNULL)
    [failed] = Run(out, job).events("job_failed")
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert failed["reason"].startswith("no worker is left; the first that ended: "), failed
    assert failed["reason"] in done.stderr, (failed, done.stderr)
    print(failed["reason"], flush=True)


def main():
    with Scratch() as folder:
        job = write_job(folder)
        checkpoint = finished_again(folder, job)
        after_the_last_step(folder, job, checkpoint)
        nobody_left(folder, job)


main()
