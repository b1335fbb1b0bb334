"""The peer: the same model, batch and optimizer in PyTorch eager, written as its users write it.

Usage: pytorch_eager.py JSON     one object on the command line:
  {"mode": "train", "model": "llama" | "gpt2", "precision": "fp32" | "autocast" | "master", "attention": "plain" |
   "fused", "threads": N, "steps": N, "tokens": FILE, "seed": N, "shape": {...}}
  {"mode": "gemm", "precision": "fp32" | "bf16", "threads": N, "shapes": [[m, k, n], ...]}
  {"mode": "version"}
Prints one JSON object: {"losses", "seconds"} by step; {"seconds"} by shape; {"torch", "fused_attention"}.

"autocast": fp32 parameters under torch.autocast. "master": bf16 parameters, whose fp32 masters AdamW updates.
"""
import json
import math
import os
import sys
import time

CONFIG = json.loads(sys.argv[1])
if "threads" in CONFIG:  # Before libraries read it.
    os.environ["OMP_NUM_THREADS"] = str(CONFIG["threads"])

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


class RmsNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class Rope(nn.Module):
    def __init__(self, size, length):
        super().__init__()
        frequencies = 1.0 / 10000.0 ** (torch.arange(0, size, 2).double() / size)
        angles = torch.outer(torch.arange(length).double(), frequencies)
        angles = torch.cat([angles, angles], dim=-1)
        self.register_buffer("cos", angles.cos().float())
        self.register_buffer("sin", angles.sin().float())

    def forward(self, x):
        first, second = x.chunk(2, dim=-1)
        return x * self.cos.to(x.dtype) + torch.cat([-second, first], dim=-1) * self.sin.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, shape, bias, rope, fused):
        super().__init__()
        hidden = shape["hidden"]
        self.heads, self.size, self.rope, self.fused = shape["heads"], hidden // shape["heads"], rope, fused
        self.query_key_value = nn.Linear(hidden, 3 * hidden, bias=bias)
        self.output = nn.Linear(hidden, hidden, bias=bias)
        self.register_buffer("later", torch.triu(torch.ones(shape["length"], shape["length"], dtype=torch.bool), 1))

    def forward(self, x):
        batch, length, hidden = x.shape
        query, key, value = (part.view(batch, length, self.heads, self.size).transpose(1, 2)
                             for part in self.query_key_value(x).split(hidden, dim=2))
        if self.rope is not None:
            query, key = self.rope(query), self.rope(key)
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(self.size))
            mixed = F.softmax(scores.masked_fill(self.later, float("-inf")), dim=-1) @ value
        return self.output(mixed.transpose(1, 2).reshape(batch, length, hidden))


class SwiGlu(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate, self.up = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Gelu(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, shape, llama, rope, fused):
        super().__init__()
        norm = RmsNorm if llama else nn.LayerNorm
        self.attention_norm, self.mlp_norm = norm(shape["hidden"]), norm(shape["hidden"])
        self.attention = Attention(shape, not llama, rope, fused)
        self.mlp = (SwiGlu if llama else Gelu)(shape["hidden"], shape["inner"])

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    def __init__(self, shape, llama, fused):
        super().__init__()
        hidden, length = shape["hidden"], shape["length"]
        rope = Rope(hidden // shape["heads"], length) if llama else None
        self.embedding = nn.Embedding(shape["vocabulary"], hidden)
        self.positions = None if llama else nn.Embedding(length, hidden)
        self.layers = nn.ModuleList(Layer(shape, llama, rope, fused) for _ in range(shape["layers"]))
        self.norm = RmsNorm(hidden) if llama else nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, shape["vocabulary"], bias=False)
        if not llama:  # GPT-2's head is its embedding.
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@torch.no_grad()
def draw_weights(model, shape, llama, seed):
    from initial_weights import normal

    def draw(weight, name, deviation=0.02):
        weight.copy_(normal(seed, name + ".weight", tuple(weight.shape), deviation))

    residual = 0.02 if llama else 0.02 / math.sqrt(2.0 * shape["layers"])
    draw(model.embedding.weight, "embedding")
    if llama:
        draw(model.head.weight, "head")
    else:
        draw(model.positions.weight, "embedding.position")
    for number, layer in enumerate(model.layers):
        name = f"layers.{number}."
        for part, weight in zip(("query", "key", "value"),
                                layer.attention.query_key_value.weight.chunk(3)):
            draw(weight, name + "attention." + part)
        draw(layer.attention.output.weight, name + "attention.output", residual)
        if llama:
            draw(layer.mlp.gate.weight, name + "mlp.gate")
        draw(layer.mlp.up.weight, name + "mlp.up")
        draw(layer.mlp.down.weight, name + "mlp.down", residual)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.zero_()


def make_optimizer(parameters):
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    settings = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8}
    try:
        return torch.optim.AdamW(groups, fused=True, **settings)  # The fastest, where there is one for the CPU.
    except (RuntimeError, TypeError):
        return torch.optim.AdamW(groups, foreach=True, **settings)


def read_batch(shape):
    with open(CONFIG["tokens"], "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.int16).long()
    count = shape["batch"] * shape["length"]
    return (data[:count].reshape(shape["batch"], shape["length"]),
            data[1:count + 1].reshape(shape["batch"], shape["length"]))


def train():
    shape, llama = CONFIG["shape"], CONFIG["model"] == "llama"
    model = Model(shape, llama, CONFIG["attention"] == "fused")
    draw_weights(model, shape, llama, CONFIG["seed"])
    tokens, targets = read_batch(shape)
    masters = None
    if CONFIG["precision"] == "master":
        masters = [parameter.detach().clone() for parameter in model.parameters()]
        model.bfloat16()
    optimizer = make_optimizer(masters or list(model.parameters()))
    trained = masters or list(model.parameters())
    losses, seconds = [], []
    for _ in range(CONFIG["steps"]):
        begun = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=CONFIG["precision"] == "autocast"):
            logits = model(tokens)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        model.zero_grad(set_to_none=True)
        loss.backward()
        if masters:
            for master, parameter in zip(masters, model.parameters()):
                master.grad = parameter.grad.float()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        if masters:
            with torch.no_grad():
                for master, parameter in zip(masters, model.parameters()):
                    parameter.copy_(master)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begun)
    return {"losses": losses, "seconds": seconds}


def gemm():
    """Best of many: the rate of the machine, not of the moment."""
    dtype = torch.bfloat16 if CONFIG["precision"] == "bf16" else torch.float32
    seconds = []
    for m, k, n in CONFIG["shapes"]:
        a, b, out = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype), torch.empty(m, n, dtype=dtype)
        best = float("inf")
        end = time.perf_counter() + 0.25
        while time.perf_counter() < end:
            begun = time.perf_counter()
            for _ in range(4):
                torch.mm(a, b, out=out)
            best = min(best, (time.perf_counter() - begun) / 4)
        seconds.append(best)
    return {"seconds": seconds}


def main():
    if CONFIG["mode"] == "version":
        return {"torch": torch.__version__, "fused_attention": hasattr(F, "scaled_dot_product_attention")}
    torch.set_num_threads(CONFIG["threads"])
    return train() if CONFIG["mode"] == "train" else gemm()


if __name__ == "__main__":
    print(json.dumps(main()))
