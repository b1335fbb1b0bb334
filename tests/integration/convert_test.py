"""Models travel between transformers, safetensors' own library and native checkpoints.

Usage: convert_test.py HEDDLE BUILD_FOLDER. Exit 77: skipped, no transformers (hugging_face.py).
"""
import inspect
import json
import os
import pathlib
import subprocess
import sys

from harness import HEDDLE, REPOSITORY, Scratch, hugging_face

DEFAULTS = os.path.join(REPOSITORY, "tests", "engine_graph", "transformers_defaults.json")
TOKENS = [[(row * 31 + column * 7) % 61 for column in range(12)] for row in range(2)]


class Converter:
    """`heddle checkpoint`, and how it must end."""

    @staticmethod
    def run(*arguments, code=0):
        done = subprocess.run([HEDDLE, "checkpoint", *map(str, arguments)], capture_output=True, text=True,
                              check=False, timeout=120)
        assert done.returncode == code, "%s: exit %d\n%s" % (arguments, done.returncode, done.stderr)
        return done

    def convert(self, source, target, *options):
        return self.run("convert", source, target, *options)


def check_round_trip(converter, transformers, name, model, folder):
    """transformers → native → safetensors and pytorch: the same names, bits and logits."""
    import safetensors.torch
    import torch
    source = folder / name
    model.save_pretrained(source, safe_serialization=True)
    native = folder / (name + "-native")
    converter.convert(source, native, "--to", "native")
    converter.run("verify", native)
    again = folder / (name + "-again")
    converter.convert(native, again, "--to", "safetensors")
    ours = safetensors.torch.load_file(again / "model.safetensors")
    theirs = safetensors.torch.load_file(source / "model.safetensors")
    assert ours.keys() == theirs.keys(), (name, ours.keys() ^ theirs.keys())
    for key, tensor in theirs.items():
        assert tensor.dtype == ours[key].dtype and torch.equal(tensor, ours[key]), (name, key)
    said = [hugging_face.logits(transformers, model_folder, TOKENS) for model_folder in (source, again)]
    assert torch.equal(*said), name
    converter.run("diff", source, again)
    converter.run("diff", source, native)
    inspected = json.loads(converter.run("inspect", native, "--json").stdout)
    assert inspected["tensors"] and inspected["step"] == 0


def check_dtype_and_shards(converter, transformers, folder):
    """bf16 halves the bytes and stays near; small shards come with an index."""
    target = folder / "bf16"
    converter.convert(folder / "llama-native", target, "--to", "safetensors", "--dtype", "bf16",
                      "--max-shard-size", "8kB")
    index = json.loads((target / "model.safetensors.index.json").read_text())
    shards = set(index["weight_map"].values())
    assert len(shards) > 2 and all((target / shard).exists() for shard in shards)
    whole, halved = (hugging_face.logits(transformers, model, TOKENS) for model in (folder / "llama", target))
    distance = (whole - halved).abs().max()
    assert 0 < distance < 0.1, distance
    different = converter.run("diff", folder / "llama", target, "--json", code=1)
    assert json.loads(different.stdout)["equal"] is False
    config = json.loads((target / "config.json").read_text())
    assert config.get("torch_dtype", "bfloat16") == "bfloat16", config
    back = folder / "bf16-native"
    converter.convert(target, back, "--to", "native")
    converter.run("diff", target, back)


def check_defaults(transformers):
    """The table that unit tests compare Heddle's defaults with is the library's."""
    with open(DEFAULTS, encoding="utf-8") as file:
        table = json.load(file)
    if table.pop("transformers") != transformers.__version__:
        print(f"SKIPPED in part: the table of defaults is not of version {transformers.__version__}", flush=True)
        return
    base = json.loads(json.dumps(transformers.PretrainedConfig().to_dict()))
    for key in ("transformers_version", "model_type"):
        base.pop(key, None)
    assert table.pop("PretrainedConfig") == base
    families = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
                "qwen2": transformers.Qwen2Config, "gpt2": transformers.GPT2Config}
    assert table == {name: {key: parameter.default
                            for key, parameter in inspect.signature(kind.__init__).parameters.items()
                            if parameter.default is not parameter.empty} for name, kind in families.items()}


def check_refusals(converter, folder):
    """One line, the right exit code, and nothing is touched."""
    before = (folder / "llama-again" / "model.safetensors").read_bytes()
    line = converter.run("convert", folder / "llama", folder / "llama-again", "--to", "safetensors", code=2).stderr
    assert "--overwrite" in line and line.count("\n") == 1, line
    assert (folder / "llama-again" / "model.safetensors").read_bytes() == before
    converter.convert(folder / "llama", folder / "llama-again", "--to", "safetensors", "--overwrite")
    home = folder / "home"
    home.mkdir()
    (home / "letter.txt").write_text("dear")
    converter.run("convert", folder / "llama", home, "--to", "safetensors", "--overwrite", code=2)
    assert (home / "letter.txt").read_text() == "dear"
    converter.run("convert", home, folder / "none", "--to", "native", code=2)
    converter.run("convert", folder / "llama", folder / "none", "--to", "gguf", code=2)
    damaged = folder / "damaged.safetensors"
    damaged.write_bytes(before[:-1])
    line = converter.run("convert", damaged, folder / "none", "--to", "native", code=1).stderr
    assert "damaged.safetensors" in line and line.count("\n") == 1, line
    converter.run("verify", damaged, code=1)
    config = json.loads((folder / "llama" / "config.json").read_text())
    wrong = folder / "wrong"
    subprocess.run(["cp", "-r", folder / "llama", wrong], check=True)
    config["num_hidden_layers"] = 3
    (wrong / "config.json").write_text(json.dumps(config))
    line = converter.run("convert", wrong, folder / "none", "--to", "native", code=2).stderr
    assert "model.layers.2." in line and line.count("\n") == 1, line
    for text, what in ((b"", "empty"), (b'{"model_type": "ll', "not JSON"),
                       (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS")):
        (wrong / "config.json").write_bytes(text)
        for command in (["inspect", wrong], ["verify", wrong], ["convert", wrong, folder / "none", "--to", "native"]):
            line = converter.run(*command, code=1 if what == "not JSON" else 2).stderr
            assert str(wrong / "config.json") in line and what in line and line.count("\n") == 1, (command, line)
    left = [path.name for path in folder.iterdir() if path.name.startswith(".") or path.name == "none"]
    assert not left, left


def main():
    hugging_face.require(sys.argv[2])
    transformers = hugging_face.library()
    import torch
    torch.manual_seed(7)
    converter = Converter()
    with Scratch() as name:
        folder = pathlib.Path(name)
        for family, model in hugging_face.tiny_models(transformers):
            check_round_trip(converter, transformers, family, model, folder)
            print(f"{family}: names, bits and logits equal", flush=True)
        check_defaults(transformers)
        check_dtype_and_shards(converter, transformers, folder)
        check_refusals(converter, folder)


if __name__ == "__main__":
    main()
