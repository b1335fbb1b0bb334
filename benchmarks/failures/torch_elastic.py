"""What torchrun starts eight times: data-parallel training of a model of the same size, saved every tenth step.

Usage: torch_elastic.py FOLDER. Each process writes its identifier to FOLDER/pid-RANK; rank 0 adds a line `STEP TIME` to
FOLDER/steps for each step, and after each start goes on from FOLDER/checkpoint.
"""
import os
import sys
import time

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

EVERY = 10
TOKENS = 8
HIDDEN, INNER, LAYERS, HEADS, VOCABULARY = 480, 1712, 8, 8, 256


def make_model():
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(HIDDEN, HEADS, INNER, dropout=0, batch_first=True)
    return torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, HIDDEN), torch.nn.TransformerEncoder(layer, LAYERS),
                               torch.nn.Linear(HIDDEN, VOCABULARY))


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    with open(os.path.join(folder, f"pid-{rank}"), "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpoint = os.path.join(folder, "checkpoint")
    step = 0
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        step = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    while True:
        step += 1
        torch.manual_seed(step * 1000 + rank)
        text = torch.randint(VOCABULARY, (1, TOKENS + 1))
        optimizer.zero_grad()
        logits = model(text[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()
        if rank == 0:
            with open(os.path.join(folder, "steps"), "a", encoding="ascii") as file:
                file.write(f"{step} {time.time()}\n")
            if step % EVERY == 0:
                state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, checkpoint + ".new")
                os.replace(checkpoint + ".new", checkpoint)


main()
