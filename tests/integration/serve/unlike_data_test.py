"""A job has one text, whoever reads it: a worker that sees another one at its path takes no part and ends with the two
fingerprints, and so does a run that goes on after its text has changed. No run reads what it writes.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, PATIENCE, Run, Scratch, wait_for  # noqa: E402
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
BOTH = r"they have the fingerprint ([0-9a-f]{16}) there, and the job's ([0-9a-f]{16})"


def write_job(folder, text):
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(JOB.format(text=text))
    return path


def change(path):
    """The same length, another letter."""
    with open(path, "r+b") as file:
        letter = file.read(1)
        file.seek(0)
        file.write(bytes([letter[0] ^ 1]))


def another_text_at_the_same_path(folder):
    """What lies in a process' own folder is another file for each; as unlike mounts make it."""
    places = {}
    for name in ("a", "b"):
        places[name] = os.path.join(folder, "of-" + name)
        os.mkdir(places[name])
        prose(places[name])
    change(os.path.join(places["b"], "prose.txt"))
    with Cluster(folder, "served") as cluster:
        cluster.serve()
        cluster.submit(write_job(folder, "/proc/self/cwd/prose.txt"))
        for name, place in places.items():
            cluster.worker(name, prefix=("env", "-C", place))
        wait_for("one of them to end", lambda: any(w.poll() is not None for w in cluster.workers.values()))
        [odd] = [name for name, worker in cluster.workers.items() if worker.poll() is not None]
        [like] = set(places) - {odd}
        assert cluster.workers.pop(odd).wait() == 1
        cluster.worker("c", prefix=("env", "-C", places[like]))
        cluster.finish()
        [lost] = cluster.run.events("worker_lost")
        assert lost["worker"] == odd, lost
        theirs, ours = re.search(BOTH, lost["reason"]).groups()
        assert theirs != ours and lost["reason"] in cluster.errors(), (lost, cluster.errors())
        print(lost["reason"], flush=True)


def refused(command, *says):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
    for text in says:
        assert re.search(text, done.stderr), (text, done.stderr)


def changed_before_it_goes_on(folder):
    text = prose(folder)
    job = write_job(folder, text)
    run = Run(os.path.join(folder, "run"), job).start().finish()
    change(text)
    refused([HEDDLE, "train", job, "--out", run.folder],
            "data: they have changed: their fingerprint is [0-9a-f]{16}, and that of the checkpoint of step 4")
    # By another run that begins there, its own workers tell.
    out = os.path.join(folder, "further")
    checkpoint = os.path.join(run.folder, "checkpoints", "step-00000004")
    done = subprocess.run([HEDDLE, "train", job, "--out", out, "--quiet", "--set", "steps=6", "--set",
                           f"checkpoint.resume={checkpoint}"], capture_output=True, text=True, timeout=2 * PATIENCE,
                          check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and re.search(BOTH, done.stderr), (done.returncode, done.stderr)
    change(text)  # As it was.
    run.start().finish()


def output_in_the_data(folder):
    data = os.path.join(folder, "data")
    os.mkdir(data)
    prose(data)
    job = write_job(folder, data)
    out = os.path.join(data, "runs", "trial")
    why = f"output folder {out} lies in the data folder {data}, and the run would read what it writes"
    refused([HEDDLE, "train", job, "--out", out], why)
    with Cluster(data, "served") as cluster:
        cluster.serve()
        refused([HEDDLE, "submit", job, "--coordinator", cluster.listen, "--out", out], why)
    assert not os.path.exists(os.path.join(data, "runs"))


def main():
    with Scratch() as folder:
        another_text_at_the_same_path(folder)
    with Scratch() as folder:
        changed_before_it_goes_on(folder)
        output_in_the_data(folder)


main()
