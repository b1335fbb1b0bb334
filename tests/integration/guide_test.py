#!/usr/bin/env python3
"""Every ```sh block of docs/guide works, as it stands there.

The pages run one after the other in a folder that looks like a checkout with a build. A page is one shell, so that its
blocks see each other's variables and background jobs. The only change: fixed ports of 127.0.0.1 become free ones.
Usage: guide_test.py PATH_OF_HEDDLE [PAGE…]
"""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

from harness import HEDDLE, REPOSITORY, Scratch, processes
from ports import held_port

GUIDE = os.path.join(REPOSITORY, "docs", "guide")
# The order in which a reader meets them: own-data-and-model's run is gone on from by later pages.
PAGES = ("first-run", "own-data-and-model", "fine-tuning", "service", "high-availability", "security", "trouble")
MOST_SECONDS = 560  # For all pages; the entry's TIMEOUT is above it.
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def checkout(folder):
    """A checkout as far as the guide uses it: nothing of the real one is written to."""
    for name in ("configs", "README.md", "docs", "metrics"):
        os.symlink(os.path.join(REPOSITORY, name), os.path.join(folder, name))
    os.makedirs(os.path.join(folder, "build", "release"))
    os.symlink(os.path.dirname(HEDDLE), os.path.join(folder, "build", "release", "bin"))


def script_of(page):
    """The blocks of a page as one script that says, before each, where it stands."""
    with open(os.path.join(GUIDE, page + ".md"), encoding="utf-8") as file:
        text = file.read()
    parts = ["set -euo pipefail\ntrap 'exit 143' TERM\ntrap 'trap \"\" TERM; kill 0' EXIT\n"]
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        parts.append(f"echo \"== {page}.md:{line}, after $SECONDS s\"\n{block.group(1)}")
    assert len(parts) > 1, f"{page}.md has no block of commands"
    ports = {}
    return re.sub(r"127\.0\.0\.1:([1-9]\d*)",
                  lambda match: f"127.0.0.1:{ports.setdefault(match.group(1), held_port())}", "".join(parts))


def run_page(page, folder, deadline):
    started = time.monotonic()
    log_path = os.path.join(folder, page + ".log")
    environment = dict(os.environ, PATH=os.path.dirname(HEDDLE) + ":" + os.environ["PATH"],
                       HEDDLE_CACHE=os.path.join(folder, "cache"))
    with open(log_path, "w", encoding="utf-8") as log:
        # A group of its own: what a page leaves in the background ends with it.
        shell = subprocess.Popen(["bash", "-c", script_of(page)], cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                                 stderr=subprocess.STDOUT, env=environment, start_new_session=True,
                                 preexec_fn=processes.tied(signal.SIGTERM))
        try:
            code = shell.wait(max(0, deadline - started))
        except subprocess.TimeoutExpired:
            code = "none in time"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    with open(log_path, encoding="utf-8", errors="replace") as log:
        output = log.read()
    print(f"{page}: {time.monotonic() - started:.1f} s", flush=True)
    assert code == 0, f"docs/guide/{page}.md: exit code {code} after:\n{output[-4000:]}"


def check_runs(folder):
    """Every run that the guide began came to its end, without a gap in its steps."""
    runs = [path for path, _, files in os.walk(os.path.join(folder, "runs")) if "events.jsonl" in files]
    for path in runs:
        with open(os.path.join(path, "events.jsonl"), encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        assert events[-1]["event"] == "job_finished", f"{path}: {events[-1]}"
        steps = {event["step"] for event in events if event["event"] == "step"}
        assert steps == set(range(min(steps), events[-1]["step"] + 1)), f"{path}: {sorted(steps)}"
    return len(runs)


def main():
    pages = sys.argv[2:] or PAGES
    there = sorted(name[:-3] for name in os.listdir(GUIDE) if name.endswith(".md"))
    assert there == sorted(PAGES), f"docs/guide has {there}, this test runs {sorted(PAGES)}"
    deadline = time.monotonic() + MOST_SECONDS
    with Scratch() as folder:
        checkout(folder)
        for page in pages:
            run_page(page, folder, deadline)
        print(f"{check_runs(folder)} runs")


if __name__ == "__main__":
    main()
