"""A model of which no worker can hold a layer trains in groups, is saved, killed, goes on under another plan, and is
exported: transformers computes the same loss of it as `heddle evaluate`.

Usage: sharded_export_test.py HEDDLE BUILD_FOLDER. Exit 77: skipped, no transformers (hugging_face.py).
"""
import array
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Run, Scratch, heddle, hugging_face, wait_for  # noqa: E402

STEPS = 16
CONTEXT = 32
TOKENS = [(i * i + 3 * i // 7) % 509 for i in range(4000)]
CAP = 40 << 20
# The matrices of one MLP take 3 x 256 x 4096 x 16 bytes of state: 50 MB, more than a worker may hold.
JOB = """name: large-layers
steps: {steps}
seed: 7
model: {{model_type: llama, vocab_size: 512, hidden_size: 256, intermediate_size: 4096, num_hidden_layers: 2,
        num_attention_heads: 8, num_key_value_heads: 4, max_position_embeddings: 64}}
data: {{tokens: {tokens}, validation_fraction: 0.1}}
batch: {{microbatch: 2, global: 8, sequence: {context}}}
optimizer: {{learning_rate: 1e-3, warmup_steps: 2}}
workers:
{workers}
checkpoint: {{every: 4}}
"""


def write_job(folder):
    tokens, job = os.path.join(folder, "tokens.bin"), os.path.join(folder, "job.yaml")
    with open(tokens, "wb") as file:
        file.write(array.array("H", TOKENS).tobytes())
    workers = "\n".join(f"  - {{name: {name}, emulate: {{memory: {CAP >> 20}MiB}}}}" for name in "abcd")
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB.format(steps=STEPS, tokens=tokens, context=CONTEXT, workers=workers))
    return job, tokens


def train(folder, job):
    """Two stages of two, killed with all its workers, then one stage of four."""
    refused = Run(os.path.join(folder, "refused"), job).start()
    assert refused.wait() == 2, refused.errors()
    assert "no combination of the 4 workers has the memory" in refused.errors(), refused.errors()
    groups = ["determinism=relaxed", "elastic.drift_threshold=100"]
    run = Run(os.path.join(folder, "run"), job, [*groups, "parallel.tensor=2"]).start()
    wait_for("a checkpoint", lambda: run.events("checkpoint") or run.process.poll() is not None)
    run.wait_step(6)
    run.kill_all()
    before = run.events("checkpoint")[-1]["step"]
    store = os.path.join(run.folder, "checkpoints", f"step-{before:08d}")
    resumed = Run(os.path.join(folder, "resumed"), job,
                  [*groups, "parallel.tensor=4", "checkpoint.resume=" + store]).start().finish()
    for part, size in ((run, 2), (resumed, 4)):
        for event in part.events("plan"):
            plan = event["plan"]
            assert all(len(stage["group"]) == size for pipeline in plan["pipelines"] for stage in pipeline["stages"])
            assert max(plan["predicted_peak_bytes"]) <= CAP, plan
    losses = resumed.losses()
    assert sorted(losses) == list(range(before + 1, STEPS + 1)) and losses[STEPS] < run.losses()[1], losses
    return resumed


def main():
    hugging_face.require(sys.argv[2])
    transformers = hugging_face.library()
    import torch  # pylint: disable=import-outside-toplevel,import-error
    torch.set_num_threads(1)
    with Scratch() as folder:
        job, tokens = write_job(folder)
        run = train(folder, job)
        step = os.path.join(run.folder, "checkpoints", f"step-{STEPS:08d}")
        model = os.path.join(folder, "model")
        converted = heddle("checkpoint", "convert", step, model, "--to", "safetensors")
        assert converted.returncode == 0, converted.stderr
        done = heddle("evaluate", step, "--data", tokens, "--context", str(CONTEXT), "--json")
        assert done.returncode == 0, done.stderr
        ours = json.loads(done.stdout)
        windows = torch.as_tensor(TOKENS).reshape(-1, CONTEXT)
        logits = hugging_face.logits(transformers, model, windows)[:, :-1].double()
        theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).item()
        assert ours["tokens"] == windows[:, 1:].numel(), ours
        print(f"loss of step {STEPS}: {ours['loss']:.6f}, transformers {theirs:.6f}", flush=True)
        assert abs(ours["loss"] - theirs) <= 1e-4, (ours, theirs)


main()
