#!/usr/bin/env python3
"""Each name that docs/reference lacks or has too much, each broken link and each wrong reference to code is found.

Usage: planted_docs.py SOURCE_FOLDER
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

# What the checks read; a copy of it is damaged.
COPIED = ("docs", "scripts", "base", "metrics", "comm", "checkpoint", "planner", "engine", "elastic", "cli")
LINKS, LISTS = "docs.py", "reference.py"

# (check, file, old text, new text, part of the message). An empty old text is the file's end.
PLANTED = [
    (LISTS, "docs/reference/job-file.md", "\n| `threads` |", "\n| threads |", "does not list threads"),
    (LISTS, "docs/reference/job-file.md", "\n| `checkpoint.replicas.every` |", "\n| every |",
     "does not list checkpoint.replicas.every"),
    (LISTS, "docs/reference/job-file.md", "", "\n| key |\n|---|\n| `comm.colour` |\n", "lists comm.colour"),
    (LISTS, "docs/reference/events.md", "| `drain_refused` |", "| drain |", "does not list drain_refused"),
    (LISTS, "docs/reference/events.md", "`gradient_norm`", "the norm", "does not list the field gradient_norm of step"),
    (LISTS, "docs/reference/metrics.md", "| `heddle_step` |", "| the step |", "does not list heddle_step"),
    (LISTS, "docs/reference/metrics.md", "", "\n| name |\n|---|\n| `heddle_nothing_total` |\n",
     "lists heddle_nothing_total"),
    (LISTS, "docs/reference/environment.md", "| `HEDDLE_CACHE` |", "| cache |", "does not list HEDDLE_CACHE"),
    (LISTS, "docs/reference/status.md", "| `seconds_left` |", "| time left |", "does not list seconds_left"),
    (LISTS, "docs/reference/plan-file.md", "| `recompute` |", "| again |", "does not list recompute"),
    (LISTS, "docs/reference/operators.md", "| `rope` |", "| rotary |", "does not list rope"),
    (LISTS, "docs/operate/monitoring.md", "| `HeddleCheckpointOld` |", "| Old |", "does not list HeddleCheckpointOld"),
    (LISTS, "engine/job/job.cc", 'job.name = root.Optional<std::string>("name", "job");',
     'job.name = root.Optional<std::string>("name", root.Optional<std::string>("title", "job"));',
     "does not list title"),
    (LISTS, "metrics/planted.cc", "", 'const char* name = "heddle_planted_total";\n',
     "does not list heddle_planted_total"),
    (LISTS, "elastic/planted.cc", "", 'void F() { Log("planted", {{"why", 1}}); }\n', "does not list planted"),
    (LISTS, "docs/reference/limits.md", "| `probe` |", "| the probe |", "does not list probe"),
    (LISTS, "elastic/control/planted.cc", "", "constexpr Duration kPlantedWait = std::chrono::seconds(1);\n",
     "the duration planted_wait of the sources is neither"),
    (LINKS, "docs/guide/trouble.md", "(../reference/events.md)", "(../reference/event.md)", "event.md is not there"),
    (LINKS, "docs/guide/trouble.md", "(../status.md#known-faults)", "(../status.md#faults)", "no heading for #faults"),
    (LINKS, "docs/internals/life-of-a-job.md", "Transitions::SendPrepare`", "Transitions::SendPlans`",
     "no SendPlans in elastic/control/transition/transitions.cc"),
    (LINKS, "docs/internals/life-of-a-job.md", "`cli/train.cc: ", "`cli/trains.cc: ", "cli/trains.cc is not there"),
    (LINKS, "docs/internals/life-of-a-job.md", "`SendStart` sends", "`SendBegin` sends", "no SendBegin in the files"),
    (LINKS, "elastic/service/local_run.cc", "RunLocally(", "RunHere(", "no RunLocally in elastic/service/local_run.cc"),
    (LINKS, "docs/guide/service.md", "", "\n```text\nheddle status\n```\n", "a command that no test runs"),
    (LINKS, "docs/guide/service.md", "", "\n```console\nheddle status\n```\n", "a block of the guide is one of"),
]


def copy(source, folder):
    for name in COPIED:
        shutil.copytree(source / name, folder / name, ignore=shutil.ignore_patterns("*.pyc", "__pycache__", "vm"))


def run(check, folder):
    return subprocess.run([sys.executable, str(folder / "scripts/checks" / check), "--source", str(folder)],
                          capture_output=True, text=True, timeout=60, check=False)


def plant(folder, check, name, old, new, message):
    """The failure to find the breach, or None. The file is as before afterwards."""
    path = folder / name
    before = path.read_text(encoding="utf-8") if path.exists() else None
    if old and old not in before:
        return f"cannot be planted: {name} has no {old!r}"
    path.write_text(before.replace(old, new, 1) if old else (before or "") + new, encoding="utf-8")
    done = run(check, folder)
    if before is None:
        path.unlink()
    else:
        path.write_text(before, encoding="utf-8")
    if done.returncode != 1 or message not in done.stdout:
        return f"not found: {message} ({name}): exit status {done.returncode}, {done.stdout[-500:]}"
    return None


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        copy(source, folder)
        # Links that leave the copy are broken in it: only what is planted counts there.
        failures = [] if run(LISTS, folder).returncode == 0 else ["docs/reference is not complete to begin with"]
        failures += [failure for failure in (plant(folder, *breach) for breach in PLANTED) if failure]
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
