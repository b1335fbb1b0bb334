"""Every subcommand that prints, into a device that is full: one line that says so, and exit code 1. A command that
found something wrong keeps its own code."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, PATIENCE, SMOKE, Run, Scratch, heddle  # noqa: E402

REASON = "error: standard output: "


def into(output, *arguments):
    return subprocess.run([HEDDLE, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE,
                          text=True, timeout=PATIENCE, check=False)


def commands(run, folder):
    """Subcommands that need no coordinator and write nothing else, for a run with two checkpoints."""
    checkpoints = os.path.join(run.folder, "checkpoints")
    newer = os.path.join(checkpoints, "step-00000006")
    text = os.path.join(folder, "text.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.write("a few words of prose\n" * 50)
    profile = os.path.join(run.folder, "profile.json")
    yield "--version",
    yield "--help",
    yield "config", SMOKE
    yield "config", SMOKE, "--json"
    yield "data", SMOKE
    yield "devices",
    yield "devices", "--json"
    yield "plan", SMOKE, "--profile", profile
    yield "plan", SMOKE, "--profile", profile, "--json"
    yield "links", "--json"
    yield "events", "--run", run.folder
    yield "events", "--run", run.folder, "--follow"
    yield "explain", "--run", run.folder
    yield "evaluate", newer, "--data", text, "--json"
    yield "checkpoint", "ls", checkpoints
    yield "checkpoint", "inspect", newer
    yield "checkpoint", "verify", newer
    yield "checkpoint", "diff", newer, newer
    yield "checkpoint", "prune", checkpoints, "--last", "1", "--dry-run"


def main():
    with Scratch() as folder:
        run = Run(os.path.join(folder, "run"), overrides=("steps=6", "checkpoint.every=3")).start()
        assert run.process.wait(PATIENCE) == 0
        for command in commands(run, folder):
            with open("/dev/full", "wb") as full:
                refused = into(full, *command)
            lines = [line for line in refused.stderr.splitlines() if line.startswith(REASON)]
            assert refused.returncode == 1 and len(lines) == 1, (command, refused)
            whole = heddle(*command)
            assert whole.returncode == 0 and REASON not in whole.stderr, (command, whole)
        with open("/dev/full", "wb") as full:
            wrong = into(full, "config", os.path.join(folder, "no.yaml"))
        assert wrong.returncode == 2, wrong


main()
