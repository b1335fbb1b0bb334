#!/usr/bin/python3
"""An independent Llama and GPT-2 with AdamW, to check Heddle's losses: python3 reference_model.py INDEX.json

Written from the definitions of Hugging Face's modeling_llama.py and modeling_gpt2.py, with torch's own layers,
autograd and torch.optim.AdamW; it shares no code with Heddle. It reads the initial weights and the batches that
Heddle exported and prints one JSON object: {"losses": [...], "gradient_norms": [...]} with 12 digits.

INDEX.json (paths are relative to it):
  "config":    Hugging Face's config.json of the model ("model_type": "llama" or "gpt2")
  "tensors":   [{"name": NAME, "shape": [...], "file": FILE}, ...]; Hugging Face's parameter names ("model." and
               "transformer." prefixes and "lm_head.weight" included; GPT-2's Conv1D weights lie [in, out] as there);
               FILE holds little-endian float32, row-major; an optional "offset" counts bytes
  "batches":   {"tokens": FILE, "targets": FILE, "steps": N, "batch": B, "sequence": T}: little-endian int32
               [N, B, T] each, B the global batch of a step
  "optimizer": {"beta1", "beta2", "epsilon", "weight_decay", "max_gradient_norm"}: decay on matrices and embeddings
               (rank >= 2) only; 0 as norm: no clipping
  "schedule":  {"kind": "cosine" or "constant", "learning_rate", "minimum_learning_rate", "warmup_steps", "steps"}:
               step s = 1, 2, ... has learning_rate * s / warmup_steps up to the end of the warm-up; then cosine falls
               from learning_rate to minimum_learning_rate, which step `steps` reaches.
               A list "learning_rates" (one a step) overrides it.
  "dtype":     "float32" (default) or "float64"
"""

import json
import math
import os
import sys

import torch
import torch.nn.functional as F


def read_array(folder, entry, dtype, shape):
    path = os.path.join(folder, entry["file"] if isinstance(entry, dict) else entry)
    offset = entry.get("offset", 0) if isinstance(entry, dict) else 0
    count = math.prod(shape)
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read(4 * count)
    if len(data) != 4 * count:
        sys.exit(f"{path}: expected {4 * count} bytes at {offset}, got {len(data)}")
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def load_weights(folder, index, dtype):
    weights = {}
    for entry in index["tensors"]:
        values = read_array(folder, entry, torch.float32, entry["shape"]).to(dtype)
        weights[entry["name"]] = torch.nn.Parameter(values)
    return weights


def causal_attention(query, key, value):
    """query [B, H, T, d], key and value [B, G, T, d] -> [B, T, H*d]"""
    batch, heads, length, size = query.shape
    copies = heads // key.shape[1]
    key = key.repeat_interleave(copies, dim=1)
    value = value.repeat_interleave(copies, dim=1)
    scores = query @ key.transpose(2, 3) / math.sqrt(size)
    later = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
    weights = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
    return (weights @ value).transpose(1, 2).reshape(batch, length, heads * size)


