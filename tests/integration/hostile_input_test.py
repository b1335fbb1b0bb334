"""Files that nobody should trust, through `heddle checkpoint inspect | verify | convert`.

Each is refused by every command: the right exit code, one line that names the file and says why, nothing written, no
code run, and at most 200 MB of memory.

Usage: hostile_input_test.py HEDDLE CHECKPOINT_SAVER
"""
import io
import json
import os
import pickle
import random
import re
import struct
import subprocess
import sys
import tarfile
import zipfile

from harness import HEDDLE, REPOSITORY, Scratch, seed
from tiers import SANITIZED, sample

SAVER = os.path.abspath(sys.argv[2])
PEAK = os.path.join(REPOSITORY, "tests", "support", "peak.py")
MEMORY_MAX = 400e6 if SANITIZED else 200e6
SECONDS_MAX = 120
DAMAGED, REFUSED = 1, 2


class Case:
    """`make(folder)` returns the path that is tried. `code`: of inspect, verify and convert, or one for each."""

    def __init__(self, name, make, says, code=DAMAGED):
        self.name, self.make, self.says = name, make, says
        self.codes = code if isinstance(code, tuple) else (code,) * 3


def spill(folder, name, content):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    return path


# ---- safetensors


def tensor(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors(header, data=b"", length=None):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def safetensors_cases():
    def case(name, says, header, data=8, code=DAMAGED, length=None):
        content = safetensors(header, bytes(data), length)
        return Case("safetensors: " + name, lambda folder: spill(folder, "m.safetensors", content), says, code)

    def sparse(folder):
        path = spill(folder, "m.safetensors", struct.pack("<Q", 100_000_000) + b"{")
        os.truncate(path, 100_000_016)
        return path

    def many(count):
        entries = ",".join('"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(count))
        return "{" + entries + "}"

    good = {"a": tensor([2], 0, 8)}
    two = '{"a":%s,"a":%s}' % (json.dumps(tensor([0], 0, 0)), json.dumps(tensor([2], 0, 8)))
    return [
        case("overlap", "overlaps", {**good, "b": tensor([1], 4, 8)}),
        case("hole", "hole", {"a": tensor([1], 0, 4), "b": tensor([1], 8, 12)}, 12),
        case("negative offset", "negative", {"a": tensor([2], -8, 0)}),
        case("end before begin", "offsets", {"a": tensor([2], 8, 0)}),
        case("huge offset", "offsets|overlaps|63 bits", {"a": tensor([2], 2**62, 2**62 + 8)}),
        case("offset beyond 64 bits", "not|number", {"a": tensor([2], 2**64, 2**64 + 8)}),
        case("fraction as offset", "not an integer", {"a": tensor([2], 0.0, 8.0)}),
        case("overflowing shape", "too large", {"a": tensor([2**32, 2**31], 0, 8)}),
        case("negative shape", "negative", {"a": tensor([-2], 0, 8)}),
        case("trailing bytes", "appended", good, 9),
        case("cut short", "cut short", good, 7),
        case("same name twice", "'a' comes twice", two),
        case("unknown dtype", "'F12' is not known", {"a": tensor([2], 0, 8, "F12")}),
        case("half a byte", "whole bytes", {"a": tensor([15], 0, 8, "F4")}),
        case("tensor called __metadata__", "__metadata__", {"__metadata__": tensor([2], 0, 8)}),
        case("deep JSON", "tensor 'a'", '{"a":{"dtype":' + "[" * 1_000_000),
        case("not UTF-8", "not JSON|tensor", '{"\udc80":1}'.encode("utf-8", "surrogateescape").decode("latin1")),
        case("header longer than the file", "cut short", good, 8, length=2**39),
        Case("safetensors: header of 100 MB", sparse, "header of 100000000 bytes"),
        case("160,000 tensors", "more than 150000 tensors", many(160_000), 0),
        case("1e6 tensors", "header of", many(1_000_000), 0),
    ]


# ---- folders with an index


def index_cases():
    shard = safetensors({"a": tensor([2], 0, 8)}, bytes(8))

    def case(name, says, index, code=DAMAGED, **shards):
        text = index if isinstance(index, bytes) else json.dumps(index).encode()

        def make(folder):
            spill(folder, "model/model.safetensors.index.json", text)
            for file, content in shards.items():
                spill(folder, f"model/{file}.safetensors", content)
            return os.path.join(folder, "model")

        return Case("index: " + name, make, says, code)

    def fifo(folder):
        spill(folder, "model/model.safetensors.index.json", json.dumps({"weight_map": {"a": "pipe"}}).encode())
        os.mkfifo(os.path.join(folder, "model", "pipe"))
        return os.path.join(folder, "model")

    two = {"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}
    return [
        case("missing shard", "shard y.safetensors is missing", two, x=shard),
        case("path out of the folder", "'a' is not the name", {"weight_map": {"a": "../secret"}}, x=shard),
        case("absolute path", "'a' is not the name", {"weight_map": {"a": "/etc/passwd"}}, x=shard),
        case("no text for a file", "'a' is not the name", {"weight_map": {"a": 7}}, x=shard),
        case("tensor in two shards", "in two files",
             {"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}, x=shard,
             y=safetensors({"a": tensor([1], 0, 4), "b": tensor([1], 4, 8)}, bytes(8))),
        case("tensor that its shard lacks", "has no tensor 'b'", two, x=shard, y=shard),
        case("no tensors", "no weight_map", {"weight_map": {}}),
        case("not JSON", "not JSON", b"{", x=shard),
        case("the same key twice", "twice", b'{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}', x=shard),
        case("deep JSON", "not JSON|deep", b'{"weight_map":' + b'{"a":' * 100_000, x=shard),
        case("index of 20 MB", "bytes", b'{"weight_map":{"a":"x.safetensors"}}' + b" " * 20_000_000,
             (DAMAGED, REFUSED, DAMAGED), x=shard),
        Case("index: shard that is a FIFO", fifo, "not a regular file"),
        case("pointer of Git LFS", "Git LFS", two, code=REFUSED, x=shard,
             y=b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
    ]


# ---- config.json


def config_cases():
    def case(name, says, config, code):
        def make(folder):
            spill(folder, "model/model.safetensors", safetensors({"a": tensor([2], 0, 8)}, bytes(8)))
            spill(folder, "model/config.json", config)
            return os.path.join(folder, "model")

        return Case("config: " + name, make, "config.json: .*" + says, code)

    return [
        case("cut short", "not JSON", b'{"model_type": "llama", "vocab', DAMAGED),
        case("no object", "expected an object", b"[1]", DAMAGED),
        case("deep JSON", "not JSON|deep", b'{"a":' * 100_000, DAMAGED),
        case("empty", "empty", b"", REFUSED),
        case("pointer of Git LFS", "a pointer of Git LFS", b"version https://git-lfs.github.com/spec/v1\n", REFUSED),
        case("web page", "a web page", b"<!DOCTYPE html>", REFUSED),
    ]


# ---- PyTorch


class Bomb:
    """Unpickled by pickle itself, it would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, ("touch " + self.path,)


def archive(path, entries, compression=zipfile.ZIP_STORED):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in entries:
            file.writestr("archive/" + name, content)
    return path


def short_text(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def integer(number):
    return b"\x8a\x08" + struct.pack("<q", number)


def integers(numbers):
    return b"(" + b"".join(integer(number) for number in numbers) + b"t"


def state_dict(elements, offset, shape, stride):
    """Protocol 2, as torch.save writes one tensor."""
    storage = (b"(" + short_text("storage") + b"ctorch\nFloatStorage\n" + short_text("0") + short_text("cpu") +
               integer(elements) + b"tQ")
    view = (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + integer(offset) + integers(shape) + integers(stride) +
            b"\x89ccollections\nOrderedDict\n)RtR")
    return b"\x80\x02}(" + short_text("w") + view + b"u."


def patched(path, signature, offset, value):
    """Changes a field of the first record with this signature."""
    with open(path, "r+b") as file:
        content = file.read()
        file.seek(content.index(signature) + offset)
        file.write(value)
    return path


def pytorch_cases():
    good = [("data.pkl", state_dict(6, 0, [6], [1])), ("data/0", bytes(24)), ("version", b"3\n")]

    def case(name, says, entries, code=REFUSED, compression=zipfile.ZIP_STORED, change=lambda path: path):
        def make(folder):
            return change(archive(os.path.join(folder, "m.pt"), entries, compression))

        return Case("pytorch: " + name, make, says, code)

    def view(name, says, *arguments, code=DAMAGED):
        return case(name, says, [("data.pkl", state_dict(*arguments)), ("data/0", bytes(24))], code)

    def code_pickle(folder):
        content = pickle.dumps({"w": Bomb(os.path.join(folder, "ran"))}, protocol=2)
        return archive(os.path.join(folder, "m.pt"), [("data.pkl", content)])

    def code_nested(folder):
        inner = pickle.dumps(Bomb(os.path.join(folder, "ran")), protocol=2)
        return archive(os.path.join(folder, "m.pt"), [("data.pkl", pickle.dumps(pickle.loads, protocol=2)[:-1] +
                                                       b"U" + bytes([len(inner)]) + inner + b"\x85R.")])

    def legacy(folder):
        return spill(folder, "m.pt", b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.")

    def tar(folder):
        path = os.path.join(folder, "m.pt")
        with tarfile.open(path, "w") as file:
            file.addfile(tarfile.TarInfo("storages"), io.BytesIO())
        return path

    def append_entry(path, content):
        with zipfile.ZipFile(path, "a") as file:
            file.writestr("archive/data/0", content)
        return path

    many = b"\x80\x02]" + b"(" + b"]" * 3_000_000 + b"e."
    return [
        Case("pytorch: pickled code", code_pickle, "never run: global '(posix|os).system'", REFUSED),
        Case("pytorch: pickle in a pickle", code_nested, "never run: global '_?pickle.loads'", REFUSED),
        Case("pytorch: file of the time before archives", legacy, "before 1.6", REFUSED),
        Case("pytorch: tar", tar, "tar archive", REFUSED),
        case("TorchScript", "TorchScript", [*good, ("code/m.py", b"x"), ("constants.pkl", b").")]),
        case("compressed", "compressed", good, compression=zipfile.ZIP_DEFLATED),
        case("zip bomb", "compressed", [*good, ("data/1", bytes(300_000_000))], compression=zipfile.ZIP_DEFLATED),
        case("encrypted", "encrypted", good, change=lambda path: patched(path, b"PK\1\2", 8, b"\1\0")),
        case("two entries of one name", "two entries", good, change=lambda path: append_entry(path, bytes(24))),
        case("zip64 sizes beyond the file", "points behind|reaches into|stored, but|cut short|damaged", good, DAMAGED,
             change=lambda path: patched(path, b"PK\1\2", 20, b"\xfe\xff\xff\xff\xfe\xff\xff\xff")),
        case("directory behind the end", "behind the end", good, DAMAGED,
             change=lambda path: patched(path, b"PK\5\6", 16, b"\xfe\xff\xff\x7f")),
        case("no pickle", "no model", [("data/0", bytes(24))]),
        case("pickle cut short", ".", [("data.pkl", good[0][1][:-20]), ("data/0", bytes(24))], DAMAGED),
        case("pickle of 3,000,000 lists", ".", [("data.pkl", many)]),
        case("pickle of 40 MB", "bytes|large", [("data.pkl", b"\x80\x02" + b"N0" * 20_000_000 + b"N.")]),
        case("missing storage", "no storage '0'", [("data.pkl", state_dict(6, 0, [6], [1]))], DAMAGED),
        view("storage too short", "too few", 7, 0, [6], [1]),
        view("stride out of the storage", "leave the storage", 6, 0, [3], [5]),
        view("negative offset", "leave the storage", 6, -1, [1], [1]),
        view("stride that overflows", "leave the storage", 6, 0, [3, 3], [2**62, 2**62]),
        view("shape that overflows", "negative or too large", 6, 0, [2**60, 2**60], [0, 0]),
        view("2^60 elements of stride 0", "far larger", 6, 0, [2**60], [0], code=REFUSED),
    ]


# ---- Heddle's own


def native(folder, change=None, change_file=None):
    """A sound checkpoint, its manifest changed as text or its first file replaced, and sealed again."""
    root = os.path.join(folder, "checkpoints")
    subprocess.run([SAVER, "save", root, "1", "1"], check=True, capture_output=True, timeout=SECONDS_MAX)
    path = os.path.join(root, "step-00000001")
    manifest = os.path.join(path, "MANIFEST.json")
    with open(manifest, encoding="utf-8") as file:
        text = file.read()
    if change_file is not None:
        record = json.loads(text)["files"][0]
        data = os.path.join(path, record["name"])
        change_file(data)
        said = subprocess.run([SAVER, "hash", data], check=True, capture_output=True, text=True, timeout=SECONDS_MAX)
        text = text.replace(record["blocks_xxh3_128"], said.stdout.strip())
        text = text.replace(f'"bytes":{record["bytes"]}', f'"bytes":{os.path.getsize(data)}')
    if change is not None:
        changed = change(text)
        assert changed != text, "the manifest is as it was"
        text = changed
    with open(manifest, "w", encoding="utf-8") as file:
        file.write(text)
    subprocess.run([SAVER, "seal", manifest], check=True, capture_output=True, timeout=SECONDS_MAX)
    return path


def hdf5_cases():
    """Behind the hash: the manifest vouches for these files, and still no library may follow what they say."""
    try:
        import h5py
        import numpy
    except ImportError:
        print("without h5py: no hostile HDF5 files", flush=True)
        return []

    def hostile(fill):
        def change(path):
            size = os.path.getsize(path)
            with h5py.File(path, "w", libver="latest") as file:
                fill(file)
            with open(path, "ab") as file:
                file.write(bytes(max(0, size - os.path.getsize(path))))
        return lambda folder: native(folder, change_file=change)

    def extents(file):
        file.create_dataset("master/w", shape=(2**40, 2**20), dtype="f4", chunks=(1, 1))

    def links(file):
        file["master"] = h5py.ExternalLink("/etc/passwd", "/")
        file["exp_avg"] = h5py.SoftLink("/exp_avg")

    def external(file):
        file.create_dataset("master/w", shape=(200, 100), dtype="f4", external=[("/etc/passwd", 0, 80000)])

    def virtual(file):
        layout = h5py.VirtualLayout(shape=(200, 100), dtype=numpy.float32)
        layout[...] = h5py.VirtualSource("/etc/passwd", "x", shape=(200, 100))
        file.create_virtual_dataset("master/w", layout)

    # The manifest alone is inspected; whoever reads finds no chunk where it should be.
    return [Case("hdf5: " + name, hostile(fill), "chunk|tensor", (0, DAMAGED, DAMAGED)) for name, fill in (
        ("absurd extents", extents), ("external and endless links", links), ("external storage", external),
        ("virtual dataset", virtual))]


def native_cases():
    def case(name, says, old, new, code=DAMAGED):
        return Case("native: " + name, lambda folder: native(folder, lambda text: re.sub(old, new, text, count=1)),
                    says, code)

    def unsealed(folder):
        path = native(folder)
        with open(os.path.join(path, "MANIFEST.json"), "r+b") as file:
            file.seek(200)
            file.write(b"#")
        return path

    def sparse(folder):
        path = native(folder)
        os.truncate(os.path.join(path, "MANIFEST.json"), 600 << 20)
        return path

    def blob(folder):
        path = native(folder, change_file=lambda path: None)
        for name in os.listdir(path):
            if name.endswith(".h5"):
                with open(os.path.join(path, name), "r+b") as file:
                    file.truncate(100)
        return path

    def empty(folder):
        os.makedirs(os.path.join(folder, "step-00000001"))
        return os.path.join(folder, "step-00000001")

    name = r'"name":"w0\.g1\.h5"'
    return [
        case("file out of the folder", "its name", name, '"name":"../../secret"'),
        case("absolute file", "its name", name, '"name":"/etc/passwd"'),
        case("file called as another", ".", name, '"name":"w1.g1.h5"'),
        case("size beyond 63 bits", "bytes", r'"bytes":\d+', '"bytes":18446744073709551615'),
        case("negative size", "bytes", r'"bytes":\d+', '"bytes":-1'),
        case("size as a fraction", "bytes", r'"bytes":\d+', '"bytes":1e30'),
        case("other size", "expected|bytes", r'"bytes":\d+', '"bytes":99999999'),
        case("shape that overflows", ".", r'"shape":\[200,100\]', '"shape":[4611686018427387904,4]'),
        case("negative shape", ".", r'"shape":\[200,100\]', '"shape":[-200,100]'),
        case("17 dimensions", "dimensions", r'"shape":\[200,100\]', '"shape":[' + "1," * 16 + "1]"),
        case("chunk behind the end", ".", r'"chunks":\[\[\d+', '"chunks":[[4611686018427387904'),
        case("offset that overflows", ".", r'"offset":\[\d+', '"offset":[9223372036854775807'),
        case("unknown type", "fp12", r'"dtype":"fp32"', '"dtype":"fp12"'),
        case("the same key twice", "twice", r'"generation":1', '"generation":1,"generation":1'),
        case("deep JSON", "not JSON|deep", r'"samples_consumed":\d+', '"samples_consumed":' + "[" * 100_000),
        case("newer version", "version 4", r'"version":3', '"version":4', (DAMAGED, REFUSED, DAMAGED)),
        case("step of another folder", "step 7", r'"step":1,', '"step":7,'),
        Case("native: changed by hand", unsealed, "checksum"),
        Case("native: manifest of 600 MB", sparse, "bytes"),
        Case("native: files cut short", blob, "100 bytes"),
        Case("native: no manifest", empty, "MANIFEST.json is missing"),
    ]


# ---- What is no model at all


def other_cases(chance):
    def case(name, content, says):
        return Case("other: " + name, lambda folder: spill(folder, "model.bin", content), says, REFUSED)

    return [
        case("empty file", b"", "empty"),
        case("web page", b"<!DOCTYPE html><html>404</html>", "web page"),
        case("pointer of Git LFS", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        case("noise", chance.randbytes(5000), "no model"),
        Case("other: folder without a model", lambda folder: os.path.dirname(spill(folder, "notes/a.txt", b"a")),
             "no model", REFUSED),
        Case("other: nothing", lambda folder: os.path.join(folder, "none"), "none", REFUSED),
    ]


def run(words):
    """Exit code, both outputs and peak memory in bytes."""
    reads, writes = os.pipe()
    done = subprocess.run([sys.executable, "-S", PEAK, str(writes), str(SECONDS_MAX), HEDDLE, "checkpoint", *words],
                          stdin=subprocess.DEVNULL, capture_output=True, pass_fds=[writes], check=False,
                          start_new_session=True, timeout=2 * SECONDS_MAX)
    os.close(writes)
    with os.fdopen(reads, "rb") as channel:
        peak = int(channel.read())
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), peak


def check(case, folder):
    """Problems, as lines, and the largest peak in bytes."""
    os.makedirs(folder)
    path = case.make(folder)
    target = os.path.join(folder, "written")
    problems, largest = [], 0
    for words, code in zip((["inspect", path], ["verify", path], ["convert", path, target, "--to", "native"]),
                           case.codes):
        found, out, err, peak = run(words)
        largest = max(largest, peak)
        # What `verify` finds in a checkpoint is its answer, a line for each file.
        answer = words[0] == "verify" and not err and found == DAMAGED
        said = out if answer else err
        lines = said.splitlines()
        where = f"{words[0]}: exit {found}: {said[:300]!r}"
        if found != code:
            problems.append(f"{where}, expected exit {code}")
        if code == 0:
            continue
        if not answer and len(lines) != 1 or not lines:
            problems.append(f"{where}: {len(lines)} lines")
        if not re.search(case.says, said):
            problems.append(f"{where} does not say {case.says!r}")
        if os.path.basename(path) not in said and "MANIFEST" not in said and ".h5" not in said:
            problems.append(f"{where} does not say where")
        if peak > MEMORY_MAX:
            problems.append(f"{where}: {peak / 1e6:.0f} MB")
    written = [name for name in os.listdir(folder) if name.startswith((".written", "written", "ran"))]
    return problems + [f"left behind: {name}" for name in written], largest


def main():
    failed, largest, chance = 0, 0, random.Random(seed())
    cases = [*safetensors_cases(), *index_cases(), *config_cases(), *pytorch_cases(), *hdf5_cases(), *native_cases(),
             *other_cases(chance)]
    cases = sample(cases, chance, 5, 15)
    at_rest = run(["inspect", "none"])[3]
    with Scratch() as root:
        for number, case in enumerate(cases):
            problems, peak = check(case, os.path.join(root, f"case-{number}"))
            largest = max(largest, peak)
            print(f"{'FAILED' if problems else 'ok'}: {case.name}", flush=True)
            for problem in problems:
                print("    " + problem, flush=True)
            failed += bool(problems)
        print(f"{len(cases)} files, {failed} failed; memory at rest {at_rest / 1e6:.0f} MB, at most "
              f"{largest / 1e6:.0f} MB")
        assert failed == 0
    assert cases


main()
