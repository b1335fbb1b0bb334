"""A model of 1 GB goes safetensors -> native -> safetensors in bounded memory, with progress; killed, it goes on. The
tiers below full have a tenth of it and one kill.

Usage: large_convert_test.py HEDDLE. scripts/acceptance does the first part with 32 GB.
"""
import json
import os
import random
import signal
import subprocess
import time

from harness import HEDDLE, Scratch, heddle, large_model, seed
from tiers import SANITIZED, scaled

RESIDENT_MAX = (512 if SANITIZED else 256) << 20  # Of a model of 1 GB.
KILLS = scaled(1, 1, 6)
MODEL, SIZE_MIN = scaled(*[(dict(large_model.QWEN_HALF_B, num_hidden_layers=2, vocab_size=30_000), 90_000_000)] * 2,
                         (large_model.QWEN_HALF_B, 900_000_000))


def holder_of(target):
    return os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.tmp")


def convert(source, target, *options):
    return [HEDDLE, "checkpoint", "convert", source, target, *options]


def check_bounded(folder, model):
    """There and back; returns the native checkpoint and how long the way there took."""
    native, back = os.path.join(folder, "native"), os.path.join(folder, "back")
    begun = time.monotonic()
    code, resident, shown = large_model.run_on_terminal(convert(model, native, "--to", "native"), 300)
    seconds = time.monotonic() - begun
    assert code == 0, shown
    print(f"to native: {seconds:.1f} s, {resident >> 20} MiB resident", flush=True)
    assert resident <= RESIDENT_MAX, resident
    code, resident, shown = large_model.run_on_terminal(convert(native, back, "--to", "safetensors"), 300,
                                                        pause_at=holder_of(back))
    print(f"back: {resident >> 20} MiB resident; {shown[-150:]!r}", flush=True)
    assert code == 0, shown
    assert resident <= RESIDENT_MAX, resident
    assert "%" in shown and "MB/s" in shown and "[#" in shown, shown
    large_model.check_same(model, back)
    done = heddle("checkpoint", "diff", model, native, "--json", timeout=300)
    assert done.returncode == 0 and json.loads(done.stdout)["equal"] and not done.stderr, done.stderr
    return native, seconds


def finished(target):
    """Files that need not be written again, by the records beside them."""
    holder = holder_of(target)
    try:
        records = [name for name in os.listdir(holder) if name.startswith("finished-") and name.endswith(".json")]
        files = sorted(os.listdir(os.path.join(holder, "output")))[:len(records)]
        stats = [os.stat(os.path.join(holder, "output", name)) for name in files]
    except FileNotFoundError:
        return {}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in zip(files, stats)}


def inspect(path):
    return json.loads(heddle("checkpoint", "inspect", path, "--json").stdout)


def digests(path):
    return [(tensor["name"], tensor["digest"]) for tensor in inspect(path)["tensors"]]


def check_kills(folder, model, native, seconds, generator):
    """kill -9 at random moments: the result is that of the undisturbed conversion, and no file is written twice."""
    target, kept, kills, gone_on = os.path.join(folder, "killed"), {}, 0, 0
    command = convert(model, target, "--to", "native", "--max-shard-size", "100MB", "--quiet")
    for _ in range(KILLS):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:  # The random moment, not a synchronisation.
            process.wait(generator.uniform(0.05, 0.6 * seconds))
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        kills += 1
        now = finished(target) if not os.path.exists(target) else {}
        if os.path.exists(target):
            break
        for name, stat in kept.items():
            assert now.get(name) == stat, f"{name} was written twice"
        gone_on += 1 if kept else 0
        kept = now
    if not os.path.exists(target):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert not kept or "files were finished" in done.stderr, done.stderr
    for name, stat in kept.items():
        now = os.stat(os.path.join(target, name))
        assert (now.st_ino, now.st_mtime_ns) == stat, f"{name} was written twice"
    assert not os.path.exists(holder_of(target))
    print(f"{kills} kills, {len(kept)} files were finished before the last run", flush=True)
    assert heddle("checkpoint", "verify", target, timeout=300).returncode == 0
    assert digests(native) == digests(target)
    return target


def check_reshard(folder, native):
    """Three writers hold the same tensors, in files of like size."""
    target = os.path.join(folder, "three")
    done = heddle("checkpoint", "reshard", native, target, "--workers", "3", "--json", timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert json.loads(done.stdout)["files"] == 3
    assert digests(native) == digests(target)
    names = sorted(file["name"] for file in inspect(target)["files"])
    assert names == ["tensors.h5", *(f"worker-{w}.g0.h5" for w in range(3))], names
    assert heddle("checkpoint", "verify", target, "--quiet", timeout=300).returncode == 0
    refused = heddle("checkpoint", "reshard", native, target, "--workers", "2")
    assert refused.returncode == 2 and "--overwrite" in refused.stderr, refused.stderr


def main():
    generator = random.Random(seed())
    with Scratch() as folder:
        model = os.path.join(folder, "model")
        size = large_model.make(model, MODEL, generator.random(), shard_bytes=300_000_000)
        assert size > SIZE_MIN
        native, seconds = check_bounded(folder, model)
        target = check_kills(folder, model, native, seconds, generator)
        check_reshard(folder, target)


if __name__ == "__main__":
    main()
