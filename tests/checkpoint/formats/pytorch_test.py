"""Compares our reading and writing of PyTorch's files with PyTorch's own, bit by bit.

Usage: pytorch_test.py PYTORCH_SAMPLE FOLDER
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import zipfile

import torch

NAMES = {torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16",
         torch.int32: "int32", torch.int64: "int64", torch.uint8: "uint8"}


class Ours:
    def __init__(self, sample, folder):
        self.sample, self.folder = sample, folder

    def run(self, command, model, place):
        return subprocess.run([self.sample, command, model, place], capture_output=True, text=True, check=False)

    def read(self, path):
        """Name: (type, raw bytes); None for a type that we only list."""
        out = path + ".raw"
        os.makedirs(out)
        done = self.run("read", path, out)
        assert done.returncode == 0, done.stderr
        tensors = {}
        for number, line in enumerate(done.stdout.splitlines()):
            name, dtype, _ = line.split(" ")
            raw = "%s/%d.bin" % (out, number)
            tensors[name] = (dtype, open(raw, "rb").read() if dtype != "-" else None)
        return tensors

    def refused(self, path, words):
        done = self.run("read", path, self.folder)
        assert done.returncode == 1 and words in done.stderr, (done.returncode, done.stderr)


def raw(tensor):
    """The elements' bits, row-major."""
    tensor = tensor.detach().contiguous()
    size = tensor.element_size()
    # numpy has no bf16: seen as integers of its size, every type has the same bits.
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return tensor.view(bits).numpy().tobytes() if tensor.dim() else tensor.reshape(1).view(bits).numpy().tobytes()


def same(found, expected):
    assert set(found) == set(expected), (sorted(found), sorted(expected))
    for name, tensor in expected.items():
        dtype, bits = found[name]
        assert dtype == NAMES.get(tensor.dtype, "-"), (name, dtype)
        if dtype != "-":
            assert bits == raw(tensor), name


def dotted(state, prefix=""):
    flat = {}
    for key, value in state.items():
        if isinstance(value, dict):
            flat.update(dotted(value, prefix + key + "."))
        elif isinstance(value, torch.Tensor):
            flat[prefix + key] = value
    return flat


def models():
    """Name of the case, what is saved, and the part of it that is the model."""
    torch.manual_seed(5)
    network = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.BatchNorm1d(5), torch.nn.Embedding(11, 3))
    optimizer = torch.optim.Adam(network.parameters())
    network[0](torch.zeros(2, 7)).sum().backward()
    optimizer.step()
    state = network.state_dict()
    yield "state_dict", state, state
    one = collections.OrderedDict(w=torch.randn(3))
    yield "one_key", one, one
    parameters = dict(network.named_parameters())
    yield "parameters", parameters, parameters
    training = {"model": state, "optimizer": optimizer.state_dict(), "epoch": 3,
                "args": argparse.Namespace(lr=0.1, sizes=(1, 2)), "rng": {"cpu": torch.get_rng_state()},
                "device": torch.device("cpu"), "dtype": torch.bfloat16}
    yield "training", training, state
    yield "wrapped", {"state_dict": state, "epoch": 2 ** 70, "lr": 0.5, "note": None, "ok": True}, state
    types = {str(dtype)[6:]: torch.randint(0, 100, (4, 3)).to(dtype) for dtype in NAMES}
    types.update(flag=torch.tensor([True, False]), scalar=torch.tensor(2.5), empty=torch.zeros(0, 4),
                 short=torch.arange(3, dtype=torch.int16))
    yield "types", types, types
    base = torch.randn(6, 8, 5)
    views = {"turned": base.permute(2, 0, 1), "slice": base[1:5, ::2, 3], "row": base[2],
             "expanded": torch.randn(3, 1).expand(3, 9), "diagonal": base[:, :, 0].diagonal(),
             "large": torch.randn(1500, 1100).t()}
    yield "views", views, views
    shared = torch.randn(4, 4)
    tied = {"embed": shared, "head": shared, "nested": {"layers": {"0": shared[1]}}}
    yield "tied", tied, tied


def check_reading(ours):
    cases = 0
    for name, saved, model in models():
        expected = dotted(model)
        for protocol in (2, 3, 4, 5):
            path = "%s/%s-%d.pt" % (ours.folder, name, protocol)
            torch.save(saved, path, pickle_protocol=protocol)
            same(ours.read(path), expected)
            cases += 1
    return cases


def check_refusals(ours):
    path = ours.folder + "/refused.pt"
    torch.save(torch.nn.Linear(2, 2), path)
    ours.refused(path, "pickled code is never run: global 'torch.nn.modules.linear.Linear'")
    torch.save({"w": torch.zeros(2)}, path, _use_new_zipfile_serialization=False)
    ours.refused(path, "before 1.6")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)
    ours.refused(path, "TorchScript")
    torch.save({"w": torch.zeros(2)}, path)
    with zipfile.ZipFile(path) as stored, zipfile.ZipFile(path + "2", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in stored.namelist():
            packed.writestr(name, stored.read(name))
    ours.refused(path + "2", "compressed")


def load(path):
    """As torch.load gives it, which must be the same with weights_only."""
    state = torch.load(path, map_location="cpu")
    assert isinstance(state, collections.OrderedDict)
    restricted = torch.load(path, map_location="cpu", weights_only=True)
    assert list(state) == list(restricted)
    for name, tensor in state.items():
        assert raw(tensor) == raw(restricted[name]) and tensor.shape == restricted[name].shape
    return state


def check_writing(ours):
    for name, saved, model in models():
        expected = {key: tensor for key, tensor in dotted(model).items() if tensor.dtype in NAMES}
        path = "%s/%s-in.pt" % (ours.folder, name)
        torch.save(saved, path)
        for copy in (path + ".pt", path + ".folder"):
            done = ours.run("write", path, copy)
            assert done.returncode == 0, done.stderr
            found = {}
            files = sorted(os.listdir(copy)) if os.path.isdir(copy) else [""]
            for file in files:
                if file.endswith(".json"):
                    continue
                part = os.path.join(copy, file) if file else copy
                with zipfile.ZipFile(part) as archive:
                    assert archive.testzip() is None
                found.update(load(part))
            if "pytorch_model.bin.index.json" in files:
                with open(copy + "/pytorch_model.bin.index.json", encoding="utf-8") as stream:
                    index = json.load(stream)
                assert set(index["weight_map"]) == set(expected)
                assert set(index["weight_map"].values()) == {file for file in files if file.endswith(".bin")}
                assert index["metadata"]["total_size"] == sum(len(raw(tensor)) for tensor in expected.values())
            assert set(found) == set(expected)
            for key, tensor in expected.items():
                assert found[key].dtype == tensor.dtype and found[key].shape == tensor.shape, key
                assert raw(found[key]) == raw(tensor), key


def main(sample, folder):
    ours = Ours(sample, folder)
    cases = check_reading(ours)
    check_refusals(ours)
    check_writing(ours)
    print("torch %s: %d files read, all written ones loaded" % (torch.__version__, cases))


main(*sys.argv[1:])
