"""scripts/job-check on a fake card (tests/support/card) and on processors alone: all parts pass, each with its figures;
a part that is not done in time fails, and leaves no process.
Usage: job_check_test.py HEDDLE HEDDLE_ON_FAKE_CARDS FOLDER_OF_NVML"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, REPOSITORY, Scratch, processes  # noqa: E402

ON_FAKE_CARDS, NVML = (os.path.abspath(path) for path in sys.argv[2:4])
PARTS = ("shares", "kill", "replay", "checkpoint")
CARD = {"LD_LIBRARY_PATH": NVML, "FAKE_NVML_CARDS": "NVIDIA L4,4096,4000"}


def job_check(out, *words, **environment):
    command = [os.path.join(REPOSITORY, "scripts", "job-check"), "--small", "--out", out, *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False,
                          env={**os.environ, **environment}, preexec_fn=processes.tied())
    print(done.stdout, done.stderr, flush=True)
    return done


def figures(out):
    with open(os.path.join(out, "figures.jsonl"), encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def passes(out, guarantee, *words, **environment):
    done = job_check(out, "--limit", "300", *words, **environment)
    assert done.returncode == 0 and "4 of 4 parts passed" in done.stdout, done.returncode
    found = figures(out)
    assert [line["part"] for line in found if line["what"] == "verdict" and line["passed"]] == list(PARTS), found
    of = {line["what"]: line for line in found}
    assert of["kill"]["guarantee"] == guarantee and of["kill"]["between"] > 0, of["kill"]
    assert of["replay"]["compared"] == of["kill"]["steps"], (of["replay"], of["kill"])


def no_time(out):
    done = job_check(out, "--device", "cpu", "--heddle", HEDDLE, "--limit", "1", "checkpoint", "kill")
    assert done.returncode == 1 and done.stdout.count("not done after 1 s") == 2, done.returncode
    assert "0 of 2 parts passed; failed: kill, checkpoint" in done.stdout
    left = [command for command in commands() if out in command]
    assert not left, left


def commands():
    """The command lines of all processes that are not this one."""
    for process in os.listdir("/proc"):
        if process.isdigit() and int(process) != os.getpid():
            try:
                with open(f"/proc/{process}/cmdline", "rb") as file:
                    yield file.read().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                pass  # It has ended.


def main():
    with Scratch() as folder:
        passes(os.path.join(folder, "card"), "per-plan", "--device", "cuda:0", "--heddle", ON_FAKE_CARDS, **CARD)
        passes(os.path.join(folder, "processors"), "plan-invariant", "--device", "cpu", "--heddle", HEDDLE)
        no_time(os.path.join(folder, "late"))
        done = job_check(os.path.join(folder, "none"), "--heddle", os.path.join(folder, "heddle"))
        assert done.returncode == 2 and "no such program" in done.stderr, done.returncode


main()
