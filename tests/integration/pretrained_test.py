"""Training goes on from models of Hugging Face, and `heddle evaluate` measures what transformers measures.

Usage: pretrained_test.py HEDDLE BUILD_FOLDER. Exit 77: skipped, no transformers (hugging_face.py).
"""
import array
import json
import pathlib
import subprocess
import sys

from harness import HEDDLE, Run, Scratch, hugging_face

CONTEXT = 20
TOKENS = [(i * i + 3 * i // 7) % 67 for i in range(1234)]
JOB = """name: {name}
steps: 5
seed: 7
model: {{config: {model}/config.json}}
init_from: {model}
data: {{tokens: {tokens}, validation_fraction: 0.1}}
batch: {{microbatch: 2, global: 8, sequence: 16}}
optimizer: {{learning_rate: 1e-3, warmup_steps: 1}}
workers: [{{name: a}}, {{name: b}}]
"""


def heddle(*arguments, code=0):
    done = subprocess.run([HEDDLE, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}\n{done.stderr}"
    return done


def evaluate(model, tokens):
    return json.loads(heddle("evaluate", model, "--data", tokens, "--context", CONTEXT, "--json").stdout)


def their_loss(transformers, model):
    """Mean loss of all tokens but the first of each window, and their number."""
    import torch
    total, count = 0.0, 0
    for first in range(0, len(TOKENS), CONTEXT):
        window = TOKENS[first:first + CONTEXT]
        if len(window) > 1:
            logits = hugging_face.logits(transformers, model, [window])[0, :-1].double()
            loss = torch.nn.functional.cross_entropy(logits, torch.as_tensor(window[1:]), reduction="sum")
            total, count = total + loss.item(), count + len(window) - 1
    return total / count, count


def check_loss(transformers, model, folder, tokens, what):
    """`model`: what heddle reads; `folder`: the same for transformers."""
    ours = evaluate(model, tokens)
    loss, count = their_loss(transformers, folder)
    assert ours["tokens"] == count, (ours, count)
    assert abs(ours["loss"] - loss) <= 1e-4, (what, ours, loss)
    return ours["loss"]


def check_family(transformers, name, model, folder, tokens):
    source = folder / name
    model.save_pretrained(source, safe_serialization=True)
    before = check_loss(transformers, source, source, tokens, name)
    job = folder / (name + ".yaml")
    job.write_text(JOB.format(name=name, model=source, tokens=tokens))
    run = Run(str(folder / (name + "-run")), str(job)).start().finish(180)
    losses = run.losses()
    assert sorted(losses) == [1, 2, 3, 4, 5], losses
    assert abs(losses[1] - before) < 0.5, (losses, before)
    checkpoints = sorted((folder / (name + "-run") / "checkpoints").glob("step-*"))
    assert checkpoints[0].name == "step-00000000" and checkpoints[-1].name == "step-00000005", checkpoints
    difference = json.loads(heddle("checkpoint", "diff", checkpoints[0], source, "--json").stdout)
    assert difference["equal"], difference
    back = folder / (name + "-back")
    heddle("checkpoint", "convert", checkpoints[-1], back, "--to", "safetensors")
    after = check_loss(transformers, checkpoints[-1], back, tokens, name + " trained")
    assert after < before, (before, after)
    print(f"{name}: loss {before:.4f}, after 5 steps {after:.4f}, as transformers says", flush=True)


def check_refusals(folder, tokens):
    """A model of another shape leaves no run behind; a bad question has one line."""
    job = folder / "mixed.yaml"
    job.write_text(JOB.format(name="mixed", model=folder / "llama", tokens=tokens).replace(
        f"init_from: {folder}/llama", f"init_from: {folder}/gpt2"))
    line = heddle("train", job, "--out", folder / "mixed", code=2).stderr
    assert "init_from" in line and line.count("\n") == 1, line
    assert not (folder / "mixed").exists()
    line = heddle("evaluate", folder / "llama", "--data", tokens, "--context", 65, code=2).stderr
    assert "65" in line and line.count("\n") == 1, line
    heddle("evaluate", folder / "none", "--data", tokens, code=2)
    heddle("evaluate", folder / "llama", "--data", folder / "none.bin", code=2)


def main():
    hugging_face.require(sys.argv[2])
    transformers = hugging_face.library()
    import torch
    torch.manual_seed(11)
    torch.set_num_threads(1)
    with Scratch() as name:
        folder = pathlib.Path(name)
        tokens = folder / "tokens.bin"
        tokens.write_bytes(array.array("H", TOKENS).tobytes())
        for family, model in hugging_face.tiny_models(transformers):
            check_family(transformers, family, model, folder, tokens)
        check_refusals(folder, tokens)


if __name__ == "__main__":
    main()
