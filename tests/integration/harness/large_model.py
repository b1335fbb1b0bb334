"""What the conversions of large models share: a model of a real architecture's shape in sparse files, runs whose
memory and progress are looked at, and a comparison of bytes.

Every tensor has a few pages of random bytes at random places, and is a hole else: quick to make, and no byte in a wrong
place goes unseen for long.
"""
import json
import os
import pty
import random
import select
import signal
import subprocess
import time

PAGE = 4096
PAGES_PER_TENSOR = 4
PIECE = 16 << 20

LLAMA_8B = dict(model_type="llama", architectures=["LlamaForCausalLM"], torch_dtype="float32", vocab_size=128256,
                hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                num_key_value_heads=8, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=500000.0,
                tie_word_embeddings=False)  # 32.1 GB in fp32.
QWEN_HALF_B = dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"], torch_dtype="bfloat16", vocab_size=151936,
                   hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                   num_key_value_heads=2, max_position_embeddings=32768, rms_norm_eps=1e-6, rope_theta=1000000.0,
                   tie_word_embeddings=True)  # 0.99 GB in bf16.


def shapes(config):
    """Names and shapes of the model's tensors, as transformers has them."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    yield "model.embed_tokens.weight", [config["vocab_size"], hidden]
    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}."
        for name, rows in (("q", hidden), ("k", keys), ("v", keys)):
            yield f"{layer}self_attn.{name}_proj.weight", [rows, hidden]
            if config["model_type"] == "qwen2":
                yield f"{layer}self_attn.{name}_proj.bias", [rows]
        yield layer + "self_attn.o_proj.weight", [hidden, hidden]
        yield layer + "mlp.gate_proj.weight", [inner, hidden]
        yield layer + "mlp.up_proj.weight", [inner, hidden]
        yield layer + "mlp.down_proj.weight", [hidden, inner]
        yield layer + "input_layernorm.weight", [hidden]
        yield layer + "post_attention_layernorm.weight", [hidden]
    yield "model.norm.weight", [hidden]
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", [config["vocab_size"], hidden]


def make(folder, config, seed, shard_bytes=5_000_000_000):
    """Writes the model; its bytes."""
    os.mkdir(folder)
    kind, width = {"float32": ("F32", 4), "bfloat16": ("BF16", 2)}[config["torch_dtype"]]
    shards, total = [[]], 0
    for name, shape in shapes(config):
        size = width
        for extent in shape:
            size *= extent
        if shards[-1] and sum(entry[2] for entry in shards[-1]) + size > shard_bytes:
            shards.append([])
        shards[-1].append((name, shape, size))
        total += size
    generator, weight_map = random.Random(seed), {}
    for number, entries in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors" if len(shards) > 1 else "model.safetensors"
        header, end = {}, 0
        for name, shape, size in entries:
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
            weight_map[name] = file
            end += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(folder, file), "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            data = out.tell()
            for entry in header.values():
                begin, end_of_tensor = entry["data_offsets"]
                for _ in range(PAGES_PER_TENSOR):
                    page = min(PAGE, end_of_tensor - begin)
                    out.seek(data + generator.randint(begin, end_of_tensor - page))
                    out.write(generator.randbytes(page))
            out.truncate(data + end)
    if len(shards) > 1:
        with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="ascii") as out:
            json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out)
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as out:
        json.dump(config, out)
    return total


def places(folder):
    """File, offset and bytes of each tensor's elements."""
    found = {}
    for file in sorted(name for name in os.listdir(folder) if name.endswith(".safetensors")):
        path = os.path.join(folder, file)
        with open(path, "rb") as source:
            length = int.from_bytes(source.read(8), "little")
            header = json.loads(source.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = (path, 8 + length + begin, end - begin)
    return found


def check_same(left, right):
    """The two folders hold the same tensors, byte for byte."""
    theirs, ours = places(left), places(right)
    assert theirs.keys() == ours.keys(), theirs.keys() ^ ours.keys()
    for name, (path, offset, size) in theirs.items():
        other, other_offset, other_size = ours[name]
        assert size == other_size, name
        with open(path, "rb") as a, open(other, "rb") as b:
            a.seek(offset)
            b.seek(other_offset)
            for done in range(0, size, PIECE):
                piece = min(PIECE, size - done)
                assert a.read(piece) == b.read(piece), f"{name}: bytes {done} to {done + piece} differ"


def run_on_terminal(command, timeout, pause_at=None):
    """Exit code, highest resident bytes and what was shown of a command on a terminal of its own. `pause_at`: once
    this path exists, the process stands still for longer than progress stays silent."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + timeout
    while True:
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise AssertionError(f"no end within {timeout} s: {command}")
        if pause_at is not None and os.path.exists(pause_at):
            process.send_signal(signal.SIGSTOP)
            time.sleep(2.2)
            process.send_signal(signal.SIGCONT)
            pause_at = None
        if select.select([ours], [], [], 0.005)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # The other end is closed: Linux says so.
                break
            if not piece:
                break
            shown += piece
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    os.close(ours)
    return process.returncode, usage.ru_maxrss * 1024, shown.decode(errors="replace")
