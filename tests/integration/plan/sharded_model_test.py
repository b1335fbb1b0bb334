"""Stages of several workers compute the model: 20 steps under plans with groups give the losses of an independent
implementation in PyTorch (model_test.py), and their messages are as many bytes as the sums of activations need.

Usage: sharded_model_test.py HEDDLE EXPORT_TRAINING. Exit 77: no torch for python3.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Run, Scratch, get, heddle, reference, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402

STEPS = 20
TOLERANCE = 1e-5
EXPORT = os.path.abspath(sys.argv[2])
# Eight heads, which shares of 4, 3 and 1 cut; two of keys and values, which several members read.
MODELS = {
    "llama": "{model_type: llama, hidden_size: 64, intermediate_size: 172, num_hidden_layers: 3, "
             "num_attention_heads: 8, num_key_value_heads: 2, tie_word_embeddings: false}",
    "gpt2": "{model_type: gpt2, vocab_size: 300, hidden_size: 64, num_hidden_layers: 3, num_attention_heads: 8, "
            "max_position_embeddings: 64, tie_word_embeddings: true, dropout: 0}",
}
LARGE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4,
         "tie_word_embeddings": "false"}
JOB = """name: {name}
steps: {steps}
seed: 7
model: {model}
data: {{text: {text}, validation_fraction: 0.1}}
batch: {{microbatch: 2, global: 8, sequence: {sequence}}}
optimizer:
  {{learning_rate: 1e-3, minimum_learning_rate: 1e-4, schedule: cosine, warmup_steps: 5, max_gradient_norm: 1.0}}
determinism: relaxed
workers: [{{name: a}}, {{name: b}}, {{name: c}}, {{name: d}}, {{name: e}}, {{name: f}}]
"""


def write_job(folder, name, model, steps=STEPS, sequence=48):
    job = os.path.join(folder, f"{name}.yaml")
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB.format(name=name, steps=steps, model=model, text=prose(folder), sequence=sequence))
    return job


def plan_of(job, folder, name, size, cut, pipelines, sequence):
    """A plan file with groups of `size` workers: of each pipeline the numbers of segments of its stages."""
    workers = "abcdef"[:size]
    made = heddle("plan", job, "--json", "--set", f"parallel.tensor={size}", "--set", f"parallel.sequence={sequence}",
                  "--set", f"workers=[{', '.join(f'{{name: {worker}}}' for worker in workers)}]")
    assert made.returncode == 0, made.stderr
    plan = json.loads(made.stdout)
    units = sum(plan["layouts"][0]["cuts"][0])
    plan["layouts"][0]["cuts"][0] = [units * part // sum(cut) for part in cut]
    stage, rank, microbatch = plan["pipelines"][0]["stages"][0], 0, 0
    share = plan["pipelines"][0]["microbatches"] // len(pipelines)
    plan["pipelines"] = []
    for cuts in pipelines:
        stages, first = [], 0
        for segments in cuts:
            stages.append({**stage, "first_segment": first, "last_segment": first + segments,
                           "group": list(range(rank, rank + size))})
            first, rank = first + segments, rank + size
        plan["pipelines"].append({"first_microbatch": microbatch, "microbatches": share, "stages": stages})
        microbatch += share
    plan.update(workers=list("abcdef"[:rank]), predicted_peak_bytes=[0] * rank, transports=[])
    del plan["predicted_process_bytes"]
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(plan, file)
    return ["plan=" + path, f"workers=[{', '.join(f'{{name: {worker}}}' for worker in plan['workers'])}]"]


def check_losses(name, model, folder):
    job = write_job(folder, name, model)
    expected = reference.train(EXPORT, job, STEPS, os.path.join(folder, name + "-export"))["losses"]
    whole = 8  # Segments: the embedding, two a layer, the head.
    unlike_depth = [[3, whole - 3], [whole]]
    cases = {"pair": (2, (1, 1), [[whole]], "whole", "[shm]"), "pair-tcp": (2, (1, 1), [[whole]], "whole", "[tcp]"),
             "uneven": (3, (4, 3, 1), [[whole]], "whole", "[shm]"),
             "uneven-tcp": (3, (4, 3, 1), [[whole]], "whole", "[tcp]"),
             "unlike-depth": (2, (1, 1), unlike_depth, "whole", "[shm, tcp]"),
             "uneven-sequence": (3, (4, 3, 1), [[whole]], "divided", "[shm]"),
             "unlike-depth-sequence": (2, (1, 1), unlike_depth, "divided", "[tcp]")}
    for case, (size, cut, pipelines, sequence, transports) in cases.items():
        plan = plan_of(job, folder, f"{name}-{case}", size, cut, pipelines, sequence)
        run = Run(os.path.join(folder, f"{name}-{case}-run"), job,
                  [*plan, "comm.transports=" + transports, "elastic.drift_threshold=100"]).start().finish()
        losses = run.losses()
        assert sorted(losses) == list(range(1, STEPS + 1)), sorted(losses)
        worst = max(abs(losses[step] - loss) / loss for step, loss in enumerate(expected, 1))
        print(f"{name} {case}: loss {losses[1]:.6f} -> {losses[STEPS]:.6f}, worst difference {worst:.1e}", flush=True)
        assert worst <= TOLERANCE and losses[STEPS] < 0.9 * losses[1]
        [first] = run.events("plan")
        shares = first["plan"]["layouts"][0]["cuts"][0]
        assert [share * sum(cut) for share in shares] == [part * sum(shares) for part in cut], first


def sent(run):
    """Of each worker: (steps, bytes sent to others so far)."""
    coordinator, found = run.job()["metrics"], {}
    for group in json.loads(get(coordinator, "/sd")):
        for address in group["targets"]:
            if address != coordinator:
                page = get(address).splitlines()
                step = [float(line.split()[-1]) for line in page if line.startswith(("heddle_step ", "heddle_step{"))]
                found[address] = (step[0] if step else 0, sum(
                    float(line.split()[-1]) for line in page if line.startswith("heddle_comm_sent_bytes_total{")))
    return found


def check_bytes(folder):
    """Of a group of two, a sum of n bytes is n bytes sent by each. Each microbatch has two sums a layer in the forward
    and two in the backward, one of the embedding's rows and one of the head's gradient."""
    sequence, model = 256, ", ".join(f"{key}: {value}" for key, value in LARGE.items())
    job = write_job(folder, "bytes", f"{{model_type: llama, {model}}}", 100_000, sequence)
    run = Run(os.path.join(folder, "bytes-run"), job,
              ["workers=[{name: a}, {name: b}]", "parallel.tensor=2", "checkpoint.every=0", "comm.transports=[tcp]",
               "elastic.drift_threshold=100", "validation.every=0"]).start()
    try:
        run.wait_step(3)
        before = wait_for("steps", lambda: [figures for figures in [sent(run)]
                                            if len(figures) == 2 and min(step for step, _ in figures.values()) > 0])[0]
        run.wait_step(run.step() + 40)
        after = sent(run)
    finally:
        run.kill_all()
    activations = 2 * sequence * LARGE["hidden_size"] * 4
    expected = 4 * (4 * LARGE["num_hidden_layers"] + 2) * activations
    for address, (step, so_far) in after.items():
        each = (so_far - before[address][1]) / (step - before[address][0])
        print(f"bytes of a step: {each:.0f}, by the formula {expected}: {each / expected:.4f}", flush=True)
        assert abs(each / expected - 1) <= 0.01


def main():
    reference.require()
    with Scratch() as folder:
        for name, model in MODELS.items():
            check_losses(name, model, folder)
        check_bytes(folder)


main()
