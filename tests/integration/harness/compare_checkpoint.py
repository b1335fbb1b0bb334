"""Compares a checkpoint of step 1 of a run that did not move its weights with the weights that export_training wrote.

Usage: compare_checkpoint.py CHECKPOINT INDEX.json, by a Python that has h5py and hdf5plugin. Tensors are put together
from the HDF5 files alone: names, places and elements as any reader of HDF5 finds them. Prints one line.
"""
import glob
import json
import os
import sys

import h5py
import hdf5plugin  # noqa: F401  (registers the filter)
import numpy

BETA1, BETA2 = 0.9, 0.95


def numbers(attribute):
    return () if isinstance(attribute, h5py.Empty) else tuple(int(n) for n in attribute)


def read(folder):
    """{(role, name): array}; every element exactly once."""
    values, seen = {}, {}
    files = sorted(set(glob.glob(os.path.join(folder, "*.h5"))) - {os.path.join(folder, "tensors.h5")})
    for path in files:
        with h5py.File(path, "r") as file:
            for role, group in file.items():
                for dataset in group.values():
                    name = dataset.attrs["name"]
                    key = (role, name.decode() if isinstance(name, bytes) else name)
                    shape = numbers(dataset.attrs["global_shape"])
                    box = tuple(slice(o, o + n) for o, n in zip(numbers(dataset.attrs["box_offset"]), dataset.shape))
                    values.setdefault(key, numpy.zeros(shape, numpy.float32))[box] = dataset[...]
                    seen.setdefault(key, numpy.zeros(shape, numpy.int32))[box] += 1
    for key, count in seen.items():
        assert (count == 1).all(), f"{key}: elements stored {count.min()} to {count.max()} times"
    return values, len(files)


def main(checkpoint, index_path):
    with open(index_path, encoding="utf-8") as file:
        index = json.load(file)
    values, files = read(checkpoint)
    moved = 0
    for parameter in index["parameters"]:
        name = parameter["name"]
        path = os.path.join(os.path.dirname(index_path), parameter["file"])
        expected = numpy.fromfile(path, "<f4").reshape(parameter["shape"])
        master = values.pop(("master", name))
        assert master.shape == expected.shape and (master.view(numpy.uint32) == expected.view(numpy.uint32)).all(), name
        # After one step both moments are functions of one gradient.
        first = values.pop(("exp_avg", name)).astype(numpy.float64)
        second = values.pop(("exp_avg_sq", name)).astype(numpy.float64)
        assert numpy.allclose(second, (first / (1 - BETA1)) ** 2 * (1 - BETA2), rtol=1e-5, atol=1e-30), name
        moved += numpy.count_nonzero(first)
    assert not values, f"tensors that the model does not have: {list(values)}"
    assert moved > 0, "gradients"
    print(f"h5py {h5py.__version__}: {len(index['parameters'])} parameters from {files} files are the exported ones")


main(sys.argv[1], sys.argv[2])
