#!/usr/bin/env python3
"""What a user can get wrong, tried on the real program.

Each case runs one command in a folder of its own and expects: exit code 2 (bad usage or input; a case may say
otherwise), one line on standard error that says what is wrong and where (a hint may follow), nothing on standard
output, and a folder that holds exactly what it held before.

Usage: bad_input_test.py HEDDLE [--only NAME] [--keep] [--list]
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tiers  # pylint: disable=wrong-import-position,import-error
from ports import held_port  # pylint: disable=wrong-import-position,import-error
from seeds import seed  # pylint: disable=wrong-import-position,import-error

JOB = """name: trial
steps: 2
seed: 1
model:
  model_type: llama
  hidden_size: 32
  intermediate_size: 64
  num_hidden_layers: 2
  num_attention_heads: 2
  num_key_value_heads: 1
  max_position_embeddings: 64
data:
  text: prose.txt
  validation_fraction: 0.1
batch: {microbatch: 2, global: 4, sequence: 16}
optimizer: {learning_rate: 1e-3}
workers:
  - {name: a}
  - {name: b, emulate: {speed: 0.5}}
"""
# Key, after which line of the job, what is given there, and what rules it out.
WITHOUT_EFFECT = [
    ("data.token_type", "text: prose.txt", "\n  token_type: uint32", "tokens of data.text are bytes"),
    ("checkpoint.when_busy", "steps: 2", "\ncheckpoint: {every: 1, background: false, when_busy: skip}",
     "checkpoint.background is false"),
    ("checkpoint.replicas.copies", "steps: 2", "\ncheckpoint: {replicas: {copies: 2}}",
     "checkpoint.replicas.every is 0"),
    ("checkpoint.replicas.compress", "steps: 2", "\ncheckpoint: {replicas: {compress: false}}",
     "checkpoint.replicas.every is 0"),
    ("elastic.recover_from", "steps: 2", "\nelastic: {recover_from: replicas}", "checkpoint.replicas.every is 0"),
]
PROSE = "It was the best of times, it was the worst of times. " * 60
SECONDS_MAX = 120
ERROR = re.compile(r"^(error: |[^:]+(:\d+:\d+)?: error: )")
EXTRA = re.compile(r"^\s*hint: ")


class Case:
    def __init__(self, name, command, says, change=(), files=None, code=2, prepare=None, lines=1, stdout=False):
        self.name = name
        self.command = command.split(" ") if isinstance(command, str) else command
        self.says = [says] if isinstance(says, str) else says
        self.change = change  # (old, new) pairs applied to JOB
        self.files = files or {}
        self.code = code
        self.prepare = prepare  # called with the folder; returns something that is closed afterwards
        self.lines = lines  # error lines expected
        self.stdout = stdout  # whether the answer is on standard output


TRAIN = "train job.yaml --out out"
PLAN = "plan job.yaml"


def line_of(text):
    """1-based line of the job file on which `text` stands."""
    return JOB[: JOB.index(text)].count("\n") + 1


def at(text):
    """Pattern of an error in the line on which `text` stands."""
    return rf"^job\.yaml:{line_of(text)}:\d+: error: "


def taken_port(_folder):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    return listener


def other_job(folder):
    out = folder / "out"
    out.mkdir()
    (out / "job.hash").write_text("0" * 32 + "\n")
    (out / "events.jsonl").write_text("")


def other_program(folder):
    (folder / "out").mkdir()
    (folder / "out" / "events.jsonl").write_text("{}\n")


def out_is_file(folder):
    (folder / "out").write_text("a file\n")


def folder_as_job(folder):
    (folder / "jobs.yaml").mkdir()


def odd_bytes(folder):
    (folder / "binary.yaml").write_bytes(bytes(range(256)) * 8)


def large_token(folder):
    (folder / "tokens.bin").write_bytes(struct.pack("<2000H", *([7] * 1999 + [60000])))


def odd_tokens(folder):
    (folder / "tokens.bin").write_bytes(b"\x01" * 4001)


def nul_text(folder):
    (folder / "nul.txt").write_bytes(PROSE.encode() + b"\0" + PROSE.encode())


def empty_text(folder):
    (folder / "empty.txt").write_bytes(b"")


def folder_of_texts(folder):
    (folder / "texts").mkdir()
    (folder / "texts" / "prose.txt").write_text(PROSE)


def empty_folder(folder):
    (folder / "texts").mkdir()


def truncated_manifest(folder):
    checkpoint = folder / "step-00000001"
    checkpoint.mkdir()
    (checkpoint / "MANIFEST.json").write_text('{"format":"heddle-checkpoint","version":1,"checksum":"')


def foreign_manifest(folder):
    checkpoint = folder / "step-00000001"
    checkpoint.mkdir()
    (checkpoint / "MANIFEST.json").write_text('{"format":"something else"}')


def big_job(folder):
    (folder / "big.yaml").write_text("# " + "x" * (2 << 20) + "\n" + JOB)


def yaml_cases():
    def job(name, old, new, says, **more):
        assert old in JOB, old
        return Case(name, TRAIN, says, change=((old, new),), **more)

    return [
        job("unknown key", "seed: 1", "sed: 1", [r"^job\.yaml:3:1: error: .*sed", "seed"]),
        job("misspelt key in a section", "hidden_size: 32", "hiden_size: 32",
            [r"^job\.yaml:\d+:\d+: error: ", "hiden_size", "hidden_size"]),
        job("unknown key of a worker", "emulate:", "emulat:", [at("name: b"), "emulat", "emulate"]),
        job("key given twice", "steps: 2", "steps: 2\nsteps: 3", [r"^job\.yaml:3:1: error: .*steps"]),
        job("missing key", "steps: 2\n", "", [r"^job\.yaml:\d+:\d+: error: .*steps"]),
        job("text for an integer", "steps: 2", "steps: many", [r"^job\.yaml:2:8: error: steps: expected an integer"]),
        job("fraction for an integer", "steps: 2", "steps: 2.5",
            [r"^job\.yaml:2:8: error: steps: expected an integer"]),
        job("list for an integer", "steps: 2", "steps: [2]", [r"^job\.yaml:2:8: error: steps: expected an integer"]),
        job("scalar for a mapping", "batch: {microbatch: 2, global: 4, sequence: 16}", "batch: 4",
            [at("batch:") + "batch: expected a mapping"]),
        job("null for a number", "steps: 2", "steps:", [r"^job\.yaml:2:\d+: error: steps"]),
        job("zero steps", "steps: 2", "steps: 0", [r"^job\.yaml:2:8: error: steps: expected 1\.\."]),
        job("negative batch", "microbatch: 2", "microbatch: -2", [at("batch:") + r"batch\.microbatch"]),
        job("integer too large", "steps: 2", "steps: 99999999999999999999", [r"^job\.yaml:2:8: error: steps"]),
        job("octal integer", "steps: 2", "steps: 010", [r"^job\.yaml:2:8: error: steps", "decimal"]),
        job("learning rate is not a number", "1e-3", ".nan", [at("optimizer:") + r"optimizer\.learning_rate"]),
        job("learning rate is infinite", "1e-3", "inf", [at("optimizer:") + r"optimizer\.learning_rate"]),
        job("learning rate of 1e400", "1e-3", "1e400", [at("optimizer:") + r"optimizer\.learning_rate"]),
        job("speed above one", "speed: 0.5", "speed: 1.5", [at("name: b") + r"workers\.1\.emulate\.speed"]),
        job("bare number for a size", "speed: 0.5", "memory: 500",
            [at("name: b") + r"workers\.1\.emulate\.memory: expected a size", "number and a unit"]),
        job("bare number for a duration", "steps: 2", "steps: 2\nelastic: {lease: 3}",
            [r"^job\.yaml:3:\d+: error: elastic\.lease: expected a duration", "number and a unit"]),
        job("bare number for a rate", "speed: 0.5", "link: 100",
            [at("name: b") + r"workers\.1\.emulate\.link: expected a rate", "number and a unit"]),
        job("unknown model type", "model_type: llama", "model_type: lama",
            [at("model_type") + r"model\.model_type", "llama"]),
        job("unknown precision", "seed: 1", "precision: fp16", [r"^job\.yaml:3:\d+: error: precision", "fp32, bf16"]),
        job("hidden size does not divide by the heads", "num_attention_heads: 2", "num_attention_heads: 3",
            [r"^job\.yaml:\d+:\d+: error: model", "num_attention_heads"]),
        job("heads do not divide by the key/value heads", "num_attention_heads: 2\n  num_key_value_heads: 1",
            "num_attention_heads: 4\n  num_key_value_heads: 3",
            [r"^job\.yaml:\d+:\d+: error: model", "num_key_value_heads"]),
        job("batch that cannot be split", "global: 4", "global: 5",
            [at("batch:") + r"batch\.global.*5 cannot be split into microbatches of 2"]),
        Case("sequence beyond the positions", TRAIN, [r"^job\.yaml:\d+:\d+: error: ", "max_position_embeddings 8"],
             change=(("model_type: llama", "model_type: gpt2"), ("  num_key_value_heads: 1\n", ""),
                     ("max_position_embeddings: 64", "max_position_embeddings: 8"))),
        Case("sequence beyond llama's limit", TRAIN, ["job\\.yaml", "max_position_embeddings 8"],
             change=(("max_position_embeddings: 64", "max_position_embeddings: 8"),)),
        job("vocabulary too small for text", "hidden_size: 32", "hidden_size: 32\n  vocab_size: 128",
            [r"^job\.yaml:\d+:\d+: error: model", "vocab_size 128 is too small"]),
        job("text and tokens", "text: prose.txt", "text: prose.txt\n  tokens: prose.txt",
            [r"^job\.yaml:\d+:\d+: error: data", "exactly one"]),
        job("neither text nor tokens", "  text: prose.txt\n", "", [r"^job\.yaml:\d+:\d+: error: data", "exactly one"]),
        job("two workers of one name", "name: b", "name: a", [at("name: b") + r"workers\.1\.name", "'a'"]),
        job("worker's name with a slash", "name: b", "name: a/b", [at("name: b") + r"workers\.1\.name"]),
        job("more workers needed than there are", "steps: 2", "steps: 2\nelastic: {minimum_workers: 3}",
            [r"^job\.yaml:3:\d+: error: elastic", "minimum_workers 3"]),
        job("unknown transport", "steps: 2", "steps: 2\ncomm: {transports: [tcp, pigeon]}",
            [r"^job\.yaml:3:\d+: error: comm\.transports: 'pigeon'", "shm, verbs, tcp"]),
        job("no transport", "steps: 2", "steps: 2\ncomm: {transports: []}",
            [r"^job\.yaml:3:\d+: error: comm\.transports: empty"]),
        job("encrypted RDMA", "steps: 2", "steps: 2\ncomm: {transports: [verbs], tls: true}",
            [r"^job\.yaml:3:\d+: error: comm\.tls: RDMA is not encrypted", "add tcp"]),
        job("no checkpoint is kept", "steps: 2", "steps: 2\ncheckpoint: {keep: {last: 0}}",
            [r"^job\.yaml:3:\d+: error: checkpoint\.keep\.last: expected 1\.\."]),
        job("snapshots at negative steps", "steps: 2", "steps: 2\ncheckpoint: {replicas: {every: -1}}",
            [r"^job\.yaml:3:\d+: error: checkpoint\.replicas\.every: expected 0\.\."]),
        job("no copy of a snapshot", "steps: 2", "steps: 2\ncheckpoint: {replicas: {every: 1, copies: 0}}",
            [r"^job\.yaml:3:\d+: error: checkpoint\.replicas\.copies: expected 1\.\.8"]),
        job("too many copies of a snapshot", "steps: 2", "steps: 2\ncheckpoint: {replicas: {every: 1, copies: 9}}",
            [r"^job\.yaml:3:\d+: error: checkpoint\.replicas\.copies: expected 1\.\.8"]),
        job("unknown key of replicas", "steps: 2", "steps: 2\ncheckpoint: {replicas: {evry: 1}}",
            [r"^job\.yaml:3:\d+: error: checkpoint\.replicas\.evry", "every"]),
        job("failure domain with a space", "name: b", "name: b, failure_domain: rack 7",
            [at("name: b") + r"workers\.1\.failure_domain", "'rack 7'"]),
        job("failure domain without end", "name: b", "name: b, failure_domain: " + "x" * 65,
            [at("name: b") + r"workers\.1\.failure_domain", "at most 64"]),
        job("validation without data for it", "validation_fraction: 0.1",
            "validation_fraction: 0\nvalidation: {every: 2}",
            [r"^job\.yaml:15:\d+: error: validation\.every has no effect: data\.validation_fraction is 0"]),
        job("validation batches without data for them", "validation_fraction: 0.1",
            "validation_fraction: 0\nvalidation: {batches: 2}",
            [r"^job\.yaml:15:\d+: error: validation\.batches has no effect: data\.validation_fraction is 0"]),
        job("globs for a file of tokens", "text: prose.txt", 'tokens: prose.txt\n  include: "*.txt"',
            [r"^job\.yaml:14:\d+: error: data\.include has no effect: data\.tokens is one file"]),
        job("a schedule without its end", "learning_rate: 1e-3",
            "learning_rate: 1e-3, schedule: constant, minimum_learning_rate: 1e-4",
            [at("optimizer:") + r"optimizer\.minimum_learning_rate has no effect: optimizer\.schedule is constant"]),
        *[job(f"{key} without effect: {more.strip()}", old, f"{old}{more}",
              [rf"^job\.yaml:\d+:\d+: error: {re.escape(key)} has no effect: {re.escape(by)}", f"or remove {key}"])
          for key, old, more, by in WITHOUT_EFFECT],
        job("best checkpoint without validation", "steps: 2", "steps: 2\ncheckpoint: {keep: {last: 2, best: loss}}",
            [r"^job\.yaml:3:\d+: error: checkpoint\.keep\.best needs validation", "validation.every"]),
        job("best checkpoint by something else", "steps: 2", "steps: 2\ncheckpoint: {keep: {best: accuracy}}",
            [r"^job\.yaml:3:\d+: error: checkpoint\.keep\.best", "loss"]),
        job("exact sums of shared layers", "steps: 2", "steps: 2\nparallel: {tensor: 2}",
            [r"^job\.yaml:3:\d+: error: workers that share a layer", "determinism: relaxed"]),
        job("one slice to divide", "steps: 2",
            "steps: 2\noptimizer: {learning_rate: 1e-3, slices: 1}\nparallel: {optimizer: divided}",
            [r"^job\.yaml:\d+:\d+: error: an optimizer of one slice cannot be divided", "optimizer.slices"]),
        job("no number of workers", "steps: 2", "steps: 2\ndeterminism: relaxed\nparallel: {tensor: many}",
            [r"^job\.yaml:4:\d+: error: parallel\.tensor: 'many' is no number of workers of a stage", "or auto"]),
        job("positions of one worker", "steps: 2", "steps: 2\nparallel: {sequence: divided}",
            [r"^job\.yaml:3:\d+: error: a stage of one worker has nobody to divide positions with", "parallel.tensor"]),
        job("more workers than heads", "steps: 2", "steps: 2\ndeterminism: relaxed\nparallel: {tensor: 64}",
            [r"^job\.yaml:4:\d+: error: 64 workers cannot share a layer of \d+ heads", "parallel.tensor"]),
        job("a guarantee of relaxed sums", "steps: 2", "steps: 2\nguarantee: per-plan\ndeterminism: relaxed",
            [r"^job\.yaml:3:\d+: error: no guarantee can be kept", "determinism: relaxed"]),
        job("a guarantee of rounded moments", "steps: 2",
            "steps: 2\nguarantee: plan-invariant\ncheckpoint: {moments: bf16}",
            [r"^job\.yaml:3:\d+: error: no guarantee can be kept", "checkpoint.moments: bf16"]),
        job("a guarantee that is none", "steps: 2", "steps: 2\nguarantee: always",
            [r"^job\.yaml:3:\d+: error: guarantee", "plan-invariant"]),
        job("a device that is none", "seed: 1", "device: gpu",
            [r"^job\.yaml:3:\d+: error: device: expected cpu, cuda, cuda:N or auto, got 'gpu'"]),
        job("a worker's device that is none", "name: b", "name: b, device: 'cuda:x'",
            [at("name: b") + r"workers\.1\.device: expected cpu", "'cuda:x'"]),
        job("warm-up longer than the run", "learning_rate: 1e-3", "learning_rate: 1e-3, warmup_steps: 50",
            [at("optimizer:"), "warmup_steps 50 exceeds steps 2"]),
        job("syntax", "batch: {microbatch: 2,", "batch: {microbatch: 2,,", [r"^job\.yaml:\d+:\d+: error: "]),
        job("unclosed bracket", "sequence: 16}", "sequence: 16", [r"^job\.yaml:\d+:\d+: error: "]),
        job("tab as indentation", "  hidden_size: 32", "\thidden_size: 32", [r"^job\.yaml:\d+:\d+: error: "]),
        job("missing model configuration", "  model_type: llama\n", "  config: model.json\n",
            [r"^job\.yaml:\d+:\d+: error: ", "model.json"], lines=(1, 9)),
        job("model configuration that is a pointer", "  model_type: llama\n", "  config: model.json\n",
            [r"^job\.yaml:\d+:\d+: error: ", r"model\.json: .*a pointer of Git LFS"], lines=(1, 9),
            files={"model.json": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"}),
        job("model configuration that is cut", "  model_type: llama\n", "  config: model.json\n",
            [r"^job\.yaml:\d+:\d+: error: ", r"model\.json: config\.json: not valid JSON"], lines=(1, 9),
            files={"model.json": '{"model_type": "llama", "vocab'}),
        job("plan file that is none", "steps: 2", "steps: 2\nplan: prose.txt",
            [r"^job\.yaml:3:\d+: error: plan", r"prose\.txt"]),
        job("plan file that is missing", "steps: 2", "steps: 2\nplan: none.json",
            [r"^job\.yaml:3:\d+: error: plan", r"none\.json"]),
    ]


def data_cases():
    def data(name, text, says, **more):
        return Case(name, TRAIN, [r"job\.yaml", *says], change=(("text: prose.txt", text),), **more)

    return [
        data("missing data", "text: none.txt", [r"none\.txt", "No such file"]),
        data("empty data", "text: empty.txt", [r"empty\.txt", "empty"], prepare=empty_text),
        data("folder without a file", "text: texts", ["texts", "no file"], prepare=empty_folder),
        data("no file matches", "text: .\n  include: '*.tex'", [r"\*\.tex", "no file"]),
        data("data shorter than a sample", "text: short.txt", [r"short\.txt", "fewer than one sample"],
             files={"short.txt": "short"}),
        data("binary file named as text", "text: nul.txt", [r"nul\.txt", "NUL"], prepare=nul_text),
        data("token beyond the vocabulary", "tokens: tokens.bin", [r"tokens\.bin", "token 60000", "256"],
             prepare=large_token),
        data("half a token", "tokens: tokens.bin", [r"tokens\.bin", "4001 bytes"], prepare=odd_tokens),
        Case("data command on missing data", "data job.yaml", [r"none\.txt", "No such file"],
             change=(("text: prose.txt", "text: none.txt"),)),
    ]


def fit_cases():
    small = (("- {name: a}", "- {name: a, emulate: {memory: 64KiB}}"), ("speed: 0.5", "memory: 64KiB"))
    return [
        Case("no worker fits the model: plan", PLAN, ["memory|fit"], change=small),
        Case("no worker fits the model: train", TRAIN, ["memory|fit"], change=small),
        Case("plan: a profile that is missing", f"{PLAN} --profile none.json", [r"none\.json", "No such file"]),
        Case("plan: a profile that is none", f"{PLAN} --profile prose.txt", [r"prose\.txt", "no profile file"]),
        Case("plan: a profile of nobody", f"{PLAN} --profile empty.json",
             [r"empty\.json", "worker a of the job is not in it"],
             files={"empty.json": '{"profile_file": 3, "workers": [], "links": {"places": [], "pairs": []}}'}),
        Case("plan: measured, and not", f"{PLAN} --profile a.json --save-profile b.json",
             ["--save-profile writes what is measured"]),
    ]


def place_cases():
    def port_case(name, command, says):
        return Case(name, command, says, prepare=taken_port)

    return [
        port_case("coordinator's port is taken", TRAIN + " --listen 127.0.0.1:{port}", [r"127\.0\.0\.1:{port}"]),
        port_case("metrics' port is taken", TRAIN + " --set metrics.port={port}", ["{port}"]),
        port_case("serve's port is taken", "serve --store store --listen 127.0.0.1:{port}", [r"127\.0\.0\.1:{port}"]),
        Case("serve beyond loopback without certificates", "serve --store store --listen 0.0.0.0:0",
             [r"0\.0\.0\.0:0", "--certs", "--insecure"]),
        Case("train beyond loopback", TRAIN + " --listen 0.0.0.0:0", [r"0\.0\.0\.0:0", "--certs", "--insecure"]),
        Case("serve with certificates that are not there", "serve --store store --certs none", ["none/key.pem"]),
        Case("submit with certificates that are not there", "submit job.yaml --coordinator 127.0.0.1:1 --certs none",
             ["none/key.pem"]),
        Case("an output root that cannot be made", "serve --store store --output-root /proc/none/root", ["/proc/none"]),
        Case("certificates for a name that is none", "certs init lab --worker ../a", [r"\.\./a"]),
        Case("certificates for no days", "certs init lab --days 0", ["--days 0"]),
        Case("a certificate without an authority", "certs issue . --role viewer", ["authority/key.pem"]),
        Case("a certificate for a role that is none", "certs issue . --role root", ["--role", "root"]),
        Case("listening address is none", TRAIN + " --listen nowhere", ["nowhere"]),
        Case("metrics' address is none", "serve --store store --metrics nowhere", ["--metrics", "nowhere"]),
        Case("output folder cannot be made", "train job.yaml --out /proc/none/out", ["/proc/none"]),
        Case("output folder is a file", TRAIN, ["out", "Not a directory|not a folder|File exists"],
             prepare=out_is_file),
        Case("output folder of another job", TRAIN, ["out", "another job"], prepare=other_job),
        Case("output folder of another program", TRAIN, ["out", "another program"], prepare=other_program),
        Case("output folder in the data", "train job.yaml --out texts/out", ["output folder .*out", "in the data"],
             change=(("text: prose.txt", "text: texts"),), prepare=folder_of_texts),
        Case("output folder that is no UTF-8", "train job.yaml --out caf\udce9",
             ["output folder: not UTF-8", r"caf\\xe9"]),
        Case("output folder too long for SQLite", "train job.yaml --out " + "/".join(["d" * 100] * 6),
             ["bytes, and SQLite takes"]),
        Case("output folder too long for a file system", "train job.yaml --out a/" + "d" * 256, ["File name too long"]),
        Case("serve's store that is no UTF-8", "serve --store caf\udce9", ["--store: not UTF-8"]),
        Case("serve's store too long for SQLite", "serve --store " + "/".join(["d" * 100] * 6), ["SQLite takes"]),
        Case("a worker's name that is no UTF-8", "worker --coordinator 127.0.0.1:{free} --name caf\udce9",
             ["--name: not UTF-8"]),
        Case("drain of a name that is no UTF-8", "drain caf\udce9 --coordinator 127.0.0.1:{free}", ["NODE: not UTF-8"]),
        Case("emulate of a name that is no UTF-8", "emulate caf\udce9 speed=0.5 --coordinator 127.0.0.1:{free}",
             ["WORKER: not UTF-8"]),
        Case("data whose name is no UTF-8", TRAIN + " --set data.text=caf\udce9", [r"data\.text", "not UTF-8"]),
        Case("serve's store cannot be made", "serve --store /proc/none/store", ["/proc/none"]),
    ]


def usage_cases():
    return [
        Case("no subcommand", [], ["subcommand"]),
        Case("unknown subcommand", "trian job.yaml", ["trian|subcommand"]),
        Case("unknown option", TRAIN + " --fast", ["--fast"]),
        Case("job file not named", "train", ["JOB"]),
        Case("job file missing", "train none.yaml --out out", [r"none\.yaml", "No such file"]),
        Case("job file is a folder", "train jobs.yaml --out out", [r"jobs\.yaml"], prepare=folder_as_job),
        Case("job file is binary", "train binary.yaml --out out", [r"binary\.yaml"], prepare=odd_bytes),
        Case("job file is empty", "train empty.txt --out out", [r"empty\.txt"], prepare=empty_text, lines=(1, 9)),
        Case("job file is huge", "train big.yaml --out out", [r"big\.yaml"], prepare=big_job),
        Case("--set without =", TRAIN + " --set steps", ["steps"]),
        Case("--set of an unknown key", TRAIN + " --set step=3", ["step", "steps"]),
        Case("--set of a wrong type", TRAIN + " --set steps=many", ["--set", "steps", "integer"]),
        Case("--set below a value of the file", TRAIN + " --set steps=3",
             [r"^--set steps: error: optimizer\.warmup_steps 50 exceeds steps 3"],
             change=(("learning_rate: 1e-3", "learning_rate: 1e-3, warmup_steps: 50"),)),
        Case("--set beyond the workers", TRAIN + " --set workers.7.name=z", ["workers"]),
        Case("--emulate: unknown word", "worker --coordinator 127.0.0.1:{free} --emulate sped=1", ["sped"]),
        Case("--emulate: speed of 0", "worker --coordinator 127.0.0.1:{free} --emulate speed=0", ["speed", "'0'"]),
        Case("--emulate: bare size", "worker --coordinator 127.0.0.1:{free} --emulate memory=500", ["500", "unit"]),
        Case("worker without a coordinator", "worker", ["--coordinator"]),
        Case("emulate without a change", "emulate a", ["CHANGE"]),
        Case("status of no run", "status", ["runs", "--coordinator"]),
        Case("status of a missing run", "status --run none", ["none"]),
        Case("status: nobody answers", "status --coordinator 127.0.0.1:{free}", [r"127\.0\.0\.1:{free}"]),
        Case("drain: nobody answers", "drain a --coordinator 127.0.0.1:{free}", [r"127\.0\.0\.1:{free}"]),
        Case("emulate: nobody answers", "emulate a speed=0.5 --coordinator 127.0.0.1:{free}", [r"127\.0\.0\.1:{free}"]),
        Case("submit: nobody answers", "submit job.yaml --coordinator 127.0.0.1:{free}", [r"127\.0\.0\.1:{free}"]),
        Case("status: address is none", "status --coordinator nowhere", ["nowhere"]),
    ]


def checkpoint_cases():
    return [
        Case("verify: nothing there", "checkpoint verify none", ["none"]),
        Case("verify: not a checkpoint", "checkpoint verify .", [r"\."]),
        Case("verify: a file", "checkpoint verify job.yaml", [r"job\.yaml"]),
        # The first bytes of a manifest may be those that are damaged.
        Case("verify: manifest of another program", "checkpoint verify step-00000001", ["MANIFEST"],
             prepare=foreign_manifest, code=1, stdout=True),
        Case("verify: truncated manifest", "checkpoint verify step-00000001", ["MANIFEST"], prepare=truncated_manifest,
             code=1, stdout=True),
        Case("reshard: nothing there", "checkpoint reshard none new --workers 2", ["none"]),
        Case("reshard: not a checkpoint", "checkpoint reshard job.yaml new --workers 2", [r"job\.yaml"]),
        Case("reshard: for nobody", "checkpoint reshard none new", ["--workers", "--plan"]),
        Case("reshard: no workers", "checkpoint reshard none new --workers 0", ["--workers 0"]),
        Case("reshard: no plan", "checkpoint reshard none new --plan job.yaml", [r"job\.yaml"]),
        Case("prune: keeps nothing", "checkpoint prune . --last 0", ["--last 0"]),
        Case("inspect: nothing there", "checkpoint inspect none", ["none"]),
        Case("inspect: not a checkpoint", "checkpoint inspect .", [r"\."]),
    ]


def snapshot(folder):
    found = {}
    for path in sorted(folder.rglob("*")):
        found[path.relative_to(folder).as_posix()] = path.read_bytes() if path.is_file() else None
    return found


def run(heddle, case, folder):
    """Problems of one case, as lines."""
    job = JOB
    for old, new in case.change:
        assert job.count(old) == 1, f"{case.name}: {old!r} stands {job.count(old)} times in the job"
        job = job.replace(old, new)
    (folder / "job.yaml").write_text(job)
    (folder / "prose.txt").write_text(PROSE)
    for name, text in case.files.items():
        (folder / name).write_text(text)
    held = case.prepare(folder) if case.prepare else None
    port = held.getsockname()[1] if held else 0
    free = held_port()

    def fill(text):
        return text.replace("{port}", str(port)).replace("{free}", str(free))

    before = snapshot(folder)
    command = [heddle, *(fill(word) for word in case.command)]
    started = time.monotonic()
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL,
                                timeout=SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        return [f"does not end within {SECONDS_MAX} s"]
    finally:
        if held:
            held.close()
    seconds = time.monotonic() - started
    out = result.stdout.decode(errors="replace")
    err = result.stderr.decode(errors="replace")
    problems = []
    if result.returncode != case.code:
        problems.append(f"exit code {result.returncode}, expected {case.code}")
    speech = (out if case.stdout else err).splitlines()
    errors = [line for line in speech if not EXTRA.match(line)]
    least, most = case.lines if isinstance(case.lines, tuple) else (case.lines, case.lines)
    if not least <= len(errors) <= most:
        problems.append(f"{len(errors)} lines, expected {case.lines}")
    if len(speech) - len(errors) > max(1, len(errors)):
        problems.append("more hints than errors")
    if not case.stdout:
        problems += [f"no error line: {line!r}" for line in errors if not ERROR.match(line)]
        if out:
            problems.append(f"standard output: {out[:200]!r}")
    for pattern in case.says:
        if not re.search(fill(pattern), "\n".join(speech), re.MULTILINE):
            problems.append(f"does not say {fill(pattern)!r}")
    after = snapshot(folder)
    problems += [f"left behind: {name}" for name in sorted(after.keys() - before.keys())]
    problems += [f"removed: {name}" for name in sorted(before.keys() - after.keys())]
    problems += [f"changed: {name}" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]
    if problems:
        problems.append(f"command ({seconds:.1f} s): heddle {' '.join(command[1:])}")
        problems += [f"stderr: {line}" for line in err.splitlines()[:12]]
        problems += [f"stdout: {line}" for line in out.splitlines()[:4]]
    return problems


def main():
    parser = argparse.ArgumentParser(description="Try what a user can get wrong.")
    parser.add_argument("heddle", help="the program")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the cases that fail")
    parser.add_argument("--list", action="store_true", help="print the cases, run nothing")
    arguments = parser.parse_args()
    cases = [*yaml_cases(), *data_cases(), *fit_cases(), *place_cases(), *usage_cases(), *checkpoint_cases()]
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "two cases of one name"
    if arguments.only:
        cases = [case for case in cases if arguments.only in case.name]
    if arguments.list:
        print("\n".join(case.name for case in cases))
        return 0
    if not arguments.only:
        cases = tiers.sample(cases, random.Random(seed()), 10, 25)
    heddle = os.path.abspath(arguments.heddle)
    root = pathlib.Path(tempfile.mkdtemp(prefix="heddle-bad-input-"))
    failed = 0
    for number, case in enumerate(cases):
        folder = root / f"case-{number}"
        folder.mkdir()
        problems = run(heddle, case, folder)
        print(f"{'FAILED' if problems else 'ok'}: {case.name}", flush=True)
        for problem in problems:
            print(f"    {problem}", flush=True)
        failed += bool(problems)
        if not (problems and arguments.keep):
            shutil.rmtree(folder)
    if not arguments.keep:
        shutil.rmtree(root)
    print(f"{len(cases)} cases, {failed} failed")
    return 1 if failed or len(cases) == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
