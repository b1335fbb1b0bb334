#!/usr/bin/env python3
"""Scripts: shellcheck on every shell script, pyflakes on every Python one.

Usage: scripts.py [--source FOLDER]
Exit status: 0, 1 a problem, 2 a tool is missing (scripts/install-dependencies).
"""
import re
import shutil
import subprocess
import sys

import tree

# SC1090, SC1091: a file that is read with `.` is checked separately, and may exist only in a guest.
SHELLCHECK = ["shellcheck", "--format=gcc", "--severity=warning", "--exclude=SC1090,SC1091"]
FINDING = re.compile(r"^(\S+?):(\d+):\d*:? (?:error: |warning: |note: )?(.*)")
SHELLS = {"bash", "sh", "dash"}


def run(command, root):
    done = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                          check=False)
    lines = (done.stdout + done.stderr).splitlines()
    if done.returncode != 0 and not lines:
        lines = [f"{command[0]}: exit code {done.returncode}"]
    return lines


def main():
    options = tree.arguments(__doc__).parse_args()
    for tool in ("shellcheck", "pyflakes3"):
        if not shutil.which(tool):
            print(f"scripts: {tool} is not installed", file=sys.stderr)
            return 2
    shell, python = [], []
    for path, name in tree.files(options.source):
        kind = tree.interpreter(path)
        if kind in SHELLS or path.suffix == ".sh":
            shell.append(name)
        elif kind.startswith("python") or path.suffix == ".py":
            python.append(name)
    problems = []
    if shell:
        for line in run([*SHELLCHECK, *shell], options.source):
            place = FINDING.match(line)
            problems.append(f"{place.group(1)}:{place.group(2)}: error: {place.group(3)}" if place else line)
    if python:
        for line in run(["pyflakes3", *python], options.source):
            place = FINDING.match(line)
            # A syntax error is followed by lines of the source.
            if place and not excused(options.source / place.group(1), int(place.group(2))):
                problems.append(f"{place.group(1)}:{place.group(2)}: error: {place.group(3)}")
    return tree.report("scripts", len(shell) + len(python), problems)


def excused(path, line):
    """Whether the line has `# noqa`, which Python's linters obey."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return line <= len(lines) and "# noqa" in lines[line - 1]


if __name__ == "__main__":
    sys.exit(main())