def split_heads(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


class Llama:
    def __init__(self, config, weights):
        self.config = config
        self.weights = weights
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads", self.heads)
        self.epsilon = config.get("rms_norm_eps", 1e-6)
        self.theta = config.get("rope_theta", 10000.0)
        self.size = config.get("head_dim") or config["hidden_size"] // self.heads

    def norm(self, x, name):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weights[name] * (x * torch.rsqrt(variance + self.epsilon))

    def rotate(self, x):
        """x [B, H, T, d]"""
        frequencies = 1.0 / self.theta ** (torch.arange(0, self.size, 2, dtype=torch.float64) / self.size)
        angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), frequencies)
        angles = torch.cat([angles, angles], dim=-1)
        half = torch.cat([-x[..., self.size // 2:], x[..., :self.size // 2]], dim=-1)
        return x * angles.cos().to(x.dtype) + half * angles.sin().to(x.dtype)

    def logits(self, tokens):
        w = self.weights
        x = w["model.embed_tokens.weight"][tokens]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}."
            h = self.norm(x, name + "input_layernorm.weight")
            query = split_heads(F.linear(h, w[name + "self_attn.q_proj.weight"]), self.heads)
            key = split_heads(F.linear(h, w[name + "self_attn.k_proj.weight"]), self.kv_heads)
            value = split_heads(F.linear(h, w[name + "self_attn.v_proj.weight"]), self.kv_heads)
            out = causal_attention(self.rotate(query), self.rotate(key), value)
            x = x + F.linear(out, w[name + "self_attn.o_proj.weight"])
            h = self.norm(x, name + "post_attention_layernorm.weight")
            gate = F.silu(F.linear(h, w[name + "mlp.gate_proj.weight"]))
            up = F.linear(h, w[name + "mlp.up_proj.weight"])
            x = x + F.linear(gate * up, w[name + "mlp.down_proj.weight"])
        tied = self.config.get("tie_word_embeddings", False)
        head = w["model.embed_tokens.weight" if tied else "lm_head.weight"]
        return F.linear(self.norm(x, "model.norm.weight"), head)


class Gpt2:
    def __init__(self, config, weights):
        self.config = config
        self.weights = weights
        self.heads = config["n_head"]
        self.epsilon = config.get("layer_norm_epsilon", 1e-5)

    def norm(self, x, name):
        weight = self.weights[name + ".weight"]
        return F.layer_norm(x, weight.shape, weight, self.weights[name + ".bias"], self.epsilon)

    def conv1d(self, x, name):
        return x @ self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def logits(self, tokens):
        w = self.weights
        x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:tokens.shape[1]]
        for layer in range(self.config["n_layer"]):
            name = f"transformer.h.{layer}."
            h = self.conv1d(self.norm(x, name + "ln_1"), name + "attn.c_attn")
            query, key, value = (split_heads(part, self.heads) for part in h.chunk(3, dim=-1))
            x = x + self.conv1d(causal_attention(query, key, value), name + "attn.c_proj")
            h = self.conv1d(self.norm(x, name + "ln_2"), name + "mlp.c_fc")
            x = x + self.conv1d(F.gelu(h, approximate="tanh"), name + "mlp.c_proj")
        tied = self.config.get("tie_word_embeddings", True)
        head = w["transformer.wte.weight" if tied else "lm_head.weight"]
        return F.linear(self.norm(x, "transformer.ln_f"), head)


def learning_rate(schedule, step):
    """The rate of step 1, 2, ..."""
    if "learning_rates" in schedule:
        return schedule["learning_rates"][step - 1]
    peak = schedule["learning_rate"]
    warmup = schedule.get("warmup_steps", 0)
    if step <= warmup:
        return peak * step / warmup
    if schedule["kind"] == "constant":
        return peak
    low = schedule.get("minimum_learning_rate", 0.0)
    progress = min(1.0, (step - warmup) / max(1, schedule["steps"] - warmup))
    return low + (peak - low) * 0.5 * (1.0 + math.cos(math.pi * progress))


def train(folder, index):
    dtype = {"float32": torch.float32, "float64": torch.float64}[index.get("dtype", "float32")]
    config = index["config"]
    weights = load_weights(folder, index, dtype)
    model = {"llama": Llama, "gpt2": Gpt2}[config["model_type"]](config, weights)
    batches = index["batches"]
    shape = [batches["steps"], batches["batch"], batches["sequence"]]
    tokens = read_array(folder, batches["tokens"], torch.int32, shape).long()
    targets = read_array(folder, batches["targets"], torch.int32, shape).long()
    if config.get("tie_word_embeddings", config["model_type"] == "gpt2"):
        weights.pop("lm_head.weight", None)
    settings = index["optimizer"]
    matrices = [weight for weight in weights.values() if weight.dim() >= 2]
    others = [weight for weight in weights.values() if weight.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": settings["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        betas=(settings["beta1"], settings["beta2"]), eps=settings["epsilon"])
    losses = []
    norms = []
    for step in range(batches["steps"]):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(index["schedule"], step + 1)
        logits = model.logits(tokens[step])
        loss = F.cross_entropy(logits.flatten(0, 1), targets[step].flatten())
        optimizer.zero_grad()
        loss.backward()
        # Clipping by hand: torch's clip_grad_norm_ adds 1e-6 to the norm.
        norm = math.sqrt(sum(float(weight.grad.double().pow(2).sum()) for weight in weights.values()))
        limit = settings.get("max_gradient_norm", 0.0)
        if limit > 0 and norm > limit:
            for weight in weights.values():
                weight.grad.mul_(limit / norm)
        optimizer.step()
        losses.append(float(f"{float(loss):.12g}"))
        norms.append(float(f"{norm:.12g}"))
    return {"losses": losses, "gradient_norms": norms}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        index = json.load(file)
    torch.set_num_threads(1)
    print(json.dumps(train(os.path.dirname(os.path.abspath(sys.argv[1])), index)))


if __name__ == "__main__":
    main()
