"""`scripts/quickstart --cuda` on a machine that has no driver, an old one, or no card: one line and exit code 2, before
anything is installed or downloaded. Usage: quickstart_cuda.py SOURCE"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SCRIPTS = pathlib.Path(sys.argv[1]) / "scripts"
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Sun May 12 19:39:15 UTC 2024\n"
# What the kernel module tells, and what is said of it.
REFUSALS = [
    ({}, "this machine has no NVIDIA driver"),
    ({"version": VERSION.format("535.183.01")}, "the NVIDIA driver 535.183.01 is older than 580"),
    ({"version": VERSION.format("580.65.06")}, "the NVIDIA driver 580.65.06 finds no card"),
]
CARD = {"version": VERSION.format("590.1"), "gpus/0000:17:00.0/information": "Model: \t\t NVIDIA L4\n"}


def quickstart(files, *options):
    """Runs a copy of the script beside others that only say that they were called."""
    with tempfile.TemporaryDirectory() as folder:
        scripts = pathlib.Path(folder) / "scripts"
        scripts.mkdir()
        shutil.copy(SCRIPTS / "quickstart", scripts)
        proc = pathlib.Path(folder) / "proc"
        for path, text in files.items():
            (proc / path).parent.mkdir(parents=True, exist_ok=True)
            (proc / path).write_text(text, encoding="utf-8")
        for program in ("scripts/install-dependencies", "scripts/install-cuda", "bin/cmake", "build/cuda/bin/heddle"):
            path = pathlib.Path(folder) / program
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'#!/bin/sh\necho "called: {path.name} $*"\n', encoding="utf-8")
            path.chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "HEDDLE_NVIDIA_PROC": str(proc)}
        return subprocess.run([scripts / "quickstart", *options], capture_output=True, text=True, timeout=60,
                              check=False, env=environment, stdin=subprocess.DEVNULL)


def main():
    for files, says in REFUSALS:
        done = quickstart(files, "--cuda")
        assert done.returncode == 2 and done.stdout == "", done
        assert done.stderr.count("\n") == 1 and says in done.stderr and "--build-only" in done.stderr, done
    install = ["install-dependencies --cuda", "install-cuda ", "cmake --preset cuda -DHEDDLE_TESTS=OFF"]
    train = "heddle train configs/quickstart.yaml --set device=cuda --set workers=[{name: a}] --set steps=5"
    for files, options, last in ((CARD, ["--cuda", "--set", "steps=5"], train),
                                 ({}, ["--cuda", "--build-only"], "cmake --build")):
        done = quickstart(files, *options)
        assert done.returncode == 0, done
        called = [line[len("called: "):] for line in done.stdout.splitlines() if line.startswith("called: ")]
        assert called[:3] == install and called[3].startswith("cmake --build --preset cuda"), called
        assert called[-1].startswith(last), called


main()
