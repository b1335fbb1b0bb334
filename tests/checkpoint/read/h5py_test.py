"""Compares a checkpoint as h5py sees it with raw elements written beside it.

Usage: h5py_test.py FOLDER, as checkpoint_sample left it. The tensors are put together from the workers' HDF5
files alone (names, attributes), and read whole from tensors.h5; only the list of tensors and the chunk addresses
come from the manifest.
"""
import glob
import json
import os
import sys

import h5py
import hdf5plugin  # noqa: F401  (registers the filter)
import numpy

BITS = {"fp32": numpy.uint32, "bf16": numpy.uint16, "fp16": numpy.uint16, "int64": numpy.uint64}


def bits_of(values, dtype):
    """The stored bits of what h5py read."""
    if dtype == "bf16":  # numpy has no bf16: h5py widens it.
        wide = numpy.ascontiguousarray(values, dtype=numpy.float32).view(numpy.uint32)
        assert (wide & 0xFFFF == 0).all(), "a bf16 has more than 16 bits"
        return (wide >> 16).astype(numpy.uint16)
    return numpy.ascontiguousarray(values).view(BITS[dtype])


def text(attribute):
    return attribute.decode() if isinstance(attribute, bytes) else attribute


def whole_tensors(path):
    """{(role, name): bits} of what tensors.h5 shows."""
    tensors = {}
    with h5py.File(path, "r") as file:
        for role, group in file.items():
            for link, dataset in group.items():
                assert dataset.is_virtual and "@" not in link, link
                assert all(os.sep not in source.file_name for source in dataset.virtual_sources()), link
                values = bits_of(dataset[...], text(dataset.attrs["logical_dtype"]))
                shape = dataset.attrs["global_shape"]
                values = values.reshape(()) if isinstance(shape, h5py.Empty) else values
                tensors[(role, text(dataset.attrs["name"]))] = values
    return tensors


def check_absent(folder, lost):
    """Elements of a worker's file that is not there are NaN in tensors.h5, all others as before."""
    before = whole_tensors(folder + "/tensors.h5")
    os.rename(lost, lost + ".away")
    absent = 0
    with h5py.File(folder + "/tensors.h5", "r") as file:
        for (role, name), bits in before.items():
            dataset = next(d for d in file[role].values() if text(d.attrs["name"]) == name)
            values = dataset[...].reshape(bits.shape)
            if values.dtype.kind != "f":
                continue
            gone = numpy.isnan(values)
            rest = bits_of(values[~gone], text(dataset.attrs["logical_dtype"]))
            assert numpy.array_equal(rest, bits[~gone]), name
            gone_files = [s for s in dataset.virtual_sources() if s.file_name == os.path.basename(lost)]
            expected = sum(source.vspace.get_select_npoints() for source in gone_files)
            assert gone.sum() == expected, (name, gone.sum(), expected)
            absent += expected
    assert absent > 0
    os.rename(lost + ".away", lost)


def is_derived(tensor):
    return any("derived" in box for box in tensor["boxes"])


def main(folder):
    step = folder + "/step-00000040"
    with open(step + "/MANIFEST.json", encoding="utf-8") as stream:
        manifest = json.load(stream)
    assert manifest["format"] == "heddle-checkpoint" and manifest["step"] == 40
    addresses = {}
    for tensor in manifest["tensors"]:
        for box in tensor["boxes"]:
            file = manifest["files"][box["file"]]["name"]
            addresses[(file, box["dataset"])] = [(c[0], c[1]) for c in box["chunks"]]
    found = {}
    whole = set()
    for path in sorted(set(glob.glob(step + "/*.h5")) - {step + "/tensors.h5"}):
        with h5py.File(path, "r") as file:
            for role, group in file.items():
                for link, dataset in group.items():
                    shape = dataset.attrs["global_shape"]
                    shape = () if isinstance(shape, h5py.Empty) else tuple(int(n) for n in shape)
                    offset = dataset.attrs["box_offset"]
                    offset = () if isinstance(offset, h5py.Empty) else tuple(int(n) for n in offset)
                    dtype = text(dataset.attrs["logical_dtype"])
                    name = text(dataset.attrs["name"])
                    values = bits_of(dataset[...], dtype)
                    values = values.reshape(()) if shape == () else values
                    key = (role, name)
                    target, seen = found.setdefault(
                        key, (numpy.zeros(shape, BITS[dtype]), numpy.zeros(shape, numpy.int32)))
                    place = tuple(slice(o, o + n) for o, n in zip(offset, values.shape))
                    target[place] = values
                    seen[place] += 1
                    if values.shape == shape:
                        assert "@" not in link
                        whole.add(key)
                    # The library itself must place the chunks where the manifest says.
                    chunks = [dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks())]
                    chunks.sort(key=lambda c: c.chunk_offset)
                    listed = addresses[(path.rsplit("/", 1)[1], "/%s/%s" % (role, link))]
                    assert [(c.byte_offset, c.size) for c in chunks] == listed, (path, link)
                    assert all(c.filter_mask == 0 for c in chunks)
    # Where the folder lies does not matter, nor where the reader is.
    os.rename(step, folder + "/moved")
    shown = whole_tensors(folder + "/moved/tensors.h5")
    for part in sorted(set(glob.glob(folder + "/moved/*.h5")) - {folder + "/moved/tensors.h5"}):
        check_absent(folder + "/moved", part)
    checked = 0
    for number, tensor in enumerate(manifest["tensors"]):
        dtype = tensor["dtype"]
        expected = numpy.fromfile("%s/%d.bin" % (folder, number), BITS[dtype]).reshape(tensor["shape"])
        if expected.size == 0 or is_derived(tensor):
            continue
        values, seen = found.pop((tensor["role"], tensor["name"]))
        assert numpy.array_equal(shown.pop((tensor["role"], tensor["name"])), expected), tensor["name"]
        assert (seen == 1).all(), tensor["name"]
        assert numpy.array_equal(values, expected), tensor["name"]
        checked += 1
    assert not found, "tensors that the manifest does not list: %r" % list(found)
    assert not shown, "tensors that no worker holds: %r" % list(shown)
    assert checked == 7 and ("master", "h.0.weight") in whole and ("exp_avg", "h.0.weight") not in whole
    assert [tensor["role"] for tensor in manifest["tensors"] if is_derived(tensor)] == ["weight"]
    print("h5py %s (HDF5 %s): %d tensors equal" % (h5py.__version__, h5py.version.hdf5_version, checked))


main(sys.argv[1])
