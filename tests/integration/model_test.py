"""The model is right: 20 steps of `heddle train` give the losses of an independent implementation in PyTorch.

Both start from the same weights (exported by export_training) and see the same batches; the other side is
tests/python/reference_model.py with torch's own layers, autograd and AdamW. Exit 77: no torch for python3.

Usage: model_test.py HEDDLE EXPORT_TRAINING
"""
import os
import sys

from harness import Run, Scratch, reference
from harness.text_data import prose

STEPS = 20
# 1e-4 is promised. What fp32 alone makes is below 2e-7; a rotary base that is off by a tenth makes 3e-6.
TOLERANCE = 2e-6
EXPORT = os.path.abspath(sys.argv[2])
MODELS = {
    # Grouped queries, a head of its own, an intermediate size that is no multiple of anything.
    "llama": "{model_type: llama, hidden_size: 64, intermediate_size: 172, num_hidden_layers: 3, "
             "num_attention_heads: 4, num_key_value_heads: 2, tie_word_embeddings: false}",
    # A tied head, learned positions beyond the sequence, biases; a vocabulary larger than the data's.
    "gpt2": "{model_type: gpt2, vocab_size: 300, hidden_size: 64, num_hidden_layers: 3, num_attention_heads: 4, "
            "max_position_embeddings: 64, tie_word_embeddings: true, dropout: 0}",
}
JOB = """name: {name}
steps: {steps}
seed: 7
model: {model}
data: {{text: {text}, validation_fraction: 0.1}}
batch: {{microbatch: 2, global: 8, sequence: 48}}
optimizer:
  {{learning_rate: 1e-3, minimum_learning_rate: 1e-4, schedule: cosine, warmup_steps: 5, max_gradient_norm: 1.0}}
workers: [{{name: a}}]
"""


def check(name, model, folder):
    job = os.path.join(folder, f"{name}.yaml")
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB.format(name=name, steps=STEPS, model=model, text=prose(folder)))
    ours = Run(os.path.join(folder, name), job).start().finish(180).losses()
    theirs = reference.train(EXPORT, job, STEPS, os.path.join(folder, name + "-export"))
    assert sorted(ours) == list(range(1, STEPS + 1)), sorted(ours)
    assert len(theirs["losses"]) == STEPS
    assert max(theirs["gradient_norms"]) > 1.0, "clipping took part"
    worst = max(abs(ours[step] - expected) / expected for step, expected in enumerate(theirs["losses"], 1))
    print(f"{name}: loss {ours[1]:.6f} -> {ours[STEPS]:.6f}, reference {theirs['losses'][-1]:.6f}, "
          f"worst relative difference {worst:.2e}", flush=True)
    assert ours[STEPS] < 0.9 * ours[1], "the loss falls"
    assert worst <= TOLERANCE


def main():
    reference.require()
    with Scratch() as folder:
        for name, model in MODELS.items():
            check(name, model, folder)


main()
