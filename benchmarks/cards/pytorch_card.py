"""The peer: a Llama on one card in PyTorch, written as its users write it.

Usage: pytorch_card.py JSON      one object on the command line:
  {"mode": "eager" | "compile", "device": "cuda:0" | "cpu", "threads": N, "shape": {...}, "microbatches": N, "steps": N,
   "warmup_steps": N, "learning_rate": X, "window": N, "seconds": N, "tokens": FILE, "out": FILE}
Appends to `out` one line of JSON for each window of steps, as soon as it has ended: {"seconds", "losses", "memory",
"torch", "card"}: the seconds of its steps on average, the most bytes of the card that tensors have taken so far, the
version, and the card's name (both null on a processor). Begins no window after `seconds`, counted from the start.

bf16 parameters; fp32 masters of them, which a fused AdamW updates. The card is waited for once a window, not a step.
`compile`: each layer, and the head with the loss. Its first window has the compilation in it.
"""
import json
import os
import sys
import time

BEGUN = time.monotonic()
CONFIG = json.loads(sys.argv[1])
os.environ["OMP_NUM_THREADS"] = str(CONFIG["threads"])  # Before libraries read it.

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden, self.heads, self.groups = shape["hidden"], shape["heads"], shape["key_value_heads"]
        self.size = hidden // self.heads
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, self.groups * self.size, bias=False)
        self.value = nn.Linear(hidden, self.groups * self.size, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, length, hidden = x.shape
        query = self.query(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        key = self.key(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        value = self.value(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(rotate(query, cos, sin), rotate(key, cos, sin), value, is_causal=True,
                                               enable_gqa=self.groups != self.heads)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, hidden))


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden, inner = shape["hidden"], shape["inner"]
        self.attention_norm, self.mlp_norm = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.attention = Attention(shape)
        self.gate, self.up = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        normed = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Head(nn.Module):
    """The last norm, the head and the loss."""

    def __init__(self, shape):
        super().__init__()
        self.norm = nn.RMSNorm(shape["hidden"], eps=1e-5)
        self.linear = nn.Linear(shape["hidden"], shape["vocabulary"], bias=False)

    def forward(self, x, targets):
        logits = self.linear(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embedding = nn.Embedding(shape["vocabulary"], shape["hidden"])
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape["layers"]))
        self.head = Head(shape)
        size = shape["hidden"] // shape["heads"]
        angles = torch.outer(torch.arange(shape["length"]), 10000.0 ** (-torch.arange(0, size, 2) / size))
        angles = torch.cat([angles, angles], dim=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(x, targets)


def build():
    with torch.device(CONFIG["device"]):
        model = Model(CONFIG["shape"])
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
    if CONFIG["mode"] == "compile":
        for part in (*model.layers, model.head):
            part.compile()
    return model


class Trainer:
    def __init__(self):
        self.model = build()
        self.masters = [parameter.detach().clone() for parameter in self.model.parameters()]
        self.model.bfloat16()
        self.parameters = list(self.model.parameters())
        groups = [{"params": [p for p in self.masters if p.dim() >= 2], "weight_decay": 0.1},
                  {"params": [p for p in self.masters if p.dim() < 2], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=CONFIG["learning_rate"], betas=(0.9, 0.95), eps=1e-8, fused=True)
        self.warmup = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / CONFIG["warmup_steps"]))

    def step(self, batches):
        """The loss, which the card may still be computing."""
        total = torch.zeros((), device=CONFIG["device"])
        for tokens, targets in batches:
            loss = self.model(tokens, targets) / len(batches)
            loss.backward()
            total += loss.detach()
        for master, parameter in zip(self.masters, self.parameters):
            master.grad, parameter.grad = parameter.grad.float(), None
        nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.warmup.step()
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.masters)
        return total


def read_batches():
    shape = CONFIG["shape"]
    with open(CONFIG["tokens"], "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint16).long().to(CONFIG["device"])
    form = (CONFIG["microbatches"], shape["microbatch"], shape["length"])
    count = form[0] * form[1] * form[2]
    return list(zip(data[:count].reshape(form), data[1:count + 1].reshape(form)))


def main():
    torch.set_num_threads(CONFIG["threads"])
    trainer, batches = Trainer(), read_batches()
    card = None if CONFIG["device"] == "cpu" else torch.cuda.get_device_name(CONFIG["device"])
    with open(CONFIG["out"], "a", encoding="utf-8") as out:
        for _ in range(0, CONFIG["steps"], CONFIG["window"]):
            if time.monotonic() - BEGUN > CONFIG["seconds"]:
                break
            begun = time.perf_counter()
            losses = torch.stack([trainer.step(batches) for _ in range(CONFIG["window"])]).tolist()  # Waits.
            seconds = (time.perf_counter() - begun) / CONFIG["window"]
            memory = torch.cuda.max_memory_allocated(CONFIG["device"]) if card else None
            out.write(json.dumps({"seconds": seconds, "losses": losses, "memory": memory,
                                  "torch": torch.__version__, "card": card}) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
