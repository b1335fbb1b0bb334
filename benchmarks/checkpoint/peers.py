"""The peers of the task `checkpoint` in one process that keeps the state, run by the interpreter of benchmarks/setup.

    peers.py FOLDER THREADS     FOLDER: the state (state.h); reads commands from standard input:

    save HOW PATH     saves the state, on storage at the end
    stall HOW PATH    starts a save in the background; the figures are those of the call alone
    load HOW PATH     loads it and compares it with the state (not in the figures)
    entropy FOLDER    bytes of each role of a state by the entropy of each byte plane of each tensor
    ready             nothing; the answer says that the peers are there

Each answers with one line of JSON; `seconds` are of the wall, `processor` of the process and of what it starts.
"""
import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings

import h5py
import numpy
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import staging
from torch.distributed.checkpoint._extension import ZStandard

GZIP = {"compression": "gzip", "compression_opts": 4, "shuffle": True}


def read_state(folder):
    """Tensors by "ROLE/NAME", each with memory of its own: PyTorch saves whole storages."""
    state = {}
    with open(os.path.join(folder, "state.txt"), encoding="utf-8") as lines:
        for line in lines:
            role, dtype, shape, offset, name = line.split()
            shape = [int(extent) for extent in shape.split(",")]
            kind = numpy.int16 if dtype == "bf16" else numpy.float32
            elements = numpy.fromfile(os.path.join(folder, "state.bin"), kind, math.prod(shape), offset=int(offset))
            tensor = torch.from_numpy(elements).reshape(shape)
            state[f"{role}/{name}"] = tensor.view(torch.bfloat16) if dtype == "bf16" else tensor
    return state


def as_numpy(tensor):
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def as_bytes(tensor):
    return tensor.reshape(-1).view(torch.uint8)


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


class Meter:
    def __init__(self):
        self.start, self.processor = time.perf_counter(), self.processor_now()

    @staticmethod
    def processor_now():
        usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    def figures(self):
        return {"seconds": time.perf_counter() - self.start, "processor": self.processor_now() - self.processor}


class Peers:
    def __init__(self, threads):
        self.threads = threads
        self.kept_stager = staging.DefaultStager(staging.StagingOptions(False, False, False, False))
        self.saves = {"torch.save": self.save_torch, "dcp": self.save_dcp,
                      "dcp-zstd": lambda state, path: self.save_dcp(state, path, [ZStandard()]),
                      "safetensors": self.save_safetensors, "h5py-gzip": self.save_h5py, "zstd-3": self.compress}
        self.loads = {"torch.save": self.load_torch, "dcp": self.load_dcp, "dcp-zstd": self.load_dcp,
                      "safetensors": self.load_safetensors, "h5py-gzip": self.load_h5py}

    def save_torch(self, state, path):
        torch.save(state, path)
        sync(path)

    def save_dcp(self, state, path, extensions=None):
        dcp.save(state, storage_writer=dcp.FileSystemWriter(path, thread_count=self.threads, _extensions=extensions),
                 no_dist=True)

    def save_safetensors(self, state, path):
        safetensors.torch.save_file(state, path)
        sync(path)

    def save_h5py(self, state, path):
        with h5py.File(path, "w") as file:
            for key, tensor in state.items():
                file.create_dataset(key, data=as_numpy(tensor), **GZIP)
        sync(path)

    def compress(self, _, path):
        """The program, on the safetensors file beside PATH."""
        subprocess.run(["zstd", "-3", f"-T{self.threads}", "-q", "-f", self.plain(path), "-o", path], check=True)
        sync(path)

    @staticmethod
    def plain(path):
        return os.path.join(os.path.dirname(path), "plain.safetensors")

    def load_torch(self, _, path):
        return torch.load(path, weights_only=True)

    def load_dcp(self, target, path):
        dcp.load(target, storage_reader=dcp.FileSystemReader(path), no_dist=True)
        return target

    def load_safetensors(self, target, path):
        """Its tensors are a mapping of the file; copying them reads it."""
        for key, tensor in safetensors.torch.load_file(path).items():
            target[key].copy_(tensor)
        return target

    def load_h5py(self, target, path):
        with h5py.File(path, "r") as file:
            for key, tensor in target.items():
                file[key].read_direct(as_numpy(tensor))
        return target

    def save(self, state, how, path):
        if how == "zstd-3" and not os.path.exists(self.plain(path)):
            self.save_safetensors(state, self.plain(path))
        meter = Meter()
        self.saves[how](state, path)
        return meter.figures()

    def stall(self, state, how, path):
        options = {}
        if how == "dcp-async-kept":
            options["async_stager"] = self.kept_stager
            self.kept_stager.stage(state)  # The memory of the save before is there, as ours is.
        writer = dcp.FileSystemWriter(path, thread_count=self.threads)
        meter = Meter()
        future = dcp.async_save(state, storage_writer=writer, no_dist=True, **options)
        figures = meter.figures()
        future.result()
        return figures

    def load(self, state, target, how, path):
        for tensor in target.values():
            as_bytes(tensor).fill_(0xEE)
        meter = Meter()
        loaded = self.loads[how](target, path)
        figures = meter.figures()
        if loaded.keys() != state.keys() or not all(
                torch.equal(as_bytes(loaded[key]), as_bytes(tensor)) for key, tensor in state.items()):
            raise ValueError(f"{how}: what was loaded is not what was saved")
        return figures

    def warm_up(self):
        """Imports, thread pools and the like are not what is measured."""
        state = {"master/a": torch.ones(64, 64), "weight/a": torch.ones(64, 64, dtype=torch.bfloat16)}
        with tempfile.TemporaryDirectory() as folder:
            for how in self.saves:
                self.save(state, how, os.path.join(folder, how))
            for how in self.loads:
                self.load(state, {key: torch.empty_like(tensor) for key, tensor in state.items()}, how,
                          os.path.join(folder, how))
            self.stall(state, "dcp-async", os.path.join(folder, "stall"))


def entropy(state):
    """Bytes by role: each plane of each tensor coded by the frequencies of its own bytes, and nothing for the codes."""
    sums = {}
    for key, tensor in state.items():
        planes = as_bytes(tensor).numpy().reshape(-1, tensor.element_size())
        for plane in planes.T:
            counts = numpy.bincount(plane, minlength=256)
            counts = counts[counts > 0]
            bits = -(counts * numpy.log2(counts / plane.size)).sum()
            role = key.split("/")[0]
            sums[role] = sums.get(role, 0) + float(bits) / 8
    return sums


def main():
    folder, threads = sys.argv[1], int(sys.argv[2])
    warnings.filterwarnings("ignore")
    torch.set_num_threads(threads)
    answers = os.fdopen(os.dup(1), "w")
    peers = Peers(threads)
    with contextlib.redirect_stdout(sys.stderr):
        peers.warm_up()
        state = read_state(folder)
        target = {key: torch.empty_like(tensor) for key, tensor in state.items()}
        for line in sys.stdin:
            command, *arguments = line.split()
            try:
                answer = {"save": lambda how, path: peers.save(state, how, path),
                          "stall": lambda how, path: peers.stall(state, how, path),
                          "load": lambda how, path: peers.load(state, target, how, path),
                          "entropy": lambda other: entropy(read_state(other)),
                          "ready": dict}[command](*arguments)
            except Exception as error:  # A peer that fails costs its own rows.
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
