"""What is promised of the bits of a job's losses depends on what its workers compute on: alike workers make them
plan-invariant, one with other BLAS kernels makes them per-plan, and a job that demands plan-invariant refuses it.
Checkpoints say it, and a run that goes on from one keeps to it.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, PATIENCE, Run, Scratch, get, heddle, wait_for  # noqa: E402
from harness.served import Cluster  # noqa: E402
from harness.text_data import prose  # noqa: E402

JOB = """name: trial
steps: {steps}
seed: 1
model:
  model_type: llama
  hidden_size: 64
  intermediate_size: 160
  num_hidden_layers: 3
  num_attention_heads: 4
  num_key_value_heads: 2
data: {{text: {text}, validation_fraction: 0}}
batch: {{microbatch: 2, global: 8, sequence: 32}}
optimizer: {{learning_rate: 1e-3}}
workers: [{{name: a, emulate: {{speed: 0.2}}}}, {{name: b, emulate: {{speed: 0.2}}}}]
checkpoint: {{every: 4}}
"""
# Matrix products by kernels for old processors, which every x86-64 of today can run. For a processor that it does not
# know, OpenBLAS takes by itself those that are still older (Prescott).
UNLIKE = ("env", "OPENBLAS_CORETYPE=Nehalem")


def write_job(folder, text, steps):
    path = os.path.join(folder, f"job-{steps}.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(JOB.format(text=text, steps=steps))
    return path


def checkpoint_of(run, step):
    return os.path.join(run.folder, "checkpoints", f"step-{step:08d}")


def inspected(run, step):
    done = heddle("checkpoint", "inspect", checkpoint_of(run, step), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def newest_of(run):
    folder = os.path.join(run.folder, "checkpoints")
    return os.path.join(folder, max(name for name in os.listdir(folder) if name.startswith("step-")))


def gauge(cluster):
    with open(os.path.join(cluster.store, "job.json"), encoding="utf-8") as file:
        page = get(json.load(file)["metrics"])
    [value] = [line.split()[1] for line in page.splitlines() if line.startswith("heddle_plan_invariant ")]
    return float(value)


def an_unlike_worker_joins(folder, text):
    """Without a demand it takes part, and is named; the checkpoint before says plan-invariant, that after per-plan."""
    with Cluster(folder, "open") as cluster:
        cluster.serve()
        cluster.submit(write_job(folder, text, 100_000))
        for name in "ab":
            cluster.worker(name)
        wait_for("a checkpoint", lambda: cluster.run.events("checkpoint"))
        status = cluster.status()
        assert (status["guarantee"], status["guarantee_reason"]) == ("plan-invariant", ""), status
        assert gauge(cluster) == 1
        like = status["workers"][0]["arithmetic"]
        assert like == status["workers"][1]["arithmetic"] and len(like) >= 7, like
        saved = inspected(cluster.run, cluster.run.events("checkpoint")[-1]["step"])
        assert saved["guarantee"] == "plan-invariant", saved
        assert saved["arithmetic"] == {**like, "threads": "1"}, saved
        cluster.worker("c", "--emulate", "speed=0.2", prefix=UNLIKE)
        changed = wait_for("c to take part", lambda: cluster.run.events("guarantee")[1:])[0]
        assert changed["guarantee"] == "per-plan" and "Nehalem" in changed["reason"], changed
        status = cluster.status()
        assert status["guarantee"] == "per-plan" and status["guarantee_reason"] == changed["reason"], status
        shown = heddle("status", "--coordinator", cluster.listen).stdout
        assert f"\nguarantee per-plan: {changed['reason']}\n" in shown, shown
        assert gauge(cluster) == 0
        step = cluster.run.step()
        after = wait_for("a later checkpoint", lambda: [event["step"] for event in cluster.run.events("checkpoint")
                                                        if event["step"] > step])[-1]
        saved = inspected(cluster.run, after)
        assert saved["guarantee"] == "per-plan" and saved["guarantee_reason"] == changed["reason"], saved
        assert saved["arithmetic"] == {}, saved
        cluster.kill("c")  # What it computed stays part of the state.
        cluster.wait_step(cluster.run.step() + 4)
        status = cluster.status()
        assert len(status["workers"]) == 2 and status["guarantee"] == "per-plan", status
        print(changed["reason"], flush=True)
    return newest_of(cluster.run)


def a_demand_refuses_it(folder, text):
    """And the job goes on without it, to losses that one worker alone makes, too."""
    job = write_job(folder, text, 12)
    demand = "guarantee=plan-invariant"
    with Cluster(folder, "demanding") as cluster:
        cluster.serve()
        cluster.submit(job, demand)
        for name in "ab":
            cluster.worker(name, "--emulate", "speed=0.02")  # The job does not end before c has come.
        cluster.wait_step(1)
        cluster.worker("c", prefix=UNLIKE)
        assert cluster.workers.pop("c").wait(PATIENCE) == 2, cluster.errors()
        for name in "ab":
            done = heddle("emulate", name, "speed=1", "--coordinator", cluster.listen)
            assert done.returncode == 0, done
        [refused] = cluster.run.events("worker_refused")
        assert refused["worker"] == "c" and refused["reason"] in cluster.errors(), (refused, cluster.errors())
        for words in ("guarantee: plan-invariant", "c computes unlike", "blas ", "Nehalem, not ",
                      "guarantee: per-plan"):
            assert words in refused["reason"], refused
        cluster.finish()
        assert inspected(cluster.run, 12)["guarantee"] == "plan-invariant"
        print(refused["reason"], flush=True)
        losses = cluster.run.losses()
    alone = Run(os.path.join(folder, "alone"), job, [demand, "workers=[{name: a}]"]).start().finish()
    assert alone.losses() == losses, "another plan gives other losses"
    listed = heddle("checkpoint", "ls", os.path.join(alone.folder, "checkpoints")).stdout
    assert "plan-invariant" in listed, listed
    return alone


def refused_at_the_start(command, *says, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False,
                          stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
    assert done.returncode == 2, (done.returncode, done.stderr)
    for text in says:
        assert text in done.stderr.strip().splitlines()[-1], (text, done.stderr)


def what_goes_on_from_a_checkpoint(folder, text, mixed, alike):
    """A demand that the checkpoint or this machine cannot keep begins nothing."""
    job = write_job(folder, text, 200_000)
    train = [HEDDLE, "train", job, "--quiet", "--set", "guarantee=plan-invariant"]
    out = os.path.join(folder, "after-mixed")
    refused_at_the_start([*train, "--out", out, "--set", f"checkpoint.resume={mixed}"],
                         "guarantee: plan-invariant cannot be kept", "is per-plan: ", "Nehalem")
    assert not os.path.exists(out), os.listdir(out)
    checkpoint = f"checkpoint.resume={checkpoint_of(alike, 12)}"
    refused_at_the_start([*train, "--out", os.path.join(folder, "after-threads"), "--set", checkpoint, "--set",
                          "threads=2"], "computed with threads: 1, and the job has threads: 2")
    refused_at_the_start([*train, "--out", os.path.join(folder, "after-alike"), "--set", checkpoint],
                         "computes unlike the workers of its steps so far", "Nehalem, not ",
                         environment=dict([UNLIKE[1].split("=")]))


def main():
    with Scratch() as folder:
        text = prose(folder)
        mixed = an_unlike_worker_joins(folder, text)
        alike = a_demand_refuses_it(folder, text)
        what_goes_on_from_a_checkpoint(folder, text, mixed, alike)


main()
