"""Models travel between transformers, safetensors' own library and native checkpoints.

Usage: convert_test.py HEDDLE BUILD_FOLDER. Needs PyPI's transformers and safetensors on Debian's torch: in
HEDDLE_TRANSFORMERS_PYTHON, or in a virtual environment in the build folder, which is made when PyPI can be
reached. Exit 77: skipped.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def ensure_transformers(build):
    """Runs this script again in an interpreter that has transformers."""
    python = os.environ.get("HEDDLE_TRANSFORMERS_PYTHON") or build + "/transformers-venv/bin/python"

    def ready():
        probe = [python, "-c", "import transformers, safetensors, torch"]
        return os.path.exists(python) and subprocess.run(probe, capture_output=True, check=False).returncode == 0

    if not ready() and "HEDDLE_TRANSFORMERS_PYTHON" not in os.environ:
        folder = build + "/transformers-venv"
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", "--system-site-packages", folder], check=False)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "transformers==4.44.*"]
        subprocess.run(install, check=False, timeout=240)
    if not ready():
        print("SKIPPED: no Python with transformers (%s), and PyPI could not provide it" % python)
        sys.exit(77)
    os.execv(python, [python, os.path.abspath(__file__)] + sys.argv[1:])


def import_transformers():
    """transformers, silent and off the network."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")
    import transformers
    transformers.utils.logging.disable_progress_bar()
    return transformers


class Converter:
    """The program, with what it must print and how it must end."""

    def __init__(self, heddle):
        self.heddle = heddle

    def run(self, *arguments, code=0):
        done = subprocess.run([self.heddle, "checkpoint", *map(str, arguments)], capture_output=True, text=True,
                              check=False, timeout=120)
        assert done.returncode == code, "%s: exit %d\n%s" % (arguments, done.returncode, done.stderr)
        return done

    def convert(self, source, target, *options):
        return self.run("convert", source, target, *options)


def tiny_models(transformers):
    """A name and a model of each family, small, with unlike heads and without dropout."""
    llama = dict(vocab_size=67, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=64)
    yield "llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama))
    yield "llama-tied", transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama, tie_word_embeddings=True))
    yield "mistral", transformers.MistralForCausalLM(transformers.MistralConfig(**llama, sliding_window=None))
    yield "qwen2", transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**llama))
    gpt2 = transformers.GPT2Config(vocab_size=67, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    yield "gpt2", transformers.GPT2LMHeadModel(gpt2)


def logits(transformers, folder):
    """What the model in `folder` says about fixed tokens."""
    import torch
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokens = torch.arange(24).reshape(2, 12) % 61
    with torch.no_grad():
        return model(tokens).logits


def shuffle_biases(model):
    """Biases and norms begin as zeros and ones, which would hide a mistake."""
    import torch
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)


def check_round_trip(converter, transformers, name, model, folder):
    """transformers → native → safetensors and pytorch: the same names, bits and logits."""
    import safetensors.torch
    import torch
    shuffle_biases(model)
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
    assert torch.equal(logits(transformers, source), logits(transformers, again)), name
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
    distance = (logits(transformers, folder / "llama").float() - logits(transformers, target).float()).abs().max()
    assert 0 < distance < 0.1, distance
    different = converter.run("diff", folder / "llama", target, "--json", code=1)
    assert json.loads(different.stdout)["equal"] is False
    config = json.loads((target / "config.json").read_text())
    assert config.get("torch_dtype", "bfloat16") == "bfloat16", config
    back = folder / "bf16-native"
    converter.convert(target, back, "--to", "native")
    converter.run("diff", target, back)


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
    left = [path.name for path in folder.iterdir() if path.name.startswith(".") or path.name == "none"]
    assert not left, left


def main():
    heddle, build = sys.argv[1:3]
    if sys.prefix == sys.base_prefix and "HEDDLE_CONVERT_INNER" not in os.environ:
        os.environ["HEDDLE_CONVERT_INNER"] = "1"
        ensure_transformers(build)
    transformers = import_transformers()
    import torch
    torch.manual_seed(7)
    converter = Converter(heddle)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for family, model in tiny_models(transformers):
            check_round_trip(converter, transformers, family, model, folder)
            print("%s: names, bits and logits equal" % family)
        check_dtype_and_shards(converter, transformers, folder)
        check_refusals(converter, folder)
    print("convert: all as expected")


if __name__ == "__main__":
    main()
